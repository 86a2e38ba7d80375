"""What one node says about itself, small enough that ten thousand of them are read in a second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from hwprobe.cluster.job import Job, current_host, current_job, local_task
from hwprobe.configuration import (
    DTYPE_POLICIES,
    Decision,
    DeviceUsability,
    DtypePolicy,
    LossScaling,
    Memory,
    Usable,
)
from hwprobe.decide import Request, loss_scaling_for
from hwprobe.findings import Finding, Severity
from hwprobe.gpu import Gpu
from hwprobe.policy import Policy
from hwprobe.report import Report
from hwprobe.source import Fact
from hwprobe.usability import CPU_SUBJECT, devices_that_compute

SCHEMA: Literal["hwprobe.node/1"] = "hwprobe.node/1"

MAX_NOTES = 20
MAX_TEXT = 500
"""Longest sentence of a record, in characters: a driver's error text has no bound of its own."""

# Python's $ matches before a last line break too.
HostName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,253}$(?!\n)")]
TaskName = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,20}-[0-9]{1,9}$(?!\n)")]

Preference = Annotated[tuple[DtypePolicy, ...], msgspec.Meta(min_length=1)]

Verdict = Literal["ready", "not_ready", "unknown"]


class PolicyUse(Fact, frozen=True, kw_only=True):
    """Whether each dtype policy is usable on every device of one node."""

    mixed_bfloat16: Usable
    mixed_float16: Usable
    float32: Usable

    def of(self, name: DtypePolicy) -> Usable:
        """The answer for one policy."""
        usable: Usable = getattr(self, name)
        return usable


class GpuKind(Fact, frozen=True, kw_only=True):
    """Equal GPUs of one node that will compute.

    Attributes:
        label: Name and compute capability: `Tesla T4 (7.5)`.
        count: How many there are.
    """

    label: str
    count: int


class Versions(Fact, frozen=True, kw_only=True):
    """The software that has to match between the nodes of one job; None for what is not installed."""

    hwprobe: str
    python: str
    tensorflow: str | None = None
    keras: str | None = None
    tf_keras: str | None = None


class Wishes(Fact, frozen=True, kw_only=True):
    """What the site's policy and the caller want on this node.

    Attributes:
        prefer: Dtype policies, best first, where a GPU computes.
        cpu: The same for a job that has no GPU anywhere.
        loss_scaling: For each dtype policy, the scaling that goes with it.
        tf32: Whether float32 products may use TensorFloat-32.
        memory: How TensorFlow is to take GPU memory.
        policy: Name or path of the policy that was read.
    """

    prefer: Preference
    cpu: Preference = ("float32",)
    loss_scaling: dict[DtypePolicy, LossScaling]
    tf32: bool = True
    memory: Memory = Memory()
    policy: str = "default"

    def __post_init__(self) -> None:
        if set(self.loss_scaling) != set(DTYPE_POLICIES):
            raise ValueError(f"loss_scaling names each of {', '.join(DTYPE_POLICIES)}")
        for scaling in self.loss_scaling.values():
            refuse_unusable_scaling(scaling)
        refuse_unusable_memory(self.memory)


def refuse_unusable_scaling(scaling: LossScaling) -> None:
    """Raise ValueError where the numbers of a loss scaling, which came from elsewhere, cannot be used."""
    if scaling.mode == "none":
        return
    if scaling.initial_scale is None or not 0 < scaling.initial_scale < math.inf:
        raise ValueError(f"loss_scaling.initial_scale: expected a positive number, not {scaling.initial_scale}")
    if scaling.mode == "dynamic" and (scaling.growth_steps is None or scaling.growth_steps < 1):
        raise ValueError(f"loss_scaling.growth_steps: expected a number from 1, not {scaling.growth_steps}")


def refuse_unusable_memory(memory: Memory) -> None:
    """Raise ValueError where a memory limit, which came from elsewhere, cannot be used."""
    if memory.limit_mib is not None and memory.limit_mib < 1:
        raise ValueError(f"memory.limit_mib: expected a number from 1, not {memory.limit_mib}")


class NodeRecord(Fact, frozen=True, kw_only=True):
    """One node's part in the agreement of a job. It holds nothing that differs between equal nodes but their names.

    Attributes:
        schema: Version of this form.
        host: Name of the node, without its domain.
        task: Name of the task, where several of one node take part.
        job: Job, step and restart that the record belongs to.
        verdict: Of this node's check.
        problem: Id and title of the first cause, where the verdict is not `ready`.
        policies: What is usable here, and why.
        on_cpu: Whether no GPU will compute here.
        gpus: The GPUs that will compute.
        driver: Version of the NVIDIA driver.
        versions: What has to match.
        wishes: What is wanted here.
        notes: What a person should know about this node, one line each.
    """

    schema: Literal["hwprobe.node/1"] = SCHEMA
    host: HostName
    task: TaskName | None = None
    job: Job = Job()
    verdict: Verdict = "ready"
    problem: str | None = None
    policies: PolicyUse
    on_cpu: bool = False
    gpus: tuple[GpuKind, ...] = ()
    driver: str | None = None
    versions: Versions
    wishes: Wishes
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What names this record in a sentence: the host, and the task where several share it."""
        return self.host if self.task is None else f"{self.host}:{self.task}"

    @property
    def gpu_count(self) -> int:
        """GPUs that will compute."""
        return sum(kind.count for kind in self.gpus)


def node_record(
    report: Report,
    decision: Decision,
    policy: Policy,
    *,
    environment: Mapping[str, str],
    request: Request | None = None,
    findings: Sequence[Finding] = (),
    verdict: Verdict = "ready",
    task: str | None = None,
) -> NodeRecord:
    """Make this node's record from what was found and decided on it.

    Args:
        report: The facts.
        decision: This node's own decision; of it only the usability of its devices counts.
        policy: The site's policy.
        environment: Usually `os.environ`; names job and node.
        request: What the caller asked for, over the policy.
        findings: Of the check, where there was one.
        verdict: Of the check, where there was one.
        task: Name of the task; None takes it from the environment.

    Raises:
        InputError: The environment names a job or a node in a form that cannot be right.
    """
    return NodeRecord(
        host=current_host(environment),
        task=task or local_task(environment),
        job=current_job(environment),
        verdict=verdict,
        problem=None if verdict == "ready" else _problem(findings, report),
        policies=policy_use(decision.usability),
        on_cpu=_on_cpu(decision.usability),
        gpus=_gpu_kinds(devices_that_compute(report)),
        driver=report.driver.version if report.driver is not None else None,
        versions=_versions(report),
        wishes=wishes_of(policy, request or Request()),
        notes=_notes(findings),
    )


def wishes_of(policy: Policy, request: Request) -> Wishes:
    """What a policy and a caller's request want of a whole job.

    Args:
        policy: The site's policy.
        request: What the caller asked for, over the policy.
    """
    memory = policy.memory
    if request.memory_growth is not None:
        memory = msgspec.structs.replace(memory, growth=request.memory_growth)
    return Wishes(
        prefer=_preference(policy.precision.prefer, request),
        cpu=_preference(policy.precision.cpu, request),
        loss_scaling={name: loss_scaling_for(name, policy, request) for name in DTYPE_POLICIES},
        tf32=policy.precision.tf32,
        memory=memory,
        policy=policy.label,
    )


def _preference(site: tuple[DtypePolicy, ...], request: Request) -> tuple[DtypePolicy, ...]:
    if request.dtype_policy is None:
        return site
    if not request.allow_fallback:
        return (request.dtype_policy,)
    return (request.dtype_policy, *(name for name in site if name != request.dtype_policy))


def policy_use(devices: Sequence[DeviceUsability]) -> PolicyUse:
    """Take what every device of a node can use: no where one cannot, else unknown where one is unknown.

    Args:
        devices: Usability of each device that will compute; a decision always holds at least the CPU's.
    """
    return PolicyUse(**{name: _on_every_device(name, devices) for name in DTYPE_POLICIES})


def _on_every_device(name: DtypePolicy, devices: Sequence[DeviceUsability]) -> Usable:
    answers = [(device.label, device.policies[name]) for device in devices]
    if not answers:
        return Usable(usable=None, reason="no device was judged")
    for verdict in (False, None):
        reasons: dict[str, list[str]] = {}
        for label, answer in answers:
            if answer.usable is verdict:
                labels = reasons.setdefault(answer.reason, [])
                if label not in labels:
                    labels.append(label)
        if reasons:
            text = "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in reasons.items())
            return Usable(usable=verdict, reason=text[:MAX_TEXT])
    return Usable(usable=True, reason="; ".join(dict.fromkeys(answer.reason for _, answer in answers))[:MAX_TEXT])


def _on_cpu(devices: Sequence[DeviceUsability]) -> bool:
    return all(device.subject == CPU_SUBJECT for device in devices)


def _gpu_kinds(gpus: Sequence[Gpu]) -> tuple[GpuKind, ...]:
    counts: dict[str, int] = {}
    for gpu in gpus:
        label = (f"{gpu.name or 'GPU'} ({gpu.compute_capability})" if gpu.compute_capability else gpu.name) or "GPU"
        counts[label[:MAX_TEXT]] = counts.get(label[:MAX_TEXT], 0) + 1
    return tuple(GpuKind(label=label, count=count) for label, count in sorted(counts.items()))


def _versions(report: Report) -> Versions:
    from hwprobe.version import VERSION

    tensorflow, keras = report.tensorflow, report.keras
    return Versions(
        hwprobe=VERSION,
        python=report.host.python or "unknown",
        tensorflow=tensorflow.version if tensorflow is not None else None,
        keras=keras.version if keras is not None else None,
        tf_keras=keras.tf_keras_version if keras is not None else None,
    )


def _problem(findings: Sequence[Finding], report: Report) -> str:
    primary = next((finding for finding in findings if finding.primary), None)
    first = primary or next(iter(findings), None)
    if first is not None:
        return _line(first)
    nvml = report.sources.nvml
    return f"which GPUs there are could not be determined (NVML: {nvml.reason or nvml.status.value})"[:MAX_TEXT]


def _notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    lines = (_line(finding) for finding in findings if finding.severity is not Severity.INFO)
    return tuple(dict.fromkeys(lines))[:MAX_NOTES]


def _line(finding: Finding) -> str:
    """Name a finding in the same words on equal nodes: its message may hold a UUID. What was required is the job's."""
    required = finding.evidence.get("required")
    asked = f" ({required}, found {finding.evidence.get('found') or 'nothing'})" if required is not None else ""
    return f"{finding.id}: {finding.title}{asked}"[:MAX_TEXT]
