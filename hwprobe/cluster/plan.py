"""The one policy of a job: its form, its digest, and the check that a worker makes before it takes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from hwprobe.cluster.job import Job
from hwprobe.cluster.record import refuse_unusable_memory, refuse_unusable_scaling
from hwprobe.configuration import Decision, DeviceUsability, DtypePolicy, LossScaling, Memory
from hwprobe.errors import AgreementError, InputError
from hwprobe.files import open_without_waiting
from hwprobe.render.printable import printable
from hwprobe.serialize import from_builtins, to_builtins
from hwprobe.source import Fact

SCHEMA: Literal["hwprobe.plan/1"] = "hwprobe.plan/1"

MAX_PLAN_BYTES = 16 * 2**20
DIGEST_PREFIX = "sha256:"


class Difference(Fact, frozen=True, kw_only=True):
    """Something in which the nodes of a job are not equal.

    Attributes:
        what: `tensorflow`, `keras`, `tf_keras`, `hwprobe`, `python`, `driver`, `gpus`, `gpu_count`, `wishes`.
        values: Each value to the nodes that have it, folded; the most frequent first.
        blocks: Whether the job must not start with it.
    """

    what: str
    values: dict[str, str]
    blocks: bool


class NodeNote(Fact, frozen=True, kw_only=True):
    """A sentence about some of the nodes.

    Attributes:
        nodes: Their names, folded.
        text: The sentence.
    """

    nodes: str
    text: str


class Plan(Fact, frozen=True, kw_only=True):
    """What every node of a job is to set, or why there is no such thing.

    Attributes:
        schema: Version of this form.
        hwprobe: Version of hwprobe that made it.
        agreed: Whether the job may start. Where it is False nothing is applied, and `problems` says why.
        dtype_policy: Keras' name of the policy; None in a negative plan.
        loss_scaling: Mode and numbers; None in a negative plan.
        tf32: Whether float32 products may use TensorFloat-32; None in a negative plan.
        memory: How TensorFlow takes GPU memory; None in a negative plan.
        job: Job and start that the plan is for.
        nodes: The nodes that sent a record, folded.
        node_count: How many they are.
        record_count: Records that the plan was made of: more than nodes where several tasks of a node took part.
        expected: How many were expected; None where nobody said.
        prefer: The preference that counted, best first.
        limited_by: Nodes that ruled a preferred policy out, folded; "" where the first preference was taken.
        rejected: Preferred policies that were not taken, each with the nodes and the reason.
        missing: Expected nodes without a record, folded; "" where none is missing or their names are not known.
        unexpected: Nodes with a record that nobody expects, folded.
        unreadable: Records that could not be read: path to reason, the first of them.
        differences: In what the nodes are not equal.
        problems: Why the plan is negative, one line each.
        notes: What a person should know about some of the nodes.
        hosts: Every node by name, so that a worker finds itself.
        digest: SHA-256 over the canonical JSON of all the rest.
    """

    schema: Literal["hwprobe.plan/1"] = SCHEMA
    hwprobe: str
    agreed: bool
    dtype_policy: DtypePolicy | None = None
    loss_scaling: LossScaling | None = None
    tf32: bool | None = None
    memory: Memory | None = None
    job: Job = Job()
    nodes: str = ""
    node_count: int = 0
    record_count: int = 0
    expected: int | None = None
    prefer: tuple[DtypePolicy, ...] = ()
    limited_by: str = ""
    rejected: dict[str, str] = {}
    missing: str = ""
    unexpected: str = ""
    unreadable: dict[str, str] = {}
    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[NodeNote, ...] = ()
    hosts: tuple[str, ...] = ()
    digest: str = ""

    @property
    def extent(self) -> str:
        """Whom the plan is for, in words: `4 nodes, n[1-4]`."""
        if self.record_count > self.node_count:
            return f"{self.record_count} workers on {self.nodes}"
        return f"{self.node_count} {'node' if self.node_count == 1 else 'nodes'}, {self.nodes}"

    def __post_init__(self) -> None:
        settings = (self.dtype_policy, self.loss_scaling, self.tf32, self.memory)
        if self.agreed and any(setting is None for setting in settings):
            raise ValueError("a plan that is agreed names dtype_policy, loss_scaling, tf32 and memory")
        if not self.agreed and (any(setting is not None for setting in settings) or not self.problems):
            raise ValueError("a plan that is not agreed names problems, and nothing to set")
        if self.loss_scaling is not None:
            refuse_unusable_scaling(self.loss_scaling)
        if self.memory is not None:
            refuse_unusable_memory(self.memory)


def sealed(plan: Plan) -> Plan:
    """Put its digest into a plan."""
    return msgspec.structs.replace(plan, digest=_digest(to_builtins(plan)))


def plan_to_json(plan: Plan) -> str:
    """Write a plan as JSON, indented, with a newline at its end."""
    return json.dumps(to_builtins(plan), indent=2, allow_nan=False) + "\n"


def read_plan(text: str | bytes, *, where: str = "plan") -> Plan:
    """Read a plan and check that it is whole.

    Args:
        text: JSON.
        where: What the text is, for the error message.

    Raises:
        InputError: It is no plan, it is too large, or its digest does not fit.
    """
    if len(text) > MAX_PLAN_BYTES:
        raise InputError(f"{where}: larger than {MAX_PLAN_BYTES // 2**20} MiB, which no plan is")
    try:
        data = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not a whole JSON document ({error}); make the plan again") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        schema = data.get("schema") if isinstance(data, dict) else None
        raise InputError(f"{where}: schema: found {str(schema)[:40]!r}, expected {SCHEMA!r}")
    plan = from_builtins(data, Plan, where=where)
    if plan.digest != _digest(data):
        raise InputError(
            f"{where}: digest: the text is not what was written (cut off, or changed by hand); make the plan again"
        )
    return plan


def load_plan(path: str | Path) -> Plan:
    """Read a plan from a file and check that it is whole.

    Args:
        path: The file, as `HWPROBE_PLAN` or `plan=` name it.

    Raises:
        InputError: It cannot be read, is no plan, or its digest does not fit.
    """
    try:
        with open_without_waiting(Path(path)) as stream:
            text = stream.read(MAX_PLAN_BYTES + 1)
    except OSError as error:
        raise InputError(f"plan {path}: {error.strerror or error}") from error
    return read_plan(text, where=f"plan {path}")


def check_plan(
    plan: Plan, *, host: str, job: Job, usability: Sequence[DeviceUsability], where: str = "the plan"
) -> Plan:
    """Refuse a plan that is negative, belongs to another job or node, or asks for what this machine cannot do.

    Args:
        plan: As `read_plan` gives it: schema and digest are right.
        host: This node's name (`hwprobe.cluster.job.current_host`).
        job: This process's job. A plan that was made outside of any job counts in every job.
        usability: What each device of this machine can use.
        where: What names the plan in a message.

    Returns:
        The plan.

    Raises:
        AgreementError: It is refused; the text says why and what to do.
    """
    for refusal in (
        _refuse_negative(plan),
        _refuse_other_job(plan, job),
        _refuse_other_host(plan, host),
        _refuse_unusable(plan, usability),
    ):
        if refusal is not None:
            raise AgreementError(printable(f"{where} is refused and nothing was applied: {refusal}"))
    return plan


def decision_from_plan(plan: Plan, own: Decision) -> Decision:
    """Give the decision that a plan asks for on this machine.

    Args:
        plan: A plan that `check_plan` let pass.
        own: What this machine would have decided alone; its devices' usability is kept.

    Raises:
        AgreementError: The plan is negative.
    """
    if plan.dtype_policy is None or plan.loss_scaling is None or plan.tf32 is None or plan.memory is None:
        raise AgreementError(f"the plan sets nothing: {'; '.join(plan.problems)}")
    reason = f"{plan.dtype_policy}: agreed for {plan.extent}" + (f" of {plan.job}" if plan.job.id is not None else "")
    limit = (f"limited by {plan.limited_by}",) if plan.limited_by else ()
    return msgspec.structs.replace(
        own,
        dtype_policy=plan.dtype_policy,
        loss_scaling=plan.loss_scaling,
        memory=plan.memory,
        tf32=plan.tf32,
        reasons=(reason, *limit),
        rejected=plan.rejected,
        limited_by=(),
        origin="plan",
    )


def _refuse_negative(plan: Plan) -> str | None:
    return None if plan.agreed else f"it says that the job must not start: {'; '.join(plan.problems)}"


def _refuse_other_job(plan: Plan, job: Job) -> str | None:
    if plan.job.id is None or plan.job.is_same_start(job):
        return None
    return f"it was made for {plan.job}, and this process belongs to {job}; make a plan in this job"


def _refuse_other_host(plan: Plan, host: str) -> str | None:
    if host in plan.hosts:
        return None
    return f"this node, {host}, is not in it (it is for {plan.nodes}); make a plan with a record of every node"


def _refuse_unusable(plan: Plan, usability: Sequence[DeviceUsability]) -> str | None:
    if plan.dtype_policy is None:
        return None
    for device in usability:
        answer = device.policies[plan.dtype_policy]
        if answer.usable is not True:
            can = "cannot use it" if answer.usable is False else "may not be able to use it"
            return (
                f"it asks for {plan.dtype_policy}, and {device.label} {can}: {answer.reason}; "
                f"this machine is not what its record said, so make the records and the plan again"
            )
    return None


def _digest(data: dict[str, Any]) -> str:
    rest = {key: value for key, value in data.items() if key != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return DIGEST_PREFIX + hashlib.sha256(canonical.encode()).hexdigest()
