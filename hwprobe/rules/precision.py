"""HWP40x: what the hardware means for 16-bit precision, in the words of this machine."""

from __future__ import annotations

from hwprobe.configuration import DTYPE_POLICIES, DeviceUsability
from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.tensorflow import release
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import CPU_SUBJECT

LIMITED_BY_WEAKEST = Rule(
    id="HWP403",
    name="limited-by-weakest",
    title="One GPU limits the precision of all",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether some of the visible GPUs could use a dtype policy that others cannot.",
        matters="A script has one global dtype policy. It must be usable on every GPU that computes, so the weakest "
        "one decides for all.",
        fix="Hide the weaker GPU with CUDA_VISIBLE_DEVICES and the UUIDs of the others, or train on it alone in a "
        "process of its own.",
        reference="NVIDIA/nvidia-container-toolkit#1227 (A10 and T4 in one node)",
    ),
)


def no_gpu_limits_the_others(case: Case) -> Verdict:
    """HWP403."""
    if len(case.usability) < 2:
        return NotApplicable(reason="fewer than two GPUs will compute")
    prefer = [name for name in case.policy.precision.prefer if name in DTYPE_POLICIES]
    for name in prefer:
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
        fix=(f"export CUDA_VISIBLE_DEVICES={','.join(device.subject for device in able)}   # hides {names}",),
        severity=None if mixed else Severity.WARNING,
    )


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
        "float32, "
        "and some models gave NaN. Keras 2 calls them compatible with mixed_float16; Keras 3 says nothing.",
        fix="Nothing: float32 is right for them.",
        reference="tensorflow/tensorflow#44191; ggml-org/llama.cpp PR 4682; pytorch/pytorch#58123",
    ),
)


def turing_has_tensor_cores(case: Case) -> Verdict:
    """HWP401."""
    turing = [gpu for gpu in case.report.visible_devices if str(gpu.compute_capability) == "7.5"]
    if not turing:
        return NotApplicable(reason="no visible GPU of capability 7.5")
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
        "(P100) "
        "has twice the rate on paper and none in matrix products. Only memory is saved: activations take half.",
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


HALF_ON_CPU = Rule(
    id="HWP404",
    name="half-precision-on-cpu",
    title="A 16-bit dtype policy is set and the CPU computes",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether a 16-bit global policy was set before hwprobe came, where no GPU computes.",
        matters="Float16 was up to 60 times slower than float32 on a CPU, bfloat16 up to 20 times without AMX. Keras "
        "2 warned; "
        "Keras 3 sets the policy without a word.",
        fix="Let hwprobe choose the policy, or set it after looking for a GPU.",
        reference="tensorflow/tensorflow#45441, #41783; steps measured with TensorFlow 2.21",
    ),
)


def cpu_computes_in_float32(case: Case) -> Verdict:
    """HWP404."""
    report = case.report
    policy = report.keras.dtype_policy if report.keras is not None else None
    if policy is None:
        return NotApplicable(reason="no Keras was loaded before hwprobe looked")
    if any(device.subject != CPU_SUBJECT for device in case.usability):
        return NotApplicable(reason="a GPU computes")
    amx = "amx_bf16" in (report.host.cpu_flags or ())
    if "16" not in policy or (amx and policy == "mixed_bfloat16"):
        return PASS
    return (
        Problem(
            subject="keras",
            message=f"the global dtype policy was {policy} and no GPU computes: on this CPU it is slower than float32",
            evidence={"dtype_policy": policy},
            fix=("hwprobe.auto_configure()   # sets float32 here",),
        ),
    )


PURE_FLOAT16 = Rule(
    id="HWP409",
    name="pure-float16",
    title="A pure 16-bit dtype policy was set",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether the global policy was `float16` or `bfloat16`, which keep the weights in 16 bits too.",
        matters="Updates smaller than a weight's last bit vanish, and an epsilon of 1e-8 is 0 in float16: losses "
        "become NaN "
        "or stop falling. The mixed policies keep weights and optimizer in float32.",
        fix="Use mixed_float16 or mixed_bfloat16.",
        reference="keras-team/keras#11832, #9582; tensorflow/tensorflow#38457",
    ),
)


def policy_keeps_weights_in_float32(case: Case) -> Verdict:
    """HWP409."""
    policy = case.report.keras.dtype_policy if case.report.keras is not None else None
    if policy is None:
        return NotApplicable(reason="no Keras was loaded before hwprobe looked")
    if policy not in ("float16", "bfloat16"):
        return PASS
    return (
        Problem(
            subject="keras",
            message=f"the global dtype policy was {policy}, which keeps the weights in 16 bits too",
            evidence={"dtype_policy": policy},
            fix=(f'keras.mixed_precision.set_global_policy("mixed_{policy}")',),
        ),
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
    able = [gpu for gpu in case.report.visible_devices if "bfloat16" in (gpu.tensor_cores or ())]
    if not able or tensorflow is None or tensorflow.version is None:
        return NotApplicable(reason="no visible GPU with bfloat16, or no TensorFlow")
    known = release(tensorflow.version)
    if known is not None and known.bfloat16 == "complete":
        return PASS
    return (
        Problem(
            subject="tensorflow",
            message=f"{able[0].label} has Tensor Cores for bfloat16, and TensorFlow {tensorflow.version} lacks the "
            f"kernels",
            evidence={"version": tensorflow.version},
            fix=("pip install --upgrade 'tensorflow[and-cuda]'",),
        ),
    )


MIRRORED_NAN = Rule(
    id="HWP407",
    name="mirrored-replicas-keras-3",
    title="Keras 3 on several GPUs has open faults",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether several GPUs would compute with Keras 3 (TensorFlow 2.16 and newer).",
        matters="Under MirroredStrategy Keras 3's own loss scaler looks at replica 0 only, and there are reports of "
        "losses "
        "that become NaN in float32 as well. With mixed_float16 and `jit_compile=True` it fails (merge_call).",
        fix="Use hwprobe.wrap_optimizer with mixed_float16, pass `jit_compile=False`, or train with tf_keras "
        "(TF_USE_LEGACY_KERAS=1).",
        reference="tensorflow/tensorflow#90686, #87432; keras-team/keras#21366",
    ),
)


def replicas_do_not_meet_keras_3(case: Case) -> Verdict:
    """HWP407."""
    keras = case.report.keras
    replicas = [device for device in case.usability if device.subject != CPU_SUBJECT]
    if len(replicas) < 2 or keras is None or keras.version is None:
        return NotApplicable(reason="fewer than two GPUs will compute, or no Keras")
    if keras.legacy or not keras.version.startswith("3."):
        return PASS
    return (
        Problem(
            subject="keras",
            message=f"{len(replicas)} GPUs and Keras {keras.version}: under MirroredStrategy pass jit_compile=False, "
            f"and "
            "wrap the optimizer with hwprobe.wrap_optimizer; a NaN there need not come from mixed precision",
            evidence={"keras": keras.version, "gpus": len(replicas)},
            fix=("model.compile(optimizer=hwprobe.wrap_optimizer(optimizer), ..., jit_compile=False)",),
        ),
    )


AMX_UNUSED = Rule(
    id="HWP411",
    name="amx-unused",
    title="This CPU could compute in bfloat16",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Where no GPU computes: whether the CPU has AMX for bfloat16 and the policy leaves it unused.",
        matters="With AMX, recommenders trained 2.05 to 2.55 times faster in bfloat16 than in float32.",
        fix="`hwprobe check --policy cpu-bfloat16`, and measure your model with `hwprobe compare`.",
        reference="DeepRec-AI/DeepRec, docs_en/AMX.md",
    ),
)


def amx_is_used(case: Case) -> Verdict:
    """HWP411."""
    host = case.report.host
    if any(device.subject != CPU_SUBJECT for device in case.usability):
        return NotApplicable(reason="a GPU computes")
    if host.cpu_flags is None:
        return Skipped(reason="the CPU's flags could not be read")
    if "amx_bf16" not in host.cpu_flags or "mixed_bfloat16" in case.policy.precision.cpu:
        return PASS
    return (
        Problem(
            subject=CPU_SUBJECT,
            message=f"{host.cpu_model or 'this CPU'} has AMX for bfloat16, which policy {case.policy.label} leaves "
            f"unused",
            evidence={"cpu_flags": list(host.cpu_flags)},
            fix=("hwprobe check --policy cpu-bfloat16",),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(PURE_FLOAT16, policy_keeps_weights_in_float32),
    RuleCheck(HALF_ON_CPU, cpu_computes_in_float32),
    RuleCheck(NO_TENSOR_CORES, turing_has_tensor_cores),
    RuleCheck(PASCAL_FLOAT16, no_gpu_is_pascal),
    RuleCheck(LIMITED_BY_WEAKEST, no_gpu_limits_the_others),
    RuleCheck(BFLOAT16_NEEDS_NEWER, tensorflow_has_bfloat16_kernels),
    RuleCheck(MIRRORED_NAN, replicas_do_not_meet_keras_3),
    RuleCheck(AMX_UNUSED, amx_is_used),
)
