"""Builders of reports for pure tests: facts that a rule or a decision sees, without any machine.

report(gpus=[T4, A100], tensorflow="2.21.0")
report(gpus=[gpu("NVIDIA A100-SXM4-80GB", "8.0", visible=False)], environment={"CUDA_VISIBLE_DEVICES": ""})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hwprobe.capability import ComputeCapability
from hwprobe.configuration import DeviceUsability
from hwprobe.gpu import Gpu, GpuMemory, Mig, MigInstance
from hwprobe.knowledge.annotate import annotate
from hwprobe.policy import Policy
from hwprobe.report import Driver, Host, Keras, Report, SharedLibrary, Sources, TensorFlow, TensorFlowDevice
from hwprobe.rules.verdict import Case
from hwprobe.source import Source, SourceStatus
from hwprobe.usability import usability
from tests.dates import TODAY

OK = Source(status=SourceStatus.OK)
KERAS_3 = Keras(version="3.15.1", backend="tensorflow", backend_origin="default")
WHEELS: dict[str, tuple[str, ...]] = {
    "2.12.1": ("sm_35", "sm_50", "sm_60", "sm_70", "sm_75", "compute_80"),
    "2.14.1": ("sm_35", "sm_50", "sm_60", "sm_70", "sm_75", "compute_80"),
    "2.15.1": ("sm_50", "sm_60", "sm_70", "sm_75", "compute_80"),
    "2.16.2": ("sm_50", "sm_60", "sm_70", "sm_80", "compute_90"),
    "2.17.1": ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90"),
    "2.21.0": ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90"),
}
"""What the Linux x86_64 wheels say in build_info.py."""
SINCE_2_17 = WHEELS["2.17.1"]
"""What the wheels of 2.17 to 2.21 say there."""

CUDA_OF_WHEEL = {"2.12": "11.8", "2.14": "11.8", "2.15": "12.2", "2.16": "12.3", "2.17": "12.3", "2.21": "12.5.1"}


def gpu(name: str, capability: str | None, *, memory_gib: float | None = 16, **facts: Any) -> Gpu:
    """A GPU; indices, UUID and bus id are given by `report` unless they are named here."""
    memory = facts.pop("memory", None) or (
        GpuMemory()
        if memory_gib is None
        else GpuMemory(
            total_bytes=int(memory_gib * 2**30), free_bytes=int(memory_gib * 2**30), used_bytes=0, kind="dedicated"
        )
    )
    facts.setdefault("visible", True)
    parsed = None if capability is None else ComputeCapability.parse(capability)
    return Gpu(name=name, compute_capability=parsed, memory=memory, **facts)


T4 = gpu("Tesla T4", "7.5", memory_gib=15, pci_device_id="1EB8", multiprocessors=40)
V100 = gpu("Tesla V100-SXM2-16GB", "7.0", memory_gib=16, pci_device_id="1DB1", multiprocessors=80)
A100 = gpu("NVIDIA A100-SXM4-80GB", "8.0", memory_gib=80, pci_device_id="20B2", multiprocessors=108)
H100 = gpu("NVIDIA H100 80GB HBM3", "9.0", memory_gib=79.6, pci_device_id="2330", multiprocessors=132)
RTX_3090 = gpu("NVIDIA GeForce RTX 3090", "8.6", memory_gib=24, pci_device_id="2204", multiprocessors=82)
RTX_4090 = gpu("NVIDIA GeForce RTX 4090", "8.9", memory_gib=24, pci_device_id="2684", multiprocessors=128)
RTX_5090 = gpu("NVIDIA GeForce RTX 5090", "12.0", memory_gib=31.8, pci_device_id="2B85", multiprocessors=170)
GTX_1660_TI = gpu("NVIDIA GeForce GTX 1660 Ti", "7.5", memory_gib=6, pci_device_id="2182", multiprocessors=24)
T1200 = gpu("NVIDIA T1200 Laptop GPU", "7.5", memory_gib=4, pci_device_id="1FBC", multiprocessors=16)
P100 = gpu("Tesla P100-PCIE-16GB", "6.0", memory_gib=16, pci_device_id="15F8", multiprocessors=56)
GTX_1080_TI = gpu("NVIDIA GeForce GTX 1080 Ti", "6.1", memory_gib=11, pci_device_id="1B06", multiprocessors=28)
GTX_980 = gpu("NVIDIA GeForce GTX 980", "5.2", memory_gib=4, pci_device_id="13C0", multiprocessors=16)
GB10 = gpu("NVIDIA GB10", "12.1", memory=GpuMemory(kind="unified"), pci_device_id="2E12", multiprocessors=48)


def lost(device: Gpu) -> Gpu:
    """A GPU that fell off the bus: NVML counts it and gives no handle."""
    return msgspec.structs.replace(
        device, visible=False, error="GPU is lost", error_code=15, memory=GpuMemory(), compute_capability=None
    )


def hidden(device: Gpu) -> Gpu:
    """A GPU that NVML shows and this process may not use."""
    return msgspec.structs.replace(device, visible=False)


def using(device: Gpu, free_gib: float, total_gib: float) -> Gpu:
    """A GPU of whose memory something uses a part."""
    memory = GpuMemory(total_bytes=int(total_gib * 2**30), free_bytes=int(free_gib * 2**30), kind="dedicated")
    return msgspec.structs.replace(device, memory=memory)


def mig(device: Gpu, *instances: MigInstance) -> Gpu:
    """A GPU in MIG mode; without instances CUDA has no device on it."""
    return msgspec.structs.replace(
        device, mig=Mig(enabled=True, pending=True, instances=instances), visible=any(one.visible for one in instances)
    )


def tensorflow_wheel(version: str | None = "2.21.0", **facts: Any) -> TensorFlow:
    """A TensorFlow as the Linux x86_64 wheel of that version is."""
    minor = ".".join((version or "2.21.0").split(".")[:2])
    known: dict[str, Any] = {
        "version": version,
        "is_cuda_build": True,
        "is_rocm_build": False,
        "cuda_version": CUDA_OF_WHEEL.get(minor),
        "cudnn_version": "9" if minor in ("2.18", "2.19", "2.20", "2.21") else "8",
        "compute_capabilities": WHEELS.get(version or "2.21.0"),
        "compute_capabilities_origin": "build_info",
        "libraries": (SharedLibrary(soname="libcudart.so.12", loads=True),),
        "libdevice": "/env/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
        "ptxas": "/env/nvidia/cuda_nvcc/bin/ptxas",
    }
    return TensorFlow(**{**known, **facts})


def built_with(cuda: str, version: str, **facts: Any) -> TensorFlow:
    """A TensorFlow of before build_info.py named architectures."""
    return tensorflow_wheel(version, **{"cuda_version": cuda, "compute_capabilities": None, **facts})


CPU_ONLY = TensorFlow(version="2.21.0", is_cuda_build=False, is_rocm_build=False)


def source(status: str, reason: str | None = None, **facts: Any) -> Source:
    """How a source ended."""
    return Source(status=SourceStatus(status), reason=reason, **facts)


def report(
    *,
    gpus: Sequence[Gpu] = (),
    tensorflow: str | TensorFlow | None = "2.21.0",
    lists: Sequence[int] | None = None,
    driver: str | Driver | None = "570.124.06",
    keras: Keras | None = KERAS_3,
    environment: Mapping[str, str] | None = None,
    sources: Mapping[str, Source] | None = None,
    host: Mapping[str, Any] | None = None,
) -> Report:
    """A whole report, healthy unless said otherwise.

    Args:
        gpus: In NVML's order; visible ones get CUDA's indices in the same order.
        tensorflow: A wheel's version, a TensorFlow, or None for none.
        lists: Positions among the visible GPUs that TensorFlow lists; all of them by default.
        driver: Its version or the fact; None where there is none.
        keras: The Keras packages.
        environment: Allow-listed variables.
        sources: Sources that did not end `ok`, by name.
        host: Further facts of the host.
    """
    build = tensorflow_wheel(tensorflow) if isinstance(tensorflow, str) else tensorflow
    placed = _placed(gpus, build, lists)
    if build is not None and build.devices is None and "tensorflow_runtime" not in (sources or {}):
        build = msgspec.structs.replace(build, devices=_listed(placed))
    facts = {"system": "Linux", "machine": "x86_64", "python": "3.11.7", "cpu_flags": (), "pci_devices": ()}
    statuses = dict.fromkeys(("nvml", "cuda", "tensorflow_build", "tensorflow_runtime", "host"), OK)
    if not gpus and driver is None:
        statuses["nvml"] = statuses["cuda"] = source("absent", "no NVIDIA driver library here")
    if build is None:
        statuses["tensorflow_build"] = source("absent", "no TensorFlow in this environment")
        statuses["tensorflow_runtime"] = source("absent", "no TensorFlow in this environment")
    return annotate(
        Report(
            devices=placed,
            driver=_driver(driver, len(gpus)),
            tensorflow=build,
            keras=keras,
            host=Host(**{**facts, "environment": dict(environment or {}), **(host or {})}),
            sources=Sources(**{**statuses, **(sources or {})}),
        )
    )


def cpu_only(**facts: Any) -> Report:
    """A machine without any GPU or driver."""
    return report(driver=None, **facts)


def _driver(driver: str | Driver | None, count: int) -> Driver | None:
    if isinstance(driver, str):
        return Driver(version=driver, kernel_version=driver, cuda_version="12.8", device_count=count)
    return driver


def _placed(gpus: Sequence[Gpu], build: TensorFlow | None, lists: Sequence[int] | None) -> tuple[Gpu, ...]:
    placed = []
    ordinal = 0
    for index, device in enumerate(gpus):
        facts: dict[str, Any] = {
            "nvml_index": index,
            "uuid": device.uuid or f"GPU-{index:08d}-0000-0000-0000-000000000000",
            "pci_bus_id": device.pci_bus_id or f"00000000:{index + 1:02x}:00.0",
        }
        if device.visible:
            facts["cuda_index"] = ordinal
            if build is not None and build.is_cuda_build and (lists is None or ordinal in lists):
                facts["tensorflow_name"] = f"GPU:{ordinal}"
            ordinal += 1
        placed.append(msgspec.structs.replace(device, **facts))
    return tuple(placed)


def _listed(gpus: Sequence[Gpu]) -> tuple[TensorFlowDevice, ...]:
    return tuple(
        TensorFlowDevice(
            name=device.tensorflow_name,
            description=device.name,
            compute_capability=device.compute_capability,
            pci_bus_id=device.pci_bus_id,
            uuid=device.uuid,
        )
        for device in gpus
        if device.tensorflow_name is not None
    )


def case(facts: Report, policy: Policy | None = None, today: str = TODAY) -> Case:
    """What a rule sees."""
    site = policy or Policy()
    devices: tuple[DeviceUsability, ...] = usability(facts, site)
    return Case(report=facts, policy=site, usability=devices, today=today)
