"""Whether this process runs in a container, and the memory that its control group may use. Linux only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

MAX_FILE_BYTES = 64 * 2**10

NO_LIMIT_BYTES = 2**60
"""Version 1 control groups write "no limit" as the largest number of pages (9223372036854771712)."""

_ENGINE_IN_CGROUP = re.compile(r"\b(kubepods|docker|libpod|lxc)\b")
_ENGINES = {"kubepods": "kubernetes", "libpod": "podman"}
_ENGINE_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")


def find_container(root: Path, environment: Mapping[str, str]) -> str | None:
    """Name the container engine that this process runs under.

    Args:
        root: The folder that stands for `/`.
        environment: This process's variables.

    Returns:
        `kubernetes`, `podman`, `docker`, `apptainer`, `lxc`, or the name that systemd recorded; None outside of one.
    """
    if "KUBERNETES_SERVICE_HOST" in environment or (root / "var/run/secrets/kubernetes.io").exists():
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    # Apptainer 1 and Singularity 3 set these for whatever runs in an image.
    if environment.get("APPTAINER_CONTAINER") or environment.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    for told in (read_text(root / "run/systemd/container"), environment.get("container")):
        if told and _ENGINE_NAME.fullmatch(told.strip()):
            return told.strip()
    match = _ENGINE_IN_CGROUP.search(read_text(root / "proc/1/cgroup") or "")
    return _ENGINES.get(match[1], match[1]) if match else None


def find_memory_limit(root: Path) -> int | None:
    """Read the memory limit of this process's control group or of one above it, in bytes.

    Args:
        root: The folder that stands for `/`.

    Returns:
        The smallest limit on the way up; None without one.
    """
    limits = [limit for path in _limit_files(root) if (limit := _limit(read_text(path))) is not None]
    return min(limits, default=None)


def read_text(path: Path) -> str | None:
    """Read the beginning of a small file; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _limit_files(root: Path) -> Iterator[Path]:
    # cgroups(7): "hierarchy:controllers:path", with no controllers for version 2.
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, group = controllers_and_path.partition(":")
        if controllers == "":
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # Seen from inside a container the path may not exist below the mount, or lead out of it with "..".
        parts = [part for part in PurePosixPath(group).parts if part not in ("/", "..")]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth], name)


def _limit(text: str | None) -> int | None:
    stripped = (text or "").strip()
    if not (stripped.isascii() and stripped.isdigit()):
        return None
    limit = int(stripped[:20])
    return limit if limit < NO_LIMIT_BYTES else None
