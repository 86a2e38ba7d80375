"""Report and wishes in, decision out. Pure: a recorded machine gives the same decision on any laptop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hwprobe.configuration import (
    DEFAULT_GROWTH_STEPS,
    DEFAULT_INITIAL_SCALE,
    Decision,
    DeviceUsability,
    DtypePolicy,
    LossScaling,
    Memory,
    Usable,
)
from hwprobe.errors import UnsupportedError
from hwprobe.policy import Policy
from hwprobe.report import Report
from hwprobe.source import Fact
from hwprobe.usability import CPU_SUBJECT, usability

Origin = Literal["argument", "plan", "environment", "file", "default"]


class Request(Fact, frozen=True, kw_only=True):
    """What a caller asks for, over the site's policy.

    Attributes:
        dtype_policy: The one policy wanted; None leaves the choice to hwprobe.
        loss_scaling: The scaling wanted; None leaves it.
        memory_growth: Whether memory grows as it is needed; None leaves it to the policy.
        allow_fallback: Whether a wanted dtype policy that the hardware cannot meet may be replaced.
        origin: Where these wishes come from.
    """

    dtype_policy: DtypePolicy | None = None
    loss_scaling: LossScaling | None = None
    memory_growth: bool | None = None
    allow_fallback: bool = False
    origin: Literal["argument", "plan"] = "argument"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return self.dtype_policy is None and self.loss_scaling is None and self.memory_growth is None


def decide(report: Report, policy: Policy, request: Request | None = None) -> Decision:
    """Choose the dtype policy, the loss scaling and the memory settings for this machine.

    The dtype policy is the first of the preference that is usable on every device that will compute. Unknown counts
    as no, and the reason says so.

    Args:
        report: An annotated report.
        policy: The site's policy.
        request: What the caller asks for; it goes before the policy.

    Returns:
        The decision with its reasons and what was rejected.

    Raises:
        UnsupportedError: A wanted dtype policy is not usable on every device and no fallback was allowed.
    """
    request = request or Request()
    devices = usability(report, policy)
    chosen, reasons, rejected = _choose(devices, _preference(devices, policy, request), request)
    loss_scaling, scaling_reason = _loss_scaling(chosen, policy, request)
    return Decision(
        dtype_policy=chosen,
        loss_scaling=loss_scaling,
        memory=_memory(policy, request),
        tf32=policy.precision.tf32,
        limited_by=_limiting(devices, rejected),
        reasons=(*reasons, scaling_reason),
        rejected={name: reason for name, (reason, _) in rejected.items()},
        policy=policy.label,
        origin=policy.origin if request.is_empty else request.origin,
        usability=devices,
    )


def loss_scaling_for(chosen: DtypePolicy, policy: Policy, request: Request) -> LossScaling:
    """Give the loss scaling that goes with a dtype policy that was chosen elsewhere, over all nodes of a job.

    Args:
        chosen: The dtype policy.
        policy: The site's policy.
        request: What the caller asks for; it goes before the policy.
    """
    return _loss_scaling(chosen, policy, request)[0]


Rejected = dict[str, tuple[str, tuple[str, ...]]]
"""Rejected policy to the sentence and the subjects of the devices that ruled it out."""


def _preference(devices: Sequence[DeviceUsability], policy: Policy, request: Request) -> tuple[DtypePolicy, ...]:
    on_cpu = all(device.subject == CPU_SUBJECT for device in devices)
    site = policy.precision.cpu if on_cpu else policy.precision.prefer
    if request.dtype_policy is None:
        return site
    return (request.dtype_policy, *(name for name in site if name != request.dtype_policy))


def _choose(
    devices: Sequence[DeviceUsability], preference: Sequence[DtypePolicy], request: Request
) -> tuple[DtypePolicy, tuple[str, ...], Rejected]:
    rejected: Rejected = {}
    for name in preference:
        blocking = [device for device in devices if device.policies[name].usable is not True]
        if not blocking:
            return name, (_why(name, devices), *_stepped_down(name, request)), rejected
        rejected[name] = (_why_not(name, blocking), tuple(device.subject for device in blocking))
        if name == request.dtype_policy and not request.allow_fallback:
            raise UnsupportedError(
                f"{name} was asked for and is not usable here: {rejected[name][0]}. "
                f"Ask for another policy, or allow a fallback (allow_fallback=True, --allow-fallback)."
            )
    reason = "float32, because nothing is known to be usable: " + "; ".join(
        f"{device.label}: {device.policies['float32'].reason}" for device in devices
    )
    return "float32", (reason,), rejected


def _stepped_down(chosen: DtypePolicy, request: Request) -> tuple[str, ...]:
    if request.dtype_policy in (None, chosen):
        return ()
    return (f"{request.dtype_policy} was asked for and is not usable here; a fallback was allowed",)


def _why(name: DtypePolicy, devices: Sequence[DeviceUsability]) -> str:
    reasons: dict[str, list[str]] = {}
    for device in devices:
        reasons.setdefault(device.policies[name].reason, []).append(device.label)
    return f"{name}: " + "; ".join(f"{reason} on {fold(labels)}" for reason, labels in reasons.items())


def _why_not(name: DtypePolicy, blocking: Sequence[DeviceUsability]) -> str:
    reasons: dict[str, list[str]] = {}
    for device in blocking:
        reasons.setdefault(_sentence(device.policies[name]), []).append(device.label)
    return "; ".join(f"{fold(labels)}: {reason}" for reason, labels in reasons.items())


def _sentence(verdict: Usable) -> str:
    return f"unknown, which counts as no: {verdict.reason}" if verdict.usable is None else verdict.reason


def fold(labels: Sequence[str]) -> str:
    """Name equal devices once: `2 x Tesla T4 (7.5), NVIDIA A100 (8.0)`."""
    counts: dict[str, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    return ", ".join(label if count == 1 else f"{count} x {label}" for label, count in counts.items())


def _limiting(devices: Sequence[DeviceUsability], rejected: Rejected) -> tuple[str, ...]:
    limiting = {subject for _, subjects in rejected.values() for subject in subjects}
    return tuple(device.subject for device in devices if device.subject in limiting)


def _loss_scaling(chosen: DtypePolicy, policy: Policy, request: Request) -> tuple[LossScaling, str]:
    wanted = request.loss_scaling
    if wanted is not None:
        return _needed(chosen, wanted, "it was asked for")
    wish = policy.loss_scaling
    if wish.mode == "auto":
        if chosen != "mixed_float16":
            return LossScaling.none(), _no_scaling_needed(chosen)
        scale, steps = wish.initial_scale or DEFAULT_INITIAL_SCALE, wish.growth_steps or DEFAULT_GROWTH_STEPS
        return LossScaling.dynamic(scale, steps), "dynamic loss scaling: float16 gradients below 6e-8 would become 0"
    if wish.mode == "static" and wish.initial_scale is not None:
        return _needed(chosen, LossScaling.static(wish.initial_scale), f"policy {policy.label} asks for it")
    if wish.mode == "dynamic":
        scale, steps = wish.initial_scale or DEFAULT_INITIAL_SCALE, wish.growth_steps or DEFAULT_GROWTH_STEPS
        return _needed(chosen, LossScaling.dynamic(scale, steps), f"policy {policy.label} asks for it")
    return _needed(chosen, LossScaling.none(), f"policy {policy.label} asks for it")


def _needed(chosen: DtypePolicy, wanted: LossScaling, because: str) -> tuple[LossScaling, str]:
    if wanted.mode == "none":
        return wanted, f"no loss scaling: {because}"
    if chosen != "mixed_float16":
        return LossScaling.none(), f"{_no_scaling_needed(chosen)}; {wanted} was left aside"
    return wanted, f"{wanted}: {because}"


def _no_scaling_needed(chosen: DtypePolicy) -> str:
    return (
        f"no loss scaling: {chosen} has the range of float32" if chosen != "float32" else "no loss scaling in float32"
    )


def _memory(policy: Policy, request: Request) -> Memory:
    growth = policy.memory.growth if request.memory_growth is None else request.memory_growth
    return Memory(growth=growth, limit_mib=policy.memory.limit_mib, allocator=policy.memory.allocator)
