"""What the Linux kernel shows of GPUs without their driver's help: the PCI bus, device nodes, the loaded module."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from hwprobe.probe.container import read_text
from hwprobe.probe.loader import long_bus_id
from hwprobe.report import DeviceNode, PciDevice

DISPLAY_CLASS = "03"
"""PCI base class of display controllers: 0300 VGA, 0302 3D, 0380 others."""

_NODE = re.compile(r"nvidia\d+|nvidiactl|nvidia-(?:uvm|uvm-tools|modeset)|dxg|nvmap|nvhost-\w+(?:-\w+)*|nvgpu\w*")
_MODULE = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\b")


def list_pci_devices(root: Path) -> tuple[PciDevice, ...]:
    """List the display controllers on the PCI bus.

    A container shows those of the whole machine.

    Args:
        root: The folder that stands for `/`.

    Raises:
        OSError: The bus cannot be read.
    """
    folders = sorted((root / "sys/bus/pci/devices").iterdir())
    return tuple(device for folder in folders if (device := _pci_device(folder)) is not None)


def list_device_nodes(root: Path) -> tuple[DeviceNode, ...]:
    """List the nodes through which NVIDIA's libraries reach the kernel, with who may use them.

    No node is opened: that would wake a sleeping GPU, and a wedged driver would hold this process. So a control group
    that forbids a device does not show here.

    Args:
        root: The folder that stands for `/`.

    Raises:
        OSError: `/dev` cannot be read.
    """
    folder = root / "dev"
    names = sorted(name for name in os.listdir(folder) if _NODE.fullmatch(name))  # noqa: PTH208 - names are enough
    users, groups = _names(root / "etc/passwd"), _names(root / "etc/group")
    return tuple(_device_node(folder / name, f"/dev/{name}", users, groups) for name in names)


def kernel_module_version(root: Path) -> str | None:
    """Read the version of the loaded NVIDIA kernel module; None if there is none.

    Args:
        root: The folder that stands for `/`.
    """
    match = _MODULE.search(read_text(root / "proc/driver/nvidia/version") or "")
    return match[1] if match else None


def find_tegra(root: Path) -> str | None:
    """Read the model of a Jetson board: `NVIDIA Jetson AGX Orin Developer Kit`.

    Args:
        root: The folder that stands for `/`.

    Returns:
        The model in the device tree, else the first line of the release file; None on any other machine.
    """
    release = read_text(root / "etc/nv_tegra_release")
    model = (read_text(root / "proc/device-tree/model") or "").strip("\0\n ")
    if release is None and not model.startswith("NVIDIA"):
        return None
    return model or (release or "").partition("\n")[0].strip() or None


def _pci_device(folder: Path) -> PciDevice | None:
    kind = _hexadecimal(folder / "class")
    vendor, device = _hexadecimal(folder / "vendor"), _hexadecimal(folder / "device")
    if not kind.startswith(DISPLAY_CLASS) or not vendor or not device:
        return None
    if (folder / "physfn").exists():
        # A virtual function (vGPU with SR-IOV) is a part of a board that is listed already.
        return None
    driver = folder / "driver"
    return PciDevice(
        bus_id=long_bus_id(folder.name) or folder.name,
        vendor_id=vendor,
        device_id=device.upper(),
        class_id=kind[:4],
        driver=driver.readlink().name if driver.is_symlink() else None,
    )


def _hexadecimal(path: Path) -> str:
    return (read_text(path) or "").strip().lower().removeprefix("0x")


def _device_node(path: Path, name: str, users: dict[str, str], groups: dict[str, str]) -> DeviceNode:
    try:
        status = path.stat()
    except OSError as error:
        return DeviceNode(path=name, error=error.strerror or str(error))
    return DeviceNode(
        path=name,
        mode=format(stat.S_IMODE(status.st_mode), "04o"),
        owner=users.get(str(status.st_uid), str(status.st_uid)),
        group=groups.get(str(status.st_gid), str(status.st_gid)),
        accessible=os.access(path, os.R_OK | os.W_OK),
    )


def _names(path: Path) -> dict[str, str]:
    """Number to name from a file such as `/etc/passwd`. The C library would ask directory servers, which can hang."""
    return dict(_numbered(read_text(path) or ""))


def _numbered(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) > 2:
            yield fields[2], fields[0]
