"""HWP504 to HWP506: how much memory the GPUs have, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.gpu import Gpu, GpuMemory
from hwprobe.report import Report
from hwprobe.rules.verdict import Case, NotApplicable, Problem, RuleCheck, Verdict

MEMORY_IN_USE = Rule(
    id="HWP504",
    name="memory-in-use",
    title="Something else uses most of the GPU's memory",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="How much of each visible GPU's or MIG instance's memory is free: less than half is a warning, less "
        "than 1 GiB an error.",
        matters="TensorFlow then fails with out-of-memory errors, or with CUDNN_STATUS_INTERNAL_ERROR, which looks "
        "like a broken cuDNN. Under time slicing other pods share the memory without any limit, and their processes "
        "cannot be seen.",
        fix="`nvidia-smi` lists the processes that it may show; wait, end them, or take another GPU.",
        reference="NVIDIA/k8s-device-plugin#90; tensorflow/tensorflow#24496",
    ),
)

_LITTLE = 0.5
_LESS_THAN_IDLE = 0.75
_TOO_LITTLE_BYTES = 2**30
_COHERENT = ("GH200", "GB200", "GB300")
"""Boards whose memory the host's kernel may use as a cache (vllm-project/vllm#39361)."""


def memory_is_free(case: Case) -> Verdict:
    """HWP504."""
    read = [part for part in _parts(case.report) if _free_share(part[2]) is not None]
    if not read:
        return NotApplicable(reason="no visible GPU of its own memory whose free memory was read")
    own = _holds_cuda(case.report)
    return tuple(
        _memory_problem(subject, label, memory, own)
        for subject, label, memory in read
        if (_free_share(memory) or 0) < _LITTLE
    )


def _memory_problem(subject: str, label: str, memory: GpuMemory, own: bool) -> Problem:
    free, total = memory.free_bytes or 0, memory.total_bytes or 0
    who = "this process or another one" if own else "something else"
    severity = Severity.ERROR if free < _TOO_LITTLE_BYTES else None
    return Problem(
        subject=subject,
        message=f"{label}: {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free; {who} uses the rest",
        evidence={"free_bytes": free, "total_bytes": total},
        fix=("nvidia-smi",),
        severity=Severity.INFO if own else severity,
    )


def _parts(report: Report) -> Iterator[tuple[str, str, GpuMemory]]:
    """What has memory of its own: a GPU, or in MIG mode the instances; those of others are no business of ours."""
    for gpu in report.visible_devices:
        if _is_coherent(gpu) or gpu.memory.kind == "unified":
            continue
        if gpu.mig is None or not gpu.mig.enabled:
            yield gpu.subject, gpu.label, gpu.memory
            continue
        for instance in gpu.mig.instances:
            if instance.visible:
                yield instance.uuid or gpu.subject, instance.name or gpu.label, instance.memory


def _holds_cuda(report: Report) -> bool:
    """Whether this process itself has loaded what takes GPU memory."""
    return any("libcudart" in path or "libcublas" in path for path in report.host.mapped_libraries or ())


def _free_share(memory: GpuMemory) -> float | None:
    return memory.free_bytes / memory.total_bytes if memory.free_bytes is not None and memory.total_bytes else None


def _is_coherent(gpu: Gpu) -> bool:
    return any(name in (gpu.name or "") for name in _COHERENT)


COHERENT_CACHE = Rule(
    id="HWP506",
    name="coherent-memory-cache",
    title="The host's cache may hold GPU memory",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="On GH200, GB200 and GB300: whether more than a quarter of the memory is in use.",
        matters="The host's kernel sees this memory too and may keep files in it. Little free memory on an idle GPU "
        "is no sign of another process; the cache gives way.",
        fix="Nothing.",
        reference="vllm-project/vllm#39361",
    ),
)


def coherent_memory_is_free(case: Case) -> Verdict:
    """HWP506."""
    gpus = [gpu for gpu in case.report.visible_devices if _is_coherent(gpu)]
    if not gpus:
        return NotApplicable(reason="no GPU with coherent memory")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label}: {share:.0%} of its memory is free; the host's cache may hold the rest and gives way",
            evidence={"free_bytes": gpu.memory.free_bytes, "total_bytes": gpu.memory.total_bytes},
        )
        for gpu in gpus
        if (share := _free_share(gpu.memory)) is not None and share < _LESS_THAN_IDLE
    )


UNIFIED_MEMORY = Rule(
    id="HWP505",
    name="unified-memory",
    title="The GPU shares its memory with the host",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Whether a visible GPU has no memory of its own (GB10, Jetson).",
        matters="NVML does not tell its size: what the host has free is what there is. Data that the script loads "
        "takes from the same memory.",
        fix="Nothing; leave memory growth on.",
        reference="vllm-project/vllm#9728; NVIDIA DGX Spark known issues (nvidia-smi memory)",
    ),
)


def memory_is_the_gpus_own(case: Case) -> Verdict:
    """HWP505."""
    if not case.report.visible_devices:
        return NotApplicable(reason="no visible GPU")
    total, free = case.report.host.memory_total_bytes, case.report.host.memory_available_bytes
    size = ", whose size could not be read" if total is None else f" of {total / 2**30:.0f} GiB"
    size += "" if free is None else f", of which {free / 2**30:.0f} GiB are available"
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label} shares the host's memory{size}",
            evidence={"memory_total_bytes": total, "memory_available_bytes": free},
        )
        for gpu in case.report.visible_devices
        if gpu.memory.kind == "unified"
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(MEMORY_IN_USE, memory_is_free),
    RuleCheck(COHERENT_CACHE, coherent_memory_is_free),
    RuleCheck(UNIFIED_MEMORY, memory_is_the_gpus_own),
)
