"""The CUDA driver through ctypes and a stand-in library, in a child process as hwprobe reads it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwprobe.capability import ComputeCapability
from hwprobe.probe import cuda
from hwprobe.probe.child import Answer, ask
from hwprobe.probe.readings import CudaDevice, CudaReading
from hwprobe.serialize import from_builtins
from hwprobe.source import SourceStatus
from tests.machine import A100, GB10, H100, T4, Machine

ROOT = Path(__file__).parents[2]
MIB = 2**20
GENEROUS = 120.0

MakeMachine = Callable[..., Machine]


def answer_of(machine: Machine, timeout_seconds: float = GENEROUS, **variables: Any) -> Answer:
    environment = machine.environment(**variables)
    return ask("hwprobe.probe.cuda:read", {}, timeout_seconds=timeout_seconds, environment=environment)


def reading_of(machine: Machine, **variables: Any) -> CudaReading:
    answer = answer_of(machine, **variables)
    assert answer.status is SourceStatus.OK, answer
    return from_builtins(answer.data, CudaReading)


def devices_of(machine: Machine, **variables: str) -> tuple[CudaDevice, ...]:
    devices = reading_of(machine, **variables).devices
    assert devices is not None
    return devices


def test_a_device_is_read_with_every_fact(machine: MakeMachine) -> None:
    board = T4.at("0000000F:65:00.0").but(compute_mode="exclusive_process")
    m = machine(gpus=[board], driver="535.104.05", cuda="12.2")
    reading = reading_of(m)
    assert reading.cuda_version == "12.2"
    assert str(reading.library).endswith("libcuda.so.535.104.05")
    assert reading.library_version == "535.104.05"
    assert reading.devices == (
        CudaDevice(
            cuda_index=0,
            name="Tesla T4",
            uuid=str(m.gpus[0].uuid).removeprefix("GPU-"),
            pci_bus_id="0000000f:65:00.0",
            compute_capability=ComputeCapability(7, 5),
            multiprocessors=40,
            memory_total_bytes=15360 * MIB,
            integrated=False,
            compute_mode="exclusive_process",
        ),
    )


def test_the_order_is_cudas_own_and_variables_change_it(machine: MakeMachine) -> None:
    m = machine(gpus=[T4, A100])
    assert [device.name for device in devices_of(m)] == ["NVIDIA A100-SXM4-80GB", "Tesla T4"]
    by_bus = devices_of(m, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert [device.name for device in by_bus] == ["Tesla T4", "NVIDIA A100-SXM4-80GB"]
    assert [device.name for device in devices_of(m, CUDA_VISIBLE_DEVICES="1")] == ["Tesla T4"]


def test_a_mig_instance_has_its_own_uuid(machine: MakeMachine) -> None:
    m = machine(gpus=[A100.mig_on("2g.20gb", "1g.10gb")])
    wanted = m.gpus[0].instances[1]
    (device,) = devices_of(m, CUDA_VISIBLE_DEVICES=str(wanted.uuid))
    assert f"MIG-{device.uuid}" == wanted.uuid
    assert device.name == "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    assert device.multiprocessors == 14


def test_a_gb10_is_integrated_and_cuda_tells_its_memory(machine: MakeMachine) -> None:
    (device,) = devices_of(machine(gpus=[GB10]))
    assert device.integrated is True
    assert device.memory_total_bytes is not None


def test_no_context_is_made_and_no_memory_is_taken(machine: MakeMachine) -> None:
    m = machine(gpus=[T4])
    devices_of(m)
    assert not [call for call in m.calls() if "Ctx" in call.function or "Alloc" in call.function]
    assert m.allocations == []


def test_a_driver_before_470_gives_the_first_kind_of_uuid(machine: MakeMachine) -> None:
    m = machine(gpus=[T4], lacks=["cuDeviceGetUuid_v2"])
    (device,) = devices_of(m)
    assert f"GPU-{device.uuid}" == m.gpus[0].uuid
    assert device.errors == {}


@pytest.mark.parametrize(
    ("facts", "variables", "status", "code", "error", "reason"),
    [
        ({"driver": None}, {}, "absent", None, None, "libcuda.so.1: cannot open shared object file"),
        ({"broken": ["libcuda.so.1"]}, {}, "failed", None, None, "the loader says: "),
        ({"cu_init": 34}, {}, "failed", 34, "CUDA_ERROR_STUB_LIBRARY", "stub for linking"),
        ({"cu_init": 100}, {}, "failed", 100, "CUDA_ERROR_NO_DEVICE", "cuInit: CUDA sees no GPU"),
        ({}, {"CUDA_VISIBLE_DEVICES": ""}, "failed", 100, "CUDA_ERROR_NO_DEVICE", "cuInit: CUDA sees no GPU"),
        ({"cu_init": 304}, {}, "failed", 304, "CUDA_ERROR_OPERATING_SYSTEM", "operating system"),
        ({"cu_init": 802}, {}, "failed", 802, "CUDA_ERROR_SYSTEM_NOT_READY", "not ready"),
        ({"cu_init": 803}, {}, "failed", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "differ in version"),
        ({"cu_init": 804}, {}, "failed", 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility"),
        ({"cu_init": 999}, {}, "failed", 999, "CUDA_ERROR_UNKNOWN", "unknown error"),
        ({"cu_init": 31337}, {}, "failed", 31337, None, "31337"),
        ({"fail": {"cuDeviceGetCount": 3}}, {}, "failed", 3, "CUDA_ERROR_NOT_INITIALIZED", "cuDeviceGetCount"),
        ({"crash": ["cuInit"]}, {}, "failed", None, None, "died by signal 6 (SIGABRT)"),
    ],
)
def test_cuda_that_does_not_start_says_how(
    machine: MakeMachine,
    facts: dict[str, Any],
    variables: dict[str, Any],
    status: str,
    code: int | None,
    error: str | None,
    reason: str,
) -> None:
    answer = answer_of(machine(gpus=[T4], **facts), **variables)
    assert (answer.status.value, answer.code) == (status, code)
    assert error is None or answer.error == error
    assert reason in str(answer.reason)
    if code is not None:
        # What was loaded is what explains a failed start.
        reading = from_builtins(answer.data, CudaReading)
        assert str(reading.library).endswith("libcuda.so.580.95.05")
        assert reading.cuda_version == "13.0"
        assert reading.devices is None


def test_cuda_that_hangs_is_a_timeout(machine: MakeMachine) -> None:
    answer = answer_of(machine(gpus=[T4], hang=["cuInit"]), timeout_seconds=2.0)
    assert answer.status is SourceStatus.TIMEOUT


def test_a_device_that_refuses_leaves_the_others(machine: MakeMachine) -> None:
    first, second = devices_of(machine(gpus=[T4.failing(cuDeviceGet=46), A100]))
    assert (first.name, first.error) == ("NVIDIA A100-SXM4-80GB", None)
    assert (second.cuda_index, second.name) == (1, None)
    assert second.error == (
        "cuDeviceGet: the GPU is busy, or its compute mode shuts this process out (CUDA_ERROR_DEVICE_UNAVAILABLE)"
    )


def test_a_fact_that_fails_leaves_the_others(machine: MakeMachine) -> None:
    (device,) = devices_of(machine(gpus=[T4.failing(cuDeviceGetName=999)]))
    assert device.name is None
    assert device.errors == {"name": "cuDeviceGetName: unknown error (CUDA_ERROR_UNKNOWN)"}
    assert device.compute_capability == ComputeCapability(7, 5)


FACTS_OF = {
    "cuDeviceGetName": {"name"},
    "cuDeviceGetUuid_v2": {"uuid"},
    "cuDeviceGetPCIBusId": {"pci_bus_id"},
    "cuDeviceTotalMem_v2": {"memory_total_bytes"},
    "cuDeviceGetAttribute": {"compute_capability", "multiprocessors", "integrated", "compute_mode"},
}


def test_every_error_at_every_call_takes_its_facts_and_never_looks_healthy(machine: MakeMachine) -> None:
    m = machine(gpus=[H100, T4])
    done = m.run([sys.executable, "-c", "from tests.probe.every_error import cuda; cuda()"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    healthy = results.pop("healthy")
    assert results.keys() == FACTS_OF.keys() | {"cuDriverGetVersion", "cuInit", "cuDeviceGetCount", "cuDeviceGet"}
    for function, by_code in results.items():
        for code, outcome in by_code.items():
            where = f"{function} with {code}"
            if function in ("cuInit", "cuDeviceGetCount"):
                assert (outcome["status"], outcome["code"]) == ("failed", int(code)), where
                assert function in outcome["reason"], where
                continue
            assert outcome["status"] == "ok", where
            data = outcome["data"]
            if function == "cuDriverGetVersion":
                assert data == healthy | {"cuda_version": None}, where
            elif function == "cuDeviceGet":
                assert [set(device) for device in data["devices"]] == [{"cuda_index", "error"}] * 2, where
            else:
                for device, sound in zip(data["devices"], healthy["devices"], strict=True):
                    errors = device.pop("errors")
                    assert errors, where
                    assert all(function in text for text in errors.values()), where
                    expected = sound | dict.fromkeys(FACTS_OF[function])
                    expected.pop("errors")
                    assert device == expected, where


IN_PROCESS = """
import ctypes, json, os
from hwprobe.probe.cuda import identify_in_process, read_in_process
before = read_in_process(), identify_in_process([0])
library = ctypes.CDLL("libcuda.so.1")
loaded = read_in_process()
library.cuInit(0)
print(json.dumps([before, loaded, read_in_process(), identify_in_process([0, 1, 7])]))
"""


def test_in_process_only_a_library_that_is_loaded_and_started_is_asked(machine: MakeMachine) -> None:
    m = machine(gpus=[T4, A100])
    done = m.run([sys.executable, "-c", IN_PROCESS], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    before, loaded, started, identities = json.loads(done.stdout)
    assert before == [None, {}]
    assert loaded is None
    assert from_builtins(started, CudaReading) == reading_of(m)
    t4, a100 = m.gpus
    assert identities == {
        "0": ["00000000:0d:00.0", str(a100.uuid).removeprefix("GPU-")],
        "1": ["00000000:0a:00.0", str(t4.uuid).removeprefix("GPU-")],
        "7": [None, None],
    }


def test_where_there_is_no_driver_nothing_is_known_in_process() -> None:
    assert cuda.read_in_process() is None
    assert cuda.identify_in_process([0]) == {}


def test_an_unknown_code_gets_the_librarys_own_name() -> None:
    class Library:
        def cuInit(self, flags: int) -> int:  # noqa: N802
            return 719000

        def cuGetErrorName(self, code: int, name: Any) -> int:  # noqa: N802
            name._obj.value = b"CUDA_ERROR_OF_TOMORROW"
            return 0

    with pytest.raises(cuda.CudaFailure, match=r"cuInit: error \(CUDA_ERROR_OF_TOMORROW\)") as caught:
        cuda.Driver(Library()).call("cuInit", 0)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.error) == (719000, "CUDA_ERROR_OF_TOMORROW")
