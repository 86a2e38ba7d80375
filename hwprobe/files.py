"""Writing files so that a reader never sees half of one, and opening what a user named without waiting for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from hwprobe.errors import InputError


def write_aside(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Write a file whole or not at all: aside, flushed to disk, then renamed into place.

    Args:
        path: Where the file is to stand. A symbolic link is refused, since a rename would replace the link and
            writing through it could reach a file that nobody named. A device or a pipe (`/dev/null`) is written to.
        text: Its content, written as UTF-8.
        overwrite: Whether a file that stands there may be replaced.

    Raises:
        InputError: The place cannot be written, is a link or a folder, or holds a file that may not be replaced.
    """
    try:
        _refuse_place(path, overwrite=overwrite)
        if _cannot_be_replaced(path):
            path.write_text(text, encoding="utf-8")
        else:
            _write_and_rename(path, text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _refuse_place(path: Path, *, overwrite: bool) -> None:
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link: name the file that it points to")
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already and is not replaced without being asked")


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


def _cannot_be_replaced(path: Path) -> bool:
    if not path.exists():
        return False
    # A rename over /dev/null, which root may do, would leave the machine with a file of that name.
    if not path.is_file():
        return True
    # Kubernetes mounts /dev/termination-log as a single file: nothing can be renamed over it.
    # https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
    return path.stat().st_dev != path.parent.stat().st_dev


def open_without_waiting(path: Path) -> BinaryIO:
    """Open for reading what a user named. A pipe that nobody writes into counts as empty.

    Opening such a pipe in the usual way waits for somebody to write, for ever. One with a writer
    (`--from <(ssh node hwprobe capture)`) is read to its end.

    Args:
        path: Any file, of which the caller reads no more than it needs: it may be endless.

    Raises:
        OSError: It cannot be opened.
    """
    return open(path, "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "set_blocking"):
        # Only the opening must not wait: whoever writes may be slow.
        os.set_blocking(handle, True)
    return handle


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
