"""Finding the fixed loss scale that fits a model, by looking at its gradients and then trying it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from hwprobe.errors import InputError, UnsupportedError
from hwprobe.scaling.bounds import (
    FLOAT16_LARGEST,
    HEADROOM_BITS,
    lost_share,
    lower_bound,
    quantile,
    subnormal_share,
    upper_bound,
)
from hwprobe.scaling.calibration import Calibration, GradientRange, ScaleEffect, ShadowRun, Verdict
from hwprobe.scaling.gradients import BINS, LOWEST, Batches, StepGradients, Trainer, fresh_optimizer
from hwprobe.scaling.keras_family import KerasFamily, expect_family, family_of, loaded_families
from hwprobe.scaling.twins import Precision, all_layers, copy_model, global_policy, is_low_precision

SHADOW_STEPS = 50
LOWER_BY_BITS = 4
"""How far the scale goes down when the first run in float16 overflows."""

MORE_ZEROS = 0.05
"""By how much the share of zero gradients in float16 may exceed float32's."""

Progress = Callable[[int, int], None]


def calibrate_loss_scale(
    model: Any,
    loss: Any,
    data: Any,
    steps: int = 60,
    *,
    optimizer: Any = None,
    later_weights: Sequence[Any] | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Find the fixed loss scale that fits a model's gradients, or say that there is none, or that none is needed.

    Copies of the model are trained: `steps` in float32, to see how large the gradients of the weights and of the
    layers' outputs are, then 50 in float16 at the scale that follows. The model itself is left alone.

    Args:
        model: A Keras model on TensorFlow, or a function without arguments that builds one (for models that cannot be
            rebuilt from their configuration); the function is called under each dtype policy.
        loss: A Keras loss, its name, or a function of targets and predictions.
        data: An iterable of batches (x, y) or (x, y, sample_weight); used from the start again when it runs out.
        steps: float32 steps.
        optimizer: What to train with. Default: a copy of the one that the model is compiled with, else Adam.
        later_weights: Weights of a later checkpoint, as `model.get_weights()` gives them: how do the gradients move?
        progress: Called with the number of steps done and the number of all steps.

    Returns:
        The verdict with its evidence. It can be passed to `auto_configure(loss_scaling=...)` and `wrap_optimizer`.

    Raises:
        InputError: An argument cannot be used, or training is not finite even in float32.
        UnsupportedError: The model's Keras runs on another backend than TensorFlow.
    """
    if steps < 2:
        raise InputError(f"steps: at least 2 are needed, got {steps}")
    batches = Batches(data)
    first_batch = next(batches.take(1))
    float32, float16, family = _twins(model, first_batch[0])
    initial = float32.get_weights()
    float16.set_weights(initial)
    if optimizer is None:
        optimizer = getattr(model, "optimizer", None)
    bar = _Bar(progress, steps + SHADOW_STEPS)

    trainer = Trainer(float32, family, loss, fresh_optimizer(optimizer, family))
    seen = [_finite_step(trainer.step(batch), number, bar) for number, batch in enumerate(batches.take(steps), start=1)]
    later = _later_drift(trainer, float32, later_weights, batches, seen)
    evidence = _Evidence(seen, frozenset(layer.name for layer in all_layers(float16) if not is_low_precision(layer)))

    def try_scale(bits: int) -> ShadowRun:
        float16.set_weights(initial)
        shadow = Trainer(float16, family, loss, fresh_optimizer(optimizer, family), scale=2.0**bits)
        taken = [bar.advance(shadow.step(batch)) for batch in batches.take(SHADOW_STEPS)]
        return _shadow_run(taken, seen, 2.0**bits)

    verdict, reason, bits, runs = _judge(evidence, later, try_scale)
    bar.finish()
    return _calibration(str(float32.name), evidence, later, verdict, reason, bits, runs)


class _Bar:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def advance(self, step: StepGradients) -> StepGradients:
        self._done = min(self._done + 1, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)
        return step

    def finish(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total)


class _Evidence:
    """What the float32 steps showed, put together."""

    def __init__(self, steps: list[StepGradients], kept_float32: frozenset[str]) -> None:
        self.steps = steps
        self.names = steps[0].names
        self.rows = [[sum(step.histograms[row][each] for step in steps) for each in range(BINS)] for row in self._rows]
        # A layer that stays in float32 loses nothing at a small scale.
        self.low_rows = [row for row in self._rows if _layer(self.names[row]) not in kept_float32]
        self.histogram = [sum(self.rows[row][each] for row in self.low_rows) for each in range(BINS)]
        self.largest_by_step = [max(step.largest) for step in steps]
        self.largest = max(self.largest_by_step)
        if self.largest == 0.0:
            raise InputError(
                "model: all gradients are zero in float32: is a layer trainable, and does the loss use it?"
            )
        self.lowest_bits = lower_bound(self.histogram)
        self.highest_bits = upper_bound(self.largest)
        tenth = max(1, len(steps) // 10)
        self.drift_bits = _mean_log2(self.largest_by_step[-tenth:]) - _mean_log2(self.largest_by_step[:tenth])

    @property
    def _rows(self) -> range:
        return range(len(self.names))

    def ranges(self) -> tuple[GradientRange, ...]:
        return tuple(self._range(row) for row in self._rows)

    def _range(self, row: int) -> GradientRange:
        nonzero, zeros = sum(self.rows[row]), sum(step.zeros[row] for step in self.steps)
        largest = max(step.largest[row] for step in self.steps)
        return GradientRange(
            name=self.names[row],
            elements=nonzero + zeros,
            zero_share=zeros / max(1, nonzero + zeros),
            largest=largest,
            lowest_bits=lower_bound(self.rows[row]) if nonzero else None,
            highest_bits=upper_bound(largest) if nonzero else None,
        )

    def limits(self) -> tuple[str, str]:
        """Name what sets the highest scale, and what would lose most at a scale below the lowest."""
        above = max(self._rows, key=lambda row: max(step.largest[row] for step in self.steps))
        edge = self.lowest_bits - 1
        below = max(self.low_rows, key=lambda row: lost_share(self.rows[row], edge) * sum(self.rows[row]))
        return self.names[above], self.names[below]

    def effect(self, bits: int) -> ScaleEffect:
        return ScaleEffect(
            scale=2.0**bits,
            headroom_bits=math.log2(FLOAT16_LARGEST) - math.log2(self.largest) - bits,
            lost_share=lost_share(self.histogram, bits),
            subnormal_share=subnormal_share(self.histogram, bits),
        )


def _judge(
    evidence: _Evidence, later: float | None, try_scale: Callable[[int], ShadowRun]
) -> tuple[Verdict, str, int, list[ShadowRun]]:
    low, high = evidence.lowest_bits, evidence.highest_bits
    if low > high:
        return "dynamic", "the gradients span more than float16 holds", (low + high) // 2, []
    drift = max(abs(evidence.drift_bits), abs(later or 0.0))
    unscaled = low <= -HEADROOM_BITS and high >= HEADROOM_BITS
    bits = 0 if unscaled else (low + high) // 2
    runs = [try_scale(bits)]
    if runs[0].overflows and not unscaled:
        bits -= LOWER_BY_BITS
        runs.append(try_scale(bits))
    last = runs[-1]
    if last.overflows:
        return "dynamic", f"float16 overflowed in {last.overflows} of {last.steps} steps all the same", bits, runs
    if last.zero_share - last.float32_zero_share > MORE_ZEROS:
        return "dynamic", f"{last.zero_share:.0%} of the float16 gradients were zero", bits, runs
    if drift > (high - low) / 2:
        return "dynamic", f"the gradients moved by {drift:.1f} bits, more than half of the interval", bits, runs
    if unscaled:
        return "none", f"{-low} bits below and {high} bits above a scale of 1 are free", 0, runs
    return "static", f"{bits - low} bits from the lowest and {high - bits} bits from the highest that fits", bits, runs


def _calibration(
    name: str,
    evidence: _Evidence,
    later: float | None,
    verdict: Verdict,
    reason: str,
    bits: int,
    runs: list[ShadowRun],
) -> Calibration:
    above, below = evidence.limits()
    return Calibration(
        verdict=verdict,
        reason=reason,
        scale=None if verdict == "dynamic" else 2.0**bits,
        lowest_bits=evidence.lowest_bits,
        highest_bits=evidence.highest_bits,
        model=name,
        steps=len(evidence.steps),
        losses=(evidence.steps[0].loss, evidence.steps[-1].loss),
        largest=evidence.largest,
        smallest_step_largest=min(evidence.largest_by_step),
        percentile_9999=quantile(evidence.histogram, 0.9999),
        effects=tuple(evidence.effect(each) for each in dict.fromkeys((bits, 0, 10, 15))),
        ranges=evidence.ranges(),
        limits_above=above,
        limits_below=below,
        drift_bits=evidence.drift_bits,
        later_drift_bits=later,
        shadow_runs=tuple(runs),
        histogram=tuple(evidence.histogram),
        histogram_from=LOWEST,
    )


def _twins(model: Any, x: Any) -> tuple[Any, Any, KerasFamily]:
    family = family_of(model)
    if family is not None:
        _expect_tensorflow(family)
        return copy_model(model, family, "float32", x), copy_model(model, family, "mixed_float16", x), family
    if not callable(model):
        raise InputError(f"model: expected a Keras model or a function that builds one, got {type(model).__qualname__}")
    float32, float16 = _build(model, "float32", x), _build(model, "mixed_float16", x)
    return float32, float16, expect_family(float32, "a model from the function")


def _build(builder: Callable[[], Any], precision: Precision, x: Any) -> Any:
    with ExitStack() as policies:
        for family in loaded_families():
            policies.enter_context(global_policy(family, precision))
        built = builder()
        family = expect_family(built, "a model from the function")
        _expect_tensorflow(family)
        if any(map(is_low_precision, all_layers(built))) == (precision == "mixed_float16"):
            if not built.built or not built.weights:
                built(x)
            return built
    # The function chooses the policies itself.
    return copy_model(built, family, precision, x)


def _expect_tensorflow(family: KerasFamily) -> None:
    if family.backend != "tensorflow":
        raise UnsupportedError(f"calibration runs on TensorFlow; this Keras runs on {family.backend}")


def _finite_step(step: StepGradients, number: int, bar: _Bar) -> StepGradients:
    if not step.finite or not math.isfinite(step.loss):
        raise InputError(f"model: step {number} is not finite even in float32 (loss {step.loss}): mend that first")
    return bar.advance(step)


def _later_drift(
    trainer: Trainer, twin: Any, weights: Sequence[Any] | None, batches: Batches, seen: list[StepGradients]
) -> float | None:
    if weights is None:
        return None
    tenth = max(1, len(seen) // 10)
    twin.set_weights(list(weights))
    later = [max(trainer.step(batch).largest) for batch in batches.take(tenth)]
    return _mean_log2(later) - _mean_log2([max(step.largest) for step in seen[:tenth]])


def _shadow_run(taken: list[StepGradients], float32: list[StepGradients], scale: float) -> ShadowRun:
    both = min(len(taken), len(float32))
    return ShadowRun(
        scale=scale,
        steps=len(taken),
        overflows=sum(not step.finite for step in taken),
        zero_share=sum(step.zero_share for step in taken[:both]) / both,
        float32_zero_share=sum(step.zero_share for step in float32[:both]) / both,
    )


def _layer(row: str) -> str:
    """Give the layer's name in `output of LAYER` or in `weight MODEL/LAYER/VARIABLE`."""
    parts = row.rpartition(" ")[2].split("/")
    return parts[-2] if len(parts) > 1 else parts[-1]


def _mean_log2(values: list[float]) -> float:
    positive = [math.log2(value) for value in values if value > 0.0]
    return sum(positive) / len(positive) if positive else 0.0
