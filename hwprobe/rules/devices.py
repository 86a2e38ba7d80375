"""HWP12x: single GPUs that do not do what they should."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.verdict import Case, NotApplicable, Problem, RuleCheck, Verdict

_LOST_CODES = (15, 16)
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED."""

GPU_LOST = Rule(
    id="HWP120",
    name="gpu-lost",
    title="A GPU is lost",
    severity=Severity.ERROR,
    action=Action.DRAIN,
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
            message=f"{gpu.label}, NVML index {gpu.nvml_index}, does not answer: {gpu.error}",
            evidence={"nvml_index": gpu.nvml_index, "pci_bus_id": gpu.pci_bus_id, "code": gpu.error_code},
            fix=("dmesg | grep -i xid", "take the node out of service and restart it"),
        )
        for gpu in case.report.devices
        if gpu.error is not None and gpu.error_code in _LOST_CODES
    )


GPU_UNREADABLE = Rule(
    id="HWP121",
    name="gpu-unreadable",
    title="A GPU cannot be read",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP120",),
    explanation=Explanation(
        checks="Whether NVML gives a handle for every GPU that it counts.",
        matters="A GPU whose handle is refused may be reserved for somebody else, lack power or be broken; this "
        "process cannot count on it.",
        fix="The driver's own reason is in the finding: power means the board's supply cable, permission means the "
        "container or cgroup does not hand this GPU over, anything else is for the node's operator.",
        reference="NVML API, nvmlDeviceGetHandleByIndex",
    ),
)


def every_gpu_is_readable(case: Case) -> Verdict:
    """HWP121."""
    if not case.report.devices:
        return NotApplicable(reason="no GPU here")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label}, NVML index {gpu.nvml_index}, cannot be read: {gpu.error}",
            evidence={"nvml_index": gpu.nvml_index, "pci_bus_id": gpu.pci_bus_id, "code": gpu.error_code},
            fix=("nvidia-smi -L", "dmesg | grep -iE 'nvrm|xid'"),
        )
        for gpu in case.report.devices
        if gpu.error is not None and gpu.error_code not in _LOST_CODES
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(GPU_LOST, no_gpu_is_lost),
    RuleCheck(GPU_UNREADABLE, every_gpu_is_readable),
)
