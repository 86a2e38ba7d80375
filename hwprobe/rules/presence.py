"""Questions that several rules ask of a report."""

from __future__ import annotations

from hwprobe.gpu import Gpu
from hwprobe.report import DeviceNode, PciDevice, Report
from hwprobe.rules.visible_devices import HIDE_ALL, VARIABLE
from hwprobe.source import SourceStatus

NVIDIA_VENDOR = "10de"
HIDDEN = "CUDA_VISIBLE_DEVICES hides every GPU, which HWP301 looks at"
"""Why what a GPU would need is no question here."""
WSL_NODE = "/dev/dxg"
"""The node of every GPU that Windows shares with WSL, of whatever make."""


def nvidia_pci_devices(report: Report) -> tuple[PciDevice, ...]:
    """The NVIDIA display and 3D controllers on the PCI bus; empty also where the bus could not be read."""
    return tuple(
        device
        for device in report.host.pci_devices or ()
        if device.vendor_id.lower().removeprefix("0x") == NVIDIA_VENDOR
    )


def nvidia_nodes(report: Report) -> tuple[DeviceNode, ...]:
    """The device nodes of NVIDIA's driver; empty also where `/dev` could not be read."""
    return tuple(node for node in report.host.device_nodes or () if node.path != WSL_NODE)


def nvidia_gpus(report: Report) -> tuple[Gpu, ...]:
    """The GPUs that are NVIDIA's, visible or not."""
    return tuple(gpu for gpu in report.devices if gpu.kind == "nvidia")


def nvidia_driver_present(report: Report) -> bool:
    """Whether the kernel side of an NVIDIA driver is there, by any evidence."""
    driver = report.driver
    return (driver is not None and driver.kernel_version is not None) or nvidia_driver_answers(report)


def nvidia_driver_answers(report: Report) -> bool:
    """Whether one of the driver's libraries started, and so agrees with the kernel module."""
    return SourceStatus.OK in (report.sources.nvml.status, report.sources.cuda.status)


def nvidia_gpu_expected(report: Report) -> bool:
    """Whether something says that this process could use an NVIDIA GPU, were all well.

    A container shows the PCI bus of its host also when it was given no GPU; a GPU that another kernel driver holds
    (nouveau, vfio-pci) is in other use.
    """
    if nvidia_gpus(report) or (report.driver is not None and (report.driver.device_count or 0) > 0):
        return True
    if container_without_gpu(report):
        return False
    on_bus = [device for device in nvidia_pci_devices(report) if device.driver in (None, "nvidia")]
    return bool(on_bus) or bool(nvidia_nodes(report)) or report.host.tegra is not None


def in_container(report: Report) -> bool:
    """Whether this process runs in a container."""
    return report.host.container is not None


def container_without_gpu(report: Report) -> bool:
    """Whether this is a container into which no GPU was handed: no device node, and no driver that answers."""
    return in_container(report) and report.host.device_nodes == () and not nvidia_driver_answers(report)


def gpus_are_hidden(report: Report) -> bool:
    """Whether this process is told to compute without GPUs. What makes a node unfit for others still counts."""
    value = report.host.environment.get(VARIABLE)
    return value is not None and value.strip() in HIDE_ALL
