"""HWP105, HWP107 and HWP108: NVML, the library behind nvidia-smi."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.tensorflow import release
from hwprobe.report import Report
from hwprobe.rules.driver import NVML_RM_MISMATCH
from hwprobe.rules.presence import (
    HIDDEN,
    container_without_gpu,
    gpus_are_hidden,
    in_container,
    nvidia_driver_present,
    nvidia_gpu_expected,
)
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.source import Source, SourceStatus

NVML_UNKNOWN = 999
"""NVML_ERROR_UNKNOWN"""

_LOOK_AT_THE_DRIVER = ("nvidia-smi", "sudo dmesg | grep -iE 'nvrm|xid'")
_INSTALL_THE_DRIVER = ("install the NVIDIA driver anew, on the host: the library that is named here does not load",)

NVML_LIBRARY_MISSING = Rule(
    id="HWP105",
    name="nvml-library-missing",
    title="libnvidia-ml is missing",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    hides_gpus=True,
    after=("HWP101", "HWP106", "HWP306"),
    explanation=Explanation(
        checks="Whether libnvidia-ml.so.1 can be loaded where CUDA's library can.",
        matters="TensorFlow 2.21 and newer list no GPU without it, and print nothing. Older ones do without, but "
        "hwprobe then knows less: no health, and no GPU but those of this process.",
        fix="In a container add the capability: `NVIDIA_DRIVER_CAPABILITIES=compute,utility`. On a host install the "
        "driver's utility package (Debian: libnvidia-ml1). Under WSL2 it comes with the driver on Windows, as "
        "/usr/lib/wsl/lib/libnvidia-ml.so.1.",
        reference="listing measured with TensorFlow 2.10 to 2.22; NVIDIA Container Toolkit documentation",
    ),
)


def nvml_library_is_there(case: Case) -> Verdict:
    """HWP105."""
    report = case.report
    if report.host.tegra is not None:
        return NotApplicable(reason="Jetson boards have no NVML before JetPack 7")
    if report.sources.nvml.status is not SourceStatus.ABSENT:
        return PASS
    if not nvidia_driver_present(report):
        return NotApplicable(reason="no NVIDIA driver here")
    if report.sources.cuda.status is SourceStatus.ABSENT:
        return NotApplicable(reason="libcuda is not here either, which HWP109 looks at")
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    needed = _opens_nvml(report)
    return (
        Problem(
            subject="driver",
            message="libnvidia-ml cannot be loaded"
            + (", and this TensorFlow lists no GPU without it" if needed else "; hwprobe knows less about the GPUs"),
            evidence={"reason": report.sources.nvml.reason},
            fix=(_library_fix(report),),
            severity=None if needed else Severity.WARNING,
        ),
    )


def _library_fix(report: Report) -> str:
    if report.host.wsl:
        return "update the NVIDIA driver on Windows, then there: wsl --shutdown"
    if in_container(report):
        return "docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."
    return "sudo apt install libnvidia-ml1   # or what the distribution calls the driver's utility package"


def _opens_nvml(report: Report) -> bool:
    tensorflow = report.tensorflow
    if tensorflow is None or tensorflow.version is None or not tensorflow.is_cuda_build:
        return False
    known = release(tensorflow.version)
    return known is not None and known.opens_nvml


NVML_DOES_NOT_START = Rule(
    id="HWP107",
    name="nvml-does-not-start",
    title="NVML does not start",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102", "HWP103", "HWP104", "HWP106"),
    explanation=Explanation(
        checks="Where there is an NVIDIA GPU: whether NVML, the library behind nvidia-smi, starts.",
        matters="Where it does not, TensorFlow 2.21 and newer list no GPU, and most monitoring is blind.",
        fix="In a container that had GPUs before: start the container anew; `systemctl daemon-reload` on the host "
        "rewrites its device rules. On a host: `nvidia-smi` and `dmesg` show the driver's own reason. Where only the "
        "Python binding fails, install it anew: `pip install --force-reinstall nvidia-ml-py`.",
        reference="NVIDIA/nvidia-docker#1730; NVML API, nvmlReturn_t",
    ),
)


def nvml_starts(case: Case) -> Verdict:
    """HWP107."""
    report, source = case.report, case.report.sources.nvml
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason="no NVML here")
    if source.status in (SourceStatus.SKIPPED, SourceStatus.TIMEOUT):
        return Skipped(reason=source.reason or "NVML was not asked")
    if source.status is SourceStatus.OK or source.code == NVML_RM_MISMATCH:
        return PASS
    if not nvidia_gpu_expected(report) or container_without_gpu(report):
        return NotApplicable(reason="NVML is installed and no NVIDIA GPU is here")
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    if _is_about_the_binding(source):
        return _binding_problem(report, source)
    container = in_container(report) and source.code == NVML_UNKNOWN
    return (
        Problem(
            subject="driver",
            message=f"NVML does not start: {source.error or source.reason}"
            + (f" ({source.code})" if source.code is not None else "")
            + ("; this container has lost its GPUs" if container else ""),
            evidence={"code": source.code, "error": source.error, "reason": source.reason},
            fix=("docker restart CONTAINER   # or delete the pod",) if container else steps_for_driver(source),
        ),
    )


def steps_for_driver(source: Source) -> tuple[str, ...]:
    """What an admin does about a library of the driver that does not start, or that does not even load.

    Args:
        source: How NVML or CUDA failed.
    """
    damaged = (source.reason or "").startswith("the loader says: ")
    return _INSTALL_THE_DRIVER if damaged else _LOOK_AT_THE_DRIVER


def _is_about_the_binding(source: Source) -> bool:
    reason = source.reason or ""
    return source.code is None and ("nvidia-ml-py" in reason or "is not a binding" in reason)


def _binding_problem(report: Report, source: Source) -> Verdict:
    if report.driver is not None and report.driver.foreign_pynvml is not None:
        return NotApplicable(reason="another pynvml is in the way, which HWP221 looks at")
    return (
        Problem(
            subject="pynvml",
            message=f"NVML was not asked: {source.reason}; hwprobe knows less about the GPUs",
            evidence={"reason": source.reason},
            fix=("pip install --force-reinstall nvidia-ml-py",),
            severity=Severity.WARNING,
            action=Action.USER,
        ),
    )


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
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason="no NVML here")
    if source.status is SourceStatus.SKIPPED:
        return Skipped(reason=source.reason or "NVML was not asked")
    if source.status is not SourceStatus.TIMEOUT:
        return PASS
    return (
        Problem(
            subject="driver",
            message=f"NVML did not answer: {source.reason}",
            evidence={"seconds": source.seconds},
            fix=("hwprobe check --timeout 120", "if it hangs again: sudo dmesg | grep -i xid, then restart the node"),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(NVML_LIBRARY_MISSING, nvml_library_is_there),
    RuleCheck(NVML_DOES_NOT_START, nvml_starts),
    RuleCheck(NVML_TIMEOUT, nvml_answers),
)
