"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
from pathlib import Path

from hwprobe.errors import InputError


def write_aside(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Write a file whole or not at all: aside, flushed to disk, then renamed into place.

    Args:
        path: Where the file is to stand. A symbolic link is refused, since a rename would replace the link and
            writing through it could reach a file that nobody named.
        text: Its content, written as UTF-8.
        overwrite: Whether a file that stands there may be replaced.

    Raises:
        InputError: The place cannot be written, is a link or a folder, or holds a file that may not be replaced.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link: name the file that it points to")
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already and is not replaced without being asked")
    try:
        if _is_mounted(path):
            path.write_text(text, encoding="utf-8")
        else:
            _write_and_rename(path, text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _write_and_rename(path: Path, text: str) -> None:
    # It brings along shutil, random and three kinds of compression, and most checks write no file.
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    aside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes the file private; a report is as readable as the user's other files.
        aside.chmod(0o666 & ~_umask())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _is_mounted(path: Path) -> bool:
    # Kubernetes mounts /dev/termination-log as a single file: nothing can be renamed over it.
    # https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
    return path.exists() and path.stat().st_dev != path.parent.stat().st_dev


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
