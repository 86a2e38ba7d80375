"""The catalogue of boards."""

from __future__ import annotations

import functools
from typing import Literal, get_args

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu, GpuMemory
from hwprobe.knowledge.annotate import annotate_gpu
from hwprobe.knowledge.architectures import Architecture, architecture_of
from hwprobe.knowledge.exceptions import tensor_cores
from hwprobe.knowledge.tables import Row, Text, read, read_legend

Segment = Literal["consumer", "workstation", "datacenter", "embedded", "mining"]
SEGMENTS: tuple[Segment, ...] = get_args(Segment)

GIB = 1024**3


class Board(Row, frozen=True, kw_only=True):
    """One board, or several that share name and capability; `source` is a key of the table [sources].

    Attributes:
        name: As NVML writes it with a driver from 465 on.
        also: Other names that CUDA or the maker gives to it.
        capability: Compute capability.
        memory_gib: Nominal sizes of one GPU; several where variants share the name, none where it is not established.
        segment: Whom it is made for.
        unified: Whether the memory is shared with the host.
        arm_host: Whether it comes with an Arm CPU, for which the wheels on the package index have no CUDA.
        chip: Name of the die, or of the dies.
        tensor_cores: Whether the sources of this row list Tensor Cores; None where they disagree.
        pci: PCI device ids as four upper-case hexadecimal digits.
        note: What else there is to know.
    """

    name: Text
    also: tuple[str, ...] = ()
    capability: ComputeCapability
    memory_gib: tuple[float, ...]
    segment: Segment
    unified: bool = False
    arm_host: bool = False
    chip: Text
    tensor_cores: bool | None = None
    pci: tuple[str, ...]
    note: str | None = None

    @property
    def architecture(self) -> Architecture:
        """The architecture that its capability belongs to."""
        return architecture_of(self.capability)

    @property
    def tensor_core_dtypes(self) -> tuple[str, ...] | None:
        """What its Tensor Cores multiply; empty without any, None where that is not established."""
        return tensor_cores(self.name, self._only_id, self.capability).dtypes

    @property
    def _only_id(self) -> str | None:
        return self.pci[0] if len(self.pci) == 1 else None

    def as_gpu(self, memory_gib: float | None = None) -> Gpu:
        """Build the facts that a probe of this board would give.

        Args:
            memory_gib: Which of its sizes is meant; None takes the only one, or leaves the size unknown.
        """
        size = self.memory_gib[0] if memory_gib is None and len(self.memory_gib) == 1 else memory_gib
        gpu = Gpu(
            name=self.name,
            pci_device_id=self._only_id,
            compute_capability=self.capability,
            visible=True,
            memory=GpuMemory(
                total_bytes=round(size * GIB) if size is not None else None,
                kind="unified" if self.unified else "dedicated",
            ),
        )
        return annotate_gpu(gpu)


@functools.cache
def boards() -> tuple[Board, ...]:
    """The whole catalogue: by capability, then segment, then name."""
    return read("gpus.toml", "board", Board)


def source_text(board: Board) -> str:
    """Give the source of a board's name and ids in full; its row holds only a key of it."""
    return read_legend("gpus.toml", "sources")[board.source]
