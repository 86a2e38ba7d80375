"""NVML and the CUDA driver fail at every step of a check, with every kind of error.

Every code at every call of the two readers is in `tests/probe/test_nvml.py` and `test_cuda.py`; here the whole command
runs on a machine that fails so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hwprobe.probe.cuda import ERRORS as CUDA_ERRORS
from hwprobe.probe.nvml_codes import ERRORS as NVML_ERRORS
from tests.faults.command import check
from tests.machine import A100, T4, Machine

MakeMachine = Callable[..., Machine]

UNHEARD_OF = 31337
NVML_INIT = (3, 4, 9, 12, 15, 17, 18, 27, 999, UNHEARD_OF)
CU_INIT = (2, 3, 34, 46, 100, 101, 304, 800, 802, 803, 804, 805, 999, UNHEARD_OF)


def named(code: int, errors: dict[Any, tuple[Any, str]]) -> str:
    """How an answer must name a code: by the library's own name, or by its number where it has none."""
    return str(errors[code][0]) if code in errors else str(code)


@pytest.mark.parametrize("code", NVML_INIT)
def test_nvml_that_does_not_start_is_an_error_whatever_cuda_says(machine: MakeMachine, code: int) -> None:
    answer = check(machine(gpus=[A100], nvml_init=code))
    assert answer.statuses == ("failed", "ok")
    assert answer.report.sources.nvml.code == code
    assert named(code, NVML_ERRORS) in answer.text
    assert answer.check.verdict == "not_ready"
    (gpu,) = answer.report.devices
    assert (gpu.nvml_index, gpu.memory.free_bytes) == (None, None)


@pytest.mark.parametrize("code", CU_INIT)
def test_cuda_that_does_not_start_leaves_no_gpu_to_compute_on(machine: MakeMachine, code: int) -> None:
    answer = check(machine(gpus=[A100], cu_init=code))
    assert answer.statuses == ("ok", "failed")
    assert answer.report.sources.cuda.code == code
    assert named(code, CUDA_ERRORS) in answer.text
    assert (answer.check.verdict, answer.dtype_policy) == ("not_ready", "float32")
    (gpu,) = answer.report.devices
    # "No device" is an answer about every GPU, any other code about none.
    assert gpu.visible is (False if code == 100 else None)


@pytest.mark.parametrize(("nvml_init", "cu_init"), [(9, 999), (18, 803), (999, 100), (UNHEARD_OF, UNHEARD_OF)])
def test_where_nothing_was_read_there_is_no_gpu_and_nothing_is_ready(
    machine: MakeMachine, nvml_init: int, cu_init: int
) -> None:
    answer = check(machine(gpus=[A100], nvml_init=nvml_init, cu_init=cu_init))
    assert answer.statuses == ("failed", "failed")
    assert answer.report.devices == ()
    assert (answer.check.verdict, answer.dtype_policy) == ("not_ready", "float32")


@pytest.mark.parametrize("code", [1, 17, 999, UNHEARD_OF])
def test_nvml_that_does_not_count(machine: MakeMachine, code: int) -> None:
    answer = check(machine(gpus=[A100], fail={"nvmlDeviceGetCount": code}))
    assert answer.statuses == ("failed", "ok")
    assert named(code, NVML_ERRORS) in answer.text
    assert answer.check.verdict == "not_ready"
    assert answer.report.driver is not None
    assert answer.report.driver.device_count is None


@pytest.mark.parametrize("code", [3, 999, UNHEARD_OF])
def test_cuda_that_does_not_count(machine: MakeMachine, code: int) -> None:
    answer = check(machine(gpus=[A100], fail={"cuDeviceGetCount": code}))
    assert answer.statuses == ("ok", "failed")
    assert named(code, CUDA_ERRORS) in answer.text
    assert (answer.check.verdict, answer.dtype_policy) == ("not_ready", "float32")


@pytest.mark.parametrize("code", [2, 8, 15, 16, 999, UNHEARD_OF])
def test_a_handle_that_nvml_refuses_costs_that_gpu_alone(machine: MakeMachine, code: int) -> None:
    answer = check(machine(gpus=[A100, T4.refusing(code)]))
    sound, refused = answer.report.devices
    assert (sound.error, sound.visible) == (None, True)
    assert refused.error_code == code
    assert named(code, NVML_ERRORS) in answer.text
    assert answer.check.verdict == "not_ready"
    assert refused.subject in {
        finding.subject for finding in answer.check.findings if finding.severity.value == "error"
    }


@pytest.mark.parametrize("code", [1, 101, 999, UNHEARD_OF])
def test_a_device_that_cuda_refuses_costs_that_gpu_alone(machine: MakeMachine, code: int) -> None:
    answer = check(machine(gpus=[T4, A100.failing(cuDeviceGet=code)]))
    assert named(code, CUDA_ERRORS) in answer.text
    assert answer.check.verdict == "not_ready"
    assert [gpu.visible for gpu in answer.report.devices if gpu.error is None] == [True]


FACTS: list[tuple[str, dict[str, int], str]] = [
    ("name", {"nvmlDeviceGetName": 999, "cuDeviceGetName": 999}, "name"),
    ("memory", {"nvmlDeviceGetMemoryInfo": 999, "cuDeviceTotalMem": 999}, "memory"),
    ("UUID", {"nvmlDeviceGetUUID": 999, "cuDeviceGetUuid": 999}, "uuid"),
    ("capability", {"nvmlDeviceGetCudaComputeCapability": 999, "cuDeviceGetAttribute": 999}, "compute_capability"),
]


@pytest.mark.parametrize(("faults", "fact"), [row[1:] for row in FACTS], ids=[row[0] for row in FACTS])
def test_a_fact_that_neither_gives_is_unknown_and_says_why(
    machine: MakeMachine, faults: dict[str, int], fact: str
) -> None:
    answer = check(machine(gpus=[A100.failing(**faults)]))
    (gpu,) = answer.report.devices
    value = gpu.memory.total_bytes if fact == "memory" else getattr(gpu, fact)
    assert value is None
    assert {fact, f"cuda_{fact}"} <= gpu.errors.keys()
    assert "CUDA_ERROR_UNKNOWN" in gpu.errors[f"cuda_{fact}"]
    assert "NVML_ERROR_UNKNOWN" in gpu.errors[fact]


@pytest.mark.parametrize(
    "faults",
    [
        {"nvmlDeviceGetName": 999},
        {"nvmlDeviceGetMemoryInfo": 4},
        {"nvmlDeviceGetCudaComputeCapability": 999},
        {"cuDeviceGetName": 3},
        {"cuDeviceTotalMem": 999},
        {"cuDeviceGetUuid": 801},
        {"cuDeviceGetPCIBusId": 1},
    ],
    ids=lambda faults: next(iter(faults)),
)
def test_a_fact_that_one_of_them_gives_is_known_and_the_failure_is_kept(
    machine: MakeMachine, faults: dict[str, int]
) -> None:
    m = machine(gpus=[A100.failing(**faults)])
    answer = check(m)
    (gpu,) = answer.report.devices
    assert (gpu.name, str(gpu.compute_capability), gpu.uuid) == (A100.name, "8.0", m.gpus[0].uuid)
    assert gpu.memory.total_bytes == A100.memory_total
    assert len(gpu.errors) == 1
    assert (answer.check.verdict, answer.dtype_policy) == ("ready", "mixed_bfloat16")


def test_without_a_capability_no_half_precision_is_chosen(machine: MakeMachine) -> None:
    faults = {"nvmlDeviceGetCudaComputeCapability": 999, "cuDeviceGetAttribute": 999}
    answer = check(machine(gpus=[A100.failing(**faults)]))
    assert answer.dtype_policy == "float32"
    assert answer.check.decision is not None
    assert "compute capability could not be read" in answer.check.decision.rejected["mixed_bfloat16"]
