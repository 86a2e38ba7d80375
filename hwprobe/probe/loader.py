"""Open a driver library, and say which file that was. Imports little, for the children's sake."""

from __future__ import annotations

import ctypes
import os
import sys

from hwprobe.probe.bootstrap import ReaderFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

NVML_LIBRARY = "libnvidia-ml.so.1"
CUDA_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

MAPS = "/proc/self/maps"
_DELETED = " (deleted)"


def open_library(soname: str) -> ctypes.CDLL:
    """Load a library of the driver by the name that programs use for it.

    Raises:
        ReaderFailure: `absent` if the loader finds no file of that name, `failed` if there is one that does not load
            (of another architecture, empty, without something that it needs in turn). The reason is the loader's text.
    """
    try:
        return ctypes.CDLL(soname)
    except OSError as error:
        raise ReaderFailure(_status(soname, error), f"the loader says: {error}") from error


def _status(soname: str, error: OSError) -> Literal["absent", "failed"]:
    # glibc: "libcuda.so.1: cannot open shared object file: No such file or directory", with the name of whichever file
    # is missing; musl and macOS: "... libcuda.so.1 ... no such file ..."; Windows: FileNotFoundError.
    text = str(error).lower()
    missing = "no such file" in text and soname.lower() in text.partition(": no such file")[0]
    return "absent" if missing or isinstance(error, FileNotFoundError) else "failed"


def loaded_library(prefix: str, maps: str = MAPS) -> str | None:
    """Give the path of a loaded library, from the memory map of this process (Linux).

    Args:
        prefix: How its file name starts, for instance `libcuda.so`.
        maps: The memory map, in the form of `/proc/self/maps` (`man 5 proc_pid_maps`).

    Returns:
        The path as the kernel names it, with links resolved; None if no such file is mapped or this is not Linux.
    """
    try:
        with open(maps, encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123 - pathlib costs 5 ms
            for line in lines:
                fields = line.rstrip("\n").split(maxsplit=5)
                path = fields[5].removesuffix(_DELETED) if len(fields) == 6 else ""
                if os.path.basename(path).startswith(prefix):  # noqa: PTH119
                    return path
    except OSError:
        return None
    return None


def version_in_name(path: str | None) -> str | None:
    """Give the version that NVIDIA writes into a library's real name.

    Args:
        path: A path with links resolved.

    Returns:
        `535.104.05` for `/usr/lib/libcuda.so.535.104.05`; None for a name without one (`libcuda.so.1`).
    """
    version = (path or "").rpartition(".so.")[2]
    return version if "." in version and version.replace(".", "").isdigit() else None


def long_bus_id(text: str | None) -> str | None:
    """Write a PCI bus id as NVML's long form in lower case.

    CUDA and NVML's older structure give the domain four digits, and letter case differs between sources.

    Args:
        text: `0000:65:00.0`, `00000000:65:00.0`, `3E3F8E05:00:00.0`.

    Returns:
        `00000000:65:00.0`; None for None, for nothing, and for text of another form.
    """
    parts = (text or "").strip().lower().split(":")
    if len(parts) != 3 or not all(parts):
        return None
    return f"{parts[0]:0>8}:{parts[1]}:{parts[2]}"
