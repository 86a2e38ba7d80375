"""What a comparison measured, as frozen types."""

from __future__ import annotations

import statistics
from typing import Literal

from hwprobe.configuration import LossScaling
from hwprobe.source import Fact


class Run(Fact, frozen=True, kw_only=True):
    """One training run: one variant from one start.

    Attributes:
        seed: Which start.
        steps: Steps that it made.
        metric: The task's metric at the end; None if it is not finite or the run did not reach its end.
        lost_because: Why the run counts as lost; None for one that is not.
        skipped_steps: Steps that the loss scaler left out; None where nothing can be skipped.
        non_finite_steps: Steps whose gradients held an infinity or NaN.
        first_bad_step: The first of those, from 0; None without any.
        zero_share: Share of exact zeros among the gradients, mean over the steps with finite ones; None without any.
        seconds: 20th percentile of the time of a step, without the first ones; None if too few were made.
        losses: Unscaled loss of each step; None where it is not finite.
        scales: Loss scale of each step; empty without scaling.
    """

    seed: int
    steps: int
    metric: float | None = None
    lost_because: str | None = None
    skipped_steps: int | None = None
    non_finite_steps: int = 0
    first_bad_step: int | None = None
    zero_share: float | None = None
    seconds: float | None = None
    losses: tuple[float | None, ...] = ()
    scales: tuple[float, ...] = ()


class Spread(Fact, frozen=True, kw_only=True):
    """Mean, least and greatest of a figure over the runs."""

    mean: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: list[float]) -> Spread | None:
        """Summarise values; None without any."""
        if not values:
            return None
        return cls(mean=statistics.fmean(values), least=min(values), greatest=max(values))


class VariantResult(Fact, frozen=True, kw_only=True):
    """All runs of one variant.

    Attributes:
        variant: As it was asked for: `mixed_float16:static=auto`.
        dtype_policy: Keras' name of the policy.
        loss_scaling: What `static=auto` came to, too.
        not_run_because: Why there are no runs.
        note: What calibration said.
        runs: By seed.
        time_ratio: Time of a step over float32's, one ratio a seed; None without float32 or time.
        step_memory_bytes: Device memory that one step takes above what is resident; None where the device does not
            tell (a CPU).
    """

    variant: str
    dtype_policy: str
    loss_scaling: LossScaling | None = None
    not_run_because: str | None = None
    note: str | None = None
    runs: tuple[Run, ...] = ()
    time_ratio: Spread | None = None
    step_memory_bytes: int | None = None

    @property
    def metric(self) -> Spread | None:
        """Metric over the runs that are not lost."""
        return Spread.of([run.metric for run in self.runs if run.metric is not None and run.lost_because is None])

    @property
    def lost(self) -> int:
        """How many runs are lost."""
        return sum(run.lost_because is not None for run in self.runs)

    @property
    def zero_share(self) -> float | None:
        """Mean share of zero gradients over the runs."""
        shares = [run.zero_share for run in self.runs if run.zero_share is not None]
        return statistics.fmean(shares) if shares else None


class TaskResult(Fact, frozen=True, kw_only=True):
    """One task in every variant.

    Attributes:
        task: `digits_mlp`, or the factory's name.
        title: What it is, in a line.
        metric: Name of the metric.
        higher_is_better: Which way it counts.
        steps: Steps that each run was to make.
        variants: In the order asked for.
        verdict: Sentences; one of them may be "no difference found".
    """

    task: str
    title: str
    metric: str
    higher_is_better: bool
    steps: int
    variants: tuple[VariantResult, ...] = ()
    verdict: tuple[str, ...] = ()


class Comparison(Fact, frozen=True, kw_only=True):
    """The answer of `hwprobe compare`.

    Attributes:
        schema: `hwprobe.compare/1`.
        hwprobe: Version of hwprobe.
        device: What the training ran on, as TensorFlow describes it.
        tensorflow: Version.
        keras: Version.
        float32_is_tf32: Whether float32 products could use TensorFloat-32, so that "float32" is really TF32 here.
        seeds: How many starts.
        tasks: In the order in which they ran.
        stopped: Why it ended early: `interrupted` or `time limit`; None if it did not.
    """

    schema: Literal["hwprobe.compare/1"] = "hwprobe.compare/1"
    hwprobe: str
    device: str
    tensorflow: str
    keras: str
    float32_is_tf32: bool
    seeds: int
    tasks: tuple[TaskResult, ...] = ()
    stopped: Literal["interrupted", "time limit"] | None = None
