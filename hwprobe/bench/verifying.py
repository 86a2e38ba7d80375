"""`hwprobe check --verify`: the quick bench on each visible device, in a child, as findings of the check."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hwprobe.bench.facts import Bench
from hwprobe.bench.rules import RULES, judge_bench
from hwprobe.findings import Finding
from hwprobe.preflight import Check, RuleStatus, with_more
from hwprobe.probe.child import ask
from hwprobe.serialize import from_builtins
from hwprobe.source import SourceStatus

READER = "hwprobe.bench.child:read"

START_SECONDS = 120.0
"""Added to the caller's limit: the child imports TensorFlow and starts its runtime, which compiles kernels for some "
"GPUs."""


class _Device(NamedTuple):
    """A device to measure: its name in TensorFlow's words, and its UUID where it has one."""

    name: str
    uuid: str | None


def verify_devices(check: Check, *, timeout_seconds: float, on_wait: Callable[[str], None] | None = None) -> Check:
    """Measure every device that TensorFlow will compute on, a few seconds each, and add what is wrong to the check.

    Args:
        check: A check of this machine, with TensorFlow's own answer.
        timeout_seconds: Limit for each device, beside the time that TensorFlow takes to start.
        on_wait: Told which device is measured.

    Returns:
        The check with findings HWP450 to HWP452 and how these rules ended. A device that could not be measured makes
        them `skip`, with the reason.
    """
    assert check.report is not None
    assert check.decision is not None
    found: list[Finding] = []
    unmeasured: list[str] = []
    for device in _devices(check):
        if on_wait is not None:
            on_wait(device.name)
        answer = ask(READER, {"device": device.name}, timeout_seconds=timeout_seconds + START_SECONDS)
        if answer.status is not SourceStatus.OK or answer.data is None:
            unmeasured.append(f"{device.name}: {answer.status.value}: {answer.reason}")
            continue
        measured = from_builtins({**answer.data, "uuid": device.uuid}, Bench, where=f"the bench of {device.name}")
        found += judge_bench(measured, check.decision.dtype_policy)
    return with_more(check, found, _statuses(found, unmeasured))


def _devices(check: Check) -> list[_Device]:
    assert check.report is not None
    gpus = [gpu for gpu in check.report.devices if gpu.tensorflow_name is not None]
    return [_Device(str(gpu.tensorflow_name), gpu.uuid) for gpu in gpus] or [_Device("CPU:0", None)]


def _statuses(found: list[Finding], unmeasured: list[str]) -> tuple[RuleStatus, ...]:
    fired = {finding.id for finding in found}
    reason = "; ".join(unmeasured) or None
    return tuple(
        RuleStatus(id=rule.id, status="fail")
        if rule.id in fired
        else RuleStatus(id=rule.id, status="skip" if unmeasured else "pass", reason=reason)
        for rule in RULES
    )
