"""The result of a calibration: which fixed loss scale fits a model, with the evidence for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hwprobe.configuration import LossScaling
from hwprobe.errors import InputError
from hwprobe.files import open_without_waiting, write_aside
from hwprobe.scaling.bounds import HEADROOM_BITS, LOST_SHARE
from hwprobe.serialize import from_json, to_json
from hwprobe.source import Fact

MAX_FILE_BYTES = 4 * 2**20
"""A calibration of a model with a thousand layers has 300 KiB."""

Verdict = Literal["static", "none", "dynamic"]


class GradientRange(Fact, frozen=True, kw_only=True):
    """The gradients of one weight, or of the output of one layer, over all steps.

    Attributes:
        name: `weight PATH` or `output of LAYER`.
        elements: How many were seen.
        zero_share: Share of exact zeros among them.
        largest: Largest magnitude.
        lowest_bits, highest_bits: Scales 2**lowest_bits to 2**highest_bits would fit these gradients alone; no scale
            would where the first is above the second. None where all are zero.
    """

    name: str
    elements: int
    zero_share: float
    largest: float
    lowest_bits: int | None
    highest_bits: int | None


class ScaleEffect(Fact, frozen=True, kw_only=True):
    """What one scale would do to the gradients that were seen.

    Attributes:
        scale: The scale.
        headroom_bits: Powers of two between the largest scaled gradient and float16's largest number.
        lost_share: Share of non-zero elements that become 0.
        subnormal_share: Share that loses digits.
    """

    scale: float
    headroom_bits: float
    lost_share: float
    subnormal_share: float


class ShadowRun(Fact, frozen=True, kw_only=True):
    """A short training in float16 on a copy of the weights, over the same batches as the float32 one.

    Attributes:
        scale: Its loss scale.
        steps: How many.
        overflows: Steps with a non-finite gradient.
        zero_share: Share of exact zeros among the gradients, over the steps that float32 made too.
        float32_zero_share: The same in float32.
    """

    scale: float
    steps: int
    overflows: int
    zero_share: float
    float32_zero_share: float


class Calibration(Fact, frozen=True, kw_only=True):
    """Which loss scaling fits a model, and why.

    Attributes:
        schema: Form of the JSON document.
        verdict: `static`: a fixed scale fits; `none`: no scaling is needed; `dynamic`: a fixed scale is unsafe.
        reason: One sentence.
        scale: The fixed scale; 1 where none is needed; None where it is unsafe.
        lowest_bits, highest_bits: Scales from 2**lowest_bits to 2**highest_bits fit; none does where the first is above
            the second.
        model: Name of the model.
        steps: float32 steps that were looked at: what this evidence covers.
        losses: Loss of the first and the last of them.
        largest: Largest gradient magnitude.
        smallest_step_largest: Largest magnitude of the step in which it was smallest.
        percentile_9999: Magnitude that 99.99% of the non-zero gradients do not exceed, to the next power of two.
        effects: What some scales would do: the chosen one, 1, 2**10 and 2**15.
        ranges: Every weight and layer output.
        limits_above, limits_below: Which of them sets the highest and the lowest scale.
        drift_bits: By how many powers of two the largest gradient moved from the first to the last tenth of the steps.
        later_drift_bits: The same to a later checkpoint; None if none was given.
        shadow_runs: In float16; empty where the interval is empty.
        histogram: Non-zero elements by exponent.
        histogram_from: Exponent of its first bin.
    """

    schema: Literal["hwprobe.calibration/1"] = "hwprobe.calibration/1"
    verdict: Verdict
    reason: str
    scale: float | None
    lowest_bits: int
    highest_bits: int
    model: str
    steps: int
    losses: tuple[float, float]
    largest: float
    smallest_step_largest: float
    percentile_9999: float
    effects: tuple[ScaleEffect, ...]
    ranges: tuple[GradientRange, ...]
    limits_above: str
    limits_below: str
    drift_bits: float
    later_drift_bits: float | None = None
    shadow_runs: tuple[ShadowRun, ...] = ()
    histogram: tuple[int, ...]
    histogram_from: int

    @property
    def loss_scaling(self) -> LossScaling:
        """The loss scaling that this result stands for, as `auto_configure` and `wrap_optimizer` take it."""
        if self.verdict == "static" and self.scale is not None:
            return LossScaling.static(self.scale)
        return LossScaling.none() if self.verdict == "none" else LossScaling.dynamic()

    @property
    def midpoint(self) -> float | None:
        """The scale in the middle of those that fit, whatever the verdict; None where none fits."""
        if self.lowest_bits > self.highest_bits:
            return None
        return 2.0 ** ((self.lowest_bits + self.highest_bits) // 2)

    def save(self, path: str | Path) -> None:
        """Write it as JSON.

        Args:
            path: The file; one that stands there is replaced.

        Raises:
            InputError: It cannot be written.
        """
        write_aside(Path(path), to_json(self, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read what `save` wrote.

        Args:
            path: The file.

        Raises:
            InputError: It cannot be read, or is no calibration.
        """
        try:
            with open_without_waiting(Path(path)) as file:
                text = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        if len(text) > MAX_FILE_BYTES:
            raise InputError(f"{path}: larger than {MAX_FILE_BYTES // 2**20} MiB: not a calibration")
        return from_json(text, cls, where=str(path))

    def plot(self, path: str | Path) -> None:
        """Draw the histogram of the gradients with the limits of float16, as PNG, SVG or PDF by the file's ending.

        Args:
            path: The file to write.

        Raises:
            UnsupportedError: matplotlib is not installed (`pip install "tf-hwprobe[plots]"`).
            InputError: The file cannot be written.
        """
        from hwprobe.scaling.plot import draw

        draw(self.histogram, self.histogram_from, self.scale, title=self.headline, path=Path(path))

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {name:<22}{value}" for name, value in self._lines())])

    @property
    def headline(self) -> str:
        """The verdict and its reason, in one line."""
        heads = {
            "static": f"a fixed loss scale of {_power(self.scale or 1.0)} fits {self.model}",
            "none": f"{self.model} needs no loss scaling in float16",
            "dynamic": f"a fixed loss scale is unsafe for {self.model}: use dynamic",
        }
        return f"{heads[self.verdict]} ({self.reason})"

    def _lines(self) -> list[tuple[str, str]]:
        fits = f"2**{self.lowest_bits} to 2**{self.highest_bits}"
        empty = self.lowest_bits > self.highest_bits
        lines = [
            ("evidence", f"{self.steps} float32 steps, loss {self.losses[0]:.4g} to {self.losses[1]:.4g}"),
            (
                "scales that fit",
                f"none: at least 2**{self.lowest_bits}, at most 2**{self.highest_bits}" if empty else fits,
            ),
            ("", f"at most {LOST_SHARE:.1%} of the gradients lost, {HEADROOM_BITS} bits to spare"),
            ("largest gradient", f"{self.largest:.3g}; 99.99% below {self.percentile_9999:.3g}"),
            ("limits the scale", f"above: {self.limits_above}; below: {self.limits_below}"),
            ("drift", f"{self.drift_bits:+.1f} bits" + self._later()),
        ]
        lines += [(f"at scale {_power(effect.scale)}", _effect(effect)) for effect in self.effects]
        lines += [("tried in float16", _run(run)) for run in self.shadow_runs]
        return lines

    def _later(self) -> str:
        return "" if self.later_drift_bits is None else f"; {self.later_drift_bits:+.1f} bits to the later checkpoint"


def _effect(effect: ScaleEffect) -> str:
    share = f"{effect.lost_share:.2%} lost, {effect.subnormal_share:.2%} with fewer digits"
    if effect.headroom_bits < 0:
        return f"{share}, overflows by {-effect.headroom_bits:.1f} bits"
    return f"{share}, {effect.headroom_bits:.1f} bits to spare"


def _run(run: ShadowRun) -> str:
    zeros = f"{run.zero_share:.1%} zeros (float32: {run.float32_zero_share:.1%})"
    return f"{run.steps} steps at {_power(run.scale)}: {run.overflows} overflows, {zeros}"


def _power(scale: float) -> str:
    """Write a power of two as one."""
    mantissa, exponent = scale.hex().split("p")
    return f"2**{int(exponent)}" if float.fromhex(mantissa) == 1.0 else f"{scale:g}"
