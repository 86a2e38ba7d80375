"""HWP211 to HWP215 and HWP223: the GPUs that this TensorFlow has code for, and those that it lists."""

from __future__ import annotations

from collections.abc import Sequence

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.architectures import architecture_of
from hwprobe.knowledge.versions import cuda_release
from hwprobe.report import Gpu, Report, SourceStatus
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import devices_that_compute, kernel_code

NO_CODE_FOR_GPU = Rule(
    id="HWP211",
    name="no-code-for-gpu",
    title="This TensorFlow has no code for the GPU",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP202", "HWP203", "HWP204"),
    explanation=Explanation(
        checks="Whether the machine code in this TensorFlow build runs on each GPU: an sm_XY of the same major and a "
        "minor not above the GPU's, or PTX that the driver can compile for it.",
        matters="TensorFlow lists such a GPU and prints at most a warning; the first kernel fails "
        "(CUDA_ERROR_INVALID_PTX, no kernel image is available). Nothing can be computed on it.",
        fix="For a GPU newer than the build (Blackwell) take a build that carries its code: NVIDIA's container or a "
        "build of your own. For one older than the build take the last release that had its code: 2.16 for 5.x, 2.14 "
        "for 3.5 and 3.7.",
        reference="tensorflow/tensorflow#89272, #90291, #101746; TensorFlow 2.17.0 release notes",
    ),
)


def every_gpu_has_code(case: Case) -> Verdict:
    """HWP211."""
    report = case.report
    gpus = [gpu for gpu in devices_that_compute(report) if gpu.kind == "nvidia"]
    if not gpus:
        return NotApplicable(reason="no NVIDIA GPU will compute here")
    tensorflow = report.tensorflow
    if tensorflow is None or tensorflow.compute_capabilities is None:
        return Skipped(reason="the architectures that this TensorFlow has code for could not be read")
    problems = []
    for gpu in gpus:
        code = kernel_code(gpu, tensorflow)
        if code is not None and code.kind == "none":
            problems.append(
                Problem(
                    subject=gpu.subject,
                    message=f"TensorFlow {tensorflow.version} lists {gpu.label} and has no code for it: {code.reason}",
                    evidence={
                        "compute_capability": str(gpu.compute_capability),
                        "built_for": list(tensorflow.compute_capabilities),
                    },
                    fix=_code_fix(gpu.compute_capability is not None and gpu.compute_capability.major >= 10),
                )
            )
    return tuple(problems)


def _code_fix(newer: bool) -> tuple[str, ...]:
    if newer:
        return (
            "use a TensorFlow that was built for it: nvcr.io/nvidia/tensorflow, or a build of your own",
            "until then train on another GPU, or on the CPU with CUDA_VISIBLE_DEVICES=-1",
        )
    return (
        "pip install 'tensorflow<2.17'   # 5.x; 'tensorflow<2.15' for 3.5 and 3.7",
        "or train on another GPU, or on the CPU with CUDA_VISIBLE_DEVICES=-1",
    )


GPU_NEWER_THAN_CUDA = Rule(
    id="HWP223",
    name="gpu-newer-than-cuda",
    title="The GPU is newer than the CUDA in this TensorFlow",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP202", "HWP203", "HWP204", "HWP211"),
    explanation=Explanation(
        checks="Whether the CUDA release that this TensorFlow was built with knows the GPU's architecture.",
        matters="CUDA 10 on Ampere hangs for many minutes, fails with an invalid kernel image, or silently computes "
        "wrong "
        "numbers.",
        fix="Take a TensorFlow built with a newer CUDA: 2.4 (CUDA 11.0) or newer for Ampere.",
        reference="tensorflow/tensorflow#43718, #44959, #48787; alexanderkroner/saliency#25",
    ),
)


def cuda_knows_every_gpu(case: Case) -> Verdict:
    """HWP223."""
    tensorflow = case.report.tensorflow
    gpus = [gpu for gpu in devices_that_compute(case.report) if gpu.compute_capability is not None]
    if not gpus or tensorflow is None:
        return NotApplicable(reason="no GPU will compute here")
    built = cuda_release(tensorflow.cuda_version) if tensorflow.cuda_version is not None else None
    if built is None:
        return Skipped(reason="the CUDA release that this TensorFlow was built with could not be read")
    problems = []
    for gpu in gpus:
        assert gpu.compute_capability is not None
        first = architecture_of(gpu.compute_capability).first_toolkit
        needed = cuda_release(first) if first is not None else None
        # A build may carry PTX that still serves a newer GPU (H100 under CUDA 11.2); only a major behind is hopeless.
        if needed is not None and built[0] < needed[0] and built[0] < 11:
            problems.append(
                Problem(
                    subject=gpu.subject,
                    message=f"{gpu.label} needs CUDA {first} or newer and TensorFlow {tensorflow.version} is built "
                    f"with "
                    f"CUDA {tensorflow.cuda_version}: it hangs, fails, or computes wrong numbers",
                    evidence={"built_with": tensorflow.cuda_version, "needed": first},
                    fix=("pip install --upgrade 'tensorflow[and-cuda]'",),
                )
            )
    return tuple(problems)


COMPILED_AT_FIRST_USE = Rule(
    id="HWP212",
    name="compiled-at-first-use",
    title="Kernels are compiled for the GPU at first use",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether a GPU runs only through the PTX of this TensorFlow build, compiled at first use.",
        matters="It works, but the first start takes long (TensorFlow itself speaks of 30 minutes), which a job's time "
        "limit can kill, again and again, if the cache is not kept.",
        fix="Take a newer TensorFlow that carries machine code for the GPU, or keep the compilation cache: "
        "`export CUDA_CACHE_PATH=/a/folder/that/lasts CUDA_CACHE_MAXSIZE=4294967296`.",
        reference="tensorflow/tensorflow#60739, #62320; CUDA Programming Guide, environment variables",
    ),
)


def no_gpu_needs_compilation(case: Case) -> Verdict:
    """HWP212."""
    tensorflow = case.report.tensorflow
    gpus = [gpu for gpu in devices_that_compute(case.report) if gpu.kind == "nvidia"]
    if not gpus:
        return NotApplicable(reason="no NVIDIA GPU will compute here")
    if tensorflow is None or tensorflow.compute_capabilities is None:
        return Skipped(reason="the architectures that this TensorFlow has code for could not be read")
    problems = []
    for gpu in gpus:
        code = kernel_code(gpu, tensorflow)
        if code is not None and code.kind == "jit":
            problems.append(
                Problem(
                    subject=gpu.subject,
                    message=f"TensorFlow {tensorflow.version} has no machine code for {gpu.label}: {code.reason}",
                    evidence={
                        "compute_capability": str(gpu.compute_capability),
                        "built_for": list(tensorflow.compute_capabilities),
                    },
                    fix=("export CUDA_CACHE_PATH=/a/folder/that/lasts CUDA_CACHE_MAXSIZE=4294967296",),
                )
            )
    return tuple(problems)


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
    tensorflow = report.tensorflow
    if tensorflow is None or not tensorflow.is_cuda_build or not report.visible_devices:
        return NotApplicable(reason="no CUDA build of TensorFlow, or no visible GPU")
    counts = [gpu.multiprocessors for gpu in report.visible_devices]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return Skipped(reason="the number of multiprocessors could not be read")
    wanted = report.host.environment.get("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "")
    least = int(wanted) if wanted.isdigit() else min(_SMALLEST_MULTIPROCESSOR_COUNT, max(known))
    dropped = [gpu for gpu in report.visible_devices if (gpu.multiprocessors or 0) < least]
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"TensorFlow leaves {gpu.label} aside: {gpu.multiprocessors} multiprocessors, and it asks for "
            f"{least} "
            "here",
            evidence={"multiprocessors": gpu.multiprocessors, "asked_for": least},
            fix=(
                f"export CUDA_VISIBLE_DEVICES={_all_but(report, dropped)}   # hides it from CUDA too",
                f"or keep it: export TF_MIN_GPU_MULTIPROCESSOR_COUNT={gpu.multiprocessors}",
            ),
        )
        for gpu in dropped
    )


def _all_but(report: Report, dropped: Sequence[Gpu]) -> str:
    return ",".join(gpu.subject for gpu in report.visible_devices if gpu not in dropped)


LISTS_FEWER = Rule(
    id="HWP214",
    name="tensorflow-lists-fewer",
    title="TensorFlow lists fewer GPUs than CUDA",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP202", "HWP203", "HWP204", "HWP105", "HWP206", "HWP208", "HWP209", "HWP223"),
    explanation=Explanation(
        checks="Whether TensorFlow lists every GPU that the CUDA driver gives this process.",
        matters="TensorFlow drops a GPU without an exception and, at the default log level, often without a word. What "
        "remains computes, on fewer GPUs or on the CPU.",
        fix='`TF_CPP_MIN_LOG_LEVEL=0 python -c "import tensorflow as tf; tf.config.list_physical_devices()"` shows '
        'TensorFlow\'s own reason: a library that could not be opened, or "Ignoring visible gpu device".',
        reference="tensorflow/tensorflow#32569, #63362",
    ),
)


def tensorflow_lists_every_gpu(case: Case) -> Verdict:
    """HWP214."""
    report = case.report
    tensorflow = report.tensorflow
    if tensorflow is None:
        return NotApplicable(reason="no TensorFlow here")
    if tensorflow.devices is None:
        return Skipped(reason=f"TensorFlow was not asked: {report.sources.tensorflow_runtime.reason}")
    if report.sources.cuda.status is not SourceStatus.OK:
        return Skipped(reason="CUDA did not say which GPUs there are")
    missing = [gpu for gpu in report.visible_devices if gpu.tensorflow_name is None]
    filtered = no_gpu_is_filtered(case)
    if isinstance(filtered, tuple):
        small = {problem.subject for problem in filtered}
        missing = [gpu for gpu in missing if gpu.subject not in small]
    listed = sum(gpu.tensorflow_name is not None for gpu in report.visible_devices)
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"CUDA gives this process {gpu.label} (CUDA {gpu.cuda_index}) and TensorFlow "
            f"{tensorflow.version} does not list it; it lists {listed} of {len(report.visible_devices)}",
            evidence={"cuda_index": gpu.cuda_index, "listed": listed, "visible": len(report.visible_devices)},
            fix=('TF_CPP_MIN_LOG_LEVEL=0 python -c "import tensorflow as tf; tf.config.list_physical_devices()"',),
            severity=None if listed == 0 else Severity.WARNING,
        )
        for gpu in missing
    )


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
        fix='`python -c "import tensorflow as tf; print(tf.config.list_physical_devices())"` shows the whole error.',
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
    return (
        Problem(
            subject="tensorflow",
            message=f"TensorFlow could not be asked for its devices: {source.reason}",
            evidence={"status": source.status.value, "seconds": source.seconds},
            fix=('python -c "import tensorflow as tf; print(tf.config.list_physical_devices())"',),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(NO_CODE_FOR_GPU, every_gpu_has_code),
    RuleCheck(GPU_NEWER_THAN_CUDA, cuda_knows_every_gpu),
    RuleCheck(COMPILED_AT_FIRST_USE, no_gpu_needs_compilation),
    RuleCheck(MULTIPROCESSOR_FILTER, no_gpu_is_filtered),
    RuleCheck(LISTS_FEWER, tensorflow_lists_every_gpu),
    RuleCheck(RUNTIME_FAILED, tensorflow_answers),
)
