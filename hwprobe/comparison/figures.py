"""A comparison's figures as short text, the same in the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hwprobe.comparison.facts import Comparison, Run, Spread, TaskResult, VariantResult
from hwprobe.configuration import LossScaling
from hwprobe.render.printable import printable


def headings(task: TaskResult) -> tuple[str, ...]:
    """Give the headings of a task's table. The last column is there where a device told its memory."""
    return (
        "variant",
        f"{printable(task.metric)} (range)",
        "lost",
        "skipped",
        "bad",
        "first bad",
        "zeros",
        "scale",
        "time",
        *(("memory",) if _tells_memory(task) else ()),
    )


def rows(task: TaskResult) -> list[tuple[str, ...]]:
    """Give a task's table, a line for each variant."""
    width = len(headings(task))
    return [row(variant)[:width] for variant in task.variants]


def row(variant: VariantResult) -> tuple[str, ...]:
    """Give one variant's line with every column."""
    if not variant.runs:
        return (printable(variant.variant), "not run", *("-" for _ in range(8)))
    return (
        printable(variant.variant),
        _spread(variant.metric),
        f"{variant.lost} of {len(variant.runs)}",
        _each(variant.runs, lambda run: run.skipped_steps, str),
        _each(variant.runs, lambda run: run.non_finite_steps, str),
        _each(variant.runs, lambda run: run.first_bad_step, str),
        "-" if variant.zero_share is None else f"{variant.zero_share:.1%}",
        _each(variant.runs, lambda run: run.scales[-1] if run.scales else None, power_of_two),
        "-" if variant.time_ratio is None else f"{variant.time_ratio.mean:.2f}",
        "-" if variant.step_memory_bytes is None else f"{variant.step_memory_bytes / 2**20:.0f} MiB",
    )


def _tells_memory(task: TaskResult) -> bool:
    return any(variant.step_memory_bytes is not None for variant in task.variants)


def power_of_two(scale: float) -> str:
    """Write a scale: 2^15 for 32768, plainly where it is no power."""
    exponent = math.log2(scale) if scale > 0.0 else math.nan
    return f"2^{exponent:.0f}" if exponent == round(exponent) else f"{scale:g}"


def scaling_text(scaling: LossScaling | None) -> str:
    """Write a loss scaling in a few words."""
    if scaling is None or scaling.initial_scale is None:
        return "no scaling"
    return (
        f"{scaling.mode} from {power_of_two(scaling.initial_scale)}"
        if scaling.mode == "dynamic"
        else (f"static {power_of_two(scaling.initial_scale)}")
    )


def about(comparison: Comparison) -> str:
    """Say on what and with what it was measured."""
    float32 = "; float32 here is TF32" if comparison.float32_is_tf32 else ""
    stopped = f"; stopped early ({comparison.stopped})" if comparison.stopped else ""
    return printable(
        f"{comparison.device}, TensorFlow {comparison.tensorflow}, Keras {comparison.keras}, "
        f"{comparison.seeds} seeds{float32}{stopped}"
    )


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "lost"
    return f"{spread.mean:.3g} ({spread.least:.3g} to {spread.greatest:.3g})"


def _each(runs: Sequence[Run], value: Callable[[Run], float | None], write: Callable[[float], str]) -> str:
    values = [value(run) for run in runs]
    known = [write(each) for each in values if each is not None]
    if not known:
        return "-"
    return (
        known[0]
        if len(set(known)) == 1 and len(known) == len(values)
        else ", ".join("-" if each is None else write(each) for each in values)
    )
