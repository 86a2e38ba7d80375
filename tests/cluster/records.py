"""Builders of node records: what a T4 node, an A100 node and a CPU node say."""

from __future__ import annotations

from typing import Any

from hwprobe.cluster.job import Job
from hwprobe.cluster.record import GpuKind, NodeRecord, PolicyUse, Versions, Wishes
from hwprobe.configuration import DTYPE_POLICIES, DeviceUsability, LossScaling, Usable

A100 = "NVIDIA A100-SXM4-80GB (8.0)"
T4 = "Tesla T4 (7.5)"
RTX_5090 = "NVIDIA GeForce RTX 5090 (12.0)"

WISHES = Wishes(
    prefer=("mixed_bfloat16", "mixed_float16", "float32"),
    cpu=("float32",),
    loss_scaling={
        "mixed_bfloat16": LossScaling.none(),
        "mixed_float16": LossScaling.dynamic(),
        "float32": LossScaling.none(),
    },
)
VERSIONS = Versions(hwprobe="0.1.0", python="3.11.7", tensorflow="2.21.0", keras="3.15.1")

YES = Usable(usable=True, reason="Tensor Cores")
NO_BFLOAT16 = Usable(usable=False, reason=f"{T4}: no bfloat16 in its Tensor Cores")
NO_CODE = Usable(usable=False, reason=f"{RTX_5090}: TensorFlow 2.21.0 has no code that runs on it")


def job(id_: str = "42", step: str | None = "0", restart: int = 0) -> Job:
    """A Slurm job."""
    return Job(scheduler="slurm", id=id_, step=step, restart=restart)


def a100(host: str, **facts: Any) -> NodeRecord:
    """A node of eight A100."""
    return _record(host, A100, 8, PolicyUse(mixed_bfloat16=YES, mixed_float16=YES, float32=YES), facts)


def t4(host: str, **facts: Any) -> NodeRecord:
    """A node of eight T4."""
    return _record(host, T4, 8, PolicyUse(mixed_bfloat16=NO_BFLOAT16, mixed_float16=YES, float32=YES), facts)


def rtx_5090(host: str, **facts: Any) -> NodeRecord:
    """A node whose GPUs this TensorFlow has no code for."""
    return _record(host, RTX_5090, 8, PolicyUse(mixed_bfloat16=NO_CODE, mixed_float16=NO_CODE, float32=NO_CODE), facts)


def cpu(host: str, **facts: Any) -> NodeRecord:
    """A node without GPUs."""
    no = Usable(usable=False, reason="the CPU has no AMX for bfloat16")
    return _record(
        host, None, 0, PolicyUse(mixed_bfloat16=no, mixed_float16=no, float32=YES), {"on_cpu": True, **facts}
    )


def usability(label: str, **usable: bool | None) -> tuple[DeviceUsability, ...]:
    """What one device can use: everything but what is named here."""
    policies: dict[str, Usable] = {
        name: Usable(usable=usable.get(name, True), reason=f"{name} on {label}") for name in DTYPE_POLICIES
    }
    return (DeviceUsability(subject="GPU-1", label=label, policies=policies),)


def _record(host: str, label: str | None, count: int, policies: PolicyUse, facts: dict[str, Any]) -> NodeRecord:
    known: dict[str, Any] = {
        "host": host,
        "job": Job(),
        "policies": policies,
        "gpus": () if label is None else (GpuKind(label=label, count=count),),
        "driver": "570.124.06",
        "versions": VERSIONS,
        "wishes": WISHES,
    }
    return NodeRecord(**{**known, **facts})
