"""Saying what a comparison shows, and no more than it shows."""

from __future__ import annotations

from collections.abc import Iterable

from hwprobe.comparison.facts import Spread, TaskResult, VariantResult

NOTICEABLE_TIME = 0.05
"""Times count as different where every seed's ratio is more than this away from 1."""


def verdict(task: TaskResult) -> tuple[str, ...]:
    """Put a task's figures into sentences: stability, the metric, time, dynamic against static.

    A difference is named only where the runs of the two sides do not overlap; with one seed nothing is named, since
    nothing shows how much chance does.

    Args:
        task: The measured task; its own `verdict` is not looked at.
    """
    ran = [variant for variant in task.variants if variant.runs]
    if not ran:
        return ("nothing was measured",)
    sentences = [
        *_not_run(task.variants),
        *_stability(ran),
        *_metric(task, ran),
        *_time(ran),
        *_dynamic_or_static(task, ran),
    ]
    return tuple(sentences)


def _not_run(variants: Iterable[VariantResult]) -> list[str]:
    return [f"{each.variant} was not run: {each.not_run_because}" for each in variants if each.not_run_because]


def _stability(ran: list[VariantResult]) -> list[str]:
    lost = [f"{each.variant} lost {each.lost} of {len(each.runs)} runs" for each in ran if each.lost]
    return lost or ["no run was lost" + (f" in any of {len(ran)} variants" if len(ran) > 1 else "")]


def _metric(task: TaskResult, ran: list[VariantResult]) -> list[str]:
    reference = _reference(ran)
    if reference is None or reference.metric is None:
        return []
    if len(reference.runs) < 2:
        return [f"one seed shows nothing about {task.metric}: use --seeds 3"]
    others = [each for each in ran if each is not reference and each.metric is not None]
    differing = [
        f"{each.variant} has a {_direction(task, each.metric, reference.metric)} {task.metric} than float32 "
        f"({each.metric.mean:.3g} against {reference.metric.mean:.3g})"
        for each in others
        if each.metric is not None and _apart(each.metric, reference.metric)
    ]
    if differing or not others:
        return differing
    return [f"no difference found in {task.metric}: every variant's runs overlap float32's"]


def _time(ran: list[VariantResult]) -> list[str]:
    sentences = []
    compared = False
    for each in ran:
        ratio = each.time_ratio
        if ratio is None or each.dtype_policy == "float32" or each.lost == len(each.runs):
            continue
        compared = True
        if ratio.greatest < 1.0 - NOTICEABLE_TIME:
            sentences.append(f"{each.variant} is faster than float32: {ratio.mean:.2f} of its time")
        elif ratio.least > 1.0 + NOTICEABLE_TIME:
            sentences.append(f"{each.variant} is slower than float32: {ratio.mean:.2f} of its time")
    return sentences or ["no difference found in time" if compared else "no time could be set against float32's"]


def _dynamic_or_static(task: TaskResult, ran: list[VariantResult]) -> list[str]:
    dynamic = _with_mode(ran, "dynamic")
    static = [each for each in ran if each.loss_scaling is not None and each.loss_scaling.mode == "static"]
    if dynamic is None or not static:
        return []
    sentences = []
    for each in static:
        parts = [_losses(dynamic, each), _times(dynamic, each), _metrics(task, dynamic, each)]
        found = [part for part in parts if part is not None]
        sentences.append(
            f"dynamic against {each.variant.partition(':')[2]}: {', '.join(found) if found else 'no difference found'}"
        )
    return sentences


def _losses(dynamic: VariantResult, static: VariantResult) -> str | None:
    if dynamic.lost == static.lost:
        return None
    return f"dynamic lost {dynamic.lost} runs and static {static.lost}"


def _times(dynamic: VariantResult, static: VariantResult) -> str | None:
    one, other = dynamic.time_ratio, static.time_ratio
    if one is None or other is None or len(dynamic.runs) < 2 or not _apart(one, other):
        return None
    ratio = one.mean / other.mean
    if abs(ratio - 1.0) < NOTICEABLE_TIME:
        return None
    return f"a step with dynamic takes {ratio:.2f} of the time with static"


def _metrics(task: TaskResult, dynamic: VariantResult, static: VariantResult) -> str | None:
    one, other = dynamic.metric, static.metric
    if one is None or other is None or len(dynamic.runs) < 2 or not _apart(one, other):
        return None
    return f"dynamic has a {_direction(task, one, other)} {task.metric} ({one.mean:.3g} against {other.mean:.3g})"


def _reference(ran: list[VariantResult]) -> VariantResult | None:
    return next((each for each in ran if each.dtype_policy == "float32"), None)


def _with_mode(ran: list[VariantResult], mode: str) -> VariantResult | None:
    return next((each for each in ran if each.loss_scaling is not None and each.loss_scaling.mode == mode), None)


def _apart(one: Spread, other: Spread) -> bool:
    return one.greatest < other.least or one.least > other.greatest


def _direction(task: TaskResult, one: Spread, other: Spread) -> str:
    return "better" if (one.mean > other.mean) is task.higher_is_better else "worse"
