"""A check as a file for Node Feature Discovery's local source: labels that a pod can select nodes by."""

from __future__ import annotations

import datetime
import re

from hwprobe.preflight import Check
from hwprobe.requirements import usable_gpus

LIFETIME = datetime.timedelta(hours=24)
"""After this the labels vanish unless the file is written again."""

_NOT_IN_A_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
_LABEL_LENGTH = 63


def write_nfd(check: Check, now: datetime.datetime | None = None) -> str:
    """Write a check as labels, in the namespace that Node Feature Discovery gives to names without one.

    Args:
        check: The check.
        now: Time from which the labels live; the present by default.
    """
    now = now or datetime.datetime.now(datetime.timezone.utc)
    lines = [f"# +expiry-time={(now + LIFETIME).strftime('%Y-%m-%dT%H:%M:%SZ')}"]
    lines += [f"hwprobe.{name}={_value(value)}" for name, value in _features(check).items() if value is not None]
    return "\n".join(lines) + "\n"


def _features(check: Check) -> dict[str, str | None]:
    decision, report = check.decision, check.report
    features: dict[str, str | None] = {
        "verdict": check.verdict,
        "version": check.hwprobe,
        "finding": check.primary.id if check.primary is not None else None,
    }
    if decision is not None:
        features |= {"dtype-policy": decision.dtype_policy, "loss-scaling": decision.loss_scaling.mode}
    if report is not None:
        capabilities = [gpu.compute_capability for gpu in usable_gpus(report) if gpu.compute_capability is not None]
        features |= {
            "usable-gpus": str(len(usable_gpus(report))),
            "least-compute-capability": str(min(capabilities)) if capabilities else None,
            "tensorflow": report.tensorflow.version if report.tensorflow is not None else None,
        }
    return features


def _value(text: str) -> str:
    return _NOT_IN_A_LABEL.sub("-", text)[:_LABEL_LENGTH].strip("-_.")
