"""The real nvidia-ml-py reads the machine as it would a real one."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from tests.machine import A100, B200, GB10, GTX_1660_TI, H100, RTX_3090, T4, V100, Gpu, instance
from tests.machine.asking import MIB, MachineFactory, answers, ask_nvml


def test_a_board_says_what_it_is(machine: MachineFactory) -> None:
    board = GTX_1660_TI.at("0000000F:65:02.0").but(uuid="GPU-00000000-1111-2222-3333-444444444444")
    m = machine(gpus=[board], driver="535.104.05", cuda="12.2")
    board_says = """
        handle, pci = handles[0], nvmlDeviceGetPciInfo(handles[0])
        said = {
            "driver": nvmlSystemGetDriverVersion(),
            "library": nvmlSystemGetNVMLVersion(),
            "cuda": nvmlSystemGetCudaDriverVersion(),
            "count": nvmlDeviceGetCount(),
            "name": nvmlDeviceGetName(handle),
            "uuid": nvmlDeviceGetUUID(handle),
            "bus": pci.busId,
            "old bus": pci.busIdLegacy,
            "domain": pci.domain,
            "device": hex(pci.pciDeviceId),
            "capability": nvmlDeviceGetCudaComputeCapability(handle),
            "architecture": nvmlDeviceGetArchitecture(handle),
            "brand": nvmlDeviceGetBrand(handle),
            "index": nvmlDeviceGetIndex(handle),
            "minor": nvmlDeviceGetMinorNumber(handle),
            "persistence": nvmlDeviceGetPersistenceMode(handle),
            "virtualization": nvmlDeviceGetVirtualizationMode(handle),
            "compute mode": nvmlDeviceGetComputeMode(handle),
            "processes": nvmlDeviceGetComputeRunningProcesses(handle),
        }
    """
    assert ask_nvml(m, board_says) == {
        "driver": "535.104.05",
        "library": "12.535.104.05",
        "cuda": 12020,
        "count": 1,
        "name": "NVIDIA GeForce GTX 1660 Ti",
        "uuid": "GPU-00000000-1111-2222-3333-444444444444",
        "bus": "0000000F:65:02.0",
        "old bus": "000F:65:02.0",
        "domain": 15,
        "device": "0x218210de",
        "capability": [7, 5],
        "architecture": 6,
        "brand": 5,
        "index": 0,
        "minor": 0,
        "persistence": 1,
        "virtualization": 0,
        "compute mode": 0,
        "processes": [],
    }


def test_a_board_is_found_by_its_identifiers(machine: MachineFactory) -> None:
    find_again = """
        again = [nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(handle)) for handle in handles]
        again += [nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
        again += [nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(handle).busIdLegacy) for handle in handles]
        strange = tell(nvmlDeviceGetHandleByUUID, "GPU-no"), tell(nvmlDeviceGetHandleByPciBusId, "0000:FE:00.0")
        said = [nvmlDeviceGetIndex(handle) for handle in again], strange
    """
    assert ask_nvml(machine(gpus=[T4, T4, A100]), find_again) == [[0, 1, 2] * 3, ["error 6", "error 6"]]


def test_sixty_four_boards_stand_in_the_order_of_the_bus(machine: MachineFactory) -> None:
    m = machine(gpus=[V100.at(f"{0x13F - number:08X}:00:00.0") for number in range(64)])
    domains = ask_nvml(m, "[nvmlDeviceGetPciInfo(handle).domain for handle in handles]")
    assert domains == list(range(0x100, 0x140))
    assert len({each.uuid for each in m.gpus}) == 64


def test_the_first_memory_structure_counts_the_reserve_as_used(machine: MachineFactory) -> None:
    m = machine(gpus=[H100.using("1000 MiB", by=4711)])
    first = ask_nvml(m, "(lambda x: [x.total, x.used, x.free])(nvmlDeviceGetMemoryInfo(handles[0]))")
    second = ask_nvml(
        m,
        "(lambda x: [x.total, x.used, x.free, x.reserved])(nvmlDeviceGetMemoryInfo(handles[0], nvmlMemory_v2))",
    )
    processes = ask_nvml(m, "[[x.pid, x.usedGpuMemory] for x in nvmlDeviceGetComputeRunningProcesses(handles[0])]")
    assert first == [81559 * MIB, 1479 * MIB, 80080 * MIB]
    assert second == [81559 * MIB, 1000 * MIB, 80080 * MIB, 479 * MIB]
    assert processes == [[4711, 1000 * MIB]]


@pytest.mark.parametrize(
    ("board", "question", "answer"),
    [
        (GB10, "GetMemoryInfo", "error 3"),
        (T4, "GetEccMode", [1, 1]),
        (RTX_3090, "GetEccMode", "error 3"),
        (T4.but(ecc=False, ecc_pending=True), "GetEccMode", [0, 1]),
        (A100.but(ecc_uncorrected=3), "GetTotalEccErrors, 1, 0", 3),
        (A100.but(ecc_corrected=5), "GetTotalEccErrors, 0, 0", 5),
        (A100.but(ecc=False), "GetTotalEccErrors, 1, 0", "error 3"),
        (V100.but(retired_pending=True), "GetRetiredPagesPendingStatus", 1),
        (A100, "GetRetiredPagesPendingStatus", "error 3"),
        (A100.but(remapped_pending=True, remapped_correctable=2), "GetRemappedRows", [2, 0, 1, 0]),
        (A100.but(remapped_uncorrectable=1, remapped_failed=True), "GetRemappedRows", [0, 1, 0, 1]),
        (A100.mig_on(), "GetRemappedRows", "error 3"),
        (T4, "GetRemappedRows", "error 3"),
        (T4.but(compute_mode="prohibited"), "GetComputeMode", 2),
        (T4.but(virtualization="passthrough"), "GetVirtualizationMode", 1),
        (T4, "GetDriverModel", "error 3"),
        (T4.but(driver_model="wddm"), "GetDriverModel", [0, 0]),
        (T4.but(persistence=None), "GetPersistenceMode", "error 3"),
        (T4, "GetMigMode", "error 3"),
        (A100, "GetMigMode", [0, 0]),
        (A100.but(mig_pending=True), "GetMigMode", [0, 1]),
        (A100.mig_on(), "GetMigMode", [1, 1]),
        (A100, "GetMaxMigDeviceCount", 0),
        (B200, "GetArchitecture", 10),
        (GB10, "GetBrand", 13),
        (T4, "GetTemperature, 0", "error 3"),
        (T4.failing(nvmlDeviceGetName=999), "GetName", "error 999"),
        (T4.failing(nvmlDeviceGetMemoryInfo=15), "GetMemoryInfo", "error 15"),
        (T4.failing(nvmlDeviceGetMemoryInfo=15), "GetMemoryInfo, nvmlMemory_v2", "error 15"),
        (T4.failing(nvmlDeviceGetMemoryInfo_v2=25), "GetMemoryInfo, 0x09000001", "error 25"),
        (T4.failing(nvmlDeviceGetTemperature=4), "GetTemperature, 0", "error 4"),
        (A100.lost(after_handle=True), "GetName", "error 15"),
    ],
    ids=lambda value: value.name if isinstance(value, Gpu) else None,
)
def test_a_fact(machine: MachineFactory, board: Gpu, question: str, answer: object) -> None:
    assert answers(machine(gpus=[board]), question) == answer


@pytest.mark.parametrize(
    ("board", "answer"),
    [
        (H100, [3, 0, 0]),
        (H100.but(fabric_state="in_progress"), [2, 0, 0]),
        (H100.but(fabric_status=15, fabric_health=4), [3, 15, 4]),
        (A100, "error 3"),
    ],
)
@pytest.mark.parametrize("version", ["v2", "v3"])
def test_the_fabric(machine: MachineFactory, board: Gpu, answer: object, version: str) -> None:
    ask = f"""
        info = c_nvmlGpuFabricInfo_{version}_t()
        info.version = nvmlGpuFabricInfo_{version}
        refused = tell(nvmlDeviceGetGpuFabricInfoV, handles[0], byref(info))
        said = refused or [info.state, info.status, info.healthMask]
    """
    assert ask_nvml(machine(gpus=[board]), ask) == answer


@pytest.mark.parametrize(
    ("board", "answer"), [(A100.lost(), "error 15"), (A100.refusing(4), "error 4"), (A100, A100.name)]
)
def test_a_refused_handle_is_counted_and_stays_alone(machine: MachineFactory, board: Gpu, answer: str) -> None:
    m = machine(gpus=[T4, board])
    in_three_ways = f"""
        said = [tell(lambda: nvmlDeviceGetName(find(key))) for find, key in (
            (nvmlDeviceGetHandleByIndex, 1),
            (nvmlDeviceGetHandleByUUID, "{m.gpus[1].uuid}"),
            (nvmlDeviceGetHandleByPciBusId, "{m.gpus[1].pci_bus_id}"),
        )]
    """
    assert ask_nvml(m, in_three_ways) == [answer] * 3
    assert ask_nvml(m, "[nvmlDeviceGetCount(), nvmlDeviceGetName(handles[0])]") == [2, "Tesla T4"]


def test_mig_instances_stand_at_their_indices_and_describe_themselves(machine: MachineFactory) -> None:
    m = machine(gpus=[A100.mig_on("2g.20gb", instance("1g.10gb", index=3, gpu_instance=13, uuid="MIG-abc"))])
    every_index = """
        def describe(mig):
            size = nvmlDeviceGetAttributes_v2(mig)
            parent = nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
            assert nvmlDeviceGetUUID(parent) == nvmlDeviceGetUUID(handles[0]) and nvmlDeviceIsMigDeviceHandle(mig)
            ids = [nvmlDeviceGetGpuInstanceId(mig), nvmlDeviceGetComputeInstanceId(mig)]
            memory = [size.memorySizeMB, nvmlDeviceGetMemoryInfo(mig).total >> 20]
            return [nvmlDeviceGetName(mig)[-7:], *ids, size.multiprocessorCount, size.gpuInstanceSliceCount, *memory]

        assert nvmlDeviceGetMaxMigDeviceCount(handles[0]) == 7
        found = [tell(nvmlDeviceGetMigDeviceHandleByIndex, handles[0], index) for index in range(8)]
        said = [mig if isinstance(mig, str) else describe(mig) for mig in found]
    """
    assert ask_nvml(m, every_index) == [
        ["2g.20gb", 7, 0, 28, 2, 19968, 19968],
        "error 6",
        "error 6",
        ["1g.10gb", 13, 0, 14, 1, 9728, 9728],
        *["error 6"] * 3,
        "error 2",
    ]
    assert ask_nvml(m, "nvmlDeviceGetUUID(nvmlDeviceGetHandleByUUID('MIG-abc'))") == "MIG-abc"


def test_the_gpu_of_an_instance_is_no_instance(machine: MachineFactory) -> None:
    m = machine(gpus=[A100.mig_on("7g.80gb")])
    assert answers(m, "GetGpuInstanceId") == "error 3"
    assert ask_nvml(m, "bool(nvmlDeviceIsMigDeviceHandle(handles[0]))") is False


def test_an_instance_can_fail_while_its_gpu_is_well(machine: MachineFactory) -> None:
    m = machine(gpus=[A100.mig_on("2g.20gb", instance("2g.20gb").failing(nvmlDeviceGetUUID=999))])
    ask = """
        migs = [nvmlDeviceGetMigDeviceHandleByIndex(handles[0], index) for index in (0, 1)]
        said = [tell(nvmlDeviceGetUUID, each) for each in (handles[0], *migs)]
    """
    assert ask_nvml(m, ask) == [m.gpus[0].uuid, m.gpus[0].instances[0].uuid, "error 999"]


def test_a_function_that_the_driver_lacks_is_not_in_its_library(machine: MachineFactory) -> None:
    ask = "[str(tell(nvmlDeviceGetMemoryInfo, handles[0], version))[:9] for version in (nvmlMemory_v2, None)]"
    assert ask_nvml(machine(gpus=[T4], lacks=["nvmlDeviceGetMemoryInfo_v2"]), ask) == ["error 13", "c_nvmlMem"]
    assert ask_nvml(machine(gpus=[T4]), ask) == ["c_nvmlMem", "c_nvmlMem"]


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"nvml_init": 9}, 9),
        ({"nvml_init": 18}, 18),
        ({"missing": ["libnvidia-ml.so.1"]}, 12),
        ({"driver": None}, 12),
        ({}, 0),
    ],
    ids=str,
)
def test_init(machine: MachineFactory, facts: dict[str, Any], code: int) -> None:
    start = """
        from pynvml import NVMLError, nvmlInit
        try:
            nvmlInit()
        except NVMLError as error:
            raise SystemExit(error.value)
    """
    assert machine(gpus=[T4], **facts).python(textwrap.dedent(start)).returncode == code


def test_calls_before_init_and_after_the_last_shutdown_are_refused(machine: MachineFactory) -> None:
    m = machine(gpus=[T4])
    ask = "[nvmlInit(), nvmlShutdown(), tell(nvmlDeviceGetCount), nvmlShutdown(), tell(nvmlDeviceGetCount)]"
    assert ask_nvml(m, ask) == [None, None, 1, None, "error 1"]
    starts_and_ends = [call.function for call in m.calls("nvmlInit", "nvmlInitWithFlags", "nvmlShutdown")]
    assert starts_and_ends == ["nvmlInitWithFlags", "nvmlInitWithFlags", "nvmlShutdown", "nvmlShutdown"]
    m.forget_calls()
    assert m.calls() == []


def test_the_cuda_version_needs_libcuda_only_in_its_second_form(machine: MachineFactory) -> None:
    ask = "[tell(nvmlSystemGetCudaDriverVersion), tell(nvmlSystemGetCudaDriverVersion_v2)]"
    assert ask_nvml(machine(gpus=[T4], cuda="12.4", missing=["libcuda.so.1"]), ask) == [12040, "error 12"]
    assert ask_nvml(machine(gpus=[T4], cuda="12.4"), ask) == [12040, 12040]


def test_the_list_can_change_between_two_calls(machine: MachineFactory) -> None:
    ask = "[len(handles), nvmlDeviceGetCount(), tell(nvmlDeviceGetHandleByIndex, 1)]"
    assert ask_nvml(machine(gpus=[T4, T4], count_after=(1, 1)), ask) == [2, 1, "error 2"]
    assert ask_nvml(machine(gpus=[T4, T4], count_after=(1, 0)), ask) == [2, 0, "error 2"]
