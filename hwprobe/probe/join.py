"""Join what NVML, CUDA and TensorFlow list into one GPU each: on UUID and PCI bus id, never on an index.

NVML counts by PCI bus and ignores `CUDA_VISIBLE_DEVICES`; CUDA puts the fastest first; TensorFlow drops some of CUDA's
and keeps their ordinals in its names. So equal numbers mean nothing, apart from TensorFlow's and CUDA's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from hwprobe.gpu import Gpu, GpuMemory, Mig, MigInstance
from hwprobe.probe.loader import long_bus_id
from hwprobe.probe.readings import CudaDevice
from hwprobe.report import PciDevice, TensorFlowDevice

MIG_IN_NAME = " MIG "

Place = tuple[int, int | None]
"""Position of a GPU in the list, and of one of its MIG instances."""


def join(
    nvml: Sequence[Gpu] | None,
    cuda: Sequence[CudaDevice] | None,
    runtime: Sequence[TensorFlowDevice] | None,
    *,
    pci: Sequence[PciDevice] | None = None,
) -> tuple[Gpu, ...]:
    """Make one list of physical GPUs.

    Args:
        nvml: What NVML lists, None if it could not be asked.
        cuda: What CUDA lists, empty where it said that there is no device; None if it could not be asked.
        runtime: What TensorFlow lists; None if it was not asked.
        pci: The PCI bus, for the device id of a GPU that NVML did not describe.

    Returns:
        NVML's GPUs in NVML's order, then those that only CUDA knows, then those that only TensorFlow knows.
    """
    gpus = _without_repeats(nvml or ())
    places = _add_cuda(gpus, cuda or ())
    if cuda is not None:
        gpus = [_hidden_unless_listed(gpu) for gpu in gpus]
    _add_tensorflow(gpus, runtime or (), places, cuda_asked=cuda is not None)
    chips = {long_bus_id(entry.bus_id): entry.device_id for entry in pci or ()}
    return tuple(_with_device_id(gpu, chips) for gpu in gpus)


def cuda_ordinal(device: TensorFlowDevice) -> int | None:
    """Give the CUDA ordinal in a device's name: TensorFlow numbers by CUDA, not by its own list (2.21 source)."""
    number = device.name.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def _without_repeats(nvml: Sequence[Gpu]) -> list[Gpu]:
    """Drop a GPU that NVML lists twice, as it can when the list changes between two calls."""
    seen: set[str] = set()
    kept = []
    for gpu in nvml:
        names = {name.lower() for name in (gpu.uuid, gpu.pci_bus_id) if name}
        if not names & seen:
            kept.append(gpu)
        seen |= names
    return kept


def _add_cuda(gpus: list[Gpu], cuda: Sequence[CudaDevice]) -> dict[int, Place]:
    places = {device.cuda_index: place for device in cuda if (place := _find(gpus, device.uuid, device.pci_bus_id))}
    left = [device for device in cuda if device.cuda_index not in places]
    if len(cuda) == len(gpus) and len(left) == 1:
        places |= _by_elimination(gpus, left[0], {position for position, _ in places.values()})
    for device in cuda:
        position, instance = places.get(device.cuda_index) or _append(gpus, device)
        if instance is None and _is_unlisted_instance(gpus[position], device):
            instance = _append_instance(gpus, position)
        gpus[position] = _with_cuda(gpus[position], device, instance)
        places[device.cuda_index] = position, instance
    return places


def _find(gpus: Sequence[Gpu], uuid: str | None, bus_id: str | None) -> Place | None:
    wanted = _bare_uuid(uuid)
    for position, gpu in enumerate(gpus):
        for number, instance in enumerate(gpu.mig.instances if gpu.mig else ()):
            if wanted and _bare_uuid(instance.uuid) == wanted:
                return position, number
        if wanted and _bare_uuid(gpu.uuid) == wanted:
            return position, _only_instance(gpu)
    for position, gpu in enumerate(gpus):
        if bus_id and gpu.pci_bus_id and gpu.pci_bus_id.lower() == bus_id.lower():
            return position, _only_instance(gpu)
    return None


def _only_instance(gpu: Gpu) -> int | None:
    """The instance that a CUDA device with the whole GPU's UUID or bus id must be (drivers before 470)."""
    return 0 if gpu.mig is not None and gpu.mig.enabled and len(gpu.mig.instances) == 1 else None


def _by_elimination(gpus: Sequence[Gpu], device: CudaDevice, taken: set[int]) -> dict[int, Place]:
    """Join the last one on both sides, unless ids say that they differ. Jetson's "Orin (nvgpu)" has none in NVML."""
    left = [position for position in range(len(gpus)) if position not in taken]
    if len(left) != 1:
        return {}
    gpu = gpus[left[0]]
    differ = (gpu.pci_bus_id and device.pci_bus_id) or (gpu.uuid and device.uuid)
    return {} if differ else {device.cuda_index: (left[0], None)}


def _append(gpus: list[Gpu], device: CudaDevice) -> Place:
    """Add a GPU that only CUDA knows, unless another of its MIG instances has done that, without what CUDA says."""
    found = _find(gpus, None, device.pci_bus_id)
    if found is not None:
        return found[0], None
    name, is_mig, _ = (device.name or "").partition(MIG_IN_NAME)
    gpus.append(Gpu(name=name or None, uuid=f"GPU-{device.uuid}" if device.uuid and not is_mig else None))
    return len(gpus) - 1, None


def _is_unlisted_instance(gpu: Gpu, device: CudaDevice) -> bool:
    if MIG_IN_NAME not in (device.name or ""):
        return False
    return gpu.mig is None or all(instance.gpu_instance_id is None for instance in gpu.mig.instances)


def _append_instance(gpus: list[Gpu], position: int) -> int:
    mig = gpus[position].mig or Mig(enabled=True)
    gpus[position] = replace(gpus[position], mig=replace(mig, instances=(*mig.instances, MigInstance())))
    return len(mig.instances)


def _with_cuda(gpu: Gpu, device: CudaDevice, instance: int | None) -> Gpu:
    gpu = replace(
        gpu,
        visible=device.error is None,
        cuda_index=device.cuda_index if gpu.cuda_index is None else min(gpu.cuda_index, device.cuda_index),
        name=gpu.name or device.name,
        pci_bus_id=gpu.pci_bus_id or device.pci_bus_id,
        compute_capability=gpu.compute_capability or device.compute_capability,
        memory=replace(gpu.memory, kind=_memory_kind(gpu.memory, device.integrated)),
        compute_mode=gpu.compute_mode or device.compute_mode,
        errors=gpu.errors | {f"cuda_{fact}": reason for fact, reason in device.errors.items()},
        error=gpu.error or device.error,
    )
    if instance is not None:
        return _replace_instance(gpu, instance, lambda known: _instance_with_cuda(known, device))
    if gpu.mig is not None and gpu.mig.enabled:
        return gpu
    return replace(
        gpu, multiprocessors=device.multiprocessors, memory=_with_total(gpu.memory, device.memory_total_bytes)
    )


def _instance_with_cuda(known: MigInstance, device: CudaDevice) -> MigInstance:
    return replace(
        known,
        visible=device.error is None,
        cuda_index=device.cuda_index,
        uuid=known.uuid or (f"MIG-{device.uuid}" if device.uuid else None),
        name=known.name or device.name,
        multiprocessors=known.multiprocessors or device.multiprocessors,
        memory=_with_total(known.memory, device.memory_total_bytes),
    )


def _memory_kind(memory: GpuMemory, integrated: bool | None) -> Literal["dedicated", "unified", "unknown"]:
    if integrated:
        return "unified"
    return "dedicated" if memory.kind == "unknown" and integrated is False else memory.kind


def _with_total(memory: GpuMemory, total_bytes: int | None) -> GpuMemory:
    return memory if memory.total_bytes is not None else replace(memory, total_bytes=total_bytes)


def _replace_instance(gpu: Gpu, number: int, change: Callable[[MigInstance], MigInstance]) -> Gpu:
    assert gpu.mig is not None
    instances = list(gpu.mig.instances)
    instances[number] = change(instances[number])
    return replace(gpu, mig=replace(gpu.mig, instances=tuple(instances)))


def _hidden_unless_listed(gpu: Gpu) -> Gpu:
    """Say of a GPU and its instances that CUDA does not list them, where it is known which ones CUDA means."""
    instances = gpu.mig.instances if gpu.mig else ()
    if gpu.mig is not None and (not gpu.visible or any(instance.visible for instance in instances)):
        told = tuple(replace(instance, visible=bool(instance.visible)) for instance in instances)
        gpu = replace(gpu, mig=replace(gpu.mig, instances=told))
    return replace(gpu, visible=bool(gpu.visible))


def _add_tensorflow(
    gpus: list[Gpu], runtime: Sequence[TensorFlowDevice], places: Mapping[int, Place], *, cuda_asked: bool
) -> None:
    for device in runtime:
        place = _find(gpus, device.uuid, long_bus_id(device.pci_bus_id)) or _by_ordinal(device, places)
        if place is None and not cuda_asked and len(runtime) == len(gpus) == 1 and device.compute_capability:
            place = next(iter(_by_elimination(gpus, _as_cuda(device), set()).values()), None)
        if place is None:
            gpus.append(Gpu(uuid=device.uuid, kind="nvidia" if device.compute_capability else "other"))
            place = len(gpus) - 1, None
        position, instance = place
        gpus[position] = _with_tensorflow(gpus[position], device, instance)


def _by_ordinal(device: TensorFlowDevice, places: Mapping[int, Place]) -> Place | None:
    # ROCm and pluggable devices give a description and no capability, and their numbers are not CUDA's.
    of_cuda = device.compute_capability is not None or device.description is None
    ordinal = cuda_ordinal(device)
    return places.get(ordinal) if of_cuda and ordinal is not None else None


def _as_cuda(device: TensorFlowDevice) -> CudaDevice:
    return CudaDevice(cuda_index=-1, uuid=device.uuid, pci_bus_id=device.pci_bus_id)


def _with_tensorflow(gpu: Gpu, device: TensorFlowDevice, instance: int | None) -> Gpu:
    if instance is not None:
        gpu = _replace_instance(gpu, instance, lambda known: replace(known, visible=True, tensorflow_name=device.name))
    return replace(
        gpu,
        visible=True,
        tensorflow_name=gpu.tensorflow_name or device.name,
        name=gpu.name or device.description,
        pci_bus_id=gpu.pci_bus_id or long_bus_id(device.pci_bus_id),
        compute_capability=gpu.compute_capability or device.compute_capability,
    )


def _with_device_id(gpu: Gpu, chips: Mapping[str | None, str]) -> Gpu:
    if gpu.pci_device_id is not None or gpu.pci_bus_id not in chips:
        return gpu
    return replace(gpu, pci_device_id=chips[gpu.pci_bus_id].removeprefix("0x").upper())


def _bare_uuid(uuid: str | None) -> str | None:
    return uuid.lower().removeprefix("mig-").removeprefix("gpu-") if uuid else None
