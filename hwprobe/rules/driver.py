"""HWP10x and HWP11x: the ladder from the PCI bus to a CUDA that starts."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Source, SourceStatus
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict

NVML_TIMEOUT = Rule(
    id="HWP108",
    name="nvml-timeout",
    title="NVML does not answer",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    explanation=Explanation(
        checks="Whether NVML answered within the time limit.",
        matters="A driver that does not answer usually has a GPU that hangs; TensorFlow 2.21 and newer start NVML "
        "themselves and then hang as well, without a word.",
        fix="Try once more with a longer limit (`hwprobe check --timeout 120`): without persistence mode the first "
        "client wakes every GPU, which took up to 30 s on machines with eight. If it still hangs, look at `dmesg` for "
        "Xid messages and restart the node.",
        reference="Azure/aks-gpu PR 105 and nvidia-container-toolkit issue 1053 (times of NVML's start)",
    ),
)


def nvml_answers(case: Case) -> Verdict:
    """HWP108."""
    source = case.report.sources.nvml
    if source.status is not SourceStatus.TIMEOUT:
        return PASS
    return (
        Problem(
            subject="driver",
            message=f"NVML did not answer: {source.reason}",
            evidence={"seconds": source.seconds},
            fix=("hwprobe check --timeout 120", "if it hangs again: dmesg | grep -i xid, then restart the node"),
        ),
    )


CUDA_DOES_NOT_START = Rule(
    id="HWP111",
    name="cuda-does-not-start",
    title="The CUDA driver does not start",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102", "HWP103", "HWP104", "HWP109", "HWP110"),
    explanation=Explanation(
        checks="Whether cuInit, the first call of every CUDA program, succeeds.",
        matters="NVML can be healthy while CUDA does not start: they use different parts of the driver. TensorFlow "
        "then lists no GPU and computes on the CPU.",
        fix="The error code says which part to look at; the finding names the command for it.",
        reference="CUDA driver API, CUresult; tensorflow/tensorflow#394; jax-ml/jax#24866",
    ),
)

_START = {
    3: (
        Action.ADMIN,
        "the driver was being shut down or its kernel module is not usable",
        ("reload the NVIDIA kernel module or restart the node",),
    ),
    100: (
        Action.ADMIN,
        "CUDA finds no device although a driver is there",
        ("check that this process or container was given a GPU (docker: --gpus all)",),
    ),
    802: (
        Action.DRAIN,
        "the NVSwitch fabric is not initialised: the fabric manager does not run, or its version is not the driver's",
        (
            "systemctl status nvidia-fabricmanager",
            "systemctl restart nvidia-fabricmanager   # of exactly the driver's version",
        ),
    ),
    999: (
        Action.ADMIN,
        "often the kernel module nvidia_uvm, which CUDA needs and NVML does not, is missing or broken after a suspend",
        ("ls -l /dev/nvidia-uvm", "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm"),
    ),
}


def cuda_starts(case: Case) -> Verdict:
    """HWP111."""
    source = case.report.sources.cuda
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason="no CUDA driver here")
    if source.status in (SourceStatus.SKIPPED, SourceStatus.TIMEOUT):
        return Skipped(reason=f"CUDA was not asked or did not answer: {source.reason}")
    if source.status is SourceStatus.OK:
        return PASS
    return (_cuda_problem(source, case),)


def _cuda_problem(source: Source, case: Case) -> Problem:
    action, meaning, fix = _START.get(
        source.code or 0, (Action.ADMIN, None, ("nvidia-smi", "dmesg | grep -iE 'nvrm|xid'"))
    )
    healthy = case.report.sources.nvml.status is SourceStatus.OK
    name = source.error or source.reason
    return Problem(
        subject="driver",
        message=f"CUDA does not start: {name}"
        + (f" ({source.code})" if source.code is not None else "")
        + (f": {meaning}" if meaning else "")
        + ("; NVML, which needs less of the driver, answers" if healthy else ""),
        evidence={"code": source.code, "error": source.error, "nvml": case.report.sources.nvml.status.value},
        fix=fix,
        action=action,
    )


CUDA_TIMEOUT = Rule(
    id="HWP112",
    name="cuda-timeout",
    title="The CUDA driver does not answer",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP108",),
    explanation=Explanation(
        checks="Whether cuInit returned within the time limit.",
        matters="A training script would hang at its first line in the same way.",
        fix="Look at `dmesg` for Xid messages of a GPU that hangs and restart the node.",
        reference="CUDA driver API, cuInit",
    ),
)


def cuda_answers(case: Case) -> Verdict:
    """HWP112."""
    source = case.report.sources.cuda
    if source.status is not SourceStatus.TIMEOUT:
        return PASS
    return (
        Problem(
            subject="driver",
            message=f"CUDA did not answer: {source.reason}",
            evidence={"seconds": source.seconds},
            fix=("dmesg | grep -i xid", "restart the node"),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(NVML_TIMEOUT, nvml_answers),
    RuleCheck(CUDA_DOES_NOT_START, cuda_starts),
    RuleCheck(CUDA_TIMEOUT, cuda_answers),
)
