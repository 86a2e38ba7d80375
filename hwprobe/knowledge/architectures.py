"""Compute capability to architecture: what a generation of GPUs can multiply, and which CUDA still knows it."""

from __future__ import annotations

import functools

from msgspec.structs import replace

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.tables import Row, Text, read


class Architecture(Row, frozen=True, kw_only=True):
    """What is true of every GPU of one compute capability.

    Attributes:
        capability: Of the row that judges; for a device that the table does not know, that of the nearest older row.
        name: `Ampere`.
        tensor_core_dtypes: What its Tensor Cores multiply, of `float16`, `bfloat16`, `tf32`, `fp8`, `fp4`.
        notes: What else matters to somebody who picks a dtype.
        first_toolkit, last_toolkit: CUDA releases that can build code for it; None where not established or current.
        first_driver_branch, last_driver_branch: Driver branches (580 for R580) that run it; None likewise.
        oldest_working_ptx: PTX for anything older is known to fail on it; None where every older PTX works.
        ptx_source: Where that was seen.
        known: False where the device is not in the table, and this row only stands in for it.
    """

    capability: ComputeCapability
    name: Text
    tensor_core_dtypes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    first_toolkit: str | None = None
    last_toolkit: str | None = None
    first_driver_branch: int | None = None
    last_driver_branch: int | None = None
    oldest_working_ptx: ComputeCapability | None = None
    ptx_source: str | None = None
    known: bool = True


@functools.cache
def architectures() -> tuple[Architecture, ...]:
    """Every known capability, oldest first."""
    return read("architectures.toml", "architecture", Architecture)


@functools.cache
def architecture_of(capability: ComputeCapability) -> Architecture:
    """Look an architecture up.

    A device that the table does not know is judged by the nearest older capability, and says so in `known`. One that is
    older than the whole table has no Tensor Cores.

    Args:
        capability: Of the device.

    Returns:
        The row, or the row that stands in for it with `known` False.
    """
    older = [row for row in architectures() if row.capability <= capability]
    if older:
        nearest = older[-1]
        return nearest if nearest.capability == capability else replace(nearest, known=False)
    first = architectures()[0]
    return Architecture(
        capability=capability,
        name=f"before {first.name}",
        tensor_core_dtypes=(),
        source=first.source,
        checked=first.checked,
        known=False,
    )
