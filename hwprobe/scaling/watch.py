"""Telling the ways apart in which loss scaling goes wrong, from what each step shows. Pure: it reads no model."""

from __future__ import annotations

import math
from collections.abc import Callable

from hwprobe.findings import EvidenceValue, Finding, Severity
from hwprobe.scaling.reading import ScalingState
from hwprobe.scaling.rules import (
    NON_FINITE_FORWARD,
    POISON,
    SCALE_COLLAPSE,
    SILENT_UNDERFLOW,
    STARTUP_OVERFLOW,
    STUCK_AT_FLOOR,
    finding,
)
from hwprobe.source import Fact

STARTUP_STEPS = 30
"""From 2**15 down to 2**-14 a scale halves 29 times."""

HOPELESS_SCALE = 2.0**-14
"""Smallest normal float16: gradients that overflow even at this scale do not overflow because of the scale."""

UNDERFLOW_SHARE = 0.25
"""In the runs behind this figure, healthy float16 gradients lost up to 1% and the one that failed to learn lost 98%."""


class Seen(Fact, frozen=True, kw_only=True):
    """What one look at the training showed.

    Attributes:
        steps: Steps made since the look before, this one included.
        loss: Unscaled loss of the last step; None if nobody knows it.
        state: How the optimizer scales, and its counters.
    """

    steps: int = 1
    loss: float | None = None
    state: ScalingState


class SkipCounter:
    """Counts skipped steps for scalers that do not: Keras' own show a skip as a lower scale and a counter at 0."""

    def __init__(self) -> None:
        self.skipped_steps = 0
        self.consecutive_skips = 0
        self._scale: float | None = None

    def look(self, state: ScalingState, steps: int) -> None:
        """Take in the next look, `steps` steps after the one before."""
        if state.skipped_steps is not None and state.consecutive_skips is not None:
            self.skipped_steps, self.consecutive_skips = state.skipped_steps, state.consecutive_skips
            return
        first, before = self._scale is None, self._scale
        if before is None:
            before = state.loss_scaling.initial_scale
        self._scale = state.scale
        if state.good_steps is None or before is None or (first and state.good_steps > 0):
            # A scale that is below the first one may come from a checkpoint.
            return
        if state.good_steps > 0 or state.scale > before:
            self.consecutive_skips = 0
        if state.scale < before:
            halvings = steps if state.scale <= 0.0 else min(steps, round(math.log2(before / state.scale)))
            self.skipped_steps += halvings
            self.consecutive_skips += 0 if state.good_steps > 0 else halvings
        elif state.good_steps == 0 and state.scale == before and state.scale in (state.minimum_scale, 0.0):
            self.skipped_steps += steps
            self.consecutive_skips += steps


class Watch:
    """Follows a training and says each thing once: as a warning, and once more if it becomes an error.

    Args:
        patience: Skipped steps in a row after which it is no longer a search for the right scale.
    """

    def __init__(self, patience: int = 10) -> None:
        self.patience = patience
        self.step = 0
        self.skips = SkipCounter()
        self._said: dict[str, Severity] = {}
        self._bad_forward = False

    def look(self, seen: Seen, weights_are_finite: Callable[[], bool | None]) -> tuple[Finding, ...]:
        """Take in one look at the training.

        Args:
            seen: What it showed.
            weights_are_finite: Looks at all weights, and gives None if it cannot; asked only when something is wrong.

        Returns:
            What was not said before.
        """
        self.step += seen.steps
        skipped_before = self.skips.skipped_steps
        self.skips.look(seen.state, seen.steps)
        skipping = self.skips.consecutive_skips > 0
        bad_loss = seen.loss is not None and not math.isfinite(seen.loss)
        if not skipping and not bad_loss:
            self._bad_forward = False
            return self._new(self._startup(skipped_before, seen))
        self._bad_forward = self._bad_forward or bad_loss
        if not bad_loss and self.skips.consecutive_skips < self.patience:
            return ()
        weights = weights_are_finite()
        if weights is False:
            return self._new(self._poison(seen))
        return self._new(self._forward(seen, weights) if self._bad_forward else self._overflow(seen))

    def look_at_gradients(self, underflow_share: float | None, scale: float) -> tuple[Finding, ...]:
        """Take in how many gradients are lost.

        Args:
            underflow_share: Share of gradient elements that are 0 at the scale in force and not at a larger one; None
                if it could not be measured.
            scale: The scale in force.

        Returns:
            What was not said before.
        """
        if underflow_share is None or underflow_share < UNDERFLOW_SHARE:
            return ()
        return self._new(
            finding(
                SILENT_UNDERFLOW,
                f"{underflow_share:.0%} of the gradient elements are 0 at scale {scale:g} and not at a larger one: "
                "they fall below float16's smallest number.",
                "raise the scale, or use dynamic scaling",
                "hwprobe.calibrate_loss_scale(model, loss, data) finds a scale that fits",
                evidence={"underflow_share": underflow_share, "loss_scale": scale},
            )
        )

    def _new(self, found: Finding | None) -> tuple[Finding, ...]:
        if found is None:
            return ()
        said = self._said.get(found.id)
        if said is not None and said.rank >= found.severity.rank:
            return ()
        self._said[found.id] = found.severity
        return (found,)

    def _startup(self, skipped_before: int, seen: Seen) -> Finding | None:
        if skipped_before == 0 or self.step - seen.steps > STARTUP_STEPS:
            return None
        return finding(
            STARTUP_OVERFLOW,
            f"{skipped_before} of the first {self.step} steps were skipped until the scale came down to "
            f"{seen.state.scale:g}: the usual search at the start.",
            evidence={"skipped_steps": skipped_before, "loss_scale": seen.state.scale},
        )

    def _poison(self, seen: Seen) -> Finding:
        skipped = self.skips.skipped_steps - self.skips.consecutive_skips
        who = {
            "hwprobe": "hwprobe's scaler was in force, so they came from elsewhere than a gradient",
            "keras": "Keras' scaler let it through",
            "loss_scale_factor": "loss_scale_factor never skips a step",
            "none": "no loss scaler is in force",
        }[seen.state.scaler]
        return finding(
            POISON,
            f"NaN or infinity stands in the weights at step {self.step}: {who}. Steps skipped before: {skipped}.",
            "restore the last checkpoint",
            "optimizer = hwprobe.wrap_optimizer(optimizer)",
            evidence={"step": self.step, "scaler": seen.state.scaler, "loss_scale": seen.state.scale},
            subject="weights",
        )

    def _forward(self, seen: Seen, weights: bool | None) -> Finding:
        streak = self.skips.consecutive_skips
        persistent = streak >= self.patience
        loss = "not finite" if seen.loss is None else f"{seen.loss:g}"
        looked = "the weights are finite" if weights else "nobody looked at the weights"
        return finding(
            NON_FINITE_FORWARD,
            f"the loss is {loss} at step {self.step} before any scaling, and {looked}"
            f"{f'; {streak} steps in a row were skipped' if persistent else ''}: the forward pass or the data is the "
            "cause, not the loss scale.",
            "look for NaN or infinity in the data",
            'give the first layer with a non-finite output dtype="float32", or use mixed_bfloat16',
            evidence={"step": self.step, "consecutive_skips": streak, "loss_scale": seen.state.scale},
            severity=Severity.ERROR if persistent else None,
            subject="model",
        )

    def _overflow(self, seen: Seen) -> Finding | None:
        state, streak = seen.state, self.skips.consecutive_skips
        if streak < self.patience:
            return None
        evidence: dict[str, EvidenceValue] = {
            "step": self.step,
            "consecutive_skips": streak,
            "loss_scale": state.scale,
        }
        if state.loss_scaling.mode == "static":
            return finding(
                STUCK_AT_FLOOR,
                f"the last {streak} steps were skipped, and the scale is fixed at {state.scale:g}: nothing is learned.",
                "lower the scale, or use dynamic scaling: hwprobe.wrap_optimizer(optimizer, 'dynamic')",
                evidence=evidence,
            )
        if state.minimum_scale is not None and state.scale <= state.minimum_scale:
            return finding(
                STUCK_AT_FLOOR,
                f"the last {streak} steps were skipped, and the scale is at its floor of {state.minimum_scale:g}: "
                "nothing is learned.",
                'run the part that overflows in float32, the output layer first (dtype="float32")',
                "or use mixed_bfloat16",
                evidence=evidence,
            )
        if state.scale >= 1.0:
            return None
        return finding(
            SCALE_COLLAPSE,
            f"the last {streak} steps were skipped and the scale has fallen to {state.scale:g}: something in the "
            "backward pass overflows whatever the scale is.",
            'run the output layer in float32 (dtype="float32"), and whatever divides by a small epsilon',
            "or use mixed_bfloat16",
            evidence=evidence,
            severity=Severity.ERROR if state.scale < HOPELESS_SCALE else None,
        )
