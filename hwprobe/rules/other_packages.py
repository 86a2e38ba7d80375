"""HWP218, HWP219, HWP221 and HWP224: the Keras and the pynvml beside TensorFlow."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict

KERAS_BACKEND = Rule(
    id="HWP218",
    name="keras-backend",
    title="Keras does not run on TensorFlow here",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Which backend Keras 3 will use: KERAS_BACKEND, then ~/.keras/keras.json.",
        matters="The dtype policy applies to every backend. Memory growth and everything else of TensorFlow do not: "
        "JAX and PyTorch take GPU memory in their own ways. What TensorFlow would need is not looked at then.",
        fix="`export KERAS_BACKEND=tensorflow` before Keras is imported, if TensorFlow is meant.",
        reference="https://keras.io/getting_started/#configuring-your-backend",
    ),
)


def keras_runs_on_tensorflow(case: Case) -> Verdict:
    """HWP218."""
    keras = case.report.keras
    if keras is None or keras.backend is None or keras.version is None:
        return NotApplicable(reason="no Keras 3 here")
    if keras.backend == "tensorflow":
        return PASS
    where = {"environment": "KERAS_BACKEND", "file": "keras.json"}.get(keras.backend_origin or "", "its default")
    return (
        Problem(
            subject="keras",
            message=f"Keras runs on {keras.backend} (from {where}): hwprobe's dtype policy applies, its memory "
            "settings do not",
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
    if keras.tf_keras_version is None or not is_keras_3(keras.version):
        return PASS
    chosen = "tf_keras (TF_USE_LEGACY_KERAS)" if keras.legacy else "Keras 3"
    return (
        Problem(
            subject="keras",
            message=f"Keras {keras.version} and tf_keras {keras.tf_keras_version} are both here; tf.keras is {chosen}",
            evidence={"keras": keras.version, "tf_keras": keras.tf_keras_version, "legacy": keras.legacy},
        ),
    )


def is_keras_3(version: str | None) -> bool:
    """Whether a version of the `keras` distribution is Keras 3; False where there is none."""
    try:
        return version is not None and Version(version).major >= 3
    except InvalidVersion:
        return False


LEGACY_KERAS_MISSING = Rule(
    id="HWP224",
    name="legacy-keras-missing",
    title="TF_USE_LEGACY_KERAS asks for tf_keras, which is not installed",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="Where TF_USE_LEGACY_KERAS is 1, true or True: whether tf_keras is installed.",
        matters='The first access to `tf.keras` then ends in an ImportError ("Keras cannot be imported").',
        fix="`pip install tf_keras` of TensorFlow's own version, or `unset TF_USE_LEGACY_KERAS`.",
        reference="tensorflow/python/util/lazy_loader.py of TensorFlow 2.15 to 2.21",
    ),
)


def legacy_keras_is_installed(case: Case) -> Verdict:
    """HWP224."""
    keras, tensorflow = case.report.keras, case.report.tensorflow
    if keras is None or tensorflow is None or not keras.legacy:
        return NotApplicable(reason="nobody asks for the legacy Keras")
    if keras.tf_keras_version is not None:
        return PASS
    minor = ".".join((tensorflow.version or "").split(".")[:2])
    return (
        Problem(
            subject="keras",
            message="TF_USE_LEGACY_KERAS asks for tf_keras, which is not installed: the first use of tf.keras fails",
            evidence={"TF_USE_LEGACY_KERAS": case.report.host.environment.get("TF_USE_LEGACY_KERAS")},
            fix=(
                f"pip install 'tf_keras=={minor}.*'" if minor else "pip install tf_keras",
                "or unset TF_USE_LEGACY_KERAS",
            ),
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
        matters="Old forks install a module of the same name. They lack newer calls or return bytes, so that readings "
        "of NVML are missing. TensorFlow itself does not care.",
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


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(KERAS_BACKEND, keras_runs_on_tensorflow),
    RuleCheck(TWO_KERAS, one_keras_is_installed),
    RuleCheck(LEGACY_KERAS_MISSING, legacy_keras_is_installed),
    RuleCheck(FOREIGN_PYNVML, pynvml_is_nvidias),
)
