"""What the catalogue of boards and the table of releases say to several rules."""

from __future__ import annotations

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.gpus import Board, boards
from hwprobe.knowledge.kernels import code_for
from hwprobe.knowledge.tensorflow import newest_release, releases
from hwprobe.report import PciDevice


def board_on_bus(device: PciDevice) -> Board | None:
    """The board behind a PCI device id, of several with that id the first; None for one that is not known."""
    return next((board for board in boards() if device.device_id.upper() in board.pci), None)


def last_driver_branch(device: PciDevice) -> int | None:
    """The last driver branch that runs a device on the bus, such as 470; None where it is current or not known."""
    board = board_on_bus(device)
    return board.architecture.last_driver_branch if board is not None else None


def newest_wheel_for(capability: ComputeCapability) -> str | None:
    """The newest release, such as `2.16`, whose wheels have code for a GPU; None if none of the table has any."""
    newest = newest_release().minor
    for row in reversed(releases()):
        if row.minor <= newest and code_for(capability, row.architectures).kind != "none":
            return row.version
    return None
