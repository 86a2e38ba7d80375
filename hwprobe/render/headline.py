"""The answer in one line."""

from __future__ import annotations

from hwprobe.configuration import Decision
from hwprobe.findings import Severity
from hwprobe.preflight import Check
from hwprobe.render.printable import printable
from hwprobe.usability import CPU_SUBJECT


def headline(check: Check) -> str:
    """Say what comes out of a check in one line: the decision, or the one first cause.

    Args:
        check: The check.
    """
    if check.error is not None:
        return printable(f"error: {check.error}")
    if check.verdict == "ready" and check.decision is not None:
        return decision_line(check.decision)
    cause = check.primary or next(filter(check.fails, check.findings), None)
    if cause is None or (check.verdict == "unknown" and cause.severity is not Severity.ERROR):
        return printable(f"unknown: no source could tell which GPUs this process has{_what_cuda_said(check)}")
    state = "unknown" if check.verdict == "unknown" else "not ready"
    return printable(f"{state}: {cause.message} [{cause.id}]")


def _what_cuda_said(check: Check) -> str:
    if check.report is None:
        return ""
    source = check.report.sources.cuda
    return f" (CUDA: {source.status.value}: {source.reason})" if source.reason else f" (CUDA: {source.status.value})"


def decision_line(decision: Decision) -> str:
    """Say a decision in one line, with the nodes or devices that limited it, or the devices that it is for.

    Args:
        decision: The decision.
    """
    labels = {device.subject: device.label for device in decision.usability}
    on_cpu = set(labels) == {CPU_SUBJECT}
    what: str = decision.dtype_policy
    if decision.dtype_policy != "float32":
        scaling = decision.loss_scaling
        what += " without loss scaling" if scaling.mode == "none" else f" with {scaling}"
    if decision.origin == "plan":
        agreed = ", ".join(decision.reasons).removeprefix(f"{decision.dtype_policy}: ")
        return printable(f"{what}: {agreed}")
    if on_cpu:
        return printable(f"{what}: no usable GPU, computing on the CPU")
    limiting = _folded([labels[subject] for subject in decision.limited_by if subject in labels])
    if decision.rejected and limiting and len(labels) > len(decision.limited_by):
        return printable(f"{what}: limited by {limiting}")
    return printable(f"{what}: {_folded(list(labels.values()))}")


def _folded(labels: list[str]) -> str:
    counts = {label: labels.count(label) for label in labels}
    return ", ".join(label if count == 1 else f"{count} x {label}" for label, count in counts.items())
