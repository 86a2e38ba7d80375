"""HWP401 to HWP403, HWP405 and HWP406: what the GPUs mean for 16-bit precision, in the words of this machine."""

from __future__ import annotations

from hwprobe.capability import ComputeCapability
from hwprobe.configuration import DTYPE_POLICIES, DeviceUsability
from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.tensorflow import release
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import CPU_SUBJECT, devices_that_compute, visible_devices_value

NO_TENSOR_CORES = Rule(
    id="HWP401",
    name="no-tensor-cores",
    title="A GPU of capability 7.5 has no Tensor Cores",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Whether a visible GPU of capability 7.5 is one of the boards without Tensor Cores: GTX 16, MX450 and "
        "MX550, T400 to T1200, Quadro T1000 and T2000, CMP 30HX.",
        matters="Capability 7.5 covers both. On these, float16 through cuBLAS and cuDNN was 6 to 9 times slower than "
        "float32, and some models gave NaN. Keras 2 calls them compatible with mixed_float16; Keras 3 says nothing.",
        fix="Nothing: float32 is right for them.",
        reference="tensorflow/tensorflow#44191; ggml-org/llama.cpp PR 4682; pytorch/pytorch#58123",
    ),
)

_TURING = ComputeCapability(7, 5)


def turing_has_tensor_cores(case: Case) -> Verdict:
    """HWP401."""
    turing = [gpu for gpu in case.report.visible_devices if gpu.compute_capability == _TURING]
    if not turing:
        return NotApplicable(reason="no visible GPU of capability 7.5")
    if all(gpu.tensor_cores is None for gpu in turing):
        return Skipped(reason="whether it has Tensor Cores is not known")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label} has no Tensor Cores: {gpu.tensor_cores_reason}",
            evidence={"pci_device_id": gpu.pci_device_id, "name": gpu.name},
        )
        for gpu in turing
        if gpu.tensor_cores == ()
    )


PASCAL_FLOAT16 = Rule(
    id="HWP402",
    name="pascal-float16",
    title="Float16 does not pay on Pascal",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Whether a visible GPU is Pascal (6.x).",
        matters="6.1 computes float16 at 1/64 of float32's rate; the libraries convert instead and gain nothing. 6.0 "
        "(P100) has twice the rate on paper and none in matrix products. Only memory is saved: activations take half.",
        fix="Nothing, unless memory is short: a policy override can allow mixed_float16 for the board by name.",
        reference="NVIDIA/apex#76; zzc0721/torch-performance-test-data (P100, P40, 1080 Ti)",
    ),
)


def no_gpu_is_pascal(case: Case) -> Verdict:
    """HWP402."""
    gpus = [gpu for gpu in case.report.visible_devices if gpu.compute_capability is not None]
    if not gpus:
        return NotApplicable(reason="no visible GPU with a known capability")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label} gains no speed from float16"
            + (
                ", which it computes at 1/64 of float32's rate"
                if str(gpu.compute_capability) == "6.1"
                else "; it would halve the memory of activations"
            ),
            evidence={"compute_capability": str(gpu.compute_capability)},
        )
        for gpu in gpus
        if gpu.compute_capability is not None and gpu.compute_capability.major == 6
    )


LIMITED_BY_WEAKEST = Rule(
    id="HWP403",
    name="limited-by-weakest",
    title="One GPU limits the precision of all",
    severity=Severity.INFO,
    action=Action.USER,
    after=("HWP211",),
    explanation=Explanation(
        checks="Whether some of the visible GPUs could use a dtype policy that others cannot.",
        matters="A script has one global dtype policy. It must be usable on every GPU that computes, so the weakest "
        "one decides for all. Where that costs the others 16 bits altogether, it is a warning.",
        fix="Hide the weaker GPU with CUDA_VISIBLE_DEVICES and the UUIDs of the others, or train on it alone in a "
        "process of its own.",
        reference="NVIDIA/nvidia-container-toolkit#1227 (A10 and T4 in one node)",
    ),
)


def no_gpu_limits_the_others(case: Case) -> Verdict:
    """HWP403."""
    if len(case.usability) < 2:
        return NotApplicable(reason="fewer than two GPUs will compute")
    for name in (name for name in case.policy.precision.prefer if name in DTYPE_POLICIES):
        able = [device for device in case.usability if device.policies[name].usable is True]
        if len(able) == len(case.usability):
            return PASS
        if able:
            return (_limit(name, able, case),)
    return PASS


def _limit(name: str, able: list[DeviceUsability], case: Case) -> Problem:
    unable = [device for device in case.usability if device not in able]
    names = ", ".join(dict.fromkeys(device.label for device in unable))
    mixed = all(device.policies["mixed_float16"].usable is True for device in case.usability)
    return Problem(
        subject=unable[0].subject,
        message=f"{len(able)} of {len(case.usability)} visible GPUs could use {name}; {names} cannot: "
        f"{unable[0].policies[name].reason}",
        evidence={"policy": name, "able": [device.subject for device in able]},
        fix=(f"export CUDA_VISIBLE_DEVICES={visible_devices_value(able)}   # hides {names}",),
        severity=None if mixed else Severity.WARNING,
    )


BFLOAT16_NEEDS_NEWER = Rule(
    id="HWP405",
    name="bfloat16-needs-newer-tensorflow",
    title="This TensorFlow lacks bfloat16 kernels on GPUs",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Where a GPU has Tensor Cores for bfloat16: whether this TensorFlow has the kernels, which it has "
        "from 2.13.",
        matters="Before, missing kernels run on the CPU without a word (2.7 to 2.12, up to 500 times slower) or fail.",
        fix="Upgrade TensorFlow to use mixed_bfloat16; until then mixed_float16 is right.",
        reference="tensorflow/tensorflow#59050, #55738, #47362; kernel registries of the wheels",
    ),
)


def tensorflow_has_bfloat16_kernels(case: Case) -> Verdict:
    """HWP405."""
    tensorflow = case.report.tensorflow
    able = [gpu for gpu in devices_that_compute(case.report) if "bfloat16" in (gpu.tensor_cores or ())]
    if not able or tensorflow is None:
        return NotApplicable(reason="no GPU with bfloat16 will compute, or no TensorFlow")
    if tensorflow.version is None:
        return Skipped(reason="the TensorFlow version could not be read")
    known = release(tensorflow.version)
    if known is not None and known.bfloat16 == "complete":
        return PASS
    return (
        Problem(
            subject="tensorflow",
            message=f"{able[0].label} has Tensor Cores for bfloat16, and TensorFlow {tensorflow.version} lacks the "
            "kernels",
            evidence={"version": tensorflow.version},
            fix=("pip install --upgrade 'tensorflow[and-cuda]'",),
        ),
    )


TF32_BASELINE = Rule(
    id="HWP406",
    name="tf32-baseline",
    title="float32 uses the Tensor Cores here already",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Whether every GPU that computes has TensorFloat-32 (8.0 and newer), which TensorFlow uses for float32 "
        "unless somebody switches it off, and 16 bits are chosen.",
        matters="The gain over float32 is then that over TensorFloat-32: about 2 in matrix products, not 8 or 16. "
        "Small models and small batches are bound by other things and gain nothing; half the memory of activations "
        "is saved in any case.",
        fix="Nothing. `hwprobe bench` measures it.",
        reference="https://www.tensorflow.org/guide/mixed_precision; tensorflow/tensorflow#34406",
    ),
)


def mixed_precision_is_compared_with_tf32(case: Case) -> Verdict:
    """HWP406."""
    gpus = [device for device in case.usability if device.subject != CPU_SUBJECT]
    if not gpus:
        return NotApplicable(reason="no GPU computes")
    computing = devices_that_compute(case.report)
    if not case.policy.precision.tf32 or any("tf32" not in (gpu.tensor_cores or ()) for gpu in computing):
        return PASS
    chosen = next(
        (name for name in case.policy.precision.prefer if all(device.policies[name].usable is True for device in gpus)),
        "float32",
    )
    if chosen == "float32":
        return PASS
    return (
        Problem(
            subject="precision",
            message=f"expect up to twice the speed of float32 from {chosen} in matrix products, since float32 takes "
            "TensorFloat-32 here, and less in small models; activations take half the memory",
            evidence={"dtype_policy": chosen, "tf32": True},
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(NO_TENSOR_CORES, turing_has_tensor_cores),
    RuleCheck(PASCAL_FLOAT16, no_gpu_is_pascal),
    RuleCheck(LIMITED_BY_WEAKEST, no_gpu_limits_the_others),
    RuleCheck(BFLOAT16_NEEDS_NEWER, tensorflow_has_bfloat16_kernels),
    RuleCheck(TF32_BASELINE, mixed_precision_is_compared_with_tf32),
)
