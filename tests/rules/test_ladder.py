"""The ladder from the PCI bus to TensorFlow's list: it stops at the first broken rung, and what follows is skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from hwprobe.findings import Severity
from hwprobe.policy import Policy
from hwprobe.preflight import assess
from hwprobe.report import Driver, Report
from hwprobe.rules.catalogue import CATALOGUE
from hwprobe.source import Source
from tests import machine as boards
from tests.machine import Machine
from tests.reports import A100, H100, RTX_5090, T4, cpu_only, lost, report, source, tensorflow_wheel
from tests.rules.facts import (
    ABSENT,
    CUDA_UNKNOWN,
    NODES,
    distributions,
    failed,
    nodes,
    pci,
    unasked,
    with_libraries,
    without_cuda,
)
from tests.rules.test_libraries import with_cudnn
from tests.schema import valid

MODULE = Driver(kernel_version="550.90.07")
HERE: dict[str, Any] = {"pci_devices": (pci(),), "device_nodes": NODES}
REFUSED = nodes("nvidia0", "nvidiactl", "nvidia-uvm", mode="0660", group="video", accessible=False)
STUB = "/usr/local/cuda/lib64/stubs/libcuda.so"
CPU_BUILD = tensorflow_wheel(is_cuda_build=False, distributions=distributions("tensorflow-cpu"))
SILENT = source("timeout", "no answer within 30 s")


def driver_only(nvml: Source, cuda: Source, driver: Driver = MODULE, **host: Any) -> Report:
    """A machine whose GPU shows on the bus alone."""
    return report(driver=driver, host={**HERE, **host}, sources={"nvml": nvml, "cuda": cuda})


RUNGS: dict[str, tuple[str, Report]] = {
    "the kernel module": ("HWP101", cpu_only(host={"pci_devices": (pci(driver=None),)})),
    "its version": (
        "HWP102",
        driver_only(failed(18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"), failed(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")),
    ),
    "a stub": (
        "HWP106",
        driver_only(
            ABSENT, failed(34, "CUDA_ERROR_STUB_LIBRARY"), Driver(kernel_version="550.90.07", cuda_library=STUB)
        ),
    ),
    "the device nodes": ("HWP103", without_cuda(T4, host={**HERE, "device_nodes": nodes("nvidia0", "nvidiactl")})),
    "their mode": (
        "HWP104",
        driver_only(failed(4, "NVML_ERROR_NO_PERMISSION"), CUDA_UNKNOWN, device_nodes=REFUSED),
    ),
    "libnvidia-ml": ("HWP105", report(gpus=[T4], lists=(), host=HERE, sources={"nvml": ABSENT})),
    "NVML's start": ("HWP107", driver_only(failed(17, "NVML_ERROR_OPERATING_SYSTEM"), CUDA_UNKNOWN)),
    "NVML's answer": (
        "HWP108",
        report(driver=MODULE, host=HERE, sources=dict.fromkeys(("nvml", "cuda", "tensorflow_runtime"), SILENT)),
    ),
    "a GPU that answers": ("HWP120", without_cuda(lost(A100), host=HERE)),
    "libcuda": ("HWP109", report(gpus=[unasked(T4)], lists=(), host=HERE, sources={"cuda": ABSENT})),
    "a libcuda that fits": (
        "HWP110",
        without_cuda(T4, cuda=failed(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"), host=HERE),
    ),
    "cuInit": ("HWP111", without_cuda(T4, host=HERE)),
    "cuInit's answer": ("HWP112", without_cuda(T4, cuda=SILENT, host=HERE)),
    "a TensorFlow": ("HWP201", report(gpus=[T4], tensorflow=None, host=HERE)),
    "CUDA in it": ("HWP202", report(gpus=[T4], tensorflow=CPU_BUILD, host=HERE)),
    "the driver's age": ("HWP206", report(gpus=[T4], lists=(), driver="450.80.02", host=HERE)),
    "PTX that the driver compiles": (
        "HWP207",
        report(gpus=[H100], tensorflow="2.15.1", driver="525.60.13", host=HERE),
    ),
    "code for the GPU": ("HWP211", report(gpus=[RTX_5090], host=HERE)),
    "its libraries": ("HWP208", report(gpus=[T4], lists=(), tensorflow=with_libraries("libcudnn.so.9"), host=HERE)),
    "cuDNN's version": ("HWP210", report(gpus=[T4], tensorflow=with_cudnn("9.1.0"), host=HERE)),
    "the list": ("HWP214", report(gpus=[T4], lists=(), host=HERE)),
}


@pytest.mark.parametrize(("id_", "facts"), RUNGS.values(), ids=RUNGS.keys())
def test_the_first_broken_rung_is_the_one_cause(id_: str, facts: Report) -> None:
    check = assess(facts, Policy())
    errors = [finding.id for finding in check.findings if finding.severity is Severity.ERROR]
    assert errors == [id_]
    assert [finding.id for finding in check.findings if finding.primary] == [id_]
    assert check.exit_status == 1
    skipped = [status for status in check.rules if status.status == "skip"]
    assert all(status.reason for status in skipped)


def test_the_rungs_are_climbed_in_the_order_of_the_catalogue() -> None:
    order = [entry.rule.id for entry in CATALOGUE]
    places = [order.index(id_) for id_, _ in RUNGS.values()]
    assert places == sorted(places)


def test_an_effect_is_skipped_with_its_cause() -> None:
    check = assess(RUNGS["libcuda"][1], Policy())
    assert next(status.reason for status in check.rules if status.id == "HWP111") == "explained by HWP109"


def test_a_healthy_machine_climbs_to_the_top() -> None:
    check = assess(report(gpus=[T4], tensorflow=with_libraries(), host=HERE), Policy())
    assert (check.findings, check.exit_status) == ((), 0)


MACHINES: dict[str, tuple[str, dict[str, Any]]] = {
    "no driver": ("HWP101", {"gpus": [boards.T4], "driver": None}),
    "an upgrade under a running module": (
        "HWP102",
        {"gpus": [boards.T4], "nvml_init": 18, "cu_init": 803, "kernel_driver": "550.90.07"},
    ),
    "no nvidia-uvm": ("HWP103", {"gpus": [boards.T4], "cu_init": 999, "files": {"dev/nvidia-uvm": None}}),
    "no libnvidia-ml": ("HWP105", {"gpus": [boards.T4], "missing": ["libnvidia-ml.so.1"]}),
    "NVML is blocked": ("HWP107", {"gpus": [boards.T4], "nvml_init": 17, "cu_init": 999}),
    "a container that lost its GPUs": (
        "HWP107",
        {"gpus": [boards.T4], "nvml_init": 999, "cu_init": 999, "files": {".dockerenv": ""}},
    ),
    "a lost GPU": ("HWP120", {"gpus": [boards.A100.lost()], "cu_init": 999}),
    "no libcuda": ("HWP109", {"gpus": [boards.T4], "missing": ["libcuda.so.1"]}),
    "a compat libcuda": ("HWP110", {"gpus": [boards.RTX_3090], "cu_init": 804}),
    "CUDA does not start": ("HWP111", {"gpus": [boards.T4], "cu_init": 999}),
    "the only GPU is withheld from CUDA": ("HWP111", {"gpus": [boards.T4.hidden_from_cuda()]}),
    "an old driver": ("HWP206", {"gpus": [boards.T4], "driver": "450.80.02", "cuda": "11.0"}),
    "no code for the GPU": ("HWP211", {"gpus": [boards.RTX_5090]}),
    "no cuDNN": ("HWP208", {"gpus": [boards.T4], "missing": ["libcudnn.so.9"]}),
    "an old cuDNN": ("HWP210", {"gpus": [boards.T4], "cudnn": "9.1.0"}),
}


@pytest.mark.parametrize(("id_", "facts"), MACHINES.values(), ids=MACHINES.keys())
def test_the_first_broken_rung_of_a_machine_is_the_one_cause(
    id_: str, facts: dict[str, Any], machine: Callable[..., Machine]
) -> None:
    """The real TensorFlow, nvidia-ml-py and ctypes, without TensorFlow's own list, which costs seconds."""
    command = [sys.executable, "-m", "hwprobe", "check", "--fast", "--format", "json"]
    done = machine(**facts).run(command, timeout=240)
    answer = valid(done.stdout)
    errors = {finding["id"] for finding in answer["findings"] if finding["severity"] == "error"}
    assert errors == {id_}, answer["findings"]
    assert [finding["id"] for finding in answer["findings"] if finding["primary"]] == [id_]
    assert (done.returncode, answer["verdict"]) == (1, "not_ready")


def test_tensorflows_own_filter_is_named(machine: Callable[..., Machine]) -> None:
    m = machine(gpus=[boards.T4, boards.GT_1030])
    done = m.run([sys.executable, "-m", "hwprobe", "check", "--format", "json"], timeout=240)
    answer = valid(done.stdout)
    found = {finding["id"]: finding["severity"] for finding in answer["findings"]}
    assert found["HWP213"] == "warning"
    assert "HWP214" not in found
    assert (done.returncode, answer["decision"]["dtype_policy"]) == (0, "mixed_float16")
