"""HWP407 and HWP409: what Keras does with the precision that is set."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.other_packages import is_keras_3
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict
from hwprobe.usability import CPU_SUBJECT, other_backend

PURE_16_BITS = Rule(
    id="HWP409",
    name="pure-16-bits",
    title="A pure 16-bit dtype policy was set",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether the global policy was `float16` or `bfloat16`, which keep the weights in 16 bits too.",
        matters="Updates smaller than a weight's last bit vanish, and an epsilon of 1e-8 is 0 in float16: losses "
        "become NaN or stop falling. The mixed policies keep weights and optimizer in float32.",
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


REPLICAS_UNDER_KERAS_3 = Rule(
    id="HWP407",
    name="replicas-under-keras-3",
    title="Keras 3 on several GPUs has open faults",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether several GPUs would compute with Keras 3 (TensorFlow 2.16 and newer).",
        matters="Under MirroredStrategy Keras 3's own loss scaler looks at replica 0 only, and there are reports of "
        "losses that become NaN in float32 as well: not every NaN there comes from mixed precision. With "
        "mixed_float16 and `jit_compile=True` it fails (merge_call).",
        fix="Use hwprobe.wrap_optimizer with mixed_float16, pass `jit_compile=False`, or train with tf_keras "
        "(TF_USE_LEGACY_KERAS=1).",
        reference="tensorflow/tensorflow#90686, #87432; keras-team/keras#21366",
    ),
)


def replicas_do_not_meet_keras_3(case: Case) -> Verdict:
    """HWP407."""
    keras = case.report.keras
    replicas = [device for device in case.usability if device.subject != CPU_SUBJECT]
    if len(replicas) < 2 or keras is None or other_backend(case.report) is not None:
        return NotApplicable(reason="fewer than two GPUs will compute, or no Keras on TensorFlow")
    if keras.legacy or not is_keras_3(keras.version):
        return PASS
    return (
        Problem(
            subject="keras",
            message=f"{len(replicas)} GPUs and Keras {keras.version}: under MirroredStrategy pass jit_compile=False, "
            "and wrap the optimizer with hwprobe.wrap_optimizer; a NaN there need not come from mixed precision",
            evidence={"keras": keras.version, "gpus": len(replicas)},
            fix=("model.compile(optimizer=hwprobe.wrap_optimizer(optimizer), ..., jit_compile=False)",),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(PURE_16_BITS, policy_keeps_weights_in_float32),
    RuleCheck(REPLICAS_UNDER_KERAS_3, replicas_do_not_meet_keras_3),
)
