"""Taking the measured best instead of the table's."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hwprobe.bench.facts import Bench
from hwprobe.configuration import DTYPE_POLICIES, Decision, DtypePolicy, LossScaling
from hwprobe.errors import InputError
from hwprobe.source import Fact
from hwprobe.usability import CPU_SUBJECT

MARGIN = 0.05
"""How much faster another policy has to be before it replaces the table's choice."""


class Measured(Fact, frozen=True, kw_only=True):
    """A decision after measurement.

    Attributes:
        decision: The table's decision, or the one with the measured best policy.
        differs: Whether measurement changed the dtype policy.
        reason: What was measured, in a sentence.
        ratios: Speed of each policy against float32 on the slowest device; None where it does not run or is wrong.
    """

    decision: Decision
    differs: bool
    reason: str
    ratios: dict[str, float | None]


def apply_measurement(decision: Decision, measured: Bench | Sequence[Bench]) -> Measured:
    """Choose the dtype policy that was fastest, where it beats the table's choice by more than 5%.

    On several devices a policy is as fast as on the one where it gains least, and counts only if it ran with right
    results on each of them. A device that the decision covers and nobody measured keeps the table's choice.

    Args:
        decision: What the tables say.
        measured: One bench for each device.

    Raises:
        InputError: Nothing was measured, or a bench is of a device that the decision does not cover.
    """
    benches = (measured,) if isinstance(measured, Bench) else tuple(measured)
    if not benches:
        raise InputError("no measurement is given")
    uncovered = _match(decision, benches)
    ratios: dict[str, float | None] = {policy: _slowest(benches, policy) for policy in DTYPE_POLICIES}
    chosen = decision.dtype_policy
    if uncovered:
        return Measured(
            decision=decision,
            differs=False,
            reason=f"{', '.join(uncovered)} was not measured: the table's choice stands",
            ratios=ratios,
        )
    best = max(DTYPE_POLICIES, key=lambda policy: ratios[policy] or 0.0)
    own = ratios[chosen]
    if best == chosen or (own is not None and (ratios[best] or 0.0) <= own * (1.0 + MARGIN)):
        how = "is wrong or missing" if own is None else f"runs at {own:.2f} times the speed of float32"
        return Measured(
            decision=decision,
            differs=False,
            reason=f"measured: {chosen} {how}, and nothing else is more than 5% faster",
            ratios=ratios,
        )
    return _changed(decision, best, ratios)


def _changed(decision: Decision, best: DtypePolicy, ratios: dict[str, float | None]) -> Measured:
    before, own, new = decision.dtype_policy, ratios[decision.dtype_policy], ratios[best] or 1.0
    against = f"{before} {own:.2f}" if own is not None else f"{before} does not run or is wrong"
    reason = f"measured: {best} runs at {new:.2f} times the speed of float32 here, {against}"
    if best == "mixed_float16":
        loss_scaling = decision.loss_scaling if decision.loss_scaling.mode != "none" else LossScaling.dynamic()
    else:
        loss_scaling = LossScaling.none()
    rejected = {name: why for name, why in decision.rejected.items() if name != best}
    return Measured(
        decision=msgspec.structs.replace(
            decision,
            dtype_policy=best,
            loss_scaling=loss_scaling,
            reasons=(reason,),
            rejected={**rejected, before: reason},
        ),
        differs=True,
        reason=reason,
        ratios=ratios,
    )


def _slowest(benches: Sequence[Bench], policy: str) -> float | None:
    ratios = [bench.policy_ratio(policy) for bench in benches]
    known = [ratio for ratio in ratios if ratio is not None]
    return min(known) if len(known) == len(ratios) else None


def _match(decision: Decision, benches: Sequence[Bench]) -> list[str]:
    """Give the labels of the decision's devices that no bench is about."""
    waiting = list(decision.usability)
    known = ", ".join(device.label for device in waiting)
    for bench in benches:
        place = next((device for device in waiting if _is_of(bench, device.subject, device.label)), None)
        if place is None and not any(_is_of(bench, each.subject, each.label) for each in decision.usability):
            raise InputError(f"the measurement is of {bench.description}, and this decision is about {known}")
        # One bench stands for all boards of its kind.
        waiting = [device for device in waiting if not _is_of(bench, device.subject, device.label)]
    return [device.label for device in waiting]


def _is_of(bench: Bench, subject: str, label: str) -> bool:
    if subject == CPU_SUBJECT:
        return bench.device.startswith("CPU")
    if bench.uuid is not None and subject.startswith("GPU-"):
        return bench.uuid == subject
    return not bench.device.startswith("CPU") and label.startswith(bench.description)
