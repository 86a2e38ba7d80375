"""What `hwprobe.verify(model)` says about a model: which scaler is in force, and whether the precision took effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwprobe.configuration import LossScaling
from hwprobe.findings import Finding, Severity
from hwprobe.scaling.in_force import in_force
from hwprobe.scaling.keras_family import KerasFamily, expect_family
from hwprobe.scaling.reading import ScalingState, read_scaling
from hwprobe.scaling.rules import (
    MOSTLY_FLOAT32,
    SCALED_TWICE,
    SCALING_NOT_IN_FORCE,
    STOCK_SCALER,
    XLA_ON_REPLICAS,
    finding,
)
from hwprobe.source import Fact

if TYPE_CHECKING:
    from hwprobe.model.facts import ModelFacts

MOSTLY = 0.5

_WRAP = "compile(optimizer=hwprobe.wrap_optimizer(optimizer))"
_WRAP_ALL_THE_SAME = "compile(optimizer=hwprobe.wrap_optimizer(optimizer, 'dynamic'))"

_WITHOUT_SCALING = {
    3: "compile(..., auto_scale_loss=False)",
    2: "compile(optimizer=hwprobe.wrap_optimizer(optimizer, 'static=1')): Keras 2 always scales, and 1 changes nothing",
}
"""How `compile` is kept from scaling under mixed_float16, for each generation of Keras."""


class ModelScaling(Fact, frozen=True, kw_only=True):
    """How a model really trains.

    Attributes:
        model: Its name.
        dtype_policy: The model's own policy.
        low_precision_share: Share of the parameters that are in layers which compute in 16 bits.
        state: How its optimizer scales the loss; None while it is not compiled.
        findings: What is wrong, worst first.
    """

    model: str
    dtype_policy: str
    low_precision_share: float
    state: ScalingState | None
    findings: tuple[Finding, ...] = ()

    def __bool__(self) -> bool:
        return all(each.severity is Severity.INFO for each in self.findings)

    def __str__(self) -> str:
        share = f"{self.low_precision_share:.0%} of the parameters compute in 16 bits"
        lines = [f"{self.model}: {self.dtype_policy}, {share}, {_scaler(self.state)}"]
        for each in self.findings:
            lines.append(f"{each.severity.value} {each.id}: {each.message}")
            lines += [f"  {line}" for line in each.fix]
        return "\n".join(lines)


def verify_model(model: Any) -> ModelScaling:
    """Say which loss scaling a model has in force, and what is wrong with it or with its precision.

    To be called after `compile`, and after `load_model`: a mixed_float16 model that is loaded under another global
    policy comes back without its scaler (Keras 2.15, tf_keras 2.21 and Keras 3.15.1).

    Args:
        model: A model of Keras 3, Keras 2 or tf_keras.

    Returns:
        What it found; it is true where nothing needs to be mended.

    Raises:
        InputError: It is no model of any Keras.
    """
    from hwprobe.model.read import read_model

    family = expect_family(model, "a model")
    facts = read_model(model)
    everything = facts.parameters()
    share = facts.parameters("float16", "bfloat16") / everything if everything else 0.0
    optimizer = getattr(model, "optimizer", None)
    state = None if optimizer is None or isinstance(optimizer, str) else read_scaling(optimizer)
    found = [
        *_scaling(state, family, facts),
        *_policy(family.global_policy, share),
        *_replicas(model, state, facts.replicas),
        *_training(facts, family),
    ]
    return ModelScaling(
        model=str(facts.name),
        dtype_policy=facts.dtype_policy,
        low_precision_share=share,
        state=state,
        findings=tuple(sorted(found, key=lambda each: (-each.severity.rank, each.id))),
    )


def _scaler(state: ScalingState | None) -> str:
    if state is None:
        return "not compiled"
    who = {
        "hwprobe": "by hwprobe's scaler",
        "keras": "by Keras' own scaler",
        "loss_scale_factor": "by the optimizer's loss_scale_factor",
        "none": "",
    }[state.scaler]
    return f"{state.loss_scaling} {who}".rstrip()


def _scaling(state: ScalingState | None, family: KerasFamily, facts: ModelFacts) -> list[Finding]:
    if state is None or state.scaler == "none":
        return []
    found = []
    decided = in_force()
    if decided is not None and not _is_what_was_decided(state.loss_scaling, decided, family, facts):
        found.append(
            finding(
                SCALING_NOT_IN_FORCE,
                f"{decided} was decided, and the model has {_scaler(state)}.",
                _WITHOUT_SCALING[family.generation] if decided.mode == "none" else _WRAP,
                evidence={"decided": str(decided), "in_force": str(state.loss_scaling), "scaler": state.scaler},
            )
        )
        if decided.mode == "none":
            # What else is wrong with a scaler that has to go is of no use to anybody.
            return found
    if state.nested:
        found.append(
            finding(
                SCALED_TWICE,
                "the optimizer inside the model's scaler is a scaler too: gradients are divided twice.",
                "wrap the innermost optimizer once: hwprobe.wrap_optimizer(optimizer)",
                evidence={"scaler": state.scaler},
            )
        )
    if state.scaler == "keras" and family.generation == 3:
        found.append(
            finding(
                STOCK_SCALER,
                "the model has Keras 3's own loss scaler, whose scale has no floor and which counts no skipped step.",
                _WRAP if decided is None or decided.mode != "none" else _WRAP_ALL_THE_SAME,
                "or fit(..., callbacks=[hwprobe.LossScaleGuard()]), which exchanges it",
                evidence={"scaler": state.scaler, "loss_scale": state.scale},
            )
        )
    return found


def _is_what_was_decided(has: LossScaling, decided: LossScaling, family: KerasFamily, facts: ModelFacts) -> bool:
    if decided.mode != "none" or decided == has:
        return decided == has
    # Scaling by 1 changes nothing. And a decision for bfloat16 or float32 says nothing about a model whose layers
    # compute in float16 of their own.
    return has == LossScaling.static(1.0) or (
        family.global_policy != "mixed_float16" and facts.parameters("float16") > 0
    )


def _policy(global_policy: str, share: float) -> list[Finding]:
    if not global_policy.startswith("mixed_") or not 0.0 < share < MOSTLY:
        return []
    return [
        finding(
            MOSTLY_FLOAT32,
            f"the global policy is {global_policy}, and {share:.0%} of the parameters are in layers that compute in "
            "16 bits: the others were made before the policy was set, or were loaded.",
            "set the policy first (hwprobe.auto_configure() in the first line), then build all layers",
            evidence={"global_dtype_policy": global_policy, "share": share},
            subject="model",
        )
    ]


def _replicas(model: Any, state: ScalingState | None, replicas: int) -> list[Finding]:
    if state is None or state.scaler not in ("hwprobe", "keras") or replicas < 2:
        return []
    if getattr(model, "jit_compile", None) is not True:
        return []
    return [
        finding(
            XLA_ON_REPLICAS,
            f"the model scales its loss on {replicas} replicas and is compiled with jit_compile=True, which fails.",
            "compile(..., jit_compile=False)",
            evidence={"replicas": replicas},
            subject="model",
        )
    ]


def _training(facts: ModelFacts, family: KerasFamily) -> tuple[Finding, ...]:
    """Ask the audit's rules about the set-up for training; those that need no pass through the model."""
    from hwprobe.model.facts import ProbeFacts
    from hwprobe.model.judging import findings_of, judge
    from hwprobe.model.training_rules import FLOAT16_WITHOUT_SCALING, TRAINING_CHECKS

    found = findings_of(judge(TRAINING_CHECKS, facts, ProbeFacts(status="skipped", reason="verify runs no pass")))
    decided = in_force()
    if decided is not None and decided.mode == "none" and family.global_policy == "mixed_float16":
        # float16 without scaling is what was asked for, as after a calibration that needs none.
        return tuple(each for each in found if each.id != FLOAT16_WITHOUT_SCALING.id)
    return found
