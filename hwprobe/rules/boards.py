"""What the catalogue of boards and the table of releases say to several rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.drivers import driver_for_ptx, driver_is_older, minimum_driver
from hwprobe.knowledge.gpus import Board, boards
from hwprobe.knowledge.kernels import code_for
from hwprobe.knowledge.tensorflow import Release, newest_release, releases
from hwprobe.report import Host, PciDevice


def board_on_bus(device: PciDevice) -> Board | None:
    """The board behind a PCI device id, of several with that id the first; None for one that is not known."""
    return next((board for board in boards() if device.device_id.upper() in board.pci), None)


def last_driver_branch(device: PciDevice) -> int | None:
    """The last driver branch that runs a device on the bus, such as 470; None where it is current or not known."""
    board = board_on_bus(device)
    return board.architecture.last_driver_branch if board is not None else None


def newest_wheel_for(capability: ComputeCapability) -> Release | None:
    """The newest release whose wheels have code for a GPU; None if none of the table has any."""
    return newest_wheel_that(lambda row: code_for(capability, row.architectures).kind != "none")


def newest_wheel_under(driver: str, system: str, capabilities: Sequence[ComputeCapability]) -> Release | None:
    """The newest release that a driver runs on each of some GPUs; None if none of the table is old enough for it.

    Args:
        driver: Its version.
        system: Whose driver it is: `Linux` or `Windows` (under WSL, too).
        capabilities: Of the GPUs.
    """
    return newest_wheel_that(
        lambda row: (
            _covers(driver, minimum_driver(row.cuda, system))
            and all(_runs_on(capability, row, driver, system) for capability in capabilities)
        )
    )


def newest_wheel_that(fits: Callable[[Release], bool]) -> Release | None:
    """The newest final release of which something holds; None if it holds of none."""
    final = newest_release().minor
    return next((row for row in reversed(releases()) if row.minor <= final and fits(row)), None)


def _runs_on(capability: ComputeCapability, row: Release, driver: str, system: str) -> bool:
    code = code_for(capability, row.architectures)
    return code.kind == "native" or (code.kind == "jit" and _covers(driver, driver_for_ptx(row.cuda, system)))


def _covers(driver: str, minimum: str | None) -> bool:
    return minimum is not None and driver_is_older(driver, minimum) is False


def pip_install_last(row: Release, why: str, host: Host) -> str:
    """The command that installs the last release of something, with the Python that its wheels are for.

    Args:
        row: That release.
        why: What it is the last of, as a sentence part.
        host: Whose Python will run it.
    """
    major, minor = row.minor
    other = "" if row.has_wheel_for(host.python or "") else f"; its wheels are for Python {row.pythons}"
    return f"pip install '{row.package}<{major}.{minor + 1}'   # the last release {why}{other}"
