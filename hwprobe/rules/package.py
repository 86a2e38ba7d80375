"""HWP201 to HWP205: which TensorFlow this environment really has, and whether it has CUDA in it."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Report
from hwprobe.rules.presence import HIDDEN, gpus_are_hidden, nvidia_gpu_expected
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.source import SourceStatus
from hwprobe.usability import other_backend

FIRST_WITHOUT_WINDOWS_GPU = Version("2.11.dev0")
"""TensorFlow 2.11, pre-releases included, is the first without CUDA on native Windows."""

_WITH_CUDA = "pip install 'tensorflow[and-cuda]'"
_ARM = ("aarch64", "arm64")

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
        f"install one: `{_WITH_CUDA}` on Linux x86_64 with an NVIDIA GPU, `pip install tensorflow` elsewhere. To "
        "check a node without any TensorFlow: `hwprobe check --ignore HWP201`.",
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
    where = report.host.prefix or report.host.executable
    for_gpus = report.host.system == "Linux" and report.host.machine == "x86_64" and nvidia_gpu_expected(report)
    return (
        Problem(
            subject="tensorflow",
            message="no TensorFlow in this Python environment" + (f" ({where})" if where else ""),
            evidence={"executable": report.host.executable, "prefix": report.host.prefix},
            fix=(_WITH_CUDA if for_gpus else "pip install tensorflow",),
        ),
    )


WINDOWS_NATIVE = Rule(
    id="HWP203",
    name="windows-native",
    title="TensorFlow has no GPU support on native Windows since 2.11",
    severity=Severity.WARNING,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="On Windows with an NVIDIA GPU: whether this TensorFlow is 2.11 or newer.",
        matters="Those wheels have no CUDA in them. No CUDA toolkit, no cuDNN and no path setting changes that. Other "
        "frameworks bring their own CUDA, so that they see the GPU proves only the driver.",
        fix=f"Use WSL2 with `{_WITH_CUDA}`, or TensorFlow 2.10 with CUDA 11.2. Where a GPU is required this is an "
        "error.",
        reference="tensorflow/tensorflow#58729, #60156, #64536; https://www.tensorflow.org/install/pip",
    ),
)


def windows_build_can_use_gpus(case: Case) -> Verdict:
    """HWP203."""
    report = case.report
    refusal = _no_question_of_cuda(report)
    if refusal is not None:
        return refusal
    assert report.tensorflow is not None
    if report.host.system != "Windows":
        return NotApplicable(reason="not on Windows")
    version = _version(report.tensorflow.version)
    if version is None:
        return Skipped(reason="the TensorFlow version could not be read")
    if version < FIRST_WITHOUT_WINDOWS_GPU:
        return PASS
    frameworks = [f"{one.name} {one.version}" for one in report.host.frameworks]
    return (
        Problem(
            subject="tensorflow",
            message=f"TensorFlow {report.tensorflow.version} on native Windows has no CUDA in it, whatever is "
            "installed beside it"
            + (
                f"; {' and '.join(frameworks)} brings a CUDA of its own, which TensorFlow cannot use" * bool(frameworks)
            ),
            evidence={"version": report.tensorflow.version, "system": report.host.system},
            fix=(f"wsl --install   # then, inside: {_WITH_CUDA}",),
        ),
    )


AARCH64_WHEEL = Rule(
    id="HWP204",
    name="aarch64-wheel",
    title="The aarch64 wheel of TensorFlow has no CUDA in it",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    after=("HWP101", "HWP205"),
    explanation=Explanation(
        checks="On 64-bit Arm with an NVIDIA GPU: whether this TensorFlow is built with CUDA.",
        matters="The wheels for aarch64 on the package index compute on the CPU, also with the extra `and-cuda`, which "
        "installs NVIDIA's libraries for a program that cannot use them.",
        fix="Use NVIDIA's container (nvcr.io/nvidia/tensorflow), on Jetson NVIDIA's own wheel, or build TensorFlow.",
        reference="tensorflow/tensorflow#121157",
    ),
)


def arm_build_can_use_gpus(case: Case) -> Verdict:
    """HWP204."""
    report = case.report
    refusal = _no_question_of_cuda(report)
    if refusal is not None:
        return refusal
    assert report.tensorflow is not None
    if report.host.machine is None:
        return Skipped(reason="which processor the machine has is not known")
    if report.host.machine not in _ARM or report.host.system != "Linux":
        return NotApplicable(reason=f"the machine is {report.host.system} on {report.host.machine}")
    wheels = [one.name for one in report.tensorflow.wheels]
    return (
        Problem(
            subject="tensorflow",
            message=f"this TensorFlow {report.tensorflow.version} for {report.host.machine} is built without CUDA"
            + (f"; the {len(wheels)} nvidia-* packages beside it do not change that" if wheels else ""),
            evidence={"version": report.tensorflow.version, "wheels": wheels},
            fix=(
                "docker run --gpus all nvcr.io/nvidia/tensorflow:YY.MM-tf2-py3",
                "or install NVIDIA's wheel for this board, or a build of your own",
            ),
        ),
    )


CPU_ONLY_BUILD = Rule(
    id="HWP202",
    name="cpu-only-build",
    title="This TensorFlow is built without CUDA",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    after=("HWP101", "HWP204", "HWP205"),
    explanation=Explanation(
        checks="On a machine with an NVIDIA GPU: whether this TensorFlow is built with CUDA (build_info.py).",
        matters="A build without CUDA (tensorflow-cpu, some conda builds) computes on the CPU without a word, however "
        "healthy driver and libraries are.",
        fix=f"`pip uninstall tensorflow-cpu`, then `{_WITH_CUDA}`. With conda-forge choose a build whose name begins "
        "with `cuda`. Where the CPU is meant: `CUDA_VISIBLE_DEVICES=-1` says so, or `--ignore HWP202`.",
        reference="tensorflow/python/platform/build_info.py in the wheels; conda-forge/tensorflow-feedstock#410",
    ),
)


def build_has_cuda(case: Case) -> Verdict:
    """HWP202."""
    report = case.report
    refusal = _no_question_of_cuda(report)
    if refusal is not None:
        return refusal
    assert report.tensorflow is not None
    if report.host.system == "Windows":
        return NotApplicable(reason="no TensorFlow from 2.11 on has CUDA on Windows, which HWP203 looks at")
    names = [one.name for one in report.tensorflow.distributions]
    return (
        Problem(
            subject="tensorflow",
            message=f"TensorFlow {report.tensorflow.version} ({', '.join(names) or 'not from a package'}) is built "
            "without CUDA, on a machine with an NVIDIA GPU",
            evidence={"version": report.tensorflow.version, "distributions": names},
            fix=(f"pip uninstall {' '.join(names) or 'tensorflow'}", _WITH_CUDA),
        ),
    )


def _no_question_of_cuda(report: Report) -> Verdict | None:
    """Why the question whether a build has CUDA does not arise; PASS for one that has it; None where it has not."""
    tensorflow = report.tensorflow
    if tensorflow is None:
        return NotApplicable(reason="no TensorFlow here")
    if other_backend(report) is not None:
        return NotApplicable(reason=f"Keras runs on {other_backend(report)}, which brings code of its own")
    if tensorflow.is_rocm_build or tensorflow.plugins or any(gpu.kind == "other" for gpu in report.devices):
        return NotApplicable(reason="this TensorFlow uses another kind of GPU")
    if not nvidia_gpu_expected(report):
        return NotApplicable(reason="no NVIDIA GPU for this process")
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    if tensorflow.is_cuda_build is None:
        return Skipped(reason="whether this TensorFlow is built with CUDA could not be read")
    return PASS if tensorflow.is_cuda_build else None


PACKAGES_OVER_EACH_OTHER = Rule(
    id="HWP205",
    name="packages-over-each-other",
    title="Several TensorFlow packages own the same files",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether more than one installed distribution brings the code of `tensorflow`, and whose files are in "
        "effect (the hash of build_info.py against each RECORD).",
        matters="tensorflow and tensorflow-cpu share nearly all their files. Whichever was unpacked last is in "
        "effect, and uninstalling either breaks both. `pip install tensorflow-cpu tf_keras` is enough, since "
        "tf_keras asks for `tensorflow`.",
        fix="Uninstall all of them, then install the one that is wanted.",
        reference="RECORD files of the 2.21.0 wheels",
    ),
)


def one_package_owns_tensorflow(case: Case) -> Verdict:
    """HWP205."""
    report = case.report
    tensorflow = report.tensorflow
    if tensorflow is None:
        return NotApplicable(reason="no TensorFlow here")
    # On Windows and macOS `tensorflow` was for some releases an empty package that requires another one.
    owners = [one for one in tensorflow.distributions if one.ships_code is not False]
    if len(owners) < 2:
        return PASS
    effective = next((one.name for one in owners if one.in_effect), None)
    hides = tensorflow.is_cuda_build is False and nvidia_gpu_expected(report) and not gpus_are_hidden(report)
    names = " ".join(one.name for one in owners)
    return (
        Problem(
            subject="tensorflow",
            message=f"{', '.join(f'{one.name} {one.version}' for one in owners)} are installed over each other; "
            + (f"the files are those of {effective}" if effective else "whose files are in effect could not be told")
            + (", which has no CUDA in it" if hides else ""),
            evidence={"distributions": [f"{one.name} {one.version}" for one in owners], "in_effect": effective},
            fix=(f"pip uninstall {names}", f"{_WITH_CUDA}   # or tensorflow-cpu, one of them"),
            severity=Severity.ERROR if hides else None,
        ),
    )


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(TENSORFLOW_MISSING, tensorflow_is_installed),
    RuleCheck(PACKAGES_OVER_EACH_OTHER, one_package_owns_tensorflow),
    RuleCheck(WINDOWS_NATIVE, windows_build_can_use_gpus),
    RuleCheck(AARCH64_WHEEL, arm_build_can_use_gpus),
    RuleCheck(CPU_ONLY_BUILD, build_has_cuda),
)
