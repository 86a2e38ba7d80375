"""Questions that several rules ask of a report."""

from __future__ import annotations

from hwprobe.report import PciDevice, Report, SourceStatus

NVIDIA_VENDOR = "10de"


def nvidia_pci_devices(report: Report) -> tuple[PciDevice, ...]:
    """The NVIDIA display and 3D controllers on the PCI bus; empty also where the bus could not be read."""
    return tuple(
        device
        for device in report.host.pci_devices or ()
        if device.vendor_id.lower().removeprefix("0x") == NVIDIA_VENDOR
    )


def nvidia_driver_present(report: Report) -> bool:
    """Whether the kernel side of an NVIDIA driver is there, by any evidence."""
    driver = report.driver
    return (
        (driver is not None and driver.kernel_version is not None)
        or report.sources.nvml.status is SourceStatus.OK
        or report.sources.cuda.status is SourceStatus.OK
    )


def nvidia_gpu_expected(report: Report) -> bool:
    """Whether something says that this machine has an NVIDIA GPU, readable or not."""
    return (
        any(gpu.kind == "nvidia" for gpu in report.devices)
        or bool(nvidia_pci_devices(report))
        or bool(report.host.device_nodes)
        or report.host.tegra is not None
        or (report.driver is not None and (report.driver.device_count or 0) > 0)
    )


def in_container(report: Report) -> bool:
    """Whether this process runs in a container."""
    return report.host.container is not None
