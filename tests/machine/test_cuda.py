"""libcuda lists the devices of a process by the rules of the real one."""

from __future__ import annotations

import pytest

from tests.machine import A100, GB10, GT_1030, T4, V100, instance
from tests.machine.asking import MachineFactory, ask_cuda, names_in_cuda, names_in_nvml

FIRST, SECOND, THIRD = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "9ab")
CHOSEN = [
    (None, [0, 1, 2, 3, 4, 5]),
    ("", []),
    ("0,2,-1,1", [0, 2]),
    ("1,9,0", [1]),
    ("-1", []),
    ("2, +3, -0, 5", [2, 3, 0, 5]),
    ("1gpu2,2ampere", [1, 2]),
    ("one,two,3", []),
    ("4,3,two,one", [4, 3]),
    ("0,0", []),
    ("GPU-99", [0]),
    (f"{THIRD},GPU-aaaa", [2, 1]),
    (f"{FIRST},GPU-999", []),
    ("GPU-9,GPU-", [0]),
    ("GPU-dead", []),
    (f"{SECOND},0", [1]),
    (f"0,{SECOND}", [0]),
]


def test_a_board_says_what_it_is(machine: MachineFactory) -> None:
    m = machine(gpus=[GB10.but(uuid=FIRST)], cuda="12.9")
    identity = "[number('cuDriverGetVersion'), text('cuDeviceGetName', 0), uuid(0), text('cuDeviceGetPCIBusId', 0)]"
    numbers = "[number('cuDeviceGetAttribute', which, 0) for which in (75, 76, 16, 33, 50, 18, 10)]"
    assert ask_cuda(m, identity) == [12090, "NVIDIA GB10", "99999999" + "0" * 24, "000F:01:00.0"]
    assert ask_cuda(m, numbers) == [12, 1, 48, 1, 15, 1, 32]


@pytest.mark.parametrize(("value", "chosen"), CHOSEN)
def test_visible_devices(machine: MachineFactory, value: str | None, chosen: list[int]) -> None:
    boards = [T4.but(uuid=each, name=f"board {number}") for number, each in enumerate((FIRST, SECOND, THIRD))]
    boards += [T4.but(name=f"board {number}") for number in (3, 4, 5)]
    names = names_in_cuda(machine(gpus=boards), CUDA_VISIBLE_DEVICES=value)
    assert names == [f"board {number}" for number in chosen]


def test_two_boards_and_a_number_too_high(machine: MachineFactory) -> None:
    assert names_in_cuda(machine(gpus=[T4, A100]), CUDA_VISIBLE_DEVICES="1,5,0") == ["Tesla T4"]


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        (None, "MIG-11"),
        ("0", "MIG-11"),
        ("MIG-2", "MIG-22"),
        ("MIG-GPU-99999999-0000-0000-0000-000000000000/4/0", "MIG-22"),
        ("MIG-2,MIG-1", "MIG-22"),
        ("MIG-3", None),
        ("MIG-GPU-99999999-0000-0000-0000-000000000000/9/0", None),
        ("GPU-99", "MIG-11"),
        ("GPU-aa", "GPU-aa"),
        ("1", "GPU-aa"),
    ],
)
def test_a_process_gets_one_mig_instance_and_no_gpu_beside_it(
    machine: MachineFactory, value: str | None, chosen: str | None
) -> None:
    split = A100.mig_on(
        instance("3g.40gb", uuid="MIG-11111111-0000-0000-0000-000000000000", gpu_instance=2),
        instance("1g.10gb", uuid="MIG-22222222-0000-0000-0000-000000000000", gpu_instance=4),
    )
    m = machine(gpus=[split.but(uuid=FIRST), T4.but(uuid=SECOND)])
    ask = "[[uuid(device), text('cuDeviceGetPCIBusId', device)] for device in range(count)]"
    listed = ask_cuda(m, ask, CUDA_VISIBLE_DEVICES=value)
    bus = "0000:0D:00.0" if chosen == "GPU-aa" else "0000:0A:00.0"
    assert listed == ([[chosen[4:] * 4 + "0" * 24, bus]] if chosen else [])


def test_more_instances_a_process_where_the_driver_allows_it(machine: MachineFactory) -> None:
    m = machine(gpus=[A100.mig_on("1g.10gb", "2g.20gb"), T4], mig_devices_per_process=7)
    assert names_in_cuda(m) == ["NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA A100-SXM4-80GB MIG 2g.20gb"]


def test_mig_without_instances_is_no_device(machine: MachineFactory) -> None:
    m = machine(gpus=[A100.mig_on()])
    assert ask_cuda(m, "started") == 100
    assert names_in_nvml(m) == ["NVIDIA A100-SXM4-80GB"]
    assert names_in_cuda(machine(gpus=[A100.mig_on(), T4])) == ["Tesla T4"]


def test_cuda_puts_the_fastest_first_and_nvml_does_not(machine: MachineFactory) -> None:
    m = machine(gpus=[T4, GT_1030, A100, T4])
    by_bus = ["Tesla T4", "NVIDIA GeForce GT 1030", "NVIDIA A100-SXM4-80GB", "Tesla T4"]
    assert names_in_nvml(m, CUDA_VISIBLE_DEVICES="1") == by_bus
    assert names_in_cuda(m, CUDA_DEVICE_ORDER="PCI_BUS_ID") == by_bus
    assert names_in_cuda(m) == ["NVIDIA A100-SXM4-80GB", "Tesla T4", "Tesla T4", "NVIDIA GeForce GT 1030"]
    ask = "[text('cuDeviceGetPCIBusId', device) for device in range(count)]"
    assert ask_cuda(m, ask, CUDA_VISIBLE_DEVICES="2,1") == ["0000:13:00.0", "0000:0A:00.0"]


def test_a_process_can_see_what_nvml_does_not_and_the_other_way(machine: MachineFactory) -> None:
    m = machine(gpus=[T4, A100.hidden_from_nvml(), V100.hidden_from_cuda()])
    assert names_in_nvml(m) == ["Tesla T4", "Tesla V100-SXM2-16GB"]
    assert names_in_cuda(m) == ["NVIDIA A100-SXM4-80GB", "Tesla T4"]


@pytest.mark.parametrize("code", [3, 100, 802, 803, 999])
def test_init_fails_with_any_code(machine: MachineFactory, code: int) -> None:
    m = machine(gpus=[A100], cu_init=code)
    assert ask_cuda(m, "[started, number('cuDeviceGetCount')]") == [code, "error 3"]
    assert names_in_nvml(m) == ["NVIDIA A100-SXM4-80GB"]


def test_any_call_fails_for_all_or_for_one(machine: MachineFactory) -> None:
    m = machine(gpus=[T4.failing(cuDeviceGetName=999), A100], fail={"cuDeviceGetPCIBusId": 3, "cuArrayCreate": 46})
    assert ask_cuda(m, "[*(text('cuDeviceGetName', i) for i in (0, 1)), text('cuDeviceGetPCIBusId', 0)]") == [
        "NVIDIA A100-SXM4-80GB",
        "error 999",
        "error 3",
    ]
    assert ask_cuda(m, "[cuda.cuArrayCreate_v2(), cuda.cuArrayDestroy()]") == [46, 801]


def test_errors_have_names(machine: MachineFactory) -> None:
    ask = """
        name = ctypes.c_char_p()
        said = [cuda.cuGetErrorName(802, ctypes.byref(name)), name.value.decode()]
        said += [cuda.cuGetErrorName(4242, ctypes.byref(name)), name.value]
    """
    assert ask_cuda(machine(gpus=[T4]), ask) == [0, "CUDA_ERROR_SYSTEM_NOT_READY", 1, None]


def test_a_function_that_the_driver_lacks_is_not_in_its_library(machine: MachineFactory) -> None:
    ask = "[hasattr(cuda, name) for name in ('cuDeviceGetUuid', 'cuDeviceGetUuid_v2')]"
    assert ask_cuda(machine(gpus=[T4], lacks=["cuDeviceGetUuid_v2"]), ask) == [True, False]
    assert ask_cuda(machine(gpus=[T4]), ask) == [True, True]
