"""Adds to the GPUs of a report what only the tables know."""

from __future__ import annotations

from msgspec.structs import replace

from hwprobe.gpu import Gpu
from hwprobe.knowledge.architectures import architecture_of
from hwprobe.knowledge.exceptions import tensor_cores
from hwprobe.report import Report


def annotate(report: Report) -> Report:
    """Fill in architecture and Tensor Cores of every GPU.

    Args:
        report: As the sources gave it.

    Returns:
        The same facts with `architecture`, `architecture_known`, `tensor_cores` and `tensor_cores_reason` from this
        version's tables, whatever they were before: a report that was recorded by an older hwprobe is judged anew.
    """
    return replace(report, devices=tuple(annotate_gpu(gpu) for gpu in report.devices))


def annotate_gpu(gpu: Gpu) -> Gpu:
    """Fill in architecture and Tensor Cores of one GPU; a GPU of another maker is returned as it is.

    Args:
        gpu: Any GPU of a report.
    """
    if gpu.kind != "nvidia":
        return gpu
    cores = tensor_cores(gpu.name, gpu.pci_device_id, gpu.compute_capability)
    row = architecture_of(gpu.compute_capability) if gpu.compute_capability is not None else None
    return replace(
        gpu,
        architecture=row.name if row is not None else None,
        architecture_known=row is not None and row.known,
        tensor_cores=cores.dtypes,
        tensor_cores_reason=cores.reason,
    )
