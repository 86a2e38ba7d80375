"""HWP601 to HWP629: what can be wrong with the loss scaling of a model, while it trains and before."""

from __future__ import annotations

from hwprobe.findings import Action, EvidenceValue, Explanation, Finding, Rule, Severity

SCALING_NOT_IN_FORCE = Rule(
    id="HWP601",
    name="loss-scaling-not-in-force",
    title="The model's loss scaling is not the one that was decided",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The mode and the scale of the compiled optimizer against the loss scaling that auto_configure decided.",
        matters="compile() of Keras 2 and 3 adds dynamic scaling with Keras' own numbers under mixed_float16, whatever "
        "was decided, and drops an optimizer's loss_scale_factor.",
        fix="compile(optimizer=hwprobe.wrap_optimizer(optimizer)). Where no scaling was decided under mixed_float16: "
        "compile(..., auto_scale_loss=False) in Keras 3, wrap_optimizer(optimizer, 'static=1') in Keras 2.",
        reference="Keras 3.15.1 source, trainers/trainer.py; tf_keras 2.21 source, engine/training.py",
    ),
)
SCALED_TWICE = Rule(
    id="HWP602",
    name="nested-scalers",
    title="One loss scaler wraps another",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="The optimizer inside the model's loss-scale optimizer is a loss-scale optimizer itself.",
        matters="Keras 3 accepts it. Gradients are divided by both scales while scale_loss multiplies by one: updates "
        "are 32768 times too small, and no error is raised.",
        fix="Wrap once: hwprobe.wrap_optimizer(optimizer) leaves a wrapped optimizer as it is.",
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py; keras-team/keras#21233",
    ),
)
MOSTLY_FLOAT32 = Rule(
    id="HWP603",
    name="layers-older-than-policy",
    title="Most of the model computes in float32 although a mixed policy is set",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The global dtype policy is a mixed one, and less than half of the parameters are in layers that "
        "compute in 16 bits (none at all is HWP646).",
        matters="A layer takes its policy when it is made. Layers made before the policy was set, or loaded from a "
        "float32 model, stay float32: slower than need be, and larger.",
        fix="Set the policy first (hwprobe.auto_configure() in the first line), then build all layers.",
        reference="https://www.tensorflow.org/guide/mixed_precision",
    ),
)
XLA_ON_REPLICAS = Rule(
    id="HWP604",
    name="scaling-under-xla-on-replicas",
    title="Loss scaling on several replicas fails under jit_compile=True",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The model scales its loss, was made under a strategy with several replicas, and has jit_compile=True.",
        matters="The optimizer has to merge the replicas inside a condition, which XLA cannot compile: the first step "
        "stops with an error about merge_call. Keras' default (jit_compile='auto') switches XLA off there.",
        fix="compile(..., jit_compile=False), or mixed_bfloat16, which needs no scaling.",
        reference="keras-team/keras#21366",
    ),
)
STOCK_SCALER = Rule(
    id="HWP605",
    name="keras-scaler-in-force",
    title="Keras 3's own loss scaler is in force",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The model's optimizer is the LossScaleOptimizer of Keras 3, which compile() adds under mixed_float16.",
        matters="Its scale has no floor: 142 bad batches in a row bring it to 0, and the next good batch writes NaN "
        "into the weights. It overlooks overflow in the repeated tokens of an Embedding (HWP650) and on all replicas "
        "but the first (HWP651), and counts no skipped step.",
        fix="compile(optimizer=hwprobe.wrap_optimizer(optimizer)), or fit(callbacks=[hwprobe.LossScaleGuard()]), which "
        "exchanges it when training starts.",
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py",
    ),
)
STARTUP_OVERFLOW = Rule(
    id="HWP611",
    name="start-up-overflow",
    title="The first scale was too large and has found its level",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Steps were skipped at the start of training only, and a clean step followed.",
        matters="A dynamic scale starts high on purpose and halves until the gradients fit: log2(first scale / "
        "fitting scale) steps are lost, once.",
        fix="Nothing to do.",
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py",
    ),
)
NON_FINITE_FORWARD = Rule(
    id="HWP612",
    name="non-finite-forward-pass",
    title="The forward pass itself gives NaN or infinity",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The unscaled loss is not finite while all weights are.",
        matters="No loss scale can help: the scale enters after the forward pass. A scaler still takes it for "
        "overflow and lowers the scale with every such batch; Keras 3's own reaches 0 after 142 of them.",
        fix="If it is one batch, look for NaN in the data. If it is every batch, run the first layer with a "
        'non-finite output in float32 (dtype="float32"), or use mixed_bfloat16.',
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py; NVIDIA/DeepLearningExamples#146",
    ),
)
SCALE_COLLAPSE = Rule(
    id="HWP613",
    name="loss-scale-collapse",
    title="The loss scale falls and falls while the loss is finite",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Many steps in a row were skipped, the scale is below 1, and the loss is finite.",
        matters="Gradients that overflow at any scale come from an operation inside the backward pass: a float16 "
        "softmax head with a cross-entropy on probabilities, a division by a small epsilon, an exp. Lowering the "
        "scale does not end it, and a scale of 0 makes the next good batch write NaN into the weights.",
        fix='Run that part in float32, the output layer first (dtype="float32"), or use mixed_bfloat16.',
        reference="keras-team/keras#16100; tensorflow/tensorflow#38357",
    ),
)
STUCK_AT_FLOOR = Rule(
    id="HWP614",
    name="stuck-at-the-floor",
    title="The scale cannot go lower and every step is skipped",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="The scale is at its floor, or is fixed, and many steps in a row were skipped.",
        matters="The model learns nothing. A user of Keras 2 saw that for about a million steps, without a message.",
        fix="With a fixed scale: lower it, or use dynamic scaling. At the floor of a dynamic one: run the part that "
        "overflows in float32, or use mixed_bfloat16.",
        reference="keras-team/keras#16100; keras-team/tf-keras#644",
    ),
)
POISON = Rule(
    id="HWP615",
    name="poisoned-weights",
    title="The weights are no longer finite",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="The loss is not finite, or steps are skipped, and so the weights were looked at.",
        matters="An infinite gradient was applied: by a fixed scale that does not skip (loss_scale_factor; Keras 2 "
        "with dynamic=False), by Keras 3's scaler on an Embedding with a repeated token or on several replicas, or by "
        "training without any scaler. No later step can mend it.",
        fix="Restore the last checkpoint and use hwprobe.wrap_optimizer(optimizer), which skips such a step.",
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py and base_optimizer.py",
    ),
)
SILENT_UNDERFLOW = Rule(
    id="HWP616",
    name="silent-underflow",
    title="Many gradients are zero only because the scale is too small",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The share of gradient elements that are exactly 0 at the scale in force and not at a larger one.",
        matters="They lie below float16's smallest number, 2**-24, and are lost; everything stays finite, so nothing "
        "else shows it. On targets of the order 1e-4 it was 98% of the gradients without scaling, and the model "
        "learned nothing.",
        fix="Raise the scale, use dynamic scaling, or find one with hwprobe.calibrate_loss_scale.",
        reference="IEEE 754 binary16; NVIDIA, Training with Mixed Precision, section on loss scaling",
    ),
)
UPDATE_OFF_BY_SCALE = Rule(
    id="HWP620",
    name="update-off-by-the-scale",
    title="The training step does not make the update that its gradients ask for",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="One step on a known weight, against the same optimizer fed with the true gradient.",
        matters="A loop of one's own has to scale the loss, and in Keras 2 to unscale the gradients. Leaving either "
        "out makes updates 32768 times too small or too large; Adam hides it, since it divides the size out again.",
        fix="Keras 3: loss = optimizer.scale_loss(loss), then optimizer.apply of the gradients as they are. Keras 2 "
        "and tf_keras: get_scaled_loss, get_unscaled_gradients, apply_gradients. Clip by the optimizer's own "
        "clipnorm, which comes after the unscaling.",
        reference="keras-team/keras#19244; Keras 3.15.1 and tf_keras 2.21 sources",
    ),
)

RULES: tuple[Rule, ...] = (
    SCALING_NOT_IN_FORCE,
    SCALED_TWICE,
    MOSTLY_FLOAT32,
    XLA_ON_REPLICAS,
    STOCK_SCALER,
    STARTUP_OVERFLOW,
    NON_FINITE_FORWARD,
    SCALE_COLLAPSE,
    STUCK_AT_FLOOR,
    POISON,
    SILENT_UNDERFLOW,
    UPDATE_OFF_BY_SCALE,
)
"""The rules about loss scaling, in the order of their ids."""


def finding(
    rule: Rule,
    message: str,
    *fix: str,
    evidence: dict[str, EvidenceValue],
    severity: Severity | None = None,
    subject: str = "optimizer",
) -> Finding:
    """Write down what one of these rules found.

    Args:
        rule: The rule.
        message: What, where, by what evidence.
        fix: What to do, one step each.
        evidence: Names and values.
        severity: Where it differs from the rule's.
        subject: What it is about.
    """
    return Finding(
        id=rule.id,
        severity=severity or rule.severity,
        action=rule.action,
        subject=subject,
        title=rule.title,
        message=message,
        evidence=evidence,
        fix=fix,
    )
