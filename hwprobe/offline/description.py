"""What every report that was made from a description says about itself: which sources nobody asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hwprobe.gpu import Gpu
from hwprobe.knowledge.gpus import Board
from hwprobe.report import Driver, Host, Keras, Report, Sources, TensorFlow
from hwprobe.source import Source, SourceStatus

OK = Source(status=SourceStatus.OK)

_NOT_TOLD = (
    *("kernel", "cpu_model", "cpu_flags", "memory_total_bytes", "container", "scheduler", "pci_devices"),
    *("device_nodes", "environment", "mapped_libraries"),
)
"""Facts of a host that only somebody who is on it can read."""


class Platform(NamedTuple):
    """Which system a description is about; None where it does not say."""

    system: str = "Linux"
    machine: str | None = None
    wsl: bool = False
    python: str | None = None


def left_out(what: str) -> Source:
    """Say of a source that nobody asked it, since a description stands in its place.

    Args:
        what: The description: `target`, `labels`.
    """
    return Source(status=SourceStatus.SKIPPED, reason=f"not part of the {what}")


def describe(
    what: str,
    origin: str,
    *,
    gpus: Sequence[Gpu],
    driver: Driver | None,
    platform: Platform,
    tensorflow: TensorFlow | None,
    keras: Keras | None = None,
    nvml: Source | None = None,
    cuda: Source | None = None,
    build: Source | None = None,
    assumptions: Sequence[str] = (),
) -> Report:
    """Make a report of which only the given facts are known.

    Args:
        what: The kind of description: `target`, `labels`.
        origin: The description itself, or the file that holds it.
        gpus: In the order of the description.
        driver: What it says of the driver; None where there is none.
        platform: What it says of the system.
        tensorflow: The TensorFlow to judge by; None where there is none.
        keras: What it says of Keras.
        nvml: How NVML counts; None for not asked.
        cuda: How CUDA counts; None for not asked.
        build: How TensorFlow counts; None for not asked.
        assumptions: What the report takes for granted.
    """
    skipped = left_out(what)
    reason = skipped.reason or ""
    return Report(
        devices=tuple(gpus),
        driver=driver,
        tensorflow=tensorflow,
        keras=keras,
        host=Host(
            system=platform.system,
            machine=platform.machine,
            wsl=platform.wsl,
            python=platform.python,
            absent=dict.fromkeys(_NOT_TOLD, reason),
        ),
        sources=Sources(
            nvml=nvml or skipped,
            cuda=cuda or skipped,
            tensorflow_build=build or skipped,
            tensorflow_runtime=build or skipped,
            host=skipped,
        ),
        origin=origin,
        assumptions=tuple(assumptions),
    )


def arm_host(boards: Sequence[Board]) -> str | None:
    """Give the processor that comes with these boards: `aarch64` where all of them come with an Arm CPU.

    Args:
        boards: What a name could mean.
    """
    return "aarch64" if boards and all(board.arm_host for board in boards) else None
