"""NVML through the real nvidia-ml-py and a stand-in library, in a child process as hwprobe reads it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu, GpuMemory, Health
from hwprobe.probe.nvml_binding import installed_version
from hwprobe.probe.nvml_codes import ERRORS
from hwprobe.source import SourceStatus
from tests.machine import A100, GB10, GTX_1660_TI, H100, T4, instance
from tests.probe.nvml import MIB, ROOT, MakeMachine, answer_of, gpus_of, reading_of


def test_a_healthy_gpu_is_read_with_every_fact(machine: MakeMachine) -> None:
    m = machine(gpus=[H100.at("0000000F:65:00.0").using("2 GiB")], driver="535.104.05", cuda="12.2")
    reading = reading_of(m)
    assert reading.driver_version == "535.104.05"
    assert reading.cuda_version == "12.2"
    assert reading.library is not None
    assert reading.library.endswith("libnvidia-ml.so.535.104.05")
    assert reading.library_version == "535.104.05"
    assert reading.binding == installed_version(str(Path(pynvml.__file__).parent))
    assert reading.foreign is None
    assert reading.devices == (
        Gpu(
            nvml_index=0,
            name="NVIDIA H100 80GB HBM3",
            uuid=m.gpus[0].uuid,
            pci_bus_id="0000000f:65:00.0",
            pci_device_id="2330",
            compute_capability=ComputeCapability(9, 0),
            memory=GpuMemory(
                total_bytes=81559 * MIB,
                free_bytes=(81559 - 479 - 2048) * MIB,
                used_bytes=2048 * MIB,
                reserved_bytes=479 * MIB,
                kind="dedicated",
            ),
            mig=reading.devices[0].mig if reading.devices else None,
            health=Health(
                ecc_enabled=True,
                ecc_uncorrected_volatile=0,
                remapped_rows_pending=False,
                remapped_rows_failed=False,
                fabric_state="completed",
                fabric_status_code=0,
            ),
            compute_mode="default",
            virtualization="none",
            brand="NVIDIA",
        ),
    )
    mig = reading.devices[0].mig
    assert mig is not None
    assert (mig.enabled, mig.pending, mig.instances) == (False, False, ())


def test_nvml_is_shut_down_as_often_as_it_was_started(machine: MakeMachine) -> None:
    m = machine(gpus=[T4])
    gpus_of(m)
    assert [call.function for call in m.calls("nvmlInit", "nvmlInitWithFlags", "nvmlShutdown")][-1] == "nvmlShutdown"
    assert len(m.calls("nvmlShutdown")) == 1


def test_nothing_is_asked_that_names_a_user(machine: MakeMachine) -> None:
    m = machine(gpus=[A100.mig_on("1g.10gb")])
    gpus_of(m)
    asked = {call.function for call in m.calls()}
    assert not {name for name in asked if "Process" in name or "Serial" in name or "Accounting" in name}


@pytest.mark.parametrize(
    ("board", "facts"),
    [
        pytest.param(
            A100.but(ecc_uncorrected=3, remapped_pending=True, remapped_failed=True),
            Health(ecc_enabled=True, ecc_uncorrected_volatile=3, remapped_rows_pending=True, remapped_rows_failed=True),
            id="rows wait to be remapped",
        ),
        pytest.param(
            T4.but(retired_pending=True, ecc=False),
            Health(ecc_enabled=False, retired_pages_pending=True),
            id="pages wait to be retired",
        ),
        pytest.param(GTX_1660_TI, Health(), id="a GeForce knows none of it"),
        pytest.param(
            H100.but(fabric_state="in_progress", fabric_status=999),
            Health(
                ecc_enabled=True,
                ecc_uncorrected_volatile=0,
                remapped_rows_pending=False,
                remapped_rows_failed=False,
                fabric_state="in_progress",
                fabric_status_code=999,
            ),
            id="the fabric is not ready",
        ),
    ],
)
def test_the_condition_of_a_board_is_read(machine: MakeMachine, board: Any, facts: Health) -> None:
    (gpu,) = gpus_of(machine(gpus=[board]))
    assert gpu.health == facts
    assert gpu.errors == {}
    assert gpu.error is None


@pytest.mark.parametrize(
    ("field", "board", "value"),
    [
        ("compute_mode", T4.but(compute_mode="prohibited"), "prohibited"),
        ("compute_mode", T4.but(compute_mode="exclusive_process"), "exclusive_process"),
        ("compute_mode", T4.but(compute_mode=None), None),
        ("virtualization", T4.but(virtualization="vgpu"), "vgpu"),
        ("virtualization", T4.but(virtualization=None), None),
        ("driver_model", T4.but(driver_model="wddm"), "wddm"),
        ("driver_model", T4.but(driver_model="tcc"), "tcc"),
        ("driver_model", T4, None),
        ("brand", T4.but(brand="Tesla"), "Tesla"),
    ],
)
def test_numbers_become_words(machine: MakeMachine, field: str, board: Any, value: str | None) -> None:
    (gpu,) = gpus_of(machine(gpus=[board]))
    assert getattr(gpu, field) == value


def test_mig_instances_are_listed_over_the_holes_in_their_numbers(machine: MakeMachine) -> None:
    m = machine(gpus=[A100.mig_on("2g.20gb", instance("1g.10gb", index=3))])
    (gpu,) = gpus_of(m)
    assert gpu.mig is not None
    assert gpu.mig.enabled is True
    assert [(one.uuid, one.gpu_instance_id, one.compute_instance_id) for one in gpu.mig.instances] == [
        (each.uuid, each.gpu_instance, each.compute_instance) for each in m.gpus[0].instances
    ]
    assert [one.multiprocessors for one in gpu.mig.instances] == [28, 14]
    assert gpu.mig.instances[0].name == "NVIDIA A100-SXM4-80GB MIG 2g.20gb"
    assert gpu.mig.instances[1].memory.total_bytes == m.gpus[0].instances[1].memory_total
    assert [one.error for one in gpu.mig.instances] == [None, None]


def test_mig_without_instances_and_boards_without_mig_differ(machine: MakeMachine) -> None:
    split, plain = gpus_of(machine(gpus=[A100.mig_on(), T4]))
    assert split.mig is not None
    assert (split.mig.enabled, split.mig.instances) == (True, ())
    assert plain.mig is None


def test_an_instance_that_answers_badly_says_so(machine: MakeMachine) -> None:
    bad = instance("1g.10gb").failing(nvmlDeviceGetUUID=4)
    (gpu,) = gpus_of(machine(gpus=[A100.mig_on(bad, "1g.10gb")]))
    assert gpu.mig is not None
    assert [one.error for one in gpu.mig.instances] == ["uuid: no permission (NVML_ERROR_NO_PERMISSION)", None]
    assert gpu.error is None


@pytest.mark.parametrize(
    ("fault", "code", "name"),
    [
        (lambda gpu: gpu.lost(), 15, "NVML_ERROR_GPU_IS_LOST"),
        (lambda gpu: gpu.refusing(4), 4, "NVML_ERROR_NO_PERMISSION"),
        (lambda gpu: gpu.refusing(8), 8, "NVML_ERROR_INSUFFICIENT_POWER"),
        (lambda gpu: gpu.refusing(999), 999, "NVML_ERROR_UNKNOWN"),
    ],
)
def test_a_gpu_without_a_handle_is_an_error_of_its_own(
    machine: MakeMachine, fault: Callable[[Any], Any], code: int, name: str
) -> None:
    healthy, bad, last = gpus_of(machine(gpus=[A100, fault(A100), T4]))
    assert (bad.nvml_index, bad.error_code, bad.name, bad.uuid) == (1, code, None, None)
    assert name in str(bad.error)
    assert (healthy.error, last.error) == (None, None)
    assert last.name == "Tesla T4"


def test_a_gpu_that_is_lost_behind_its_handle_keeps_what_was_read(machine: MakeMachine) -> None:
    (gpu,) = gpus_of(machine(gpus=[T4.failing(nvmlDeviceGetName=15, nvmlDeviceGetMemoryInfo=15)]))
    assert (gpu.error_code, gpu.name) == (15, None)
    assert gpu.pci_bus_id == "00000000:0a:00.0"
    assert gpu.errors == {}


def test_a_driver_that_answers_unknown_error_to_everything_has_lost_the_gpu(machine: MakeMachine) -> None:
    (gpu,) = gpus_of(machine(gpus=[T4.failing(**{"nvmlDeviceGet*": 999}).failing(nvmlDeviceGetHandleByIndex=0)]))
    assert gpu.error_code == 999
    assert "NVML_ERROR_UNKNOWN" in str(gpu.error)


def test_one_fact_that_fails_leaves_the_others(machine: MakeMachine) -> None:
    (gpu,) = gpus_of(machine(gpus=[T4.failing(nvmlDeviceGetName=999, nvmlDeviceGetCudaComputeCapability=4)]))
    assert gpu.name is None
    assert gpu.compute_capability is None
    assert gpu.errors.keys() == {"name", "compute_capability"}
    assert gpu.error is None
    assert gpu.memory.total_bytes == 15360 * MIB


def test_a_gb10_shares_the_hosts_memory_and_nvml_does_not_tell_its_size(machine: MakeMachine) -> None:
    (gpu,) = gpus_of(machine(gpus=[GB10]))
    assert gpu.memory == GpuMemory(kind="unified")
    assert gpu.errors == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Orin (nvgpu)", "unified"),
        ("NVIDIA Thor", "unified"),
        ("NVIDIA GH200 480GB", "unknown"),
        ("NVIDIA GB200", "unknown"),
        ("NVIDIA Thorough", "unknown"),
    ],
)
def test_memory_that_is_not_supported_is_unified_only_where_the_chip_says_so(
    machine: MakeMachine, name: str, kind: str
) -> None:
    (gpu,) = gpus_of(machine(gpus=[GB10.but(name=name)]))
    assert gpu.memory == GpuMemory(kind=kind)  # type: ignore[arg-type]


def test_a_driver_without_the_second_memory_structure_answers_with_the_first(machine: MakeMachine) -> None:
    m = machine(gpus=[T4.but(memory_reserved=100 * MIB)], lacks=["nvmlDeviceGetMemoryInfo_v2"])
    (gpu,) = gpus_of(m)
    assert gpu.memory == GpuMemory(
        total_bytes=15360 * MIB, free_bytes=15260 * MIB, used_bytes=100 * MIB, reserved_bytes=None, kind="dedicated"
    )
    assert gpu.errors == {}


def test_an_old_driver_lacks_facts_and_has_no_errors(machine: MakeMachine) -> None:
    lacking = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMigMode"]
    lacking += ["nvmlDeviceGetRemappedRows", "nvmlDeviceGetDriverModel_v2", "nvmlSystemGetCudaDriverVersion"]
    reading = reading_of(machine(gpus=[H100], driver="470.82.01", lacks=lacking))
    assert reading.devices is not None
    (gpu,) = reading.devices
    assert gpu.mig is None
    assert gpu.health.fabric_state is None
    assert gpu.health.remapped_rows_failed is None
    assert gpu.errors == {}
    assert gpu.error is None
    assert gpu.compute_capability == ComputeCapability(9, 0)


@pytest.mark.parametrize(
    ("facts", "status", "code", "reason"),
    [
        ({"driver": None}, "absent", None, "the loader says: libnvidia-ml.so.1: cannot open shared object file"),
        ({"nvml_init": 9}, "failed", 9, "the NVIDIA driver is not loaded (NVML_ERROR_DRIVER_NOT_LOADED)"),
        ({"nvml_init": 18}, "failed", 18, "differ in version (NVML_ERROR_LIB_RM_VERSION_MISMATCH)"),
        ({"nvml_init": 999}, "failed", 999, "(NVML_ERROR_UNKNOWN)"),
        ({"nvml_init": 12}, "failed", 12, "the NVML library was not found (NVML_ERROR_LIBRARY_NOT_FOUND)"),
        ({"fail": {"nvmlDeviceGetCount": 4}}, "failed", 4, "NVML cannot count the GPUs: no permission"),
        ({"broken": ["libnvidia-ml.so.1"]}, "failed", None, "the loader says: "),
        ({"crash": ["nvmlInit"]}, "failed", None, "died by signal 6 (SIGABRT) without an answer"),
    ],
)
def test_nvml_that_does_not_start_says_how(
    machine: MakeMachine, facts: dict[str, Any], status: str, code: int | None, reason: str
) -> None:
    answer = answer_of(machine(gpus=[T4], **facts))
    assert (answer.status.value, answer.code) == (status, code)
    assert reason in str(answer.reason)
    if code is not None:
        assert answer.error == ERRORS[code][0]
        assert answer.data is not None
        assert answer.data["binding"]
    if code in (9, 18):
        assert answer.data is not None
        assert str(answer.data["library"]).endswith("libnvidia-ml.so.580.95.05")


def test_no_gpu_is_an_answer_too(machine: MakeMachine) -> None:
    assert gpus_of(machine(gpus=[])) == ()


@pytest.mark.parametrize("facts", [{"hang": ["nvmlInit"]}, {"stubborn": ["nvmlInit"]}])
def test_nvml_that_hangs_is_a_timeout(machine: MakeMachine, facts: dict[str, Any]) -> None:
    answer = answer_of(machine(gpus=[T4], **facts), timeout_seconds=2.0)
    assert answer.status is SourceStatus.TIMEOUT
    assert answer.reason == "no answer within 2 s"


def test_a_list_that_shrinks_between_two_calls_is_no_crash(machine: MakeMachine) -> None:
    gpus = gpus_of(machine(gpus=[T4, A100], fail={"nvmlDeviceGetHandleByIndex": 2}))
    assert [(gpu.nvml_index, gpu.error_code) for gpu in gpus] == [(0, 2), (1, 2)]


def test_sixty_four_gpus_are_read(machine: MakeMachine) -> None:
    gpus = gpus_of(machine(gpus=[T4] * 64))
    assert len({gpu.uuid for gpu in gpus}) == 64


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every single fact of a reading, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("errors", "error", "error_code"):
                yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}[{number}]")
    else:
        yield path, value


def complaints(data: dict[str, Any]) -> list[str]:
    instances = [one for device in data["devices"] for one in (device.get("mig") or {}).get("instances", [])]
    texts = [text for device in data["devices"] for text in device.get("errors", {}).values()]
    return texts + [one["error"] for one in [*data["devices"], *instances] if one.get("error")]


NO_COMPLAINT = {
    "nvmlDeviceGetMemoryInfo_v2": "the first structure answers",
    "nvmlShutdown": "all facts have been read",
    "nvmlSystemGetDriverVersion": "one missing version is no fault",
    "nvmlSystemGetCudaDriverVersion": "one missing version is no fault",
}


def test_every_error_at_every_call_takes_one_fact_and_never_looks_healthy(machine: MakeMachine) -> None:
    m = machine(gpus=[H100, A100.mig_on("2g.20gb", "1g.10gb"), T4.but(driver_model="tcc")])
    done = m.run([sys.executable, "-c", "from tests.probe.every_error import nvml; nvml()"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    healthy = results.pop("healthy")
    expected = dict(leaves(healthy))
    assert len(results) > 20
    for function, by_code in results.items():
        for code, outcome in by_code.items():
            where = f"{function} with {code}"
            name = ERRORS.get(int(code), (f"NVML error {code}", ""))[0]
            if function in ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2"):
                assert outcome["status"] == "failed", where
                assert outcome["code"] == int(code), where
                continue
            assert outcome["status"] == "ok", where
            data = outcome["data"]
            got = dict(leaves(data))
            lost = {path for path in expected if got.get(path) is None and expected[path] is not None}
            changed = {path for path in got if got[path] is not None and got[path] != expected.get(path)}
            assert {path.rpartition(".")[2] for path in changed} <= {"kind", "used_bytes", "free_bytes"}, where
            assert all(got[path] == "unknown" for path in changed if path.endswith(".kind")), where
            hole = function == "nvmlDeviceGetMigDeviceHandleByIndex" and code == "6"
            if function not in NO_COMPLAINT and code not in ("3", "13") and not hole:
                assert complaints(data), where
                assert all(str(name) in text for text in complaints(data)), where
            another_way = function == "nvmlDeviceGetDriverModel_v2" and code == "13"
            if function not in ("nvmlShutdown", "nvmlDeviceGetMaxMigDeviceCount") and not another_way:
                assert lost, where
            if function == "nvmlDeviceGetHandleByIndex_v2":
                assert [device["error_code"] for device in data["devices"]] == [int(code)] * 3, where
                assert all(device.keys() == {"nvml_index", "error", "error_code"} for device in data["devices"])
