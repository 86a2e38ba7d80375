"""HWP2xx: what this TensorFlow was built for, against what is here."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import SourceStatus
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import devices_that_compute, kernel_code

TENSORFLOW_MISSING = Rule(
    id="HWP201",
    name="tensorflow-missing",
    title="TensorFlow is not installed",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether this Python environment has a TensorFlow.",
        matters="hwprobe looks at the environment of the Python that runs it, not at the machine: a TensorFlow in "
        "another environment does not count.",
        fix="Activate the environment that holds TensorFlow and run `python -m hwprobe check` with its Python, or "
        "install one: `pip install 'tensorflow[and-cuda]'` on Linux x86_64, `pip install tensorflow` elsewhere.",
        reference="https://www.tensorflow.org/install/pip",
    ),
)


def tensorflow_is_installed(case: Case) -> Verdict:
    """HWP201."""
    report = case.report
    if report.tensorflow is not None:
        return PASS
    if report.sources.tensorflow_build.status is not SourceStatus.ABSENT:
        return Skipped(reason=f"the installed packages could not be read: {report.sources.tensorflow_build.reason}")
    if report.keras is not None and report.keras.backend not in (None, "tensorflow"):
        return NotApplicable(reason=f"Keras runs on {report.keras.backend} here")
    return (
        Problem(
            subject="tensorflow",
            message=f"no TensorFlow in this Python environment ({report.host.prefix or report.host.executable})",
            evidence={"executable": report.host.executable, "prefix": report.host.prefix},
            fix=("pip install 'tensorflow[and-cuda]'   # Linux x86_64 with an NVIDIA GPU", "pip install tensorflow"),
        ),
    )


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


LISTS_FEWER = Rule(
    id="HWP214",
    name="tensorflow-lists-fewer",
    title="TensorFlow lists fewer GPUs than CUDA",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP202", "HWP203", "HWP204", "HWP105", "HWP206", "HWP208", "HWP209", "HWP213"),
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
    listed = len(report.visible_devices) - len(missing)
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
    RuleCheck(TENSORFLOW_MISSING, tensorflow_is_installed),
    RuleCheck(NO_CODE_FOR_GPU, every_gpu_has_code),
    RuleCheck(COMPILED_AT_FIRST_USE, no_gpu_needs_compilation),
    RuleCheck(LISTS_FEWER, tensorflow_lists_every_gpu),
    RuleCheck(RUNTIME_FAILED, tensorflow_answers),
)
