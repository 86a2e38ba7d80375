"""What the readers of NVML and CUDA answer, as types: the plain data of a child process becomes these."""

from __future__ import annotations

from typing import Literal

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu
from hwprobe.source import Fact


class NvmlReading(Fact, frozen=True, kw_only=True):
    """Everything that `hwprobe.probe.nvml.read` gives.

    Attributes:
        binding: Version of the installed nvidia-ml-py.
        foreign: Path and owner of another `pynvml` that was imported in its place.
        library: Path of the `libnvidia-ml` that was loaded.
        library_version: Version in that file's real name.
        driver_version: Version of the user-space driver.
        cuda_version: Newest CUDA that the driver supports.
        devices: In NVML's order; None if NVML did not get that far.
    """

    binding: str | None = None
    foreign: str | None = None
    library: str | None = None
    library_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    devices: tuple[Gpu, ...] | None = None


class CudaDevice(Fact, frozen=True, kw_only=True):
    """One device as CUDA lists it: a GPU, or one MIG instance.

    Attributes:
        cuda_index: Its ordinal.
        uuid: Of the GPU or the instance, without prefix.
        integrated: Whether it shares the host's memory.
        errors: Facts that could not be read: fact name to reason.
        error: Why CUDA lists it and gives no access.
    """

    cuda_index: int
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    compute_capability: ComputeCapability | None = None
    multiprocessors: int | None = None
    memory_total_bytes: int | None = None
    integrated: bool | None = None
    compute_mode: Literal["default", "exclusive_thread", "prohibited", "exclusive_process"] | None = None
    errors: dict[str, str] = {}
    error: str | None = None


class CudaReading(Fact, frozen=True, kw_only=True):
    """Everything that `hwprobe.probe.cuda.read` gives.

    Attributes:
        library: Path of the `libcuda` that was loaded.
        library_version: Version in that file's real name.
        cuda_version: Newest CUDA that this library supports; known before CUDA starts.
        devices: In CUDA's order; None if CUDA did not get that far.
    """

    library: str | None = None
    library_version: str | None = None
    cuda_version: str | None = None
    devices: tuple[CudaDevice, ...] | None = None
