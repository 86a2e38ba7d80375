"""Running a comparison: all variants of a task side by side, one step each in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hwprobe.comparison.facts import Comparison, Run, Spread, TaskResult, VariantResult
from hwprobe.comparison.tasks import Task
from hwprobe.comparison.training import Trainer
from hwprobe.comparison.variants import Variant
from hwprobe.comparison.verdict import verdict
from hwprobe.configuration import LossScaling
from hwprobe.errors import HwprobeError
from hwprobe.quiet import retracing_expected
from hwprobe.version import VERSION

CALIBRATION_STEPS = 60

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


class _StoppedError(HwprobeError):
    """The time limit was reached."""


def compare_tasks(
    tasks: Sequence[Task],
    variants: Sequence[Variant],
    *,
    seeds: int = 3,
    steps: int | None = None,
    time_limit_seconds: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train every task in every variant and compare.

    A start (initial weights and order of the data) depends on the seed alone and is the same in every variant. Steps
    are interleaved, and the order of the variants turns from step to step, so that a machine that slows down slows
    all of them. Ctrl-C and the time limit end the comparison early and keep what was measured.

    Args:
        tasks: What to train.
        variants: In which precisions.
        seeds: Starts for each variant.
        steps: Steps for each run; None takes the task's own number.
        time_limit_seconds: Longest time for all of it; None for no limit.
        progress: Told how far it is.
    """
    limit = None if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    done: list[TaskResult] = []
    stopped = None
    for task in tasks:
        running = _RunningTask(task, variants, seeds, steps or task.steps, limit, progress)
        try:
            with retracing_expected():
                running.run()
        except KeyboardInterrupt:
            stopped = "interrupted"
        except _StoppedError:
            stopped = "time limit"
        result = running.result()
        if any(variant.runs or variant.not_run_because for variant in result.variants):
            done.append(result)
        if stopped is not None:
            break
    return msgspec.structs.replace(_about_this_process(seeds), tasks=tuple(done), stopped=stopped)


class _RunningTask:
    def __init__(
        self,
        task: Task,
        variants: Sequence[Variant],
        seeds: int,
        steps: int,
        limit: float | None,
        progress: Progress | None,
    ) -> None:
        self._task, self._variants, self._seeds, self._steps = task, variants, seeds, steps
        self._limit, self._progress = limit, progress
        self._runs: dict[str, list[Run]] = {variant.name: [] for variant in variants}
        self._scalings: dict[str, LossScaling] = {}
        self._notes: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._memory: dict[str, int] = {}
        self._trainers: list[Trainer] = []

    def run(self) -> None:
        for variant in self._variants:
            if variant.loss_scaling is not None:
                self._scalings[variant.name] = variant.loss_scaling
        for variant in self._variants:
            if variant.loss_scaling is None:
                self._calibrate(variant)
        for seed in range(self._seeds):
            self._run_seed(seed)

    def _calibrate(self, variant: Variant) -> None:
        from hwprobe.scaling.calibrate import calibrate_loss_scale

        self._check_time()
        task = self._task
        calibration = calibrate_loss_scale(
            task.build,
            task.loss,
            task.batches(0),
            CALIBRATION_STEPS,
            optimizer=task.optimizer(),
            progress=self._calibrating,
        )
        self._notes[variant.name] = calibration.reason
        if calibration.verdict == "dynamic":
            self._refused[variant.name] = f"no static scale is safe here: {calibration.reason}"
        else:
            self._scalings[variant.name] = LossScaling.static(calibration.scale or 1.0)

    def _calibrating(self, done: int, total: int) -> None:
        self._check_time()
        self._tell("calibrating", done, total)

    def _run_seed(self, seed: int) -> None:
        weights = None
        self._trainers = []
        for variant in sorted(self._variants, key=lambda each: each.dtype_policy != "float32"):
            if variant.name not in self._refused:
                trainer = Trainer(self._task, variant, self._scalings[variant.name], seed, weights)
                weights = weights or trainer.model.get_weights()
                self._trainers.append(trainer)
        batches = self._task.batches(seed)
        for number in range(self._steps):
            batch = next(batches)
            turn = number % len(self._trainers)
            for trainer in (*self._trainers[turn:], *self._trainers[:turn]):
                self._check_time()
                self._one_step(trainer, batch, number, seed)
            done = seed * self._steps + number + 1
            self._tell("training", done, self._seeds * self._steps)
        self._collect()

    def _one_step(self, trainer: Trainer, batch: Any, number: int, seed: int) -> None:
        if seed == 0 and number == 1:
            taken = trainer.step_memory(batch, _device_name())
            if taken is not None:
                self._memory[trainer.variant.name] = taken
        else:
            trainer.step(batch)

    def _collect(self) -> None:
        trainers, self._trainers = self._trainers, []
        for trainer in trainers:
            self._runs[trainer.variant.name].append(trainer.result())

    def _check_time(self) -> None:
        if self._limit is not None and time.monotonic() > self._limit:
            raise _StoppedError

    def _tell(self, what: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(f"{self._task.name}: {what}", done, total)

    def result(self) -> TaskResult:
        """What was measured so far; runs that were under way when it stopped are among it."""
        self._collect()
        task = self._task
        reference = {run.seed: run.seconds for run in self._runs.get(self._reference() or "", [])}
        variants = tuple(
            VariantResult(
                variant=variant.name,
                dtype_policy=variant.dtype_policy,
                loss_scaling=self._scalings.get(variant.name),
                not_run_because=self._refused.get(variant.name),
                note=self._notes.get(variant.name),
                runs=tuple(self._runs[variant.name]),
                time_ratio=_ratios(self._runs[variant.name], reference),
                step_memory_bytes=self._memory.get(variant.name),
            )
            for variant in self._variants
        )
        result = TaskResult(
            task=task.name,
            title=task.title,
            metric=task.metric,
            higher_is_better=task.higher_is_better,
            steps=self._steps,
            variants=variants,
        )
        return msgspec.structs.replace(result, verdict=verdict(result))

    def _reference(self) -> str | None:
        return next((variant.name for variant in self._variants if variant.dtype_policy == "float32"), None)


def _ratios(runs: list[Run], reference: dict[int, float | None]) -> Spread | None:
    ratios = []
    for run in runs:
        against = reference.get(run.seed)
        if run.seconds is not None and against:
            ratios.append(run.seconds / against)
    return Spread.of(ratios)


def _device_name() -> str:
    import tensorflow as tf

    return "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"


def _about_this_process(seeds: int) -> Comparison:
    import keras
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    capability = details.get("compute_capability")
    return Comparison(
        hwprobe=VERSION,
        device=str(details.get("device_name", "GPU")) if gpus else _cpu_name(),
        tensorflow=tf.__version__,
        keras=keras.__version__,
        float32_is_tf32=bool(capability and capability >= (8, 0))
        and bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        seeds=seeds,
    )


def _cpu_name() -> str:
    import platform

    return f"CPU ({platform.machine()})"
