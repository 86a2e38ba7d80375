"""Asks NVML of a machine of the tests, in a child process as hwprobe asks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hwprobe.gpu import Gpu
from hwprobe.probe.child import Answer, ask
from hwprobe.probe.readings import NvmlReading
from hwprobe.serialize import from_builtins
from hwprobe.source import SourceStatus
from tests.machine import Machine

ROOT = Path(__file__).parents[2]
MIB = 2**20
GENEROUS = 120.0

MakeMachine = Callable[..., Machine]


def answer_of(machine: Machine, timeout_seconds: float = GENEROUS) -> Answer:
    return ask("hwprobe.probe.nvml:read", {}, timeout_seconds=timeout_seconds, environment=machine.environment())


def reading_of(machine: Machine) -> NvmlReading:
    answer = answer_of(machine)
    assert answer.status is SourceStatus.OK, answer
    return from_builtins(answer.data, NvmlReading)


def gpus_of(machine: Machine) -> tuple[Gpu, ...]:
    devices = reading_of(machine).devices
    assert devices is not None
    return devices
