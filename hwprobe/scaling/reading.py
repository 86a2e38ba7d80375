"""Reading the loss scaling that an optimizer really does, whichever Keras it belongs to."""

from __future__ import annotations

from typing import Any, Literal

from hwprobe.configuration import LossScaling
from hwprobe.scaling.keras2_optimizer import is_fixed
from hwprobe.scaling.keras3_optimizer import is_checked
from hwprobe.scaling.keras_family import KerasFamily, expect_family
from hwprobe.source import Fact

Scaler = Literal["hwprobe", "keras", "loss_scale_factor", "none"]

KERAS_2_FLOOR = 1.0
"""Keras 2's dynamic scale stops there (tf_keras/src/mixed_precision/loss_scale_optimizer.py)."""


class ScalingState(Fact, frozen=True, kw_only=True):
    """What an optimizer does to the loss, and what it has seen so far.

    Attributes:
        scaler: Who scales: hwprobe's optimizer, Keras' own, the optimizer's `loss_scale_factor`, or nobody.
        loss_scaling: Mode and numbers that it was made with.
        scale: The scale in force; 1 where nobody scales.
        minimum_scale: Floor of the scale; None where it has none, or does not move.
        good_steps: Clean steps since the scale last changed; None where nobody counts.
        skipped_steps: Steps that were not applied, in all; None where nobody counts.
        consecutive_skips: Steps that were not applied, since the last one that was; None where nobody counts.
        nested: Whether the wrapped optimizer scales too.
    """

    scaler: Scaler
    loss_scaling: LossScaling
    scale: float = 1.0
    minimum_scale: float | None = None
    good_steps: int | None = None
    skipped_steps: int | None = None
    consecutive_skips: int | None = None
    nested: bool = False

    @property
    def skips(self) -> bool:
        """Whether a step with a non-finite gradient is left out."""
        return self.scaler == "hwprobe" or (self.scaler == "keras" and self.loss_scaling.mode == "dynamic")


def read_scaling(optimizer: Any) -> ScalingState:
    """Read how an optimizer scales the loss, and its counters.

    Args:
        optimizer: An optimizer of Keras 3, Keras 2 or tf_keras, wrapped or not, built or not.

    Raises:
        InputError: It is no optimizer of any Keras.
    """
    family = expect_family(optimizer, "an optimizer")
    if not is_loss_scale_optimizer(optimizer, family):
        factor = getattr(optimizer, "loss_scale_factor", None)
        if factor is None:
            return ScalingState(scaler="none", loss_scaling=LossScaling.none())
        return ScalingState(scaler="loss_scale_factor", loss_scaling=LossScaling.static(factor), scale=float(factor))
    nested = is_loss_scale_optimizer(optimizer.inner_optimizer, family)
    state = _read_keras2(optimizer) if family.generation == 2 else _read_keras3(optimizer)
    return ScalingState(**{name: getattr(state, name) for name in state.__struct_fields__} | {"nested": nested})


def is_loss_scale_optimizer(optimizer: Any, family: KerasFamily) -> bool:
    """Say whether an optimizer is one of its Keras' loss-scale optimizers, hwprobe's among them."""
    return isinstance(optimizer, family.module.mixed_precision.LossScaleOptimizer)


def number(variable: Any) -> float:
    """Read a scalar variable or tensor of any Keras; `float()` does not take a `keras.Variable` before Keras 3.5."""
    return float(variable.numpy() if hasattr(variable, "numpy") else variable)


def _read_keras3(optimizer: Any) -> ScalingState:
    built, ours = bool(optimizer.built), is_checked(optimizer)
    fixed = ours and not optimizer.dynamic
    scaling = (
        LossScaling.static(optimizer.initial_scale)
        if fixed
        else LossScaling.dynamic(optimizer.initial_scale, optimizer.dynamic_growth_steps)
    )
    return ScalingState(
        scaler="hwprobe" if ours else "keras",
        loss_scaling=scaling,
        scale=number(optimizer.dynamic_scale) if built else float(optimizer.initial_scale),
        minimum_scale=optimizer.minimum_scale if ours and not fixed else None,
        good_steps=int(number(optimizer.step_counter)) if built else 0,
        skipped_steps=(int(number(optimizer.skipped_steps)) if built else 0) if ours else None,
        consecutive_skips=(int(number(optimizer.consecutive_skips)) if built else 0) if ours else None,
    )


def _read_keras2(optimizer: Any) -> ScalingState:
    ours, dynamic = is_fixed(optimizer), bool(optimizer.dynamic)
    scaling = (
        LossScaling.dynamic(optimizer.initial_scale, optimizer.dynamic_growth_steps)
        if dynamic
        else LossScaling.static(optimizer.initial_scale)
    )
    return ScalingState(
        scaler="hwprobe" if ours else "keras",
        loss_scaling=scaling,
        scale=number(optimizer.loss_scale),
        minimum_scale=KERAS_2_FLOOR if dynamic else None,
        good_steps=int(number(optimizer.dynamic_counter)) if ours or dynamic else None,
        skipped_steps=int(number(optimizer.skipped_steps)) if ours else None,
        consecutive_skips=int(number(optimizer.consecutive_skips)) if ours else None,
    )
