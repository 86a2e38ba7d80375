"""HWP206 to HWP210 and HWP222: driver and shared libraries against the CUDA that this TensorFlow was built for."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.drivers import driver_for_ptx, driver_is_older, minimum_driver
from hwprobe.knowledge.tensorflow import release
from hwprobe.knowledge.versions import numbers
from hwprobe.report import Report, SharedLibrary, TensorFlow
from hwprobe.rules.presence import nvidia_gpu_expected
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import devices_that_compute, kernel_code

DRIVER_TOO_OLD = Rule(
    id="HWP206",
    name="driver-too-old",
    title="The driver is too old for the CUDA in this TensorFlow",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    hides_gpus=True,
    after=("HWP102", "HWP202", "HWP203", "HWP204"),
    explanation=Explanation(
        checks="Whether the driver runs machine code of the CUDA release that TensorFlow was built with. Within one "
        "CUDA "
        "major every driver from the first of that major on does (minor-version compatibility).",
        matters="With an older driver the devices may still be listed; the first call of the CUDA runtime fails "
        '("driver version is insufficient"). The "CUDA Version" that nvidia-smi shows is this limit of the '
        "driver and "
        "no installed toolkit.",
        fix="Update the driver, or install a TensorFlow that was built for an older CUDA.",
        reference="CUDA Compatibility guide, minor-version compatibility; tensorflow/tensorflow#31319",
    ),
)


def driver_runs_this_cuda(case: Case) -> Verdict:
    """HWP206."""
    report = case.report
    tensorflow, refusal = _cuda_build(report)
    if tensorflow is None:
        return refusal
    version = report.driver.version if report.driver is not None else None
    if version is None or tensorflow.cuda_version is None:
        return Skipped(reason="the driver's version or the CUDA that TensorFlow was built with could not be read")
    minimum = minimum_driver(tensorflow.cuda_version, _system(report))
    if minimum is None:
        return Skipped(reason=f"the minimum driver for CUDA {tensorflow.cuda_version} is not known")
    if driver_is_older(version, minimum) is not True:
        return PASS
    return (
        Problem(
            subject="driver",
            message=f"driver {version} is older than {minimum}, which CUDA {tensorflow.cuda_version} in TensorFlow "
            f"{tensorflow.version} needs",
            evidence={"driver": version, "minimum": minimum, "cuda": tensorflow.cuda_version},
            fix=(f"update the NVIDIA driver to {minimum} or newer", "or install an older TensorFlow"),
        ),
    )


PTX_NEWER_THAN_DRIVER = Rule(
    id="HWP207",
    name="ptx-newer-than-driver",
    title="The driver cannot compile this TensorFlow's PTX",
    severity=Severity.WARNING,
    action=Action.ADMIN,
    after=("HWP206",),
    explanation=Explanation(
        checks="Whether the driver is at least the one of the CUDA release itself. Minor-version compatibility covers "
        "machine code and not PTX.",
        matters="What is compiled at run time fails: XLA (`jit_compile`, which Keras 3 switches on by itself on a "
        "GPU) and "
        "every GPU that the build has no machine code for: CUDA_ERROR_UNSUPPORTED_PTX_VERSION.",
        fix="Update the driver, or compile models with `jit_compile=False`.",
        reference="CUDA Compatibility guide; googlecolab/colabtools#5667",
    ),
)


def driver_compiles_this_ptx(case: Case) -> Verdict:
    """HWP207."""
    report = case.report
    tensorflow, refusal = _cuda_build(report)
    if tensorflow is None:
        return refusal
    version = report.driver.version if report.driver is not None else None
    needed = driver_for_ptx(tensorflow.cuda_version, _system(report)) if tensorflow.cuda_version is not None else None
    if version is None or needed is None:
        return Skipped(reason="the driver's version, or the driver that this TensorFlow's PTX needs, is not known")
    if driver_is_older(version, needed) is not True:
        return PASS
    compiled = [
        gpu.label
        for gpu in devices_that_compute(report)
        if (code := kernel_code(gpu, tensorflow)) is not None and code.kind == "jit"
    ]
    return (
        Problem(
            subject="driver",
            message=f"driver {version} runs TensorFlow {tensorflow.version}, and cannot compile PTX of CUDA "
            f"{tensorflow.cuda_version} (from {needed} on): XLA fails"
            + (f", and {', '.join(compiled)} has nothing else" if compiled else ""),
            evidence={"driver": version, "needed": needed, "compiled_only": compiled},
            fix=(f"update the NVIDIA driver to {needed} or newer", "or model.compile(..., jit_compile=False)"),
            severity=Severity.ERROR if compiled else None,
        ),
    )


WHEEL_LIBRARIES_NOT_FOUND = Rule(
    id="HWP209",
    name="wheel-libraries-not-found",
    title="TensorFlow does not find the CUDA libraries that are installed beside it",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    after=("HWP202", "HWP203", "HWP204"),
    explanation=Explanation(
        checks="Whether a library that does not load lies in a folder of the nvidia-* wheels all the same.",
        matters='TensorFlow 2.16.1 did not look there. It then says "Cannot dlopen some GPU libraries" and '
        "computes on "
        "the CPU, although everything is installed.",
        fix="Upgrade TensorFlow, or put the folders on LD_LIBRARY_PATH before Python starts; inside a running Python "
        "it is "
        "too late.",
        reference="tensorflow/tensorflow#63362, #63341",
    ),
)


def wheel_libraries_are_found(case: Case) -> Verdict:
    """HWP209."""
    report = case.report
    tensorflow, refusal = _cuda_build(report)
    if tensorflow is None:
        return refusal
    missing = _missing(tensorflow)
    hidden = [library for library in missing if _in_wheel(library, tensorflow)]
    if not hidden or len(hidden) < len(missing):
        return PASS
    folders = dict.fromkeys(path.rsplit("/", 1)[0] for library in hidden for path in library.found_at)
    return (
        Problem(
            subject="libraries",
            message=f"{', '.join(library.soname for library in hidden)} are installed by the nvidia-* wheels, where "
            f"TensorFlow {tensorflow.version} does not find them",
            evidence={"libraries": [library.soname for library in hidden], "folders": list(folders)},
            fix=(
                "pip install --upgrade 'tensorflow[and-cuda]'",
                f"or, before Python starts: export LD_LIBRARY_PATH={':'.join(folders)}:$LD_LIBRARY_PATH",
            ),
        ),
    )


LIBRARY_MISSING = Rule(
    id="HWP208",
    name="library-missing",
    title="A shared library that TensorFlow opens is missing",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    after=("HWP202", "HWP203", "HWP204", "HWP209"),
    explanation=Explanation(
        checks="Each CUDA library that this TensorFlow opens at start, tried on its own as TensorFlow would open it.",
        matters="If a single one is missing TensorFlow registers no GPU at all, and at its default log level it does "
        "not "
        "say which one.",
        fix="`pip install 'tensorflow[and-cuda]'` brings all of them into this environment. Where they come from the "
        "system or from modules: load them all, and append to LD_LIBRARY_PATH instead of overwriting it.",
        reference="tensorflow/tensorflow#60646, #66987, #110956",
    ),
)


def every_library_loads(case: Case) -> Verdict:
    """HWP208."""
    report = case.report
    tensorflow, refusal = _cuda_build(report)
    if tensorflow is None:
        return refusal
    if not tensorflow.libraries or all(library.loads is None for library in tensorflow.libraries):
        return Skipped(reason="the shared libraries were not tried")
    missing = _missing(tensorflow)
    return tuple(
        Problem(
            subject=library.soname,
            message=f"{library.soname} does not load: {library.error}"
            + (
                f"; a file of that name is {library.found_at[0]}"
                if library.found_at
                else "; no file of that name was found"
            ),
            evidence={"soname": library.soname, "error": library.error, "found_at": list(library.found_at)},
            fix=_library_fix(library, tensorflow),
        )
        for library in missing
    )


def _library_fix(library: SharedLibrary, tensorflow: TensorFlow) -> tuple[str, ...]:
    if library.found_at:
        folder = library.found_at[0].rsplit("/", 1)[0]
        return (f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH   # before Python starts",)
    known = release(tensorflow.version) if tensorflow.version is not None else None
    if known is not None and not known.and_cuda:
        return (f"install CUDA {tensorflow.cuda_version} and cuDNN {known.cudnn_minimum}",)
    pin = f"=={tensorflow.version}" if tensorflow.version is not None else ""
    return (f"pip install 'tensorflow[and-cuda]{pin}'",)


CUDNN_TOO_OLD = Rule(
    id="HWP210",
    name="cudnn-too-old",
    title="The cuDNN that would load is too old for this TensorFlow",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP208", "HWP209"),
    explanation=Explanation(
        checks="Whether the cuDNN that loads has the major that TensorFlow was built with and no older minor.",
        matters="The GPU is listed and simple operations work; the first convolution or recurrent layer fails with "
        '"DNN '
        'library initialization failed". Another package, often torch, brings an older cuDNN.',
        fix="`pip install --upgrade nvidia-cudnn-cu12`, or give each framework an environment of its own.",
        reference="tensorflow/tensorflow#60913, #101746; bmaltais/kohya_ss#2787",
    ),
)


def cudnn_is_new_enough(case: Case) -> Verdict:
    """HWP210."""
    report = case.report
    tensorflow, refusal = _cuda_build(report)
    if tensorflow is None:
        return refusal
    library = next((one for one in tensorflow.libraries if one.soname.startswith("libcudnn.")), None)
    known = release(tensorflow.version) if tensorflow.version is not None else None
    if library is None or library.version is None or known is None:
        return Skipped(reason="the version of cuDNN, or the one that this TensorFlow needs, is not known")
    have, need = numbers(library.version), numbers(known.cudnn_minimum)
    if have is None or need is None:
        return Skipped(reason=f"cuDNN calls itself {library.version}")
    if have[0] == need[0] and have[:2] >= need[:2]:
        return PASS
    return (
        Problem(
            subject=library.soname,
            message=f"cuDNN {library.version} ({library.path}) would load and TensorFlow {tensorflow.version} was "
            f"built "
            f"with {known.cudnn_minimum}: the first convolution fails",
            evidence={"found": library.version, "needed": known.cudnn_minimum, "path": library.path},
            fix=(f"pip install --upgrade 'nvidia-cudnn-cu12>={known.cudnn_minimum},<{need[0] + 1}'",),
        ),
    )


XLA_TOOLS_MISSING = Rule(
    id="HWP222",
    name="xla-tools-missing",
    title="XLA will not find libdevice",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP208", "HWP209"),
    explanation=Explanation(
        checks="Whether XLA would find libdevice.10.bc: in the nvidia-cuda-nvcc wheel, a CUDA folder, or where "
        "XLA_FLAGS "
        "points.",
        matters="Keras 3 compiles with XLA by itself as soon as a GPU is listed, and so do the new optimizers of "
        "Keras 2. "
        "Without libdevice the first training step fails.",
        fix="`pip install nvidia-cuda-nvcc-cu12`, or `export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda`, or "
        "compile models with `jit_compile=False`.",
        reference="tensorflow/tensorflow#58681, #56927, #60790",
    ),
)


def xla_finds_its_tools(case: Case) -> Verdict:
    """HWP222."""
    report = case.report
    tensorflow, refusal = _cuda_build(report)
    if tensorflow is None:
        return refusal
    if report.host.system != "Linux":
        return NotApplicable(reason="looked for on Linux only")
    if not tensorflow.libraries:
        return Skipped(reason="the files beside TensorFlow were not looked at")
    if tensorflow.libdevice is not None:
        return PASS
    return (
        Problem(
            subject="libraries",
            message="libdevice.10.bc is nowhere that XLA looks: compiled training steps (Keras 3 on a GPU) will fail",
            evidence={"XLA_FLAGS": report.host.environment.get("XLA_FLAGS"), "ptxas": tensorflow.ptxas},
            fix=(
                "pip install nvidia-cuda-nvcc-cu12",
                "or export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda",
                "or model.compile(..., jit_compile=False)",
            ),
        ),
    )


def _cuda_build(report: Report) -> tuple[TensorFlow | None, Verdict]:
    """The TensorFlow that these rules are about, or why there is none."""
    tensorflow = report.tensorflow
    if tensorflow is None:
        return None, NotApplicable(reason="no TensorFlow here")
    if not nvidia_gpu_expected(report):
        return None, NotApplicable(reason="no NVIDIA GPU here")
    if tensorflow.is_cuda_build is None:
        return None, Skipped(reason="whether this TensorFlow is built with CUDA could not be read")
    if not tensorflow.is_cuda_build:
        return None, NotApplicable(reason="this TensorFlow is built without CUDA")
    return tensorflow, PASS


def _missing(tensorflow: TensorFlow) -> list[SharedLibrary]:
    return [library for library in tensorflow.libraries if library.loads is False]


def _in_wheel(library: SharedLibrary, tensorflow: TensorFlow) -> bool:
    folders = tuple(tensorflow.search_paths)
    return any(path.rsplit("/", 1)[0] in folders or "/site-packages/nvidia/" in path for path in library.found_at)


def _system(report: Report) -> str:
    # Under WSL the driver is the one of Windows, with Windows' version numbers.
    return "Windows" if report.host.wsl or report.host.system == "Windows" else report.host.system


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(DRIVER_TOO_OLD, driver_runs_this_cuda),
    RuleCheck(PTX_NEWER_THAN_DRIVER, driver_compiles_this_ptx),
    RuleCheck(WHEEL_LIBRARIES_NOT_FOUND, wheel_libraries_are_found),
    RuleCheck(LIBRARY_MISSING, every_library_loads),
    RuleCheck(CUDNN_TOO_OLD, cudnn_is_new_enough),
    RuleCheck(XLA_TOOLS_MISSING, xla_finds_its_tools),
)
