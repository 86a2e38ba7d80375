"""A thousand checks in one process leave nothing behind: no descriptor, thread, child or memory, and no open NVML."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hwprobe.probe.child import ask
from hwprobe.source import SourceStatus
from tests.faults.command import ROOT
from tests.machine import A100, T4, Machine

MakeMachine = Callable[..., Machine]

READERS = "tests.probe.readers"
MIB = 2**20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in Linux's /proc")

MANY = """
import gc, json, os, sys, threading
import psutil

def left():
    gc.collect()
    process = psutil.Process()
    return [process.num_fds(), threading.active_count(), len(process.children()), process.memory_info().rss]

{work}

for _ in range({first}):
    once()
before = left()
for _ in range({then}):
    once()
print(json.dumps([before, left()]))
"""

WHOLE_CHECK = """
import hwprobe
from hwprobe.render.formats import FORMATS, write

def once():
    result = hwprobe.check(fast=True)
    assert result.verdict == "ready", result
    for name in FORMATS:
        write(result, name)
"""

READ_NVML = """
from hwprobe.probe.nvml import read

def once():
    assert len(read({})["devices"]) == 2
"""

READ_CUDA = """
from hwprobe.probe.cuda import read

def once():
    assert len(read({})["devices"]) == 2
"""


def growth(machine: Machine, work: str, first: int, then: int) -> None:
    """Do the work some times, then many times more, and compare what is left."""
    source = MANY.format(work=work, first=first, then=then)
    done = machine.run([sys.executable, "-c", source], cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert after[:3] == before[:3]
    assert after[3] - before[3] < 8 * MIB


def test_1000_checks_without_a_driver(machine: MakeMachine) -> None:
    growth(machine(gpus=[], driver=None, toolkit=None), WHOLE_CHECK, 20, 980)


def test_checks_with_two_gpus_end_every_child_and_shut_nvml_down(machine: MakeMachine) -> None:
    m = machine(gpus=[T4, A100])
    growth(m, WHOLE_CHECK, 10, 40)
    starts, stops = m.calls("nvmlInit", "nvmlInitWithFlags"), m.calls("nvmlShutdown")
    assert len({call.process for call in starts}) == 50
    assert len(starts) == len(stops) == 50
    assert not any(Path(f"/proc/{call.process}").exists() for call in starts)


def test_nvml_is_shut_down_as_often_as_it_is_started_in_one_process(machine: MakeMachine) -> None:
    m = machine(gpus=[T4, A100])
    growth(m, READ_NVML, 20, 980)
    assert len(m.calls("nvmlInit", "nvmlInitWithFlags")) == len(m.calls("nvmlShutdown")) == 1000


@pytest.mark.parametrize("fault", [{"fail": {"nvmlDeviceGetCount": 999}}, {"fail": {"nvmlDeviceGetHandleByIndex": 4}}])
def test_nvml_is_shut_down_after_a_failure_too(machine: MakeMachine, fault: dict[str, dict[str, int]]) -> None:
    m = machine(gpus=[T4], **fault)
    tried = "from hwprobe.probe.bootstrap import ReaderFailure\nfrom hwprobe.probe.nvml import read\n"
    done = m.run([sys.executable, "-c", f"{tried}try: read({{}})\nexcept ReaderFailure: pass"], cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(m.calls("nvmlInit", "nvmlInitWithFlags")) == len(m.calls("nvmlShutdown")) == 1


def test_1000_readings_of_cuda_in_one_process(machine: MakeMachine) -> None:
    growth(machine(gpus=[T4, A100]), READ_CUDA, 20, 980)


@pytest.mark.parametrize("reader", ["echo", "abort", "half_line", "fail"])
def test_children_that_end_in_any_way_leave_no_descriptor_and_no_thread(reader: str) -> None:
    for _ in range(5):
        ask(f"{READERS}:{reader}", {}, timeout_seconds=60)
    descriptors = psutil.Process().num_fds()
    for _ in range(50):
        answer = ask(f"{READERS}:{reader}", {}, timeout_seconds=60)
        assert answer.status in (SourceStatus.OK, SourceStatus.FAILED)
    gc.collect()
    assert psutil.Process().num_fds() <= descriptors
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hwprobe-")]
    assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]


def test_children_that_are_killed_at_their_limit_leave_nothing() -> None:
    descriptors = psutil.Process().num_fds()
    for _ in range(10):
        assert ask(f"{READERS}:hang", {}, timeout_seconds=0.3).status is SourceStatus.TIMEOUT
    assert psutil.Process().num_fds() <= descriptors
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hwprobe-")]
