"""One list of GPUs from three: joined on UUID and PCI bus id, whatever the indices say."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu, GpuMemory, Mig, MigInstance
from hwprobe.probe.join import cuda_ordinal, join
from hwprobe.probe.readings import CudaDevice
from hwprobe.report import PciDevice, TensorFlowDevice

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Board:
    """A GPU as each source would write it."""

    name: str
    capability: str
    slot: int
    multiprocessors: int = 40
    gib: int = 16

    @property
    def uuid(self) -> str:
        return f"0000000{self.slot}-1111-2222-3333-444444444444"

    @property
    def bus_id(self) -> str:
        return f"00000000:0{self.slot}:00.0"

    def nvml(self, index: int, **facts: object) -> Gpu:
        given: dict[str, object] = {
            "nvml_index": index,
            "name": self.name,
            "uuid": f"GPU-{self.uuid}",
            "pci_bus_id": self.bus_id,
            "pci_device_id": "1EB8",
            "compute_capability": ComputeCapability.parse(self.capability),
            "memory": GpuMemory(total_bytes=self.gib * GIB, free_bytes=GIB, used_bytes=0, kind="dedicated"),
        }
        return Gpu(**(given | facts))  # type: ignore[arg-type]

    def cuda(self, ordinal: int, **facts: object) -> CudaDevice:
        given: dict[str, object] = {
            "cuda_index": ordinal,
            "name": self.name,
            "uuid": self.uuid,
            "pci_bus_id": self.bus_id,
            "compute_capability": ComputeCapability.parse(self.capability),
            "multiprocessors": self.multiprocessors,
            "memory_total_bytes": self.gib * GIB - 1,
            "integrated": False,
            "compute_mode": "default",
        }
        return CudaDevice(**(given | facts))  # type: ignore[arg-type]

    def tensorflow(self, ordinal: int, **facts: object) -> TensorFlowDevice:
        given: dict[str, object] = {
            "name": f"GPU:{ordinal}",
            "description": self.name,
            "compute_capability": ComputeCapability.parse(self.capability),
        }
        return TensorFlowDevice(**(given | facts))  # type: ignore[arg-type]


T4 = Board("Tesla T4", "7.5", 1)
A100 = Board("NVIDIA A100", "8.0", 2, 108, 80)
SMALL = Board("NVIDIA GeForce GT 1030", "6.1", 3, 3, 2)


def indices(gpu: Gpu) -> tuple[int | None, int | None, str | None, bool | None]:
    return gpu.nvml_index, gpu.cuda_index, gpu.tensorflow_name, gpu.visible


def test_cudas_fastest_first_order_is_not_nvmls() -> None:
    t4, a100 = join([T4.nvml(0), A100.nvml(1)], [A100.cuda(0), T4.cuda(1)], [A100.tensorflow(0), T4.tensorflow(1)])
    assert (t4.name, *indices(t4)) == ("Tesla T4", 0, 1, "GPU:1", True)
    assert (a100.name, *indices(a100)) == ("NVIDIA A100", 1, 0, "GPU:0", True)


def test_each_fact_comes_from_the_source_that_knows_it_best() -> None:
    (gpu,) = join([T4.nvml(0)], [T4.cuda(0)], [T4.tensorflow(0)])
    assert gpu.memory.total_bytes == 16 * GIB
    assert gpu.memory.free_bytes == GIB
    assert gpu.multiprocessors == 40
    assert gpu.compute_mode == "default"
    assert gpu.kind == "nvidia"
    assert gpu.architecture is None
    assert gpu.tensor_cores is None


@pytest.mark.parametrize(
    ("cuda", "runtime", "visible"),
    [
        pytest.param([A100.cuda(0)], [A100.tensorflow(0)], (False, True), id="one is hidden"),
        pytest.param([], [], (False, False), id="all are hidden"),
        pytest.param(None, None, (None, None), id="CUDA could not be asked"),
        pytest.param(None, [A100.tensorflow(0, pci_bus_id="0000:02:00.0")], (None, True), id="TensorFlow lists one"),
        pytest.param(
            [A100.cuda(0), T4.cuda(1, error="cuDeviceGet: invalid device")], [], (False, True), id="no access to one"
        ),
    ],
)
def test_a_gpu_is_visible_if_cuda_or_tensorflow_lists_it(
    cuda: list[CudaDevice] | None, runtime: list[TensorFlowDevice] | None, visible: tuple[bool | None, bool | None]
) -> None:
    t4, a100 = join([T4.nvml(0), A100.nvml(1)], cuda, runtime)
    assert (t4.visible, a100.visible) == visible


def test_tensorflows_number_is_cudas_ordinal_and_not_a_position() -> None:
    gpus = join(
        [T4.nvml(0), A100.nvml(1), SMALL.nvml(2)],
        [A100.cuda(0), SMALL.cuda(1), T4.cuda(2)],
        [A100.tensorflow(0), T4.tensorflow(2)],
    )
    assert [gpu.tensorflow_name for gpu in gpus] == ["GPU:2", "GPU:0", None]


@pytest.mark.parametrize(
    ("nvml", "cuda"),
    [
        pytest.param({}, {"uuid": None, "pci_bus_id": "00000000:01:00.0"}, id="bus id alone"),
        pytest.param({"pci_bus_id": None}, {}, id="UUID alone"),
        pytest.param({"uuid": f"GPU-{T4.uuid.upper()}", "pci_bus_id": None}, {}, id="UUID in capitals"),
        pytest.param({"uuid": None, "pci_bus_id": "00000000:01:00.0".upper()}, {"uuid": None}, id="bus id in capitals"),
    ],
)
def test_one_id_is_enough(nvml: dict[str, object], cuda: dict[str, object]) -> None:
    gpus = join([A100.nvml(0), T4.nvml(1, **nvml)], [T4.cuda(0, **cuda), A100.cuda(1)], None)
    assert [gpu.cuda_index for gpu in gpus] == [1, 0]


def test_a_jetson_without_ids_joins_since_there_is_only_one_on_each_side() -> None:
    orin = Gpu(nvml_index=0, name="Orin (nvgpu)", memory=GpuMemory(kind="unified"))
    (gpu,) = join([orin], [T4.cuda(0, name="Orin", compute_capability=ComputeCapability(8, 7), integrated=True)], None)
    assert indices(gpu) == (0, 0, None, True)
    assert gpu.compute_capability == ComputeCapability(8, 7)
    assert gpu.memory == GpuMemory(total_bytes=16 * GIB - 1, kind="unified")


def test_two_without_ids_are_not_guessed_at() -> None:
    nameless = [Gpu(nvml_index=0, name="Orin (nvgpu)"), Gpu(nvml_index=1, name="Orin (nvgpu)")]
    gpus = join(nameless, [T4.cuda(0), A100.cuda(1)], None)
    assert [indices(gpu) for gpu in gpus] == [
        (0, None, None, False),
        (1, None, None, False),
        (None, 0, None, True),
        (None, 1, None, True),
    ]


def test_a_lost_gpu_is_not_joined_with_another_one() -> None:
    lost = Gpu(nvml_index=0, error="lost", error_code=15)
    gpus = join([lost, A100.nvml(1)], [A100.cuda(0)], [A100.tensorflow(0)])
    assert [indices(gpu) for gpu in gpus] == [(0, None, None, False), (1, 0, "GPU:0", True)]
    assert gpus[0].error_code == 15


def test_of_equally_long_lists_the_last_ones_left_are_the_same_gpu() -> None:
    refused = Gpu(nvml_index=0, error="no permission", error_code=4)
    gpus = join([refused, A100.nvml(1)], [A100.cuda(0), T4.cuda(1)], None)
    assert [(gpu.nvml_index, gpu.cuda_index, gpu.name) for gpu in gpus] == [(0, 1, "Tesla T4"), (1, 0, "NVIDIA A100")]
    assert gpus[0].error == "no permission"


def test_single_gpus_with_different_ids_stay_two() -> None:
    gpus = join([T4.nvml(0)], [A100.cuda(0)], [A100.tensorflow(0)])
    assert [indices(gpu) for gpu in gpus] == [(0, None, None, False), (None, 0, "GPU:0", True)]


def test_without_nvml_cuda_alone_gives_name_capability_and_memory() -> None:
    (gpu,) = join(None, [T4.cuda(0)], [T4.tensorflow(0)])
    assert gpu.name == "Tesla T4"
    assert gpu.uuid == f"GPU-{T4.uuid}"
    assert gpu.pci_bus_id == T4.bus_id
    assert gpu.compute_capability == ComputeCapability(7, 5)
    assert gpu.memory == GpuMemory(total_bytes=16 * GIB - 1, kind="dedicated")
    assert indices(gpu) == (None, 0, "GPU:0", True)


def test_without_nvml_the_device_id_comes_from_the_bus() -> None:
    bus = [PciDevice(bus_id="0000:01:00.0", vendor_id="10de", device_id="0x2182", class_id="030000")]
    (gpu,) = join(None, [T4.cuda(0)], None, pci=bus)
    assert gpu.pci_device_id == "2182"
    (known,) = join([T4.nvml(0)], [T4.cuda(0)], None, pci=bus)
    assert known.pci_device_id == "1EB8"


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        pytest.param(TensorFlowDevice(name="GPU:0", description="AMD Radeon, gfx1100"), "other", id="ROCm"),
        pytest.param(TensorFlowDevice(name="GPU:0", description="METAL"), "other", id="Metal"),
        pytest.param(TensorFlowDevice(name="XPU:0", device_type="XPU"), "other", id="oneAPI, which says nothing"),
        pytest.param(T4.tensorflow(0), "nvidia", id="CUDA"),
    ],
)
def test_a_gpu_that_only_tensorflow_knows_is_listed(device: TensorFlowDevice, kind: str) -> None:
    (gpu,) = join(None, None, [device])
    assert (gpu.kind, gpu.tensorflow_name, gpu.visible) == (kind, device.name, True)
    assert gpu.name == device.description
    assert gpu.compute_capability == device.compute_capability


def test_a_rocm_gpu_is_not_the_nvidia_gpu_of_that_number() -> None:
    radeon = TensorFlowDevice(name="GPU:0", description="AMD Radeon")
    gpus = join([T4.nvml(0)], [T4.cuda(0)], [radeon])
    assert [(gpu.kind, gpu.tensorflow_name) for gpu in gpus] == [("nvidia", None), ("other", "GPU:0")]


def test_a_tensorflow_device_whose_details_failed_joins_by_its_number() -> None:
    (gpu,) = join([T4.nvml(0)], [T4.cuda(0)], [TensorFlowDevice(name="GPU:0")])
    assert indices(gpu) == (0, 0, "GPU:0", True)


def test_where_cuda_could_not_be_asked_single_gpus_join_and_several_do_not() -> None:
    (gpu,) = join([T4.nvml(0, uuid=None, pci_bus_id=None)], None, [T4.tensorflow(0)])
    assert indices(gpu) == (0, None, "GPU:0", True)
    gpus = join([T4.nvml(0), A100.nvml(1)], None, [T4.tensorflow(0)])
    assert [gpu.tensorflow_name for gpu in gpus] == [None, None, "GPU:0"]


def instance(number: int, **facts: object) -> MigInstance:
    given: dict[str, object] = {
        "uuid": f"MIG-aaaaaaa{number}-0000-0000-0000-000000000000",
        "name": "NVIDIA A100 MIG 1g.10gb",
        "gpu_instance_id": 7 + number,
        "compute_instance_id": 0,
        "multiprocessors": 14,
        "memory": GpuMemory(total_bytes=9 * GIB, kind="dedicated"),
    }
    return MigInstance(**(given | facts))  # type: ignore[arg-type]


def mig_cuda(number: int, ordinal: int = 0, **facts: object) -> CudaDevice:
    given: dict[str, object] = {
        "uuid": f"aaaaaaa{number}-0000-0000-0000-000000000000",
        "name": "NVIDIA A100 MIG 1g.10gb",
        "multiprocessors": 14,
        "memory_total_bytes": 9 * GIB,
    }
    return A100.cuda(ordinal, **(given | facts))


def split(*instances: MigInstance) -> Gpu:
    return A100.nvml(0, mig=Mig(enabled=True, pending=True, instances=instances))


def test_a_mig_instance_is_found_by_its_uuid_and_makes_its_gpu_visible() -> None:
    (gpu,) = join([split(instance(0), instance(1))], [mig_cuda(1)], [A100.tensorflow(0)])
    assert indices(gpu) == (0, 0, "GPU:0", True)
    assert gpu.mig is not None
    first, second = gpu.mig.instances
    assert (first.visible, first.cuda_index, first.tensorflow_name) == (False, None, None)
    assert (second.visible, second.cuda_index, second.tensorflow_name) == (True, 0, "GPU:0")
    # What CUDA says about size is about the instance.
    assert gpu.multiprocessors is None
    assert gpu.memory.total_bytes == 80 * GIB


def test_several_instances_of_one_gpu_keep_their_ordinals() -> None:
    (gpu,) = join([split(instance(0), instance(1))], [mig_cuda(1, 0), mig_cuda(0, 1)], [A100.tensorflow(1)])
    assert gpu.mig is not None
    assert [one.cuda_index for one in gpu.mig.instances] == [1, 0]
    assert [one.tensorflow_name for one in gpu.mig.instances] == ["GPU:1", None]
    assert gpu.cuda_index == 0


def test_an_old_driver_gives_the_gpus_own_uuid_for_its_only_instance() -> None:
    (gpu,) = join([split(instance(0))], [mig_cuda(0, uuid=A100.uuid)], None)
    assert gpu.mig is not None
    assert gpu.mig.instances[0].visible is True


def test_with_several_instances_the_gpus_own_uuid_leaves_open_which_one_is_meant() -> None:
    (gpu,) = join([split(instance(0), instance(1))], [mig_cuda(0, uuid=A100.uuid)], None)
    assert gpu.visible is True
    assert gpu.mig is not None
    assert [one.visible for one in gpu.mig.instances] == [None, None]
    assert gpu.multiprocessors is None


def test_mig_without_instances_is_visible_to_nobody() -> None:
    (gpu,) = join([split()], [], [])
    assert gpu.visible is False
    assert gpu.mig == Mig(enabled=True, pending=True)


def test_without_nvml_the_instances_of_one_bus_id_are_one_gpu() -> None:
    (gpu,) = join(None, [mig_cuda(0, 0), mig_cuda(1, 1)], None)
    assert (gpu.name, gpu.uuid, gpu.pci_bus_id, gpu.visible) == ("NVIDIA A100", None, A100.bus_id, True)
    assert gpu.mig is not None
    assert [(one.uuid, one.cuda_index, one.multiprocessors) for one in gpu.mig.instances] == [
        ("MIG-aaaaaaa0-0000-0000-0000-000000000000", 0, 14),
        ("MIG-aaaaaaa1-0000-0000-0000-000000000000", 1, 14),
    ]
    assert gpu.multiprocessors is None
    assert gpu.memory.total_bytes is None


def test_an_instance_that_nvml_hides_is_added_to_its_gpu() -> None:
    (gpu,) = join([split()], [mig_cuda(0)], None)
    assert gpu.mig is not None
    assert [one.uuid for one in gpu.mig.instances] == ["MIG-aaaaaaa0-0000-0000-0000-000000000000"]


@pytest.mark.parametrize(
    ("nvml", "integrated", "kind"),
    [
        ("dedicated", False, "dedicated"),
        ("dedicated", True, "unified"),
        ("dedicated", None, "dedicated"),
        ("unknown", None, "unknown"),
        ("unknown", True, "unified"),
        ("unknown", False, "dedicated"),
        ("unified", None, "unified"),
    ],
)
def test_memory_is_shared_with_the_host_where_cuda_calls_the_gpu_integrated(
    nvml: str, integrated: bool | None, kind: str
) -> None:
    memory = GpuMemory(kind=nvml)  # type: ignore[arg-type]
    (gpu,) = join([T4.nvml(0, memory=memory)], [T4.cuda(0, integrated=integrated)], None)
    assert gpu.memory.kind == kind


def test_a_gpu_that_nvml_lists_twice_is_one() -> None:
    assert len(join([T4.nvml(0), T4.nvml(1)], [T4.cuda(0)], None)) == 1


def test_what_cuda_could_not_read_is_kept_beside_what_nvml_could_not() -> None:
    (gpu,) = join([T4.nvml(0, errors={"memory": "no permission"})], [T4.cuda(0, errors={"name": "busy"})], None)
    assert gpu.errors == {"memory": "no permission", "cuda_name": "busy"}


@pytest.mark.parametrize(
    ("name", "ordinal"), [("GPU:0", 0), ("GPU:12", 12), ("XPU:1", 1), ("GPU", None), ("GPU:", None), ("GPU:²", None)]
)
def test_the_ordinal_is_the_number_in_the_name(name: str, ordinal: int | None) -> None:
    assert cuda_ordinal(TensorFlowDevice(name=name)) == ordinal


boards = st.permutations([Board(f"GPU {slot}", "8.0", slot) for slot in range(1, 7)])


@given(boards, boards, st.integers(0, 6), st.sets(st.integers(0, 5)))
def test_any_order_and_any_mask_join_every_gpu_with_itself(
    nvml_order: list[Board], cuda_order: list[Board], shown: int, filtered: set[int]
) -> None:
    nvml = [board.nvml(index) for index, board in enumerate(nvml_order)]
    cuda = [board.cuda(ordinal) for ordinal, board in enumerate(cuda_order[:shown])]
    listed = [board.tensorflow(n) for n, board in enumerate(cuda_order[:shown]) if n not in filtered]
    gpus = join(nvml, cuda, listed)
    assert [gpu.name for gpu in gpus] == [board.name for board in nvml_order]
    for gpu in gpus:
        ordinal = next((n for n, board in enumerate(cuda_order[:shown]) if board.name == gpu.name), None)
        assert gpu.cuda_index == ordinal
        assert gpu.visible is (ordinal is not None)
        assert gpu.tensorflow_name == (None if ordinal is None or ordinal in filtered else f"GPU:{ordinal}")
