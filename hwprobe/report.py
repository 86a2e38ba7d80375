"""The facts about one machine and one Python environment, as frozen types.

A report says what was read and from where. It holds no opinion: what a fact means is decided in `hwprobe.rules` and
`hwprobe.decide`. A value of None means that the fact could not be read or does not exist on this kind of machine; the
source that should have given it (`Report.sources`) says which.
"""

from __future__ import annotations

from typing import Literal

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu
from hwprobe.source import Fact, Source


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
