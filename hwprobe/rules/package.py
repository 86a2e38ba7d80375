"""HWP201 to HWP205 and HWP217 to HWP221: which TensorFlow, Keras and pynvml this environment really has."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Report, SourceStatus
from hwprobe.rules.presence import nvidia_gpu_expected
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict

LAST_WINDOWS_GPU = Version("2.11")
"""TensorFlow 2.11 is the first without native CUDA on Windows."""

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
    where = report.host.prefix or report.host.executable
    return (
        Problem(
            subject="tensorflow",
            message="no TensorFlow in this Python environment" + (f" ({where})" if where else ""),
            evidence={"executable": report.host.executable, "prefix": report.host.prefix},
            fix=("pip install 'tensorflow[and-cuda]'   # Linux x86_64 with an NVIDIA GPU", "pip install tensorflow"),
        ),
    )


WINDOWS_NATIVE = Rule(
    id="HWP203",
    name="windows-native",
    title="TensorFlow has no GPU support on native Windows since 2.11",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="On Windows with an NVIDIA GPU: whether this TensorFlow is 2.11 or newer.",
        matters="Those wheels have no CUDA in them. No CUDA toolkit, no cuDNN and no path setting changes that. Other "
        "frameworks bring their own CUDA, so that they see the GPU proves only the driver.",
        fix="Use WSL2 with `pip install 'tensorflow[and-cuda]'`, or TensorFlow 2.10 with CUDA 11.2.",
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
    if version < LAST_WINDOWS_GPU:
        return PASS
    return (
        Problem(
            subject="tensorflow",
            message=f"TensorFlow {report.tensorflow.version} on native Windows has no CUDA in it, whatever is "
            f"installed "
            "beside it",
            evidence={"version": report.tensorflow.version, "system": report.host.system},
            fix=("wsl --install   # then, inside: pip install 'tensorflow[and-cuda]'",),
        ),
    )


AARCH64_WHEEL = Rule(
    id="HWP204",
    name="aarch64-wheel",
    title="The aarch64 wheel of TensorFlow has no CUDA in it",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    after=("HWP203",),
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
    if report.host.machine not in ("aarch64", "arm64"):
        return NotApplicable(reason=f"the machine is {report.host.machine}")
    return (
        Problem(
            subject="tensorflow",
            message=f"this TensorFlow {report.tensorflow.version} for aarch64 is built without CUDA; CUDA packages "
            f"do not "
            "change that",
            evidence={"version": report.tensorflow.version, "wheels": [one.name for one in report.tensorflow.wheels]},
            fix=("use NVIDIA's container nvcr.io/nvidia/tensorflow, or a build of your own",),
        ),
    )


CPU_ONLY_BUILD = Rule(
    id="HWP202",
    name="cpu-only-build",
    title="This TensorFlow is built without CUDA",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    after=("HWP203", "HWP204", "HWP205"),
    explanation=Explanation(
        checks="On a machine with an NVIDIA GPU: whether this TensorFlow is built with CUDA (build_info.py).",
        matters="A build without CUDA (tensorflow-cpu, some conda builds) computes on the CPU without a word, however "
        "healthy driver and libraries are.",
        fix="`pip uninstall tensorflow-cpu`, then `pip install 'tensorflow[and-cuda]'`. With conda-forge choose a "
        "build "
        "whose name begins with `cuda`.",
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
    names = [one.name for one in report.tensorflow.distributions]
    return (
        Problem(
            subject="tensorflow",
            message=f"TensorFlow {report.tensorflow.version} ({', '.join(names) or 'not from a package'}) is built "
            f"without "
            "CUDA, on a machine with an NVIDIA GPU",
            evidence={"version": report.tensorflow.version, "distributions": names},
            fix=(
                f"pip uninstall {' '.join(names) or 'tensorflow'}",
                "pip install 'tensorflow[and-cuda]'",
            ),
        ),
    )


def _no_question_of_cuda(report: Report) -> Verdict | None:
    """Why the question whether a build has CUDA does not arise; PASS for one that has it; None where it has not."""
    tensorflow = report.tensorflow
    if tensorflow is None:
        return NotApplicable(reason="no TensorFlow here")
    if tensorflow.is_rocm_build or tensorflow.plugins or any(gpu.kind == "other" for gpu in report.devices):
        return NotApplicable(reason="this TensorFlow uses another kind of GPU")
    if not nvidia_gpu_expected(report):
        return NotApplicable(reason="no NVIDIA GPU here")
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
        checks="Whether more than one installed distribution owns the package `tensorflow`, and whose files are in "
        "effect "
        "(the hash of build_info.py against each RECORD).",
        matters="tensorflow and tensorflow-cpu share nearly all their files. Whichever was unpacked last is in "
        "effect, and "
        "uninstalling either breaks both. `pip install tensorflow-cpu tf_keras` is enough, since tf_keras asks for "
        "`tensorflow`.",
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
    owners = tensorflow.distributions
    if len(owners) < 2:
        return PASS
    effective = next((one.name for one in owners if one.in_effect), None)
    hides = tensorflow.is_cuda_build is False and nvidia_gpu_expected(report)
    names = " ".join(one.name for one in owners)
    return (
        Problem(
            subject="tensorflow",
            message=f"{', '.join(f'{one.name} {one.version}' for one in owners)} are installed over each other; "
            + (f"the files are those of {effective}" if effective else "whose files are in effect could not be told")
            + (", which has no CUDA in it" if hides else ""),
            evidence={"distributions": [f"{one.name} {one.version}" for one in owners], "in_effect": effective},
            fix=(f"pip uninstall {names}", "pip install 'tensorflow[and-cuda]'   # or tensorflow-cpu, one of them"),
            severity=Severity.ERROR if hides else None,
        ),
    )


KERAS_BACKEND = Rule(
    id="HWP218",
    name="keras-backend",
    title="Keras does not run on TensorFlow here",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Which backend Keras 3 will use: KERAS_BACKEND, then ~/.keras/keras.json.",
        matters="The dtype policy applies to every backend. Memory growth and everything else of TensorFlow do not: "
        "JAX "
        "and PyTorch take GPU memory in their own ways.",
        fix="`export KERAS_BACKEND=tensorflow` before Keras is imported, if TensorFlow is meant.",
        reference="https://keras.io/getting_started/#configuring-your-backend",
    ),
)


def keras_runs_on_tensorflow(case: Case) -> Verdict:
    """HWP218."""
    keras = case.report.keras
    if keras is None or keras.backend is None:
        return NotApplicable(reason="no Keras 3 here")
    if keras.backend == "tensorflow":
        return PASS
    where = {"environment": "KERAS_BACKEND", "file": "keras.json"}.get(keras.backend_origin or "", "its default")
    return (
        Problem(
            subject="keras",
            message=f"Keras runs on {keras.backend} (from {where}): hwprobe's dtype policy applies, its memory "
            f"settings do not",
            evidence={"backend": keras.backend, "origin": keras.backend_origin},
            fix=("export KERAS_BACKEND=tensorflow",),
        ),
    )


TWO_KERAS = Rule(
    id="HWP219",
    name="two-keras",
    title="tf_keras and Keras 3 keep separate dtype policies",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Whether tf_keras is installed beside Keras 3.",
        matters="Each has a global dtype policy of its own. `tf.keras` is Keras 3 unless TF_USE_LEGACY_KERAS=1 was set "
        "before it was first used; a policy set in one is not seen by layers of the other.",
        fix="Nothing where hwprobe configures: it sets the policy in every Keras that the process loads.",
        reference="TensorFlow 2.16 release notes; keras-team/keras-hub#1295",
    ),
)


def one_keras_is_installed(case: Case) -> Verdict:
    """HWP219."""
    keras = case.report.keras
    if keras is None:
        return NotApplicable(reason="no Keras here")
    version = _version(keras.version)
    if keras.tf_keras_version is None or version is None or version.major < 3:
        return PASS
    chosen = "tf_keras (TF_USE_LEGACY_KERAS)" if keras.legacy else "Keras 3"
    return (
        Problem(
            subject="keras",
            message=f"Keras {keras.version} and tf_keras {keras.tf_keras_version} are both here; tf.keras is {chosen}",
            evidence={"keras": keras.version, "tf_keras": keras.tf_keras_version, "legacy": keras.legacy},
        ),
    )


FOREIGN_PYNVML = Rule(
    id="HWP221",
    name="foreign-pynvml",
    title="Another pynvml is in the way of nvidia-ml-py",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Which file `import pynvml` loads, and which distribution it belongs to.",
        matters="Old forks install a module of the same name. They lack newer calls or return bytes, so that "
        "readings of "
        "NVML are missing.",
        fix="Uninstall the fork: `pip uninstall pynvml nvidia-ml-py3`, then `pip install --force-reinstall "
        "nvidia-ml-py`.",
        reference="XuehaiPan/nvitop#23, #44; wookayin/gpustat#105, #153",
    ),
)


def pynvml_is_nvidias(case: Case) -> Verdict:
    """HWP221."""
    driver = case.report.driver
    if driver is None:
        return NotApplicable(reason="no NVIDIA driver here")
    if driver.foreign_pynvml is None:
        return PASS
    return (
        Problem(
            subject="pynvml",
            message=f"`import pynvml` loads {driver.foreign_pynvml} and not nvidia-ml-py",
            evidence={"foreign": driver.foreign_pynvml, "nvidia-ml-py": driver.nvml_binding},
            fix=("pip uninstall pynvml nvidia-ml-py3", "pip install --force-reinstall nvidia-ml-py"),
        ),
    )


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        return None


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(TENSORFLOW_MISSING, tensorflow_is_installed),
    RuleCheck(WINDOWS_NATIVE, windows_build_can_use_gpus),
    RuleCheck(AARCH64_WHEEL, arm_build_can_use_gpus),
    RuleCheck(PACKAGES_OVER_EACH_OTHER, one_package_owns_tensorflow),
    RuleCheck(CPU_ONLY_BUILD, build_has_cuda),
    RuleCheck(KERAS_BACKEND, keras_runs_on_tensorflow),
    RuleCheck(TWO_KERAS, one_keras_is_installed),
    RuleCheck(FOREIGN_PYNVML, pynvml_is_nvidias),
)
