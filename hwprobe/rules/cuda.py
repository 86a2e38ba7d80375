"""HWP109 to HWP112, HWP129 and HWP130: libcuda, and a CUDA that starts and gives every GPU."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.gpu import Gpu
from hwprobe.report import Report
from hwprobe.rules.driver import CUDA_DRIVER_MISMATCH
from hwprobe.rules.nvml import steps_for_driver
from hwprobe.rules.presence import (
    HIDDEN,
    WSL_NODE,
    container_without_gpu,
    gpus_are_hidden,
    in_container,
    nvidia_driver_present,
    nvidia_gpu_expected,
    nvidia_gpus,
)
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.rules.visible_devices import VARIABLE
from hwprobe.source import Source, SourceStatus

CUDA_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE; also what cuInit says when CUDA_VISIBLE_DEVICES leaves none."""
COMPAT_NOT_SUPPORTED = 804
"""CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"""

_WSL_FOLDER = "/usr/lib/wsl/"
_MPS = "CUDA_MPS_PIPE_DIRECTORY"
"""Names the daemon of the Multi-Process Service, which has a CUDA_VISIBLE_DEVICES of its own."""

CUDA_LIBRARY_MISSING = Rule(
    id="HWP109",
    name="cuda-library-missing",
    title="libcuda is missing",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    hides_gpus=True,
    after=("HWP101", "HWP102", "HWP306"),
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
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    if report.host.wsl:
        return _wsl_verdict(report)
    if not nvidia_driver_present(report):
        return NotApplicable(reason="no NVIDIA driver here")
    if container_without_gpu(report):
        return NotApplicable(reason="this container was given no GPU, which HWP306 looks at")
    fix = "sudo apt install libcuda1   # or what the distribution calls the driver's CUDA package"
    if in_container(report):
        fix = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."
    return (
        Problem(
            subject="driver",
            message="an NVIDIA driver is here and libcuda.so.1 cannot be loaded",
            evidence={
                "reason": report.sources.cuda.reason,
                "nvml": report.sources.nvml.status.value,
                "NVIDIA_DRIVER_CAPABILITIES": report.host.environment.get("NVIDIA_DRIVER_CAPABILITIES"),
            },
            fix=(fix,),
        ),
    )


def _wsl_verdict(report: Report) -> Verdict:
    # Windows shares GPUs of other makes through the same node, so that alone is no sign of an NVIDIA GPU.
    wanted = nvidia_gpu_expected(report) or (report.tensorflow is not None and bool(report.tensorflow.wheels))
    if not wanted and all(node.path != WSL_NODE for node in report.host.device_nodes or ()):
        return NotApplicable(reason="Windows shares no GPU with this WSL")
    return (
        Problem(
            subject="driver",
            message="libcuda.so.1 cannot be loaded; under WSL2 it is the Windows driver's, in /usr/lib/wsl/lib"
            + ("" if wanted else ", where the GPU is NVIDIA's"),
            evidence={"reason": report.sources.cuda.reason},
            fix=("update the NVIDIA driver on Windows, then there: wsl --shutdown", "ls /usr/lib/wsl/lib/libcuda*"),
            action=Action.USER,
            severity=None if wanted else Severity.INFO,
        ),
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
    if source.status in (SourceStatus.SKIPPED, SourceStatus.TIMEOUT):
        return Skipped(reason=f"CUDA did not say whether it starts: {source.reason}")
    if source.code != COMPAT_NOT_SUPPORTED:
        return PASS
    path = driver.cuda_library if driver is not None else None
    searched = case.report.host.environment.get("LD_LIBRARY_PATH", "")
    kept = ":".join(folder for folder in searched.split(":") if "compat" not in folder)
    return (
        Problem(
            subject="driver",
            message="cuInit refuses forward compatibility on this GPU (804)"
            + (f"; the libcuda that was loaded is {path}" if path else ""),
            evidence={"path": path, "code": source.code, "LD_LIBRARY_PATH": searched or None},
            fix=(
                f"export LD_LIBRARY_PATH={kept}   # without the compat folder",
                "or use an image for the CUDA of the host's driver",
            ),
        ),
    )


CUDA_DOES_NOT_START = Rule(
    id="HWP111",
    name="cuda-does-not-start",
    title="The CUDA driver does not start",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=(
        *("HWP101", "HWP102", "HWP103", "HWP104", "HWP106", "HWP107", "HWP109", "HWP110"),
        *("HWP120", "HWP123", "HWP127", "HWP304"),
    ),
    explanation=Explanation(
        checks="Where there is an NVIDIA GPU: whether cuInit, the first call of every CUDA program, succeeds.",
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
        ("sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm", "or restart the node"),
    ),
    46: (
        Action.RETRY,
        "the devices are busy, held in exclusive mode by another process, or not licensed",
        ("nvidia-smi -q -d COMPUTE", "nvidia-smi"),
    ),
    100: (
        Action.ADMIN,
        "CUDA finds no device although a driver is there",
        ("nvidia-smi -L", "check that this process or container was given a GPU (docker: --gpus all)"),
    ),
    802: (
        Action.DRAIN,
        "the NVSwitch fabric is not initialised: the fabric manager does not run, or is not of the driver's version",
        (
            "systemctl status nvidia-fabricmanager",
            "sudo systemctl restart nvidia-fabricmanager   # of exactly the driver's version",
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
    report, source = case.report, case.report.sources.cuda
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason="no CUDA driver here")
    if source.status in (SourceStatus.SKIPPED, SourceStatus.TIMEOUT):
        return Skipped(reason=f"CUDA was not asked or did not answer: {source.reason}")
    if source.status is SourceStatus.OK or source.code in (CUDA_DRIVER_MISMATCH, COMPAT_NOT_SUPPORTED):
        return PASS
    if not nvidia_gpu_expected(report) and not _other_libcuda_in_wsl(report):
        return NotApplicable(reason="libcuda is installed and no NVIDIA GPU is here")
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    if source.code == CUDA_NO_DEVICE and VARIABLE in report.host.environment:
        return NotApplicable(reason=f"{VARIABLE} leaves no device, which HWP302 looks at")
    return (_cuda_problem(source, report),)


def _other_libcuda_in_wsl(report: Report) -> bool:
    path = report.driver.cuda_library if report.driver is not None else None
    return report.host.wsl and path is not None and not path.startswith(_WSL_FOLDER)


def _cuda_problem(source: Source, report: Report) -> Problem:
    action, meaning, fix = _START.get(source.code or 0, (Action.ADMIN, "", steps_for_driver(source)))
    path = report.driver.cuda_library if report.driver is not None else None
    message = f"CUDA does not start: {source.error or source.reason}"
    message += f" ({source.code})" if source.code is not None else ""
    message += f": {meaning}" if meaning else ""
    message += "; NVML, which needs less of the driver, answers" if _answers(report.sources.nvml) else ""
    if _other_libcuda_in_wsl(report):
        message += f"; {path} was loaded, and not the one of the Windows driver in /usr/lib/wsl/lib"
        fix = (
            "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
            "remove NVIDIA driver packages from this WSL; the driver of Windows serves it",
        )
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


def _answers(source: Source) -> bool:
    return source.status is SourceStatus.OK


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
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason="no CUDA driver here")
    if source.status is SourceStatus.SKIPPED:
        return Skipped(reason=source.reason or "CUDA was not asked")
    if source.status is not SourceStatus.TIMEOUT:
        return PASS
    return (
        Problem(
            subject="driver",
            message=f"CUDA did not answer: {source.reason}",
            evidence={"seconds": source.seconds},
            fix=("sudo dmesg | grep -i xid", "restart the node"),
        ),
    )


CUDA_GIVES_FEWER = Rule(
    id="HWP129",
    name="cuda-gives-fewer",
    title="CUDA gives fewer GPUs than NVML shows, and no variable says so",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP102", "HWP107", "HWP111", "HWP120", "HWP123", "HWP127", "HWP304"),
    explanation=Explanation(
        checks="Where CUDA_VISIBLE_DEVICES is not set: whether CUDA gives this process every healthy GPU that NVML "
        "shows, apart from those in MIG mode or in a compute mode that keeps processes out.",
        matters="What CUDA leaves out does not exist for TensorFlow, and nvidia-smi goes on to show it.",
        fix="`nvidia-smi -q -i INDEX` shows a GPU that is being drained or waits for a reset; `dmesg` shows what the "
        "driver had against it.",
        reference="CUDA driver API, cuDeviceGetCount; nvidia-smi documentation, drain",
    ),
)


def cuda_gives_every_gpu(case: Case) -> Verdict:
    """HWP129."""
    report = case.report
    if report.sources.nvml.status is not SourceStatus.OK or report.sources.cuda.status is not SourceStatus.OK:
        return Skipped(reason="NVML or CUDA did not say which GPUs there are")
    if VARIABLE in report.host.environment or _MPS in report.host.environment:
        return NotApplicable(reason=f"{VARIABLE} or an MPS daemon chooses the GPUs")
    gpus = [gpu for gpu in nvidia_gpus(report) if gpu.nvml_index is not None and _should_be_given(gpu)]
    if not gpus:
        return NotApplicable(reason="NVML shows no GPU that CUDA should give")
    # A script may have taken a GPU from its TensorFlow: that one has its place in CUDA's order.
    left_out = [gpu for gpu in gpus if gpu.visible is False and gpu.cuda_index is None]
    given = len(report.visible_devices)
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"NVML shows {gpu.label}, NVML index {gpu.nvml_index}, and CUDA does not give it; it gives {given}",
            evidence={"nvml_index": gpu.nvml_index, "given": given},
            fix=(f"nvidia-smi -q -i {gpu.nvml_index}", "sudo dmesg | grep -iE 'nvrm|xid'"),
            severity=Severity.WARNING if given else None,
        )
        for gpu in left_out
    )


def _should_be_given(gpu: Gpu) -> bool:
    in_mig_mode = gpu.mig is not None and gpu.mig.enabled
    return gpu.error is None and not in_mig_mode and gpu.compute_mode in (None, "default")


NVML_SHOWS_FEWER = Rule(
    id="HWP130",
    name="nvml-shows-fewer",
    title="NVML does not show a GPU that CUDA gives",
    severity=Severity.INFO,
    action=Action.ADMIN,
    explanation=Explanation(
        checks="Where both answer: whether NVML, and with it nvidia-smi, shows every GPU that CUDA gives this process.",
        matters="The GPU computes. But nobody sees its memory in use, its memory errors and its processes: neither "
        "hwprobe nor a monitor.",
        fix="`nvidia-smi -L` shows what NVML shows; where it is less than the machine has, start the container or the "
        "node anew.",
        reference="CUDA driver API, cuDeviceGetCount; NVML API, nvmlDeviceGetCount",
    ),
)


def nvml_shows_every_gpu(case: Case) -> Verdict:
    """HWP130."""
    report = case.report
    if report.sources.nvml.status is not SourceStatus.OK or report.sources.cuda.status is not SourceStatus.OK:
        return Skipped(reason="NVML or CUDA did not say which GPUs there are")
    given = [gpu for gpu in nvidia_gpus(report) if gpu.cuda_index is not None]
    if not given:
        return NotApplicable(reason="CUDA gives this process no GPU")
    shown = sum(gpu.nvml_index is not None for gpu in report.devices)
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"CUDA gives {gpu.label} (CUDA {gpu.cuda_index}), which NVML does not show; it shows {shown}: "
            "nothing is known of its health",
            evidence={"cuda_index": gpu.cuda_index, "shown": shown},
            fix=("nvidia-smi -L",),
        )
        for gpu in given
        if gpu.nvml_index is None
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(CUDA_LIBRARY_MISSING, cuda_library_is_there),
    RuleCheck(CUDA_LIBRARY_COMPAT, compat_library_fits),
    RuleCheck(CUDA_DOES_NOT_START, cuda_starts),
    RuleCheck(CUDA_TIMEOUT, cuda_answers),
    RuleCheck(CUDA_GIVES_FEWER, cuda_gives_every_gpu),
    RuleCheck(NVML_SHOWS_FEWER, nvml_shows_every_gpu),
)
