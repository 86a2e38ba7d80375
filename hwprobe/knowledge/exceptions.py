"""Boards that lack the Tensor Cores of their capability, by PCI device id and by name."""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.architectures import architecture_of
from hwprobe.knowledge.tables import Row, Text, read

_WORD = re.compile(r"[^\s_/()\-]+")


class ExceptionalChip(Row, frozen=True, kw_only=True):
    """A chip whose boards have no Tensor Cores.

    Attributes:
        name: NVIDIA's name of the die: `TU117`.
        capability: What it reports.
        ids: PCI device ids that are known to belong to it, as four upper-case hexadecimal digits.
        first, last: The block of ids given to this chip; None where its ids stand in another chip's block.
        note: What is special about it.
    """

    name: Text
    capability: ComputeCapability
    ids: tuple[str, ...]
    first: str | None = None
    last: str | None = None
    note: str | None = None

    def owns(self, pci_device_id: str) -> bool:
        """Whether a device id (four upper-case hexadecimal digits) belongs to this chip."""
        in_block = self.first is not None and self.last is not None and self.first <= pci_device_id <= self.last
        return in_block or pci_device_id in self.ids


class ExceptionalName(Row, frozen=True, kw_only=True):
    """A name that gives a board without Tensor Cores away.

    Attributes:
        capability: Only boards of this capability are meant.
        tokens: Words that stand side by side in the name; `*` and `?` as in a shell.
        tensor_cores: `none`, or `unknown` where the sources disagree.
        without_id: The row counts only where the PCI device id could not be read.
        note: Why it is unknown.
    """

    capability: ComputeCapability
    tokens: Text
    tensor_cores: Literal["none", "unknown"]
    without_id: bool = False
    note: str | None = None

    def fits(self, name: str) -> bool:
        """Whether the words stand side by side in a name; a word is never matched in part."""
        words, wanted = _words(name), _words(self.tokens)
        starts = range(len(words) - len(wanted) + 1)
        return any(all(map(fnmatchcase, words[start:], wanted)) for start in starts)


class TensorCores(msgspec.Struct, frozen=True):
    """What the Tensor Cores of one board multiply.

    Attributes:
        dtypes: Empty without Tensor Cores; None where nobody can tell.
        reason: Why they differ from what the capability promises, or why nobody can tell; None where the capability
            settles it.
    """

    dtypes: tuple[str, ...] | None
    reason: str | None


@functools.cache
def exceptional_chips() -> tuple[ExceptionalChip, ...]:
    """Chips without the Tensor Cores of their capability."""
    return read("exceptions.toml", "chip", ExceptionalChip)


@functools.cache
def exceptional_names() -> tuple[ExceptionalName, ...]:
    """Names of boards without the Tensor Cores of their capability."""
    return read("exceptions.toml", "name", ExceptionalName)


def tensor_cores(name: str | None, pci_device_id: str | None, capability: ComputeCapability | None) -> TensorCores:
    """Tell what the Tensor Cores of a board multiply: by PCI device id, then by name, then by capability.

    Args:
        name: As the driver writes it.
        pci_device_id: The 16 bits that name the chip, in hexadecimal.
        capability: Of the board.
    """
    if capability is None:
        return TensorCores(None, "its compute capability could not be read")
    device_id = pci_device_id.upper() if pci_device_id else None
    chips = [chip for chip in exceptional_chips() if chip.capability == capability]
    names = [row for row in exceptional_names() if row.capability == capability]
    if not chips and not names:
        return TensorCores(architecture_of(capability).tensor_core_dtypes, None)
    for chip in chips:
        if device_id and chip.owns(device_id):
            return TensorCores((), f"PCI device {device_id} is a {chip.name} board without Tensor Cores")
    for row in names:
        if name and row.fits(name) and not (row.without_id and device_id):
            return _by_name(row, name, capability)
    if name is None and device_id is None:
        reason = (
            f"capability {capability} comes with and without Tensor Cores, and neither name nor PCI id could be read"
        )
        return TensorCores(None, reason)
    return TensorCores(architecture_of(capability).tensor_core_dtypes, None)


def _by_name(row: ExceptionalName, name: str, capability: ComputeCapability) -> TensorCores:
    if row.tensor_cores == "unknown":
        return TensorCores(None, f"whether {name} has Tensor Cores is not established: {row.note}")
    return TensorCores((), f"{name} has no Tensor Cores, although its capability is {capability}")


def _words(text: str) -> list[str]:
    return [word.upper() for word in _WORD.findall(text)]
