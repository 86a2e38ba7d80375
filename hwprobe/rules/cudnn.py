"""HWP210 and HWP220: the cuDNN that TensorFlow gets."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.tensorflow import release
from hwprobe.knowledge.versions import cudnn_major, numbers
from hwprobe.report import SharedLibrary, TensorFlow
from hwprobe.rules.cuda_build import cuda_build
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict

_SONAME = "libcudnn.so."

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
        '"DNN library initialization failed". Another package, often torch, brings an older cuDNN.',
        fix="`pip install --upgrade nvidia-cudnn-cu12`, or give each framework an environment of its own.",
        reference="tensorflow/tensorflow#60913, #101746; bmaltais/kohya_ss#2787",
    ),
)


def cudnn_is_new_enough(case: Case) -> Verdict:
    """HWP210."""
    tensorflow = cuda_build(case.report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    library, needed = _library(tensorflow), _needed(tensorflow)
    have = numbers(library.version) if library is not None and library.version is not None else None
    if library is None or needed is None or have is None:
        return Skipped(reason="the version of cuDNN, or the one that this TensorFlow needs, is not known")
    need = numbers(needed) or ()
    if have[0] == need[0] and have[: len(need)] >= need:
        return PASS
    torch = [one for one in case.report.host.frameworks if one.name == "torch"]
    return (
        Problem(
            subject=library.soname,
            message=f"cuDNN {library.version} ({library.path}) would load and TensorFlow {tensorflow.version} was "
            f"built with {needed}: the first convolution fails"
            + (f"; torch {torch[0].version}, which is installed here too, may have brought it" if torch else ""),
            evidence={"found": library.version, "needed": needed, "path": library.path},
            fix=(f"pip install --upgrade 'nvidia-cudnn-cu{_cuda_major(tensorflow)}>={needed},<{need[0] + 1}'",),
        ),
    )


FOREIGN_CUDNN = Rule(
    id="HWP220",
    name="foreign-cudnn-loaded",
    title="Another framework has loaded its cuDNN into this process already",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP208", "HWP209", "HWP210"),
    explanation=Explanation(
        checks="Whether this process holds a cuDNN of TensorFlow's major from the folder of another framework.",
        matters="Whichever is loaded first stays, and TensorFlow gets it too. If it is older than the one that "
        'TensorFlow was built with, the first convolution fails ("Loaded runtime CuDNN library ... but source was '
        'compiled with").',
        fix="Import tensorflow before the other framework, or give each an environment of its own.",
        reference="tensorflow/tensorflow#27487; tensorflow/docs#2251; pytorch/pytorch#20844",
    ),
)

_FRAMEWORK_FOLDERS = ("/torch/lib/", "/jaxlib/", "/onnxruntime/", "/paddle/libs/", "/mxnet/")


def no_foreign_cudnn_is_loaded(case: Case) -> Verdict:
    """HWP220."""
    report = case.report
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    if report.host.mapped_libraries is None:
        return Skipped(reason="the libraries of this process could not be read")
    needed = _needed(tensorflow)
    major = cudnn_major(tensorflow.cudnn_version or needed or "")
    loaded = [path for path in report.host.mapped_libraries if _file(path).startswith(f"{_SONAME}{major}")]
    if not loaded:
        return NotApplicable(reason="this process has loaded no cuDNN that TensorFlow would use")
    foreign = [path for path in loaded if any(folder in path for folder in _FRAMEWORK_FOLDERS)]
    if not foreign:
        return PASS
    version = _file(foreign[0]).removeprefix(_SONAME)
    older = needed is not None and "." in version and (numbers(version) or ()) < (numbers(needed) or ())
    owner = next(folder.split("/")[1] for folder in _FRAMEWORK_FOLDERS if folder in foreign[0])
    return (
        Problem(
            subject=f"{_SONAME}{major}",
            message=f"{owner} has loaded {foreign[0]} into this process, and TensorFlow gets it too"
            + (f"; it was built with cuDNN {needed}" if needed is not None else ""),
            evidence={"path": foreign[0], "needed": needed, "loaded_by": owner},
            fix=(f"import tensorflow   # before import {owner}", "or give each framework an environment of its own"),
            severity=Severity.ERROR if older else None,
        ),
    )


def _file(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _library(tensorflow: TensorFlow) -> SharedLibrary | None:
    return next((one for one in tensorflow.libraries if one.soname.startswith(_SONAME)), None)


def _needed(tensorflow: TensorFlow) -> str | None:
    """What this TensorFlow was built with: the release's own where the build agrees with it, else the major alone."""
    known = release(tensorflow.version) if tensorflow.version is not None else None
    own = cudnn_major(tensorflow.cudnn_version) if tensorflow.cudnn_version is not None else None
    if known is None or (own is not None and own != cudnn_major(known.cudnn_minimum)):
        return None if own is None else str(own)
    return known.cudnn_minimum


def _cuda_major(tensorflow: TensorFlow) -> str:
    return (tensorflow.cuda_version or "12").split(".")[0]


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(CUDNN_TOO_OLD, cudnn_is_new_enough),
    RuleCheck(FOREIGN_CUDNN, no_foreign_cudnn_is_loaded),
)
