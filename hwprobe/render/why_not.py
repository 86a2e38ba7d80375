"""Why a dtype policy is not chosen, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from hwprobe.render.headline import decision_line
from hwprobe.render.printable import printable
from hwprobe.why_not import DeviceAnswer, WhyNot

_WORD = {True: "yes", False: "no", None: "unknown"}


def write_why_not(answer: WhyNot, stream: TextIO) -> None:
    """Write the answer: what would be chosen, every device with its reason, what would allow it.

    Args:
        answer: The answer.
        stream: Where to.
    """
    stream.writelines(printable(line) + "\n" for line in _lines(answer))


def _lines(answer: WhyNot) -> list[str]:
    lines = [_head(answer)]
    if answer.origin != "machine":
        lines.append(f"not this machine: {answer.origin}")
    lines += [f"assumed: {assumption}" for assumption in answer.assumptions]
    for (label, usable, reason), subjects in _alike(answer.devices).items():
        lines += [
            "",
            f"{label}  {', '.join(subjects)}" if subjects != [label] else label,
            f"  {_WORD[usable]}: {reason}",
        ]
    if answer.causes:
        lines += ["", "what is wrong on the way:"]
        lines += [f"  {cause.message} [{cause.id}]" for cause in answer.causes]
    if answer.changes:
        lines += ["", "what would allow it:" if len(answer.changes) == 1 else "what would allow it, one of these:"]
    for change in answer.changes:
        lines += [f"  {change.what}", *(f"    {step}" for step in change.steps)]
    return lines


def _alike(devices: Sequence[DeviceAnswer]) -> dict[tuple[str, bool | None, str], list[str]]:
    """Devices that say the same, together."""
    groups: dict[tuple[str, bool | None, str], list[str]] = {}
    for device in devices:
        groups.setdefault((device.label, device.usable, device.reason), []).append(device.subject)
    return groups


def _head(answer: WhyNot) -> str:
    wanted, decision = answer.dtype_policy, answer.decision
    chosen = decision_line(decision)
    if answer.usable:
        here = "hwprobe chooses it here" if decision.dtype_policy == wanted else f"{wanted} is usable here too"
        return f"{chosen}: {here}"
    last_resort = any(device.policies[decision.dtype_policy].usable is not True for device in decision.usability)
    if last_resort:
        return f"{wanted} is not usable here, and nothing else is known to be: hwprobe is left with {chosen}"
    return f"{wanted} is not usable here; hwprobe chooses {chosen}"
