"""The decision explained: each device, what is usable and why not, and what would change it."""

from __future__ import annotations

from typing import TextIO

from hwprobe.configuration import Decision, DeviceUsability
from hwprobe.preflight import Check
from hwprobe.render.headline import decision_line, headline
from hwprobe.render.printable import printable

_WORD = {True: "yes", False: "no", None: "unknown"}


def write_explanation(check: Check, stream: TextIO) -> None:
    """Write why a check decided as it did.

    Args:
        check: The check.
        stream: Where to.
    """
    lines = [headline(check)]
    if check.decision is not None:
        lines += _decision(check.decision, check)
    stream.writelines(printable(line) + "\n" for line in lines)


def _decision(decision: Decision, check: Check) -> list[str]:
    lines = [] if check.verdict == "ready" else [f"decision: {decision_line(decision)}"]
    lines += ["", f"policy {decision.policy} (from: {decision.origin})", "", "why:"]
    lines += [f"  {reason}" for reason in decision.reasons]
    if decision.rejected:
        lines += ["", "not taken:"]
        lines += [f"  {name}: {reason}" for name, reason in decision.rejected.items()]
    for device in decision.usability:
        lines += ["", *_device(device)]
    changes = [step for finding in check.findings for step in finding.fix]
    if changes:
        lines += ["", "what would change it:", *(f"  {step}" for step in dict.fromkeys(changes))]
    return lines


def _device(device: DeviceUsability) -> list[str]:
    head = device.label if device.label == device.subject else f"{device.label}  {device.subject}"
    width = max(len(name) for name in device.policies)
    return [
        head,
        *(
            f"  {name:{width}}  {_WORD[verdict.usable]:7}  {verdict.reason}"
            for name, verdict in device.policies.items()
        ),
    ]
