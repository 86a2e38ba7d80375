"""The files of Linux that tell about GPUs, under a folder that stands for `/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.machine.gpus import Gpu

CPU_FLAGS = "fpu sse4_1 sse4_2 avx f16c rdrand avx2 fma"
VGA_CONTROLLER, CONTROLLER_3D = "0x030000", "0x030200"


def cpuinfo(model: str = "Intel(R) Xeon(R) CPU @ 2.20GHz", flags: str = CPU_FLAGS, cores: int = 2) -> str:
    """Text of `/proc/cpuinfo`."""
    blocks = [
        f"processor\t: {core}\nvendor_id\t: GenuineIntel\nmodel name\t: {model}\nflags\t\t: {flags}\n"
        for core in range(cores)
    ]
    return "\n".join(blocks)


def meminfo(total_kib: int = 65_536_000, available_kib: int = 60_000_000) -> str:
    """Text of `/proc/meminfo`."""
    return f"MemTotal:       {total_kib} kB\nMemFree:        {available_kib} kB\nMemAvailable:   {available_kib} kB\n"


def driver_version(version: str) -> str:
    """Text of `/proc/driver/nvidia/version`."""
    return (
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Jan  1 00:00:00 UTC 2026\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )


def _healthy(gpus: Sequence[Gpu], driver: str | None) -> dict[str, str]:
    """Path to text of everything that a healthy machine with these GPUs shows."""
    files = {
        "proc/cpuinfo": cpuinfo(),
        "proc/meminfo": meminfo(),
        "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    }
    for gpu in gpus:
        domain, bus, device = gpu.pci_address
        folder = f"sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.0"
        files[f"{folder}/vendor"] = "0x10de\n"
        files[f"{folder}/device"] = f"0x{gpu.pci_device_id.lower()}\n"
        files[f"{folder}/class"] = f"{VGA_CONTROLLER if gpu.brand == 'GeForce' else CONTROLLER_3D}\n"
        if driver:
            files[f"dev/nvidia{gpu.minor_number}"] = ""
    if driver:
        files["proc/driver/nvidia/version"] = driver_version(driver)
        files |= dict.fromkeys(("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-uvm-tools"), "")
    return files


def write_root(root: Path, gpus: Sequence[Gpu], driver: str | None, changes: Mapping[str, str | None]) -> None:
    """Writes the healthy files, with these changes: path without leading slash to text, or to None for no such file."""
    (root / "dev").mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    files: dict[str, str | None] = {**_healthy(gpus, driver), **changes}
    for path, text in files.items():
        if text is None:
            continue
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    if driver:
        (root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True)
        for folder in (root / "sys/bus/pci/devices").iterdir():
            (folder / "driver").symlink_to("../../drivers/nvidia")
