"""HWP107 to HWP112: the upper rungs of the ladder, from a driver library to a CUDA that starts."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Report, Source, SourceStatus
from hwprobe.rules.driver import CUDA_DRIVER_MISMATCH, NVML_RM_MISMATCH, NVML_UNKNOWN
from hwprobe.rules.presence import in_container, nvidia_driver_present
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict

CUDA_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE; also what cuInit says when CUDA_VISIBLE_DEVICES leaves none."""
COMPAT_NOT_SUPPORTED = 804
"""CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"""

_LOOK_AT_THE_KERNEL = ("nvidia-smi", "dmesg | grep -iE 'nvrm|xid'")

NVML_DOES_NOT_START = Rule(
    id="HWP107",
    name="nvml-does-not-start",
    title="NVML does not start",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102", "HWP103", "HWP104", "HWP106"),
    explanation=Explanation(
        checks="Whether NVML, the library behind nvidia-smi, starts.",
        matters="Where it does not, TensorFlow 2.21 and newer list no GPU, and most monitoring is blind.",
        fix="In a container that had GPUs before: start the container anew; `systemctl daemon-reload` on the host "
        "rewrites its device rules. On a host: `nvidia-smi` and `dmesg` show the driver's own reason.",
        reference="NVIDIA/nvidia-docker#1730; NVML API, nvmlReturn_t",
    ),
)


def nvml_starts(case: Case) -> Verdict:
    """HWP107."""
    source = case.report.sources.nvml
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason="no NVML here")
    if source.status in (SourceStatus.SKIPPED, SourceStatus.TIMEOUT):
        return Skipped(reason=source.reason or "NVML was not asked")
    if source.status is SourceStatus.OK or source.code == NVML_RM_MISMATCH:
        return PASS
    container = in_container(case.report) and source.code == NVML_UNKNOWN
    return (
        Problem(
            subject="driver",
            message=f"NVML does not start: {source.error or source.reason}"
            + (f" ({source.code})" if source.code is not None else "")
            + ("; this container has lost its GPUs" if container else ""),
            evidence={"code": source.code, "error": source.error, "reason": source.reason},
            fix=("start the container anew",) if container else _LOOK_AT_THE_KERNEL,
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


CUDA_LIBRARY_MISSING = Rule(
    id="HWP109",
    name="cuda-library-missing",
    title="libcuda is missing",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102"),
    explanation=Explanation(
        checks="Whether libcuda.so.1, the CUDA driver's library, can be loaded where an NVIDIA driver is present.",
        matters="It comes with the driver and never with TensorFlow or a CUDA toolkit. Without it TensorFlow says "
        '"Could not find cuda drivers" and computes on the CPU.',
        fix="In a container: start it with its GPUs (docker: `--gpus all`) and with "
        "`NVIDIA_DRIVER_CAPABILITIES=compute,utility`. Under WSL2: update the driver on Windows, which puts the "
        "library into /usr/lib/wsl/lib; a Linux driver must not be installed there. On a host: install the driver's "
        "CUDA package (Debian: libcuda1).",
        reference="tensorflow/tensorflow#45882, #62412; NVIDIA CUDA on WSL User Guide",
    ),
)


def cuda_library_is_there(case: Case) -> Verdict:
    """HWP109."""
    report = case.report
    if report.sources.cuda.status is not SourceStatus.ABSENT:
        return PASS
    if report.host.wsl:
        return (_wsl_problem(report),) if report.host.device_nodes else NotApplicable(reason="no GPU in this WSL")
    if not nvidia_driver_present(report):
        return NotApplicable(reason="no NVIDIA driver here")
    if in_container(report):
        if not report.host.device_nodes and report.sources.nvml.status is not SourceStatus.OK:
            return NotApplicable(reason="this container was given no GPU")
        fix: tuple[str, ...] = (
            "docker run --gpus all ...",
            "run the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    else:
        fix = ("install the driver's CUDA package (Debian: libcuda1)",)
    return (
        Problem(
            subject="driver",
            message="an NVIDIA driver is here and libcuda.so.1 cannot be loaded",
            evidence={
                "reason": report.sources.cuda.reason,
                "NVIDIA_DRIVER_CAPABILITIES": report.host.environment.get("NVIDIA_DRIVER_CAPABILITIES"),
            },
            fix=fix,
        ),
    )


def _wsl_problem(report: Report) -> Problem:
    return Problem(
        subject="driver",
        message="libcuda.so.1 cannot be loaded; under WSL2 it is the Windows driver's, in /usr/lib/wsl/lib",
        evidence={"reason": report.sources.cuda.reason},
        fix=("update the NVIDIA driver on Windows, then: wsl --shutdown", "ls /usr/lib/wsl/lib/libcuda.so.1"),
        action=Action.USER,
    )


CUDA_LIBRARY_COMPAT = Rule(
    id="HWP110",
    name="cuda-compat-library",
    title="A forward-compatibility libcuda was loaded that this GPU does not support",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP102", "HWP106"),
    explanation=Explanation(
        checks="Whether cuInit refused (804) because the libcuda of a cuda-compat package was loaded.",
        matters="Forward compatibility is for datacenter boards. On a GeForce the compat library in a container image "
        "hides the working libcuda of the host.",
        fix="Take the `compat` folder out of LD_LIBRARY_PATH, use an image for the CUDA that the host's driver "
        "supports, or update the host's driver.",
        reference="NVIDIA/nvidia-docker#1515; CUDA Compatibility guide",
    ),
)


def compat_library_fits(case: Case) -> Verdict:
    """HWP110."""
    source, driver = case.report.sources.cuda, case.report.driver
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason="no libcuda here")
    if source.code != COMPAT_NOT_SUPPORTED:
        return PASS
    path = driver.cuda_library if driver is not None else None
    return (
        Problem(
            subject="driver",
            message=f"cuInit refuses forward compatibility on this GPU (804); the libcuda that was loaded is {path}",
            evidence={"path": path, "code": source.code},
            fix=("take the compat folder out of LD_LIBRARY_PATH", "or use an image for the CUDA of the host's driver"),
        ),
    )


CUDA_DOES_NOT_START = Rule(
    id="HWP111",
    name="cuda-does-not-start",
    title="The CUDA driver does not start",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102", "HWP103", "HWP104", "HWP106", "HWP109", "HWP110", "HWP120", "HWP304"),
    explanation=Explanation(
        checks="Whether cuInit, the first call of every CUDA program, succeeds.",
        matters="NVML can be healthy while CUDA does not start: they use different parts of the driver. TensorFlow "
        "then lists no GPU and computes on the CPU.",
        fix="The error code says which part to look at; the finding names the command for it.",
        reference="CUDA driver API, CUresult; tensorflow/tensorflow#394; jax-ml/jax#24866",
    ),
)

_START: dict[int, tuple[Action, str, tuple[str, ...]]] = {
    3: (
        Action.ADMIN,
        "the kernel module does not work with this process",
        ("reload the NVIDIA kernel module, or restart the node",),
    ),
    46: (
        Action.RETRY,
        "the devices are busy, held in exclusive mode by another process, or not licensed",
        ("nvidia-smi -q -d COMPUTE", "nvidia-smi"),
    ),
    100: (
        Action.ADMIN,
        "CUDA finds no device although a driver is there",
        ("check that this process or container was given a GPU (docker: --gpus all)", "nvidia-smi -L"),
    ),
    802: (
        Action.DRAIN,
        "the NVSwitch fabric is not initialised: the fabric manager does not run, or is not of the driver's version",
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
    if source.status is SourceStatus.OK or source.code == CUDA_DRIVER_MISMATCH:
        return PASS
    if source.code == CUDA_NO_DEVICE and "CUDA_VISIBLE_DEVICES" in case.report.host.environment:
        return NotApplicable(reason="CUDA_VISIBLE_DEVICES leaves no device, which HWP301 and HWP302 look at")
    return (_cuda_problem(source, case.report),)


def _cuda_problem(source: Source, report: Report) -> Problem:
    action, meaning, fix = _START.get(source.code or 0, (Action.ADMIN, "", _LOOK_AT_THE_KERNEL))
    healthy = report.sources.nvml.status is SourceStatus.OK
    message = f"CUDA does not start: {source.error or source.reason}"
    message += f" ({source.code})" if source.code is not None else ""
    message += f": {meaning}" if meaning else ""
    message += "; NVML, which needs less of the driver, answers" if healthy else ""
    path = report.driver.cuda_library if report.driver is not None else None
    if report.host.wsl and path is not None and not path.startswith("/usr/lib/wsl/"):
        message += f"; {path} was loaded, and not the one of the Windows driver in /usr/lib/wsl/lib"
        fix = ("put /usr/lib/wsl/lib first in LD_LIBRARY_PATH", "remove NVIDIA driver packages from this WSL")
        action = Action.USER
    return Problem(
        subject="driver",
        message=message,
        evidence={
            "code": source.code,
            "error": source.error,
            "nvml": report.sources.nvml.status.value,
            "library": path,
        },
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
    RuleCheck(NVML_DOES_NOT_START, nvml_starts),
    RuleCheck(NVML_TIMEOUT, nvml_answers),
    RuleCheck(CUDA_LIBRARY_MISSING, cuda_library_is_there),
    RuleCheck(CUDA_LIBRARY_COMPAT, compat_library_fits),
    RuleCheck(CUDA_DOES_NOT_START, cuda_starts),
    RuleCheck(CUDA_TIMEOUT, cuda_answers),
)
