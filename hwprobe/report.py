"""The facts about one machine and one Python environment, as frozen types.

A report says what was read and from where. It holds no opinion: what a fact means is decided in `hwprobe.rules` and
`hwprobe.decide`. A value of None means that the fact could not be read or does not exist on this kind of machine; the
source that should have given it (`Report.sources`) says which.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from hwprobe.capability import ComputeCapability


class Fact(msgspec.Struct, frozen=True):
    """Base of all facts. msgspec does not inherit `kw_only`, nor mypy `frozen`, so each fact says both."""


class SourceStatus(str, enum.Enum):
    """How the reading of one source ended."""

    OK = "ok"
    ABSENT = "absent"
    """The thing is not there: no driver library, no TensorFlow, a reading that only Linux has."""
    FAILED = "failed"
    """It is there and did not work; the reason and, where there is one, the code say how."""
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    """Nobody asked it; the reason says why."""


class Source(Fact, frozen=True, kw_only=True):
    """How one source of facts answered.

    Attributes:
        status: The outcome.
        reason: Why it is not `ok`, in the source's own words where it has some.
        code: The library's own error number (an `nvmlReturn_t` or a `CUresult`), None where there is none.
        error: The library's own name for that number, for instance `CUDA_ERROR_SYSTEM_NOT_READY`.
        seconds: Wall time that the reading took.
    """

    status: SourceStatus
    reason: str | None = None
    code: int | None = None
    error: str | None = None
    seconds: float | None = None


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


class Driver(Fact, frozen=True, kw_only=True):
    """The NVIDIA driver as NVML, CUDA and the kernel each report it.

    Attributes:
        version: Version of the user-space driver, from NVML: `535.104.05`.
        kernel_version: Version of the loaded kernel module, from `/proc/driver/nvidia/version`.
        cuda_version: Newest CUDA that this driver supports: `12.2`. It says nothing about an installed toolkit.
        nvml_library: Path of the `libnvidia-ml` that was loaded.
        nvml_library_version: Version in that file's real name (`libnvidia-ml.so.535.104.05`), None if it carries none.
        cuda_library: Path of the `libcuda` that was loaded.
        cuda_library_version: Version in that file's real name.
        nvml_binding: Version of the nvidia-ml-py distribution in use.
        foreign_pynvml: Path and owner of a `pynvml` module that is not nvidia-ml-py's, where one is in the way.
        device_count: GPUs that NVML counts, readable or not.
    """

    version: str | None = None
    kernel_version: str | None = None
    cuda_version: str | None = None
    nvml_library: str | None = None
    nvml_library_version: str | None = None
    cuda_library: str | None = None
    cuda_library_version: str | None = None
    nvml_binding: str | None = None
    foreign_pynvml: str | None = None
    device_count: int | None = None


class Distribution(Fact, frozen=True, kw_only=True):
    """An installed Python distribution.

    Attributes:
        in_effect: Whether the files on disk are this distribution's (RECORD hash of `build_info.py`); None if not told.
        ships_code: For a distribution called TensorFlow: whether it brings TensorFlow's code. Stubs that only require
            another one, and placeholders, do not.
    """

    name: str
    version: str
    in_effect: bool | None = None
    ships_code: bool | None = None


class SharedLibrary(Fact, frozen=True, kw_only=True):
    """One shared library that this TensorFlow opens at start, tried on its own.

    Attributes:
        soname: The name given to the loader: `libcudnn.so.9`.
        loads: Whether the loader found it; None if it was not tried.
        path: The file that was loaded.
        error: The loader's own text where it failed.
        found_at: Files of that name in known places (the `nvidia-*` wheels, CUDA folders, conda), loadable or not.
        other_versions: Files there of the same library with another number: `libcudnn.so.8`.
        version: Version that the library itself reports, where hwprobe asks (cuDNN): `9.3.0`.
    """

    soname: str
    loads: bool | None = None
    path: str | None = None
    error: str | None = None
    found_at: tuple[str, ...] = ()
    other_versions: tuple[str, ...] = ()
    version: str | None = None


class TensorFlowDevice(Fact, frozen=True, kw_only=True):
    """One GPU as `tf.config` lists it.

    Attributes:
        name: `GPU:0`.
        device_type: `GPU`, or a plug-in's own type.
        description: The `device_name` of its details, where given.
        compute_capability: From its details; None for ROCm and pluggable devices.
        pci_bus_id: From the CUDA driver through the ordinal in the name; None if that could not be asked.
        uuid: Likewise.
    """

    name: str
    device_type: str = "GPU"
    description: str | None = None
    compute_capability: ComputeCapability | None = None
    pci_bus_id: str | None = None
    uuid: str | None = None


class TensorFlow(Fact, frozen=True, kw_only=True):
    """The TensorFlow of this Python environment.

    Attributes:
        version: As its distribution writes it (PEP 440).
        distributions: Every distribution that owns a top-level `tensorflow`.
        location: Folder of the package; None where what is installed ships no code.
        is_cuda_build, is_rocm_build: From `build_info.py`; None if that file could not be read.
        cuda_version, cudnn_version: What it was built for; None where `build_info.py` is silent.
        compute_capabilities: `sm_80`, `compute_90`, ...: code that its libraries carry.
        compute_capabilities_origin: `build_info`, or `fatbin` when read from the libraries themselves.
        libraries: The shared libraries it opens at start.
        wheels: Installed `nvidia-*` distributions that bring CUDA libraries.
        plugins: Distributions that bring pluggable devices (`tensorflow-metal`, `tensorflow-directml-plugin`, ...).
        devices: What TensorFlow itself lists; None if it was not asked.
        initialized: Whether its context was initialised already when it was asked in this process.
        search_paths: Folders of `nvidia-*` wheels that hold shared libraries.
        and_cuda: What its extra `and-cuda` requires: `nvidia-cudnn-cu12<10.0,>=9.3.0.75`, ...
        libdevice, ptxas: Where XLA would find `libdevice.10.bc` and the assembler, for a CUDA build; None if nowhere.
        messages: What TensorFlow itself logged while it listed its devices: warnings, errors, GPUs that it ignores.
    """

    version: str | None = None
    distributions: tuple[Distribution, ...] = ()
    location: str | None = None
    is_cuda_build: bool | None = None
    is_rocm_build: bool | None = None
    cuda_version: str | None = None
    cudnn_version: str | None = None
    compute_capabilities: tuple[str, ...] | None = None
    compute_capabilities_origin: Literal["build_info", "fatbin"] | None = None
    libraries: tuple[SharedLibrary, ...] = ()
    wheels: tuple[Distribution, ...] = ()
    plugins: tuple[Distribution, ...] = ()
    devices: tuple[TensorFlowDevice, ...] | None = None
    initialized: bool | None = None
    search_paths: tuple[str, ...] = ()
    and_cuda: tuple[str, ...] = ()
    libdevice: str | None = None
    ptxas: str | None = None
    messages: tuple[str, ...] = ()


class Keras(Fact, frozen=True, kw_only=True):
    """The Keras packages of this environment.

    Attributes:
        version: Version of the `keras` distribution.
        tf_keras_version: Version of the `tf_keras` distribution.
        backend: Keras 3's backend as environment and configuration file name it; `tensorflow` where neither does.
        backend_origin: `environment`, `file` or `default`.
        legacy: Whether `tf.keras` is tf_keras (`TF_USE_LEGACY_KERAS`).
        dtype_policy: Global dtype policy already set in this process; None if Keras was not loaded.
    """

    version: str | None = None
    tf_keras_version: str | None = None
    backend: str | None = None
    backend_origin: Literal["environment", "file", "default"] | None = None
    legacy: bool = False
    dtype_policy: str | None = None


class PciDevice(Fact, frozen=True, kw_only=True):
    """A display controller on the PCI bus, of NVIDIA or another vendor, from `/sys/bus/pci/devices`.

    Virtual functions of a board are left out.

    Attributes:
        bus_id: In NVML's long form, lower case: `00000000:65:00.0`.
        vendor_id: Four lower-case hexadecimal digits: `10de` is NVIDIA.
        device_id: Four upper-case hexadecimal digits, as in `Gpu.pci_device_id`.
        class_id: Base class and sub-class: `0300` VGA, `0302` 3D.
        driver: Kernel driver bound to it: `nvidia`, `nouveau`, `vfio-pci`; None if there is none.
    """

    bus_id: str
    vendor_id: str
    device_id: str
    class_id: str
    driver: str | None = None


class DeviceNode(Fact, frozen=True, kw_only=True):
    """A `/dev/nvidia*` (or `/dev/dxg`) node.

    Attributes:
        mode: Permissions in octal: `0666`.
        accessible: Whether this process may open it for reading and writing.
    """

    path: str
    mode: str | None = None
    owner: str | None = None
    group: str | None = None
    accessible: bool | None = None
    error: str | None = None


class Host(Fact, frozen=True, kw_only=True):
    """The machine around the GPUs and the process that asks.

    Attributes:
        system: `Linux`, `Windows`, `Darwin`.
        machine: `x86_64`, `aarch64`, `arm64`, `AMD64`; None where a description does not tell it.
        kernel: Kernel release.
        wsl: Whether this is the Windows Subsystem for Linux.
        tegra: Model line of a Jetson board.
        python: Version of this interpreter; None where a description does not tell it.
        executable, prefix: Of this interpreter: a check is about this environment, not about the machine.
        cpu_model: Marketing name.
        cpu_flags: Those of `amx_bf16`, `amx_fp16`, `avx512_bf16`, `avx512_fp16`, `f16c` it has; None if unreadable.
        memory_total_bytes, memory_available_bytes: Of the host.
        container: `docker`, `podman`, `kubernetes`, `apptainer`, `lxc`, ...; None outside of one.
        container_memory_limit_bytes: Limit of the control group; None without one.
        scheduler: `slurm`, `kubernetes`, `pbs`, `lsf`, `sge`, `flux`; None outside of one.
        notebook: Whether this process is a Jupyter kernel.
        pci_devices: Display and 3D controllers on the PCI bus; None if that cannot be read here.
        device_nodes: `/dev/nvidia*`; None if that cannot be read here.
        environment: Allow-listed variables that are set. A variable that is set and empty is here with ""; one whose
            value is private (`TF_CONFIG`, job ids) is here with `set`.
        mapped_libraries: CUDA and driver libraries that this process has loaded already; None if that cannot be read.
        foreign_hwprobe: The unrelated distribution called `hwprobe`, which installs the same top-level module.
        frameworks: PyTorch and JAX, which bring CUDA libraries of their own, where installed.
        absent: Facts that this platform does not have or that could not be read: name of the fact to reason.
        name: Host name; None unless a caller asked for it (a node record does).
    """

    system: str
    machine: str | None = None
    kernel: str | None = None
    wsl: bool = False
    tegra: str | None = None
    python: str | None = None
    executable: str | None = None
    prefix: str | None = None
    cpu_model: str | None = None
    cpu_flags: tuple[str, ...] | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    container: str | None = None
    container_memory_limit_bytes: int | None = None
    scheduler: str | None = None
    notebook: bool = False
    pci_devices: tuple[PciDevice, ...] | None = None
    device_nodes: tuple[DeviceNode, ...] | None = None
    environment: dict[str, str] = {}
    mapped_libraries: tuple[str, ...] | None = None
    foreign_hwprobe: Distribution | None = None
    frameworks: tuple[Distribution, ...] = ()
    absent: dict[str, str] = {}
    name: str | None = None


class Sources(Fact, frozen=True, kw_only=True):
    """How each source answered."""

    nvml: Source
    cuda: Source
    tensorflow_build: Source
    tensorflow_runtime: Source
    host: Source


class Report(Fact, frozen=True, kw_only=True):
    """Everything that was read, complete and immutable.

    Attributes:
        devices: Physical GPUs in NVML's order, then those that only CUDA or TensorFlow know.
        driver: None where neither NVML nor CUDA nor the kernel module is there.
        tensorflow: None where no TensorFlow is installed.
        keras: None where no Keras is installed.
        origin: `machine`, or the file or target that the report was made from.
        assumptions: What a report that was made from a description takes for granted, a sentence part each.
    """

    devices: tuple[Gpu, ...]
    driver: Driver | None
    tensorflow: TensorFlow | None
    keras: Keras | None
    host: Host
    sources: Sources
    origin: str = "machine"
    assumptions: tuple[str, ...] = ()

    @property
    def visible_devices(self) -> tuple[Gpu, ...]:
        """The GPUs that this process may use."""
        return tuple(gpu for gpu in self.devices if gpu.visible)
