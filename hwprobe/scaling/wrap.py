"""The optimizer for the loss scaling in force.

Why `wrap_optimizer` has to be called: Keras 3's `compile` wraps an optimizer itself under `mixed_float16`, in the class
that `keras/src/trainers/trainer.py` imported under a private name. Tried, with Keras 3.15.1, for a public way to make
it use another class: `keras.saving.get_custom_objects()` and `register_keras_serializable` reach only optimizers that
are given as text or configuration, not instances; a dtype policy of another name switches the wrapping off and offers
nothing in its place, and hides the policy from everyone who asks for `mixed_float16`; a subclass of `keras.Model` is
not what the user's model is made of. What is left is to assign to Keras' classes or modules, which other libraries
would see too, so hwprobe does not do it. The public ways are two: wrap before `compile`, or `adopt` the model after
it, which `LossScaleGuard` does at the start of `fit`.
"""

from __future__ import annotations

import logging
import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from hwprobe.configuration import DEFAULT_GROWTH_STEPS, DEFAULT_INITIAL_SCALE, LossScaling
from hwprobe.errors import InputError
from hwprobe.scaling.in_force import in_force
from hwprobe.scaling.keras2_optimizer import fixed_class
from hwprobe.scaling.keras3_optimizer import PACKAGE, checked_class
from hwprobe.scaling.keras_family import KerasFamily, expect_family, loaded_families
from hwprobe.scaling.reading import is_loss_scale_optimizer, read_scaling

logger = logging.getLogger("hwprobe.scaling")


class HasLossScaling(Protocol):
    """Anything that carries a loss scaling, as a `Calibration` does."""

    @property
    def loss_scaling(self) -> LossScaling:
        """The loss scaling that it stands for."""


LossScalingLike = LossScaling | HasLossScaling | str


def wrap_optimizer(optimizer: Any, loss_scaling: LossScalingLike | None = None) -> Any:
    """Give the optimizer that does the loss scaling in force.

    Args:
        optimizer: An optimizer of Keras 3, Keras 2 or tf_keras.
        loss_scaling: What to do: a `LossScaling`, a `Calibration`, or text such as `static=1024`. Default: the
            optimizer's own `loss_scale_factor` where it has one, else what `auto_configure` decided, else dynamic
            scaling where the global dtype policy is `mixed_float16`.

    Returns:
        The same optimizer where it scales already or where no scaling is due; else one that wraps it. In Keras 3 that
        is hwprobe's subclass of `keras.optimizers.LossScaleOptimizer`; in Keras 2 and tf_keras it is Keras' own class
        for a dynamic scale and a subclass of it for a fixed one. All of them skip a step that overflows.

    Raises:
        InputError: It is no optimizer, or it scales already and in another way than `loss_scaling` asks for.
    """
    if isinstance(optimizer, str):
        raise InputError(
            f"expected an optimizer, got the name {optimizer!r}: pass the object, as keras.optimizers.get gives it"
        )
    family = expect_family(optimizer, "an optimizer")
    _expect_optimizer(optimizer, family)
    asked = None if loss_scaling is None else as_loss_scaling(loss_scaling)
    if is_loss_scale_optimizer(optimizer, family):
        _keep(optimizer, asked, family)
        return optimizer
    wanted = asked or _default(optimizer, family)
    return optimizer if wanted.mode == "none" else _wrap(optimizer, wanted, family)


def adopt(model: Any) -> bool:
    """Put hwprobe's scaler in the place of the one that Keras 3's `compile` chose by itself.

    The wrapped optimizer, its state, the scale and the step counter are kept. Where mixed_float16 without scaling was
    decided, that optimizer alone takes its place. A model that was saved afterwards still names the plain optimizer in
    its file, since `compile` noted it there: wrap before `compile` if you save.

    Args:
        model: A compiled model.

    Returns:
        Whether the scaler was exchanged. False where it is hwprobe's already, is a class of the user's own, where
        nobody scales, and for Keras 2 and tf_keras, whose own dynamic scaler has none of Keras 3's faults.

    Raises:
        InputError: It is no model of any Keras.
    """
    family = expect_family(model, "a model")
    stock: Any = getattr(model, "optimizer", None)
    if family.generation == 2 or type(stock) is not family.module.mixed_precision.LossScaleOptimizer:
        return False
    before = read_scaling(stock)
    decided = in_force()
    if decided is not None and decided.mode == "none" and family.global_policy == "mixed_float16":
        _exchange(model, stock.inner_optimizer, decided)
        return True
    # A decision for bfloat16 or float32 says nothing about a model that computes in float16 of its own.
    wanted = decided if decided is not None and decided.mode != "none" else before.loss_scaling
    with strategy_scope(model):
        scaler = _wrap(stock.inner_optimizer, wanted, family)
        if stock.built:
            scaler.build(list(model.trainable_variables))
            if wanted.mode == "dynamic":
                scaler.dynamic_scale.assign(min(max(before.scale, scaler.minimum_scale), scaler.maximum_scale))
                scaler.step_counter.assign(before.good_steps)
    _exchange(model, scaler, wanted)
    return True


def _exchange(model: Any, optimizer: Any, loss_scaling: LossScaling) -> None:
    model.optimizer = optimizer
    # Keras traces the training function anew where this is None, as `compile` leaves it.
    model.train_function = None
    logger.info("hwprobe: %s, in the place of Keras' own scaler", loss_scaling)


def strategy_scope(model: Any) -> AbstractContextManager[Any]:
    """Give the scope in which variables for this model must be made; one that does nothing outside of TensorFlow."""
    strategy = getattr(model, "distribute_strategy", None)
    return nullcontext() if strategy is None else strategy.scope()


def register_optimizers() -> dict[str, type[Any]]:
    """Make hwprobe's optimizers known to `load_model` of every Keras that this process has imported.

    A saved model names its optimizer's class; a process that loads it must have called this, `auto_configure` or
    `wrap_optimizer` before. No variable is made and TensorFlow is not initialised.

    Returns:
        The classes under the names that `custom_objects` takes.
    """
    classes: list[type[Any]] = []
    for family in loaded_families():
        if family.generation == 3:
            classes.append(checked_class())
        else:
            classes += [fixed_class(family, legacy=legacy) for legacy in (False, True)]
    return {f"{PACKAGE}>{kind.__name__}": kind for kind in classes}


def as_loss_scaling(value: LossScalingLike) -> LossScaling:
    """Turn everything that stands for a loss scaling into one whose numbers are filled in and usable.

    Args:
        value: A `LossScaling`, an object with one (`Calibration`), or text that `LossScaling.parse` reads.

    Raises:
        InputError: It stands for none, or a number is missing or out of range.
    """
    if isinstance(value, str):
        value = LossScaling.parse(value)
    if not isinstance(value, LossScaling):
        value = getattr(value, "loss_scaling", None)  # type: ignore[assignment]
    if not isinstance(value, LossScaling):
        raise InputError("loss_scaling: expected a LossScaling, a Calibration, or text such as dynamic or static=1024")
    if value.mode == "none":
        return value
    scale = value.initial_scale
    if scale is None and value.mode == "dynamic":
        scale = DEFAULT_INITIAL_SCALE
    if scale is None or not 0.0 < scale < math.inf:
        raise InputError(f"loss_scaling: {value.mode} scaling needs a positive finite initial_scale, got {scale}")
    if value.mode == "static":
        return LossScaling.static(scale)
    steps = DEFAULT_GROWTH_STEPS if value.growth_steps is None else value.growth_steps
    if steps < 1:
        raise InputError(f"loss_scaling: growth_steps must be at least 1, got {steps}")
    return LossScaling.dynamic(scale, steps)


def _expect_optimizer(optimizer: Any, family: KerasFamily) -> None:
    optimizers = family.module.optimizers
    kinds = (optimizers.Optimizer, optimizers.legacy.Optimizer) if family.generation == 2 else optimizers.Optimizer
    if not isinstance(optimizer, kinds):
        raise InputError(f"expected an optimizer of {family}, got its {type(optimizer).__qualname__}")


def _keep(optimizer: Any, asked: LossScaling | None, family: KerasFamily) -> None:
    state = read_scaling(optimizer)
    if asked is not None and asked != state.loss_scaling:
        raise InputError(
            f"this optimizer does {state.loss_scaling} already and was asked for {asked}: wrap its inner_optimizer"
        )
    if family.generation == 3 and state.scaler == "keras":
        logger.warning(
            "hwprobe: kept the LossScaleOptimizer of Keras 3 that was passed in. It overlooks overflow in repeated "
            "tokens and on all replicas but the first: pass the optimizer that it wraps"
        )


def _default(optimizer: Any, family: KerasFamily) -> LossScaling:
    decided = in_force()
    if decided is not None and decided.mode == "none":
        return decided
    factor = getattr(optimizer, "loss_scale_factor", None)
    if factor is not None:
        return as_loss_scaling(LossScaling.static(factor))
    if decided is not None:
        return as_loss_scaling(decided)
    return LossScaling.dynamic() if family.global_policy == "mixed_float16" else LossScaling.none()


def _wrap(optimizer: Any, wanted: LossScaling, family: KerasFamily) -> Any:
    if family.generation == 3:
        return checked_class()(
            optimizer,
            initial_scale=wanted.initial_scale,
            dynamic_growth_steps=wanted.growth_steps or DEFAULT_GROWTH_STEPS,
            dynamic=wanted.mode == "dynamic",
        )
    if wanted.mode == "dynamic":
        return family.module.mixed_precision.LossScaleOptimizer(
            optimizer, initial_scale=wanted.initial_scale, dynamic_growth_steps=wanted.growth_steps
        )
    legacy = isinstance(optimizer, family.module.optimizers.legacy.Optimizer)
    return fixed_class(family, legacy=legacy)(optimizer, wanted.initial_scale)
