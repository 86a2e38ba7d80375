"""Tell that a driver's library is not there without a process of its own, on a host that shows nothing of NVIDIA.

Most machines that run a check have no GPU at all, and two interpreters that only find that out would take as long as
the rest of it.
"""

from __future__ import annotations

import os
import time

from hwprobe.probe.answer import Answer
from hwprobe.probe.bootstrap import ReaderFailure
from hwprobe.probe.host import read_kernel_module
from hwprobe.probe.loader import open_library
from hwprobe.report import Host
from hwprobe.source import SourceStatus

NVIDIA_VENDOR = "10de"
LOADER_VARIABLE = "LD_LIBRARY_PATH"
ENVIRON = "/proc/self/environ"
"""The variables with which this process was started."""


def absent_library(soname: str, host: Host) -> Answer | None:
    """Ask the loader for a library that nothing on this host could serve.

    Where no device, node or module of NVIDIA is there, no library can hang or touch a GPU, so this process may ask. One
    that is found all the same (a stub, packages without a board) is left to a child process.

    Args:
        soname: The name that programs give to the loader: `libcuda.so.1`.
        host: What the kernel shows.

    Returns:
        `absent` with the loader's own text; None where that is not certain and a child has to be asked.
    """
    if _may_have_nvidia(host) or not _searches_like_a_child():
        return None
    started = time.monotonic()
    try:
        open_library(soname)
    except ReaderFailure as failure:
        if failure.status == "absent":
            return Answer(status=SourceStatus.ABSENT, reason=failure.reason, seconds=time.monotonic() - started)
    return None


def _may_have_nvidia(host: Host) -> bool:
    if host.system != "Linux" or host.wsl or host.tegra is not None:
        return True
    if host.pci_devices is None or host.device_nodes is None or host.device_nodes:
        return True
    return any(device.vendor_id == NVIDIA_VENDOR for device in host.pci_devices) or read_kernel_module() is not None


def _searches_like_a_child() -> bool:
    """Whether a child's loader would search no other folders: ours read the variable once, at the start (ld.so(8))."""
    now = os.environ.get(LOADER_VARIABLE)
    if not now:
        return True
    try:
        with open(ENVIRON, "rb") as file:  # noqa: PTH123 - as cheap as it can be
            return f"{LOADER_VARIABLE}={now}".encode(errors="surrogateescape") in file.read().split(b"\0")
    except OSError:
        return False
