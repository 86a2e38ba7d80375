"""A check as a Kubernetes termination message: JSON in under 4096 bytes."""

from __future__ import annotations

from typing import Any

from hwprobe.findings import Finding, worst_first
from hwprobe.preflight import Check
from hwprobe.serialize import to_json

LIMIT_BYTES = 4096
"""Of one container: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/"""

_LONGEST_MESSAGE = 600


def write_termination(check: Check) -> str:
    """Write a check so that it fits into a pod's status. Of many findings the worst are kept and counted.

    Args:
        check: The check.
    """
    ordered = worst_first(check.findings)
    for kept in range(len(ordered), -1, -1):
        text = to_json(_slim(check, ordered[:kept], len(ordered) - kept))
        if len(text.encode()) < LIMIT_BYTES:
            return text
    raise AssertionError("a message without findings is shorter than the limit")


def _slim(check: Check, findings: list[Finding], left_out: int) -> dict[str, Any]:
    decision = check.decision
    message: dict[str, Any] = {"schema": check.schema, "hwprobe": check.hwprobe, "verdict": check.verdict}
    if check.error is not None:
        message["error"] = check.error[:_LONGEST_MESSAGE]
    if decision is not None:
        message["dtype_policy"] = decision.dtype_policy
        message["loss_scaling"] = decision.loss_scaling.mode
    message["findings"] = [_short(finding) for finding in findings]
    if left_out:
        message["findings_left_out"] = left_out
    return message


def _short(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "action": finding.action.value,
        "primary": finding.primary,
        "message": finding.message[:_LONGEST_MESSAGE],
    }
