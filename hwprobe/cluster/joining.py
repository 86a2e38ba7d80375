"""A process of a job takes the job's decision in place of its own: from a plan, or by agreement, or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hwprobe.cluster.workers import DEFAULT_TIMEOUT_SECONDS, Workers, find_workers
from hwprobe.configuration import Decision, DeviceUsability
from hwprobe.decide import Request
from hwprobe.errors import AgreementError, InputError
from hwprobe.policy import Policy
from hwprobe.report import Report

# A process that trains alone comes here too, and is not to pay for what only several need.
if TYPE_CHECKING:
    from hwprobe.cluster.plan import Plan
    from hwprobe.cluster.record import NodeRecord

PLAN_VARIABLE = "HWPROBE_PLAN"
TIMEOUT_VARIABLE = "HWPROBE_AGREEMENT_TIMEOUT"
MAX_TIMEOUT_SECONDS = 86_400

_TOGETHER = "what the workers found together"

_agreed: tuple[Workers, Plan] | None = None


class _Taken(msgspec.Struct, frozen=True):
    """A plan, and what names it in a message."""

    plan: Plan
    where: str


def refuse_early(plan: str | Path | Plan | None, environment: Mapping[str, str]) -> None:
    """Refuse what cannot work whatever this machine is, before anybody pays for looking at it.

    Args:
        plan: A plan or its file; None takes the file that `HWPROBE_PLAN` names, where it is set.
        environment: Usually `os.environ`.

    Raises:
        AgreementError: The plan is negative or for others, or this process trains with others and cannot ask them.
        InputError: The plan, `TF_CONFIG` or a variable of the scheduler cannot be read.
    """
    taken = _given_plan(plan, environment)
    if taken is not None:
        _check(taken, environment, usability=())
        return
    workers = find_workers(environment)
    if workers is not None and _already_agreed(workers) is None:
        from hwprobe.cluster.agreement import refuse_impossible

        refuse_impossible(workers)


def decision_of_job(
    own: Decision,
    *,
    report: Report,
    policy: Policy,
    request: Request,
    environment: Mapping[str, str],
    plan: str | Path | Plan | None = None,
    timeout_seconds: float | None = None,
) -> Decision:
    """Give the decision that this process has to apply: the job's where it trains with others, else its own.

    Args:
        own: What this machine would decide alone.
        report: The facts that it rests on.
        policy: The site's policy.
        request: What the caller asked for.
        environment: Usually `os.environ`.
        plan: A plan or its file; None takes the file that `HWPROBE_PLAN` names, where it is set.
        timeout_seconds: How long to wait for other workers, where there is no plan; None takes what
            `HWPROBE_AGREEMENT_TIMEOUT` says, else 60 s.

    Returns:
        `own` for a process that trains alone and has no plan.

    Raises:
        AgreementError: The plan is refused, contradicts the request, or the workers could not agree.
        InputError: The plan, `TF_CONFIG` or a variable of the scheduler cannot be read.
    """
    taken = _given_plan(plan, environment)
    if taken is None:
        workers = find_workers(environment)
        if workers is None:
            return own
        from hwprobe.cluster.record import node_record

        record = node_record(report, own, policy, environment=environment, request=request)
        seconds = timeout_seconds if timeout_seconds is not None else _timeout(environment)
        taken = _Taken(_agree_once(workers, record, environment, seconds), _TOGETHER)
    from hwprobe.cluster.plan import decision_from_plan

    _check(taken, environment, own.usability)
    _refuse_contradiction(taken, request)
    return _with_own_memory(decision_from_plan(taken.plan, own), request)


def _timeout(environment: Mapping[str, str]) -> float:
    text = environment.get(TIMEOUT_VARIABLE, "").strip()
    if not text:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise InputError(
            f"{TIMEOUT_VARIABLE}={text[:40]!r}: expected seconds, more than 0 and up to {MAX_TIMEOUT_SECONDS}"
        )
    return seconds


def _given_plan(plan: str | Path | Plan | None, environment: Mapping[str, str]) -> _Taken | None:
    place = plan if plan is not None else environment.get(PLAN_VARIABLE) or None
    if place is None:
        return None
    from hwprobe.cluster.plan import load_plan

    if isinstance(place, (str, Path)):
        return _Taken(load_plan(place), f"the plan {place}")
    return _Taken(place, "the plan")


def _check(taken: _Taken, environment: Mapping[str, str], usability: Sequence[DeviceUsability]) -> None:
    from hwprobe.cluster.job import current_host, current_job
    from hwprobe.cluster.plan import check_plan

    check_plan(
        taken.plan,
        host=current_host(environment),
        job=current_job(environment),
        usability=usability,
        where=taken.where,
    )


def _already_agreed(workers: Workers) -> Plan | None:
    return _agreed[1] if _agreed is not None and _agreed[0] == workers else None


def _agree_once(workers: Workers, record: NodeRecord, environment: Mapping[str, str], timeout_seconds: float) -> Plan:
    """Agree, unless this process did so already: the others do not meet a second time."""
    global _agreed
    plan = _already_agreed(workers)
    if plan is None:
        from hwprobe.cluster.agreement import agree

        plan = agree(record, environment, timeout_seconds=timeout_seconds)
        _agreed = workers, plan
    return plan


def _refuse_contradiction(taken: _Taken, request: Request) -> None:
    # One process that goes its own way is what a plan is there to prevent; TensorFlow would not notice it.
    if request.allow_fallback:
        return
    for name, wanted, planned in (
        ("dtype_policy", request.dtype_policy, taken.plan.dtype_policy),
        ("loss_scaling", request.loss_scaling, taken.plan.loss_scaling),
    ):
        if wanted is not None and wanted != planned:
            raise AgreementError(
                f"{name}: this process asks for {wanted}, and {taken.where} says {planned} for all nodes; "
                f"nothing was applied. Make the plan with that wish (hwprobe plan --prefer, --policy), or drop it here"
            )


def _with_own_memory(decision: Decision, request: Request) -> Decision:
    """Memory may differ between the nodes without harm, so here the caller goes before the plan."""
    if request.memory_growth is None:
        return decision
    memory = msgspec.structs.replace(decision.memory, growth=request.memory_growth)
    return msgspec.structs.replace(decision, memory=memory)
