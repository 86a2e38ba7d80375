"""The decision explained: each device, what is usable and why not, and what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from hwprobe.configuration import DTYPE_POLICIES, Decision, DeviceUsability
from hwprobe.findings import Finding, Severity
from hwprobe.gpu import Gpu
from hwprobe.policy import Policy
from hwprobe.preflight import Check
from hwprobe.render.headline import decision_line, headline
from hwprobe.render.printable import printable
from hwprobe.render.text import state_text, versions_line
from hwprobe.report import Report
from hwprobe.why_not import why_not

_WORD = {True: "yes", False: "no", None: "unknown"}


def write_explanation(check: Check, policy: Policy, stream: TextIO) -> None:
    """Write why a check decided as it did.

    Args:
        check: The check.
        policy: The policy that it was decided by.
        stream: Where to.
    """
    lines = [headline(check)]
    if check.decision is not None and check.report is not None:
        lines += _explained(check, check.decision, check.report, policy)
    stream.writelines(printable(line) + "\n" for line in lines)


def _explained(check: Check, decision: Decision, report: Report, policy: Policy) -> list[str]:
    lines = [] if check.verdict == "ready" else [f"decision: {decision_line(decision)}"]
    lines += [versions_line(report), f"policy {decision.policy} (from: {decision.origin})"]
    lines += _section("why", decision.reasons)
    lines += _section("not taken", [f"{name}: {reason}" for name, reason in decision.rejected.items()])
    for device in decision.usability:
        lines += ["", *_device(device)]
    computing = {device.subject for device in decision.usability}
    for gpu in report.devices:
        if gpu.subject not in computing:
            lines += ["", *_left_aside(gpu, check.findings)]
    wrong = [finding for finding in check.findings if finding.severity is not Severity.INFO]
    lines += _section("what is wrong", [f"{finding.message} [{finding.id}]" for finding in wrong])
    nothing = f"nothing: it is what policy {decision.policy} prefers on these devices"
    return lines + _section("what would change it", _changes(check, decision, policy) or [nothing])


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {line}" for line in lines)] if lines else []


def _device(device: DeviceUsability) -> list[str]:
    width = max(len(name) for name in device.policies)
    return [
        _named(device.label, device.subject),
        *(
            f"  {name:{width}}  {_WORD[verdict.usable]:7}  {verdict.reason}"
            for name, verdict in device.policies.items()
        ),
    ]


def _left_aside(gpu: Gpu, findings: Iterable[Finding]) -> list[str]:
    state = "visible, and TensorFlow does not list it" if gpu.visible and gpu.error is None else state_text(gpu)
    own = [finding.id for finding in findings if finding.subject == gpu.subject]
    return [_named(gpu.label, gpu.subject), f"  not used: {state}" + (f" [{', '.join(own)}]" if own else "")]


def _named(label: str, subject: str) -> str:
    return label if label == subject else f"{label}  {subject}"


def _changes(check: Check, decision: Decision, policy: Policy) -> list[str]:
    """The least change for each policy that would have been preferred, then the fixes of what is wrong."""
    rejected = [name for name in DTYPE_POLICIES if name in decision.rejected]
    found = [
        (f"for {name}: {change.what}", change.steps)
        for name in rejected
        for change in why_not(check, policy, name).changes
    ]
    found += [
        (f"for {finding.id} {finding.title}:", finding.fix)
        for finding in check.findings
        if finding.severity is not Severity.INFO
    ]
    first_said = {tuple(map(_command, steps)): head for head, steps in reversed(found)}
    return [
        line
        for head, steps in found
        if first_said[tuple(map(_command, steps))] == head
        for line in (head, *(f"  {step}" for step in steps))
    ]


def _command(step: str) -> str:
    return step.partition("   #")[0]
