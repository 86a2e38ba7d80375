"""A process of a job takes the job's decision in place of its own: from a plan, or by agreement, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hwprobe.cluster.agreement import DEFAULT_TIMEOUT_SECONDS, agree
from hwprobe.cluster.job import current_host, current_job
from hwprobe.cluster.plan import Plan, check_plan, decision_from_plan, load_plan
from hwprobe.cluster.record import NodeRecord, node_record
from hwprobe.cluster.workers import find_workers
from hwprobe.configuration import Decision
from hwprobe.decide import Request
from hwprobe.errors import AgreementError
from hwprobe.policy import Policy
from hwprobe.report import Report

PLAN_VARIABLE = "HWPROBE_PLAN"

_agreed: tuple[NodeRecord, Plan] | None = None


def decision_of_job(
    own: Decision,
    *,
    report: Report,
    policy: Policy,
    request: Request,
    environment: Mapping[str, str],
    plan: str | Path | Plan | None = None,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Decision:
    """Give the decision that this process has to apply: the job's where it trains with others, else its own.

    Args:
        own: What this machine would decide alone.
        report: The facts that it rests on.
        policy: The site's policy.
        request: What the caller asked for.
        environment: Usually `os.environ`.
        plan: A plan or its file; None takes the file that `HWPROBE_PLAN` names, where it is set.
        timeout_seconds: How long to wait for other workers, where there is no plan.

    Returns:
        `own` for a process that trains alone and has no plan.

    Raises:
        AgreementError: The plan is refused, contradicts the request, or the workers could not agree.
        InputError: The plan, `TF_CONFIG` or a variable of the scheduler cannot be read.
    """
    place = plan if plan is not None else environment.get(PLAN_VARIABLE) or None
    if place is not None:
        taken = place if isinstance(place, Plan) else load_plan(place)
        where = "the plan" if isinstance(place, Plan) else f"the plan {place}"
    elif find_workers(environment) is not None:
        record = node_record(report, own, policy, environment=environment, request=request)
        taken = _agree_once(record, environment, timeout_seconds)
        where = "what the workers found together"
    else:
        return own
    checked = check_plan(
        taken,
        host=current_host(environment),
        job=current_job(environment),
        usability=own.usability,
        where=where,
    )
    _refuse_contradiction(checked, request, where)
    return _with_own_memory(decision_from_plan(checked, own), request)


def _agree_once(record: NodeRecord, environment: Mapping[str, str], timeout_seconds: float) -> Plan:
    """Agree, unless this process did so already with the same record: the others do not meet a second time."""
    global _agreed
    if _agreed is None or _agreed[0] != record:
        _agreed = record, agree(record, environment, timeout_seconds=timeout_seconds)
    return _agreed[1]


def _refuse_contradiction(plan: Plan, request: Request, where: str) -> None:
    # One process that goes its own way is what a plan is there to prevent; TensorFlow would not notice it.
    if request.allow_fallback:
        return
    for name, wanted, planned in (
        ("dtype_policy", request.dtype_policy, plan.dtype_policy),
        ("loss_scaling", request.loss_scaling, plan.loss_scaling),
    ):
        if wanted is not None and wanted != planned:
            raise AgreementError(
                f"{name}: this process asks for {wanted}, and {where} says {planned} for all nodes; "
                f"nothing was applied. Make the plan with that wish (hwprobe plan --prefer, --policy), or drop it here"
            )


def _with_own_memory(decision: Decision, request: Request) -> Decision:
    """Memory may differ between the nodes without harm, so here the caller goes before the plan."""
    if request.memory_growth is None:
        return decision
    memory = msgspec.structs.replace(decision.memory, growth=request.memory_growth)
    return msgspec.structs.replace(decision, memory=memory)
