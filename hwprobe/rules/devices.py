"""HWP120 to HWP122: GPUs that are lost, cannot be read, or are not there."""

from __future__ import annotations

from hwprobe.findings import Action, EvidenceValue, Explanation, Rule, Severity
from hwprobe.gpu import Gpu
from hwprobe.knowledge.versions import numbers
from hwprobe.report import PciDevice, Report
from hwprobe.rules.boards import board_on_bus
from hwprobe.rules.presence import in_container, nvidia_pci_devices
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.source import SourceStatus

_LOST_CODES = (15, 16)
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED."""
_NO_PERMISSION = 4
"""NVML_ERROR_NO_PERMISSION: NVML counts GPUs that a control group withholds, and refuses their handles (nvml.h)."""

GPU_LOST = Rule(
    id="HWP120",
    name="gpu-lost",
    title="A GPU is lost",
    severity=Severity.ERROR,
    action=Action.DRAIN,
    after=("HWP102",),
    explanation=Explanation(
        checks="Whether every GPU that NVML counts can still be spoken to.",
        matters="A GPU that fell off the bus does not come back by itself. The others go on, but CUDA often refuses to "
        "start on such a node, and a job that expects all of them fails later and elsewhere.",
        fix='Take the node out of service, look at `dmesg | grep -i xid` (79 is "fallen off the bus"), reset or '
        "restart it, and replace the board if it happens again.",
        reference="NVML API, nvmlReturn_t 15 and 16; XuehaiPan/nvitop#139",
    ),
)


def no_gpu_is_lost(case: Case) -> Verdict:
    """HWP120."""
    if not case.report.devices:
        return NotApplicable(reason="no GPU here")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{_named(gpu)} does not answer: {gpu.error}",
            evidence={"nvml_index": gpu.nvml_index, "pci_bus_id": gpu.pci_bus_id, "code": gpu.error_code},
            fix=("sudo dmesg | grep -i xid", "take the node out of service and restart it"),
        )
        for gpu in case.report.devices
        if gpu.error is not None and gpu.error_code in _LOST_CODES
    )


def _named(gpu: Gpu) -> str:
    index = f"NVML index {gpu.nvml_index}"
    return f"the GPU at {index}" if gpu.name is None else f"{gpu.label}, {index},"


GPU_UNREADABLE = Rule(
    id="HWP121",
    name="gpu-unreadable",
    title="A GPU cannot be read",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP120",),
    explanation=Explanation(
        checks="Whether NVML gives a handle for every GPU that it counts. Where it gives some and refuses others for "
        "want of permission, those were given to somebody else, which is as it should be.",
        matters="A GPU whose handle is refused may lack power or be broken; this process cannot count on it.",
        fix="The driver's own reason is in the finding: power means the board's supply cable, permission means the "
        "container or cgroup does not hand this GPU over, anything else is for the node's operator.",
        reference="NVML API, nvmlDeviceGetHandleByIndex",
    ),
)


def every_gpu_is_readable(case: Case) -> Verdict:
    """HWP121."""
    if not case.report.devices:
        return NotApplicable(reason="no GPU here")
    readable = any(gpu.error is None for gpu in case.report.devices)
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{_named(gpu)} cannot be read: {gpu.error}",
            evidence={"nvml_index": gpu.nvml_index, "pci_bus_id": gpu.pci_bus_id, "code": gpu.error_code},
            fix=("nvidia-smi -L", "sudo dmesg | grep -iE 'nvrm|xid'"),
        )
        for gpu in case.report.devices
        if gpu.error is not None
        and gpu.error_code not in _LOST_CODES
        and not (gpu.error_code == _NO_PERMISSION and readable)
    )


FEWER_THAN_PCI = Rule(
    id="HWP122",
    name="fewer-gpus-than-pci",
    title="The driver shows fewer GPUs than the PCI bus",
    severity=Severity.ERROR,
    action=Action.DRAIN,
    after=("HWP101", "HWP102", "HWP107", "HWP108", "HWP120", "HWP121"),
    explanation=Explanation(
        checks="Outside of containers and of jobs that are given part of a node: whether NVML counts every NVIDIA "
        "GPU of the PCI bus. A board that this driver's branch no longer runs is information.",
        matters="A GPU that dropped out is simply absent from NVML; every GPU that is shown is healthy, and a check "
        "that does not count passes.",
        fix="`lspci -d 10de:` against `nvidia-smi -L`; `dmesg | grep -i nvrm` says why the driver left it out. "
        "`--require gpus==N` catches the same from the other side.",
        reference="NVIDIA/NVSentinel#155, #684",
    ),
)


def driver_shows_every_gpu(case: Case) -> Verdict:
    """HWP122."""
    report = case.report
    if report.sources.nvml.status is not SourceStatus.OK:
        return Skipped(reason="NVML did not answer")
    if in_container(report) or report.host.scheduler is not None or report.host.wsl or report.host.tegra is not None:
        return NotApplicable(reason="a container, a job or this platform may show part of the GPUs")
    on_bus = [device for device in nvidia_pci_devices(report) if device.driver in (None, "nvidia")]
    if not on_bus:
        return NotApplicable(reason="no NVIDIA GPU on the PCI bus, or the bus cannot be read")
    counted = sum(gpu.nvml_index is not None for gpu in report.devices)
    if counted >= len(on_bus):
        return PASS
    known = {_short_bus_id(gpu.pci_bus_id) for gpu in report.devices if gpu.pci_bus_id is not None}
    return tuple(
        _missing_problem(device, len(on_bus), counted, report)
        for device in on_bus
        if _short_bus_id(device.bus_id) not in known
    )


def _missing_problem(device: PciDevice, on_bus: int, counted: int, report: Report) -> Problem:
    evidence: dict[str, EvidenceValue] = {"pci": on_bus, "nvml": counted, "pci_bus_id": device.bus_id}
    board = board_on_bus(device)
    branch = board.architecture.last_driver_branch if board is not None else None
    driver = numbers((report.driver.version or "") if report.driver is not None else "")
    if board is not None and branch is not None and driver is not None and driver[0] > branch:
        return Problem(
            subject=device.bus_id,
            message=f"driver {driver[0]} no longer runs the {board.name} at {device.bus_id}; R{branch} was the last "
            "branch that did",
            evidence={**evidence, "last_driver_branch": branch},
            fix=(f"install the NVIDIA driver of branch {branch}, if this GPU is to compute",),
            severity=Severity.INFO if counted else Severity.WARNING,
            action=Action.ADMIN,
        )
    return Problem(
        subject=device.bus_id,
        message=f"the PCI bus has {on_bus} NVIDIA GPUs and NVML counts {counted}: the one at {device.bus_id} "
        f"(device {device.device_id}) is missing",
        evidence=evidence,
        fix=("lspci -d 10de:", "sudo dmesg | grep -i nvrm", "take the node out of service and restart it"),
    )


def _short_bus_id(bus_id: str) -> str:
    # NVML writes the domain with eight digits, the kernel with four.
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):x}:{rest}" if rest.count(":") == 1 else bus_id.lower()


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(GPU_LOST, no_gpu_is_lost),
    RuleCheck(GPU_UNREADABLE, every_gpu_is_readable),
    RuleCheck(FEWER_THAN_PCI, driver_shows_every_gpu),
)
