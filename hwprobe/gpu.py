"""The facts about one GPU."""

from __future__ import annotations

from typing import Literal

from hwprobe.capability import ComputeCapability
from hwprobe.source import Fact


class GpuMemory(Fact, frozen=True, kw_only=True):
    """The memory of one GPU or MIG instance.

    Attributes:
        total_bytes: Size of the framebuffer.
        free_bytes: What nobody uses now.
        used_bytes: What processes use; with NVML's first structure it includes the driver's own reserve.
        reserved_bytes: The driver's own reserve (NVML's second structure only).
        kind: `dedicated`, `unified` with the host (GB10, Jetson), or `unknown`.
    """

    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    reserved_bytes: int | None = None
    kind: Literal["dedicated", "unified", "unknown"] = "unknown"


class MigInstance(Fact, frozen=True, kw_only=True):
    """One MIG device: a compute instance inside a GPU instance, as NVML lists it."""

    uuid: str | None = None
    name: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    multiprocessors: int | None = None
    memory: GpuMemory = GpuMemory()
    cuda_index: int | None = None
    tensorflow_name: str | None = None
    visible: bool | None = None
    error: str | None = None


class Mig(Fact, frozen=True, kw_only=True):
    """Multi-Instance GPU state. On boards without MIG the whole fact is None."""

    enabled: bool
    pending: bool | None = None
    instances: tuple[MigInstance, ...] = ()


class Health(Fact, frozen=True, kw_only=True):
    """What NVML knows about a GPU's condition. None: unsupported or not readable here.

    Attributes:
        ecc_enabled: Whether ECC is on now.
        ecc_uncorrected_volatile: Uncorrected errors since the driver was loaded.
        retired_pages_pending: Pages wait for a reboot to be retired (to Turing).
        remapped_rows_pending: Rows wait for a reset to be remapped (from Ampere, datacenter boards).
        remapped_rows_failed: A row could not be remapped: the board is due for replacement.
        fabric_state: NVSwitch fabric: `not_supported`, `not_started`, `in_progress`, `completed`.
        fabric_status_code: NVML's status of the fabric registration; counts only when completed.
    """

    ecc_enabled: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    retired_pages_pending: bool | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None
    fabric_state: Literal["not_supported", "not_started", "in_progress", "completed"] | None = None
    fabric_status_code: int | None = None


class Gpu(Fact, frozen=True, kw_only=True):
    """One physical GPU, joined from all sources on PCI bus id and UUID.

    Attributes:
        name: As the driver writes it.
        uuid: `GPU-...`.
        pci_bus_id: Domain, bus, device and function in NVML's long form, lower case: `00000000:65:00.0`.
        pci_device_id: The 16 bits that name the chip, as four upper-case hexadecimal digits: `2182`.
        nvml_index: Position in NVML's order (by PCI bus).
        cuda_index: CUDA ordinal in this process, after `CUDA_VISIBLE_DEVICES`; None if CUDA does not list it.
            With MIG it is the ordinal of the first visible instance.
        tensorflow_name: `GPU:0`; its number is the CUDA ordinal, not the position in TensorFlow's list.
        visible: Whether this process may use it; None if CUDA could not be asked.
        kind: `nvidia`, or `other` for a GPU that only TensorFlow knows (ROCm, Metal, DirectML, a plug-in).
        architecture: Name from hwprobe's tables, for instance `Ampere`; the nearest older for a device newer than them.
        architecture_known: False where `architecture` is such a substitute, or unknown.
        tensor_cores: Dtypes that this board's Tensor Cores multiply; empty without Tensor Cores; None if unknown.
        tensor_cores_reason: Why a board lacks the Tensor Cores that its capability promises.
        multiprocessors: Streaming multiprocessors as CUDA counts them.
        compute_mode: NVML's `default`, `exclusive_process`, `prohibited`.
        driver_model: `wddm`, `tcc` or `mcdm` on Windows; None elsewhere.
        virtualization: NVML's mode: `none`, `passthrough`, `vgpu`, `host_vgpu`, `host_vsga`.
        brand: NVML's brand name.
        errors: Facts that could not be read for a reason other than lack of support: fact name to reason.
        error: The one reason why this GPU as a whole cannot be used (lost, handle refused); None for a healthy one.
        error_code: NVML's number for `error`.
    """

    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    pci_device_id: str | None = None
    nvml_index: int | None = None
    cuda_index: int | None = None
    tensorflow_name: str | None = None
    visible: bool | None = None
    kind: Literal["nvidia", "other"] = "nvidia"
    compute_capability: ComputeCapability | None = None
    architecture: str | None = None
    architecture_known: bool = False
    tensor_cores: tuple[str, ...] | None = None
    tensor_cores_reason: str | None = None
    multiprocessors: int | None = None
    memory: GpuMemory = GpuMemory()
    mig: Mig | None = None
    health: Health = Health()
    compute_mode: Literal["default", "exclusive_thread", "prohibited", "exclusive_process"] | None = None
    driver_model: str | None = None
    virtualization: str | None = None
    brand: str | None = None
    errors: dict[str, str] = {}
    error: str | None = None
    error_code: int | None = None

    @property
    def subject(self) -> str:
        """The steadiest name of this device: UUID, else PCI bus id, else an index."""
        return (
            self.uuid
            or self.pci_bus_id
            or (f"NVML {self.nvml_index}" if self.nvml_index is not None else None)
            or self.tensorflow_name
            or (f"CUDA {self.cuda_index}" if self.cuda_index is not None else "GPU")
        )

    @property
    def label(self) -> str:
        """Name and compute capability for a sentence: `Tesla T4 (7.5)`."""
        name = self.name or self.subject
        return f"{name} ({self.compute_capability})" if self.compute_capability is not None else name
