"""The machine around the GPUs, and the process that asks: processor, memory, container, scheduler, environment."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hwprobe.probe.container import find_container, find_memory_limit
from hwprobe.probe.distributions import Installed, installed, utf8
from hwprobe.probe.host_devices import find_tegra, kernel_module_version, list_device_nodes, list_pci_devices
from hwprobe.report import Host
from hwprobe.source import Source, SourceStatus

T = TypeVar("T")

__all__ = ["ENVIRONMENT", "ENVIRONMENT_PRESENCE", "ROOT", "collect_host", "read_environment", "read_kernel_module"]

ROOT = Path("/")
"""The folder that stands for `/`."""

ENVIRONMENT = (
    "CONDA_PREFIX",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_CACHE_PATH",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "JOB_COMPLETION_INDEX",
    "KERAS_BACKEND",
    "KERAS_HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MPI_LOCALRANKID",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVML_MPS_DEVICE_ENUMERATION",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_CPUS_ON_NODE",
    "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_JOB_GPUS",
    "SLURM_LOCALID",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_STEP_GPUS",
    "SLURM_TASKS_PER_NODE",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_CUDNN_DETERMINISTIC",
    "TF_DETERMINISTIC_OPS",
    "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
    "TF_ENABLE_AUTO_MIXED_PRECISION",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_MODE",
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""Variables that change which GPUs a process has or what TensorFlow does with them. Nothing else enters a report."""

ENVIRONMENT_PRESENCE = (
    "FLUX_JOB_ID",
    "KUBERNETES_SERVICE_HOST",
    "LSB_JOBID",
    "PBS_JOBID",
    "SLURM_JOB_ID",
    "TF_CONFIG",
)
"""Variables of which only it is told that they are set: their values name hosts, addresses and jobs."""

CPU_FLAGS = ("amx_bf16", "amx_fp16", "avx512_bf16", "avx512_fp16", "f16c")

FRAMEWORKS = ("torch", "jax", "jaxlib")

SCHEDULERS = (
    ("slurm", ("SLURM_JOB_ID",)),
    ("pbs", ("PBS_JOBID",)),
    ("lsf", ("LSB_JOBID",)),
    ("sge", ("SGE_ROOT", "JOB_ID")),
    ("flux", ("FLUX_JOB_ID",)),
    ("kubernetes", ("KUBERNETES_SERVICE_HOST",)),
)
"""Scheduler and the variables that are all set inside one of its jobs, innermost first."""

LINUX_ONLY = {
    "cpu_model": "/proc/cpuinfo",
    "cpu_flags": "/proc/cpuinfo",
    "container": "the marks of container engines in its file system",
    "container_memory_limit_bytes": "control groups",
    "pci_devices": "/sys/bus/pci",
    "device_nodes": "/dev/nvidia*",
    "mapped_libraries": "/proc/self/maps",
}
"""Fact of `Host` and where it is read from."""

_FILE_BYTES = 16 * 2**10
"""Of /proc/cpuinfo that is the first processor's block; the kernel takes long to write those of hundreds."""

_MAPS_BYTES = 8 * 2**20
_CUDA_LIBRARY = re.compile(
    r"(/.*/lib(?:cuda|cudart|cublas|cublasLt|cudnn|cufft|cusolver|cusparse|nvidia-ml)\.so[.\d]*)$", re.MULTILINE
)


def collect_host(
    root: Path | None = None, *, with_name: bool = False, distributions: Sequence[Installed] | None = None
) -> tuple[Host, Source]:
    """Read everything about the host that no GPU library has to be asked for.

    Args:
        root: The folder that stands for `/`; None for `ROOT`.
        with_name: Whether to read the host's name.
        distributions: What is installed, from a caller who knows it already.

    Returns:
        The facts, and how the reading went. What this platform does not have, or what could not be read, is in
        `Host.absent` with its reason.
    """
    started = time.monotonic()
    system = platform.system()
    place = ROOT if root is None else root
    absent: dict[str, str] = {}
    facts = _linux(place, absent) if system == "Linux" else _elsewhere(system, absent)
    packages = installed(sys.path) if distributions is None else distributions
    host = Host(
        system=system,
        machine=platform.machine(),
        python=platform.python_version(),
        executable=utf8(sys.executable) if sys.executable else None,
        prefix=utf8(sys.prefix),
        scheduler=_scheduler(),
        notebook="ipykernel" in sys.modules,
        environment=read_environment(),
        foreign_hwprobe=next((each.fact for each in packages if each.name == "hwprobe"), None),
        frameworks=tuple(each.fact for each in packages if each.name in FRAMEWORKS),
        absent=absent,
        name=utf8(platform.node()) or None if with_name else None,
        **facts,
    )
    return host, Source(status=SourceStatus.OK, seconds=round(time.monotonic() - started, 4))


def read_kernel_module(root: Path | None = None) -> str | None:
    """Read the version of the loaded NVIDIA kernel module.

    Args:
        root: The folder that stands for `/`; None for `ROOT`.

    Returns:
        `535.104.05`; None if no module is loaded, or this is not Linux.
    """
    return kernel_module_version(ROOT if root is None else root) if platform.system() == "Linux" else None


def read_environment() -> dict[str, str]:
    """Take the allow-listed variables from this process's environment.

    Returns:
        Name to value for those that are set; "" for one that is set and empty, `set` for one whose value is private.
    """
    values = {name: utf8(os.environ[name]) for name in ENVIRONMENT if name in os.environ}
    marks = {name: "set" if os.environ[name] else "" for name in ENVIRONMENT_PRESENCE if name in os.environ}
    return values | marks


def _scheduler() -> str | None:
    return next((name for name, variables in SCHEDULERS if all(each in os.environ for each in variables)), None)


def _linux(root: Path, absent: dict[str, str]) -> dict[str, Any]:
    def read(fact: str, reading: Callable[[Path], T]) -> T | None:
        try:
            return reading(root)
        except OSError as error:
            absent[fact] = f"{error.filename}: {error.strerror}" if error.strerror else str(error)
            return None

    kernel = (read("kernel", lambda place: _text(place / "proc/sys/kernel/osrelease")) or platform.release()).strip()
    cpuinfo = read("cpu_flags", lambda place: _text(place / "proc/cpuinfo"))
    meminfo = read("memory_total_bytes", lambda place: _text(place / "proc/meminfo"))
    return {
        "kernel": kernel,
        "wsl": "microsoft" in kernel.lower(),
        "tegra": find_tegra(root),
        "cpu_model": _cpu_model(cpuinfo or ""),
        "cpu_flags": None if cpuinfo is None else _cpu_flags(cpuinfo),
        "memory_total_bytes": _memory(meminfo or "", "MemTotal"),
        "memory_available_bytes": _memory(meminfo or "", "MemAvailable"),
        "container": find_container(root, os.environ),
        "container_memory_limit_bytes": find_memory_limit(root),
        "pci_devices": read("pci_devices", list_pci_devices),
        "device_nodes": read("device_nodes", list_device_nodes),
        "mapped_libraries": read("mapped_libraries", _mapped_libraries),
    }


def _elsewhere(system: str, absent: dict[str, str]) -> dict[str, Any]:
    for fact, source in LINUX_ONLY.items():
        absent[fact] = f"only Linux has {source}; this is {system or 'an unknown system'}"
    facts: dict[str, Any] = {"kernel": platform.release()}
    try:
        # psutil costs as much time as all the rest here, so it is not imported where /proc/meminfo tells the same.
        import psutil

        memory = psutil.virtual_memory()
    except (ImportError, OSError, RuntimeError) as error:
        absent["memory_total_bytes"] = f"psutil: {error}"
        return facts
    return facts | {"memory_total_bytes": int(memory.total), "memory_available_bytes": int(memory.available)}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_FILE_BYTES).decode("utf-8", "replace")


def _cpu_model(cpuinfo: str) -> str | None:
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else None


def _cpu_flags(cpuinfo: str) -> tuple[str, ...]:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    present = set(match[1].split()) if match else set()
    return tuple(flag for flag in CPU_FLAGS if flag in present)


def _memory(meminfo: str, name: str) -> int | None:
    match = re.search(rf"^{name}:\s*(\d+) kB$", meminfo, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _mapped_libraries(root: Path) -> tuple[str, ...]:
    with (root / "proc/self/maps").open("rb") as file:
        text = os.fsdecode(file.read(_MAPS_BYTES))
    return tuple(dict.fromkeys(utf8(path) for path in _CUDA_LIBRARY.findall(text)))
