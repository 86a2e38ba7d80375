"""Does a training step of one's own scale and unscale as its optimizer expects? Tried on a toy with known gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from hwprobe.errors import InputError, UnsupportedError
from hwprobe.findings import Finding
from hwprobe.scaling.keras_family import KerasFamily, expect_family
from hwprobe.scaling.reading import is_loss_scale_optimizer, read_scaling
from hwprobe.scaling.rules import UPDATE_OFF_BY_SCALE, finding
from hwprobe.source import Fact

Verdict = Literal[
    "right",
    "loss_not_scaled",
    "gradients_not_unscaled",
    "unscaled_twice",
    "doubled",
    "clipped_before_unscaling",
    "no_update",
    "unknown",
]

GRADIENTS = (0.25, 0.5)
"""Norms of the two true gradients. They are below usual clip norms, so a clip that shows was in the wrong place."""

TOLERANCE = 0.02

_MEANING: dict[Verdict, tuple[str, str]] = {
    "right": ("the update is right", ""),
    "loss_not_scaled": (
        "updates are {factor} times too small: the gradients are unscaled, and nobody scaled the loss",
        "scale the loss before the gradients are taken: {scale_loss}",
    ),
    "gradients_not_unscaled": (
        "updates are {factor} times too large: nobody unscaled the gradients, or the loss is scaled twice",
        "scale the loss once, and unscale the gradients before they are applied: {unscale}",
    ),
    "unscaled_twice": (
        "updates are {factor} times too small: the gradients are unscaled twice",
        "wrap the optimizer once, and leave the unscaling to it: {unscale}",
    ),
    "doubled": (
        "updates are twice as large as they should be: the step is applied, or the loss counted, twice",
        "apply the gradients once, and divide the loss by the number of its parts",
    ),
    "clipped_before_unscaling": (
        "the update does not depend on the gradient: scaled gradients are clipped to a norm meant for unscaled ones",
        "set clipnorm, global_clipnorm or clipvalue on the wrapped optimizer, which clips after unscaling",
    ),
    "no_update": (
        "the weight did not move",
        "use the optimizer, the variables and the loss that the step is called with",
    ),
    "unknown": (
        "updates are off by a factor of {factor}, and not by the scale",
        "use the optimizer, the variables and the loss that the step is called with",
    ),
}


class ScalingCheck(Fact, frozen=True, kw_only=True):
    """What one known step showed.

    Attributes:
        verdict: `right`, or what is wrong.
        ratio: Update over the right update.
        scale: Loss scale that was in force.
        message: One sentence.
        fix: What to do; empty where nothing is wrong.
    """

    verdict: Verdict
    ratio: float
    scale: float
    message: str
    fix: tuple[str, ...] = ()

    @property
    def finding(self) -> Finding | None:
        """The same as a finding; None where the update is right."""
        if self.verdict == "right":
            return None
        evidence: dict[str, str | int | float | bool | list[str] | None] = {
            "verdict": self.verdict,
            "ratio": self.ratio,
            "loss_scale": self.scale,
        }
        return finding(UPDATE_OFF_BY_SCALE, self.message, *self.fix, evidence=evidence)

    def __bool__(self) -> bool:
        return self.verdict == "right"

    def __str__(self) -> str:
        return self.message + "".join(f"\n  {line}" for line in self.fix)


def verify_scaling(optimizer: Any, step: Callable[[Any, list[Any], Callable[[], Any]], object]) -> ScalingCheck:
    """Run a training step on a toy weight and say whether its update is right.

    The toy's optimizer is plain gradient descent in the same wrapper with the same scale and clipping: Adam would hide
    a factor of 32768, since it divides the size of the gradients out again.

    Args:
        optimizer: The optimizer that training uses, wrapped or not. It is not changed.
        step: The body of the training loop as a function of an optimizer, variables, and a function that computes the
            loss from them: it takes the gradients of that loss by these variables, and has that optimizer apply them.

    Returns:
        The verdict; it is true where the update is right.

    Raises:
        InputError: It is no optimizer.
        UnsupportedError: Its Keras runs on another backend than TensorFlow.
    """
    family = expect_family(optimizer, "an optimizer")
    if family.backend != "tensorflow":
        raise UnsupportedError(f"verify_scaling runs on TensorFlow; this Keras runs on {family.backend}")
    state = read_scaling(optimizer)
    scale = state.scale if math.isfinite(state.scale) and state.scale > 0.0 else 1.0
    right = [_clipped(norm, optimizer, family) for norm in GRADIENTS]
    updates = [_update(_toy_optimizer(optimizer, family, scale), step, norm) for norm in GRADIENTS]
    verdict = _verdict(updates, right, scale)
    if state.nested and verdict == "loss_not_scaled":
        verdict = "unscaled_twice"
    ratio = updates[0] / right[0]
    return _check(verdict, ratio, scale, family)


def _check(verdict: Verdict, ratio: float, scale: float, family: KerasFamily) -> ScalingCheck:
    meaning, fix = _MEANING[verdict]
    factor = "0" if ratio == 0.0 else f"{max(abs(ratio), 1.0 / abs(ratio)):.5g}" if math.isfinite(ratio) else str(ratio)
    words = _words(family) | {"factor": factor}
    message = f"{meaning.format(**words)} (loss scale {scale:g})"
    return ScalingCheck(
        verdict=verdict, ratio=ratio, scale=scale, message=message, fix=(fix.format(**words),) if fix else ()
    )


def _words(family: KerasFamily) -> dict[str, str]:
    if family.generation == 3:
        return {
            "scale_loss": "loss = optimizer.scale_loss(loss)",
            "unscale": "optimizer.apply(gradients, variables) does it, in a LossScaleOptimizer",
        }
    return {
        "scale_loss": "loss = optimizer.get_scaled_loss(loss)",
        "unscale": "gradients = optimizer.get_unscaled_gradients(gradients), once",
    }


def _verdict(updates: Sequence[float], right: Sequence[float], scale: float) -> Verdict:
    ratios = [update / wanted for update, wanted in zip(updates, right, strict=True)]
    if not any(updates):
        return "no_update"
    if _near(updates[0], updates[1]) and not _near(right[0], right[1]):
        return "clipped_before_unscaling"
    if not _near(ratios[0], ratios[1]):
        return "unknown"
    candidates: list[tuple[float, Verdict]] = [(1.0, "right")]
    if scale != 1.0:
        candidates += [(1.0 / scale, "loss_not_scaled"), (scale, "gradients_not_unscaled")]
        candidates.append((scale**-2, "unscaled_twice"))
    candidates.append((2.0, "doubled"))
    return next((verdict for factor, verdict in candidates if _near(ratios[0], factor)), "unknown")


def _near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= TOLERANCE * abs(wanted)


def _update(toy: Any, step: Callable[[Any, list[Any], Callable[[], Any]], object], norm: float) -> float:
    import tensorflow as tf

    family = expect_family(toy, "an optimizer")
    weight = family.module.Variable([0.0, 0.0]) if family.generation == 3 else tf.Variable([0.0, 0.0])
    direction = tf.constant([0.6 * norm, 0.8 * norm])
    if hasattr(toy, "build"):
        toy.build([weight])
    step(toy, [weight], lambda: tf.reduce_sum(weight * direction))
    moved = weight.numpy()
    size = float(tf.norm(moved))
    return math.copysign(size, -float(tf.reduce_sum(moved * direction)))


def _clipped(norm: float, optimizer: Any, family: KerasFamily) -> float:
    """Give the length of the right update: that of the gradient, unless the optimizer itself clips it."""
    inner = optimizer.inner_optimizer if is_loss_scale_optimizer(optimizer, family) else optimizer
    for name in ("clipnorm", "global_clipnorm"):
        limit = getattr(inner, name, None)
        if limit:
            return min(norm, float(limit))
    limit = getattr(inner, "clipvalue", None)
    return math.hypot(min(0.6 * norm, float(limit)), min(0.8 * norm, float(limit))) if limit else norm


def _toy_optimizer(optimizer: Any, family: KerasFamily, scale: float) -> Any:
    """Build the optimizer anew with plain gradient descent inside, at the scale in force."""
    if is_loss_scale_optimizer(optimizer, family):
        inner = _toy_optimizer(optimizer.inner_optimizer, family, scale)
        configuration = optimizer.get_config()
        configuration.pop("inner_optimizer")
        return type(optimizer)(inner, **{**configuration, "initial_scale": scale})
    kinds = family.module.optimizers
    legacy = family.generation == 2 and isinstance(optimizer, kinds.legacy.Optimizer)
    settings = {
        name: getattr(optimizer, name)
        for name in ("clipnorm", "global_clipnorm", "clipvalue", "loss_scale_factor")
        if getattr(optimizer, name, None) is not None
    }
    try:
        return (kinds.legacy if legacy else kinds).SGD(learning_rate=1.0, **settings)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"cannot build gradient descent with the settings of this {type(optimizer).__name__}"
        ) from error
