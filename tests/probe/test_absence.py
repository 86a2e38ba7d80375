"""A library that is not there is told without a child process, and only where that is certain."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hwprobe.probe import absence
from hwprobe.probe.absence import absent_library
from hwprobe.report import DeviceNode, Host, PciDevice
from hwprobe.source import SourceStatus
from tests.machine import T4, Machine

MakeMachine = Callable[..., Machine]

BARE = Host(system="Linux", pci_devices=(), device_nodes=())
NOWHERE = "libhwprobe-nowhere.so.1"
NVIDIA = PciDevice(bus_id="00000000:0a:00.0", vendor_id="10de", device_id="1EB8", class_id="0302")
INTEL = PciDevice(bus_id="00000000:00:02.0", vendor_id="8086", device_id="56C0", class_id="0380")


def host(**facts: object) -> Host:
    return Host(**{"system": "Linux", "pci_devices": (), "device_nodes": ()} | facts)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_kernel_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absence, "read_kernel_module", lambda: None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows in files that there is no GPU")
@pytest.mark.parametrize("bare", [BARE, host(pci_devices=(INTEL,))], ids=["no GPU at all", "another vendor's"])
def test_on_a_host_without_nvidia_the_loader_is_asked_here(bare: Host) -> None:
    answer = absent_library(NOWHERE, bare)
    assert answer is not None
    assert answer.status is SourceStatus.ABSENT
    assert str(answer.reason).startswith("the loader says: ")
    assert NOWHERE in str(answer.reason)


@pytest.mark.parametrize(
    "found",
    [
        host(pci_devices=(NVIDIA,)),
        host(device_nodes=(DeviceNode(path="/dev/nvidiactl"),)),
        host(device_nodes=(DeviceNode(path="/dev/dxg"),)),
        host(pci_devices=None),
        host(device_nodes=None),
        host(wsl=True),
        host(tegra="NVIDIA Jetson AGX Orin"),
        host(system="Windows"),
        host(system="Darwin"),
    ],
    ids=["board", "node", "node of WSL", "bus unread", "nodes unread", "WSL", "Jetson", "Windows", "macOS"],
)
def test_where_something_of_nvidia_may_be_a_child_is_asked(found: Host) -> None:
    assert absent_library(NOWHERE, found) is None


def test_where_the_kernel_module_is_loaded_a_child_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absence, "read_kernel_module", lambda: "535.104.05")
    assert absent_library(NOWHERE, BARE) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the file is Linux's")
def test_a_library_that_is_there_is_left_to_a_child(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so.1"
    broken.write_text("not a library\n")
    assert absent_library("libc.so.6", BARE) is None
    assert absent_library(str(broken), BARE) is None


def test_a_search_path_that_was_changed_since_the_start_is_left_to_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/some/other/folder")
    assert absent_library(NOWHERE, BARE) is None


def test_where_the_start_cannot_be_read_a_child_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/some/folder")
    monkeypatch.setattr(absence, "ENVIRON", os.devnull + "/nothing")
    assert absent_library(NOWHERE, BARE) is None


COUNT = """
import json, os, sys
from hwprobe.probe.collect import collect
import subprocess
started = []
popen = subprocess.Popen.__init__
def counting(self, *arguments, **options):
    started.append(arguments)
    popen(self, *arguments, **options)
subprocess.Popen.__init__ = counting
report = collect(runtime=False)
print(json.dumps([len(started), report.sources.nvml.status, report.sources.cuda.status, report.driver is None]))
"""


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        pytest.param({"gpus": [], "driver": None}, [0, "absent", "absent", True], id="no GPU, no driver"),
        pytest.param({"gpus": [T4], "driver": None}, [2, "absent", "absent", True], id="a board without a driver"),
        pytest.param({"gpus": []}, [3, "ok", "failed", False], id="a driver without a board"),
        pytest.param({"gpus": [T4]}, [3, "ok", "ok", False], id="a board and its driver"),
    ],
)
def test_children_are_started_only_where_they_could_find_something(
    machine: MakeMachine, facts: dict[str, object], told: list[object]
) -> None:
    done = machine(**facts).run([sys.executable, "-c", COUNT], cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == told
