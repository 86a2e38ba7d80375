"""HWP213 to HWP215: the GPUs that TensorFlow itself lists."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Report, TensorFlow
from hwprobe.rules.cuda_build import cuda_build
from hwprobe.rules.kernels import every_gpu_has_code
from hwprobe.rules.presence import gpus_are_hidden, nvidia_gpu_expected
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.source import SourceStatus
from hwprobe.usability import visible_devices_value

_SHOW_THE_LOG = 'TF_CPP_MIN_LOG_LEVEL=0 python -c "import tensorflow as tf; tf.config.list_physical_devices()"'

MULTIPROCESSOR_FILTER = Rule(
    id="HWP213",
    name="multiprocessor-filter",
    title="TensorFlow leaves a small GPU aside",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether a visible GPU has fewer multiprocessors than TensorFlow asks for beside a larger one.",
        matters="TensorFlow drops a GPU with fewer than 8 multiprocessors (or fewer than the best GPU has, if that is "
        "less) and says so only in its log at INFO. With such a gap in the middle, TensorFlow 2.21 also loses a "
        "later GPU.",
        fix="`export TF_MIN_GPU_MULTIPROCESSOR_COUNT=N` keeps it; better hide it with CUDA_VISIBLE_DEVICES, since the "
        "slowest GPU sets the pace.",
        reference="tensorflow/tensorflow#32569, #32793; filters measured with TensorFlow 2.10 to 2.22",
    ),
)

_SMALLEST_MULTIPROCESSOR_COUNT = 8


def no_gpu_is_filtered(case: Case) -> Verdict:
    """HWP213."""
    report = case.report
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    gpus = [gpu for gpu in report.visible_devices if gpu.kind == "nvidia"]
    if not gpus:
        return NotApplicable(reason="no visible NVIDIA GPU")
    known = [gpu.multiprocessors for gpu in gpus if gpu.multiprocessors is not None]
    if len(known) < len(gpus):
        return Skipped(reason="the number of multiprocessors could not be read")
    wanted = report.host.environment.get("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "")
    least = int(wanted) if wanted.isdigit() else min(_SMALLEST_MULTIPROCESSOR_COUNT, max(known))
    dropped = [gpu for gpu in gpus if (gpu.multiprocessors or 0) < least and gpu.tensorflow_name is None]
    kept = [gpu for gpu in gpus if gpu not in dropped]
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"TensorFlow leaves {gpu.label} aside: {gpu.multiprocessors} multiprocessors, and it asks for "
            f"{least} here",
            evidence={"multiprocessors": gpu.multiprocessors, "asked_for": least},
            fix=(
                f"export CUDA_VISIBLE_DEVICES={visible_devices_value(kept)}   # hides it from CUDA too",
                f"or keep it: export TF_MIN_GPU_MULTIPROCESSOR_COUNT={gpu.multiprocessors}",
            ),
        )
        for gpu in dropped
    )


LISTS_FEWER = Rule(
    id="HWP214",
    name="tensorflow-lists-fewer",
    title="TensorFlow lists fewer GPUs than CUDA",
    severity=Severity.ERROR,
    action=Action.USER,
    after=(
        *("HWP102", "HWP105", "HWP107", "HWP108", "HWP205", "HWP206", "HWP208", "HWP209", "HWP211", "HWP223"),
        "HWP306",
    ),
    explanation=Explanation(
        checks="Whether TensorFlow lists every GPU that the CUDA driver gives this process.",
        matters="TensorFlow drops a GPU without an exception and, at the default log level, often without a word. What "
        "remains computes, on fewer GPUs or on the CPU. A device XLA_GPU is no GPU that TensorFlow computes on.",
        fix=f"`{_SHOW_THE_LOG}` shows TensorFlow's own reason: a library that could not be opened, or \"Ignoring "
        'visible gpu device".',
        reference="tensorflow/tensorflow#32569, #38990, #63362",
    ),
)


def tensorflow_lists_every_gpu(case: Case) -> Verdict:
    """HWP214."""
    report = case.report
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    if tensorflow.devices is None:
        return Skipped(reason=f"TensorFlow was not asked: {report.sources.tensorflow_runtime.reason}")
    if report.sources.cuda.status is not SourceStatus.OK:
        return Skipped(reason="CUDA did not say which GPUs there are")
    visible = [gpu for gpu in report.visible_devices if gpu.kind == "nvidia"]
    if not visible:
        return NotApplicable(reason="no visible NVIDIA GPU")
    explained = {
        problem.subject for rule in (no_gpu_is_filtered, every_gpu_has_code) for problem in _problems(rule(case))
    }
    listed = sum(gpu.tensorflow_name is not None for gpu in visible)
    said = next((text for text in tensorflow.messages if "dlopen" in text or "Ignoring visible" in text), None)
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"CUDA gives this process {gpu.label} (CUDA {gpu.cuda_index}) and TensorFlow "
            f"{tensorflow.version} does not list it; it lists {listed} of {len(visible)}"
            + (f". TensorFlow's own words: {said}" if said is not None else ""),
            evidence={"cuda_index": gpu.cuda_index, "listed": listed, "visible": len(visible), "said": said},
            fix=(_SHOW_THE_LOG,),
            severity=None if listed == 0 else Severity.WARNING,
        )
        for gpu in visible
        if gpu.tensorflow_name is None and gpu.subject not in explained
    )


def _problems(verdict: Verdict) -> tuple[Problem, ...]:
    return verdict if isinstance(verdict, tuple) else ()


SPAWN = 'multiprocessing.get_context("spawn")'
"""What starts workers in which CUDA works."""

RUNTIME_FAILED = Rule(
    id="HWP215",
    name="tensorflow-runtime-failed",
    title="TensorFlow could not be asked",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP108", "HWP112", "HWP201"),
    explanation=Explanation(
        checks="Whether TensorFlow starts in a process of its own and lists its devices within the time limit.",
        matters="What fails or hangs there does so in a training script too.",
        fix='`python -c "import tensorflow as tf; print(tf.config.list_physical_devices())"` shows the whole error. '
        "On a slow file system give it more time: `hwprobe check --timeout 120`. In a process that was forked off by "
        "one that had listed GPUs already CUDA does not work: start workers with "
        '`multiprocessing.get_context("spawn")`.',
        reference="https://www.tensorflow.org/install/errors",
    ),
)


def tensorflow_answers(case: Case) -> Verdict:
    """HWP215."""
    source = case.report.sources.tensorflow_runtime
    if source.status in (SourceStatus.OK, SourceStatus.SKIPPED):
        return PASS if source.status is SourceStatus.OK else Skipped(reason=source.reason or "TensorFlow was not asked")
    if source.status is SourceStatus.ABSENT:
        return NotApplicable(reason=source.reason or "no TensorFlow here")
    if _ends_as_the_driver_does(case.report):
        return Skipped(reason="the driver's own libraries end a process in the same way, which HWP107 or HWP111 says")
    late = source.status is SourceStatus.TIMEOUT
    # CUDA does not work in a copy of a process that had started it.
    forked = source.error == "CUDA_ERROR_NOT_INITIALIZED"
    show = 'python -c "import tensorflow as tf; print(tf.config.list_physical_devices())"'
    return (
        Problem(
            subject="tensorflow",
            message=f"TensorFlow could not be asked for its devices: {source.reason}",
            evidence={"status": source.status.value, "seconds": source.seconds},
            fix=(SPAWN,) if forked else ("hwprobe check --timeout 120", show) if late else (show,),
            action=Action.RETRY if late else None,
        ),
    )


def _ends_as_the_driver_does(report: Report) -> bool:
    """Whether NVML or CUDA, asked on its own, took its process along as it took TensorFlow's."""
    if not nvidia_gpu_expected(report) or gpus_are_hidden(report):
        return False
    runtime, nvml, cuda = (
        (source.reason or "").partition(";")[0] if source.status is SourceStatus.FAILED else None
        for source in (report.sources.tensorflow_runtime, report.sources.nvml, report.sources.cuda)
    )
    return bool(runtime) and runtime in (nvml, cuda)


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(MULTIPROCESSOR_FILTER, no_gpu_is_filtered),
    RuleCheck(LISTS_FEWER, tensorflow_lists_every_gpu),
    RuleCheck(RUNTIME_FAILED, tensorflow_answers),
)
