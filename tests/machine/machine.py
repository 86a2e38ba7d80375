"""One machine of ours: its description, its libraries, its files, and the processes that run on it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.machine import gpus as boards
from tests.machine.gpus import Fault, Gpu, Instance
from tests.machine.root import write_root
from tests.machine.workshop import TOOLKITS, Workshop, functions

HOOK = Path(__file__).parent / "hook"
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
INHERITED_NOT = (
    "CUDA", "NVIDIA", "NVML", "TF_", "XLA_", "KERAS", "HIP_", "ROCR_", "HWPROBE", "SLURM", "PBS_", "LSB_", "SGE_", "FLUX_",
    "KUBERNETES", "OMPI_", "PMI_", "JPY_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CONDA_",
)  # fmt: skip
"""Beginnings of variables that a process on the machine must not inherit from the machine that runs the tests."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a stand-in library. `number` is what it was asked for, where it notes one."""

    process: int
    function: str
    number: int | None = None


class Machine:
    """A machine with the GPUs and faults of one description. See `tests/machine/__init__.py` for how to make one.

    Attributes:
        gpus: In NVML's order, with the PCI bus ids and UUIDs that they got.
        folder: Holds `description`, `lib`, `root` and the log of calls.
    """

    def __init__(
        self,
        folder: Path,
        workshop: Workshop,
        gpus: Iterable[Gpu] = (),
        *,
        driver: str | None = "580.95.05",
        cuda: str = "13.0",
        toolkit: str | None = "12.5",
        cudnn: str | None = None,
        library_version: str | None = None,
        kernel_driver: str | None = None,
        nvml_init: int = 0,
        cu_init: int = 0,
        fail: Mapping[str, int] | None = None,
        hang: Iterable[str] = (),
        stubborn: Iterable[str] = (),
        crash: Iterable[str] = (),
        slow: Mapping[str, int] | None = None,
        lacks: Iterable[str] = (),
        missing: Iterable[str] = (),
        broken: Iterable[str] = (),
        count_after: tuple[int, int] | None = None,
        mig_devices_per_process: int = 1,
        files: Mapping[str, str | None] | None = None,
    ) -> None:
        placed = [gpu.placed(position) for position, gpu in enumerate(gpus)]
        self.gpus = tuple(sorted(placed, key=lambda gpu: gpu.pci_address))
        self.driver = driver
        self.folder = folder
        self._calls = folder / "calls"
        faults = [("fail", name, code) for name, code in (fail or {}).items()]
        faults += [("hang", name, 0) for name in hang]
        faults += [("stubborn", name, 0) for name in stubborn]
        faults += [("crash", name, 0) for name in crash]
        faults += [("slow", name, milliseconds) for name, milliseconds in (slow or {}).items()]
        faults += [("fail", name, code) for name, code in (("nvmlInit", nvml_init), ("cuInit", cu_init)) if code]
        shipped = {"12.5": "9.3.0", "12.2": "8.9.4", "11.8": "8.7.0"}
        facts = {
            "driver": driver or "",
            "nvml_version": f"{cuda.split('.')[0]}.{driver}",
            "cuda": _cuda_number(cuda),
            "cudart": _cuda_number(toolkit or "0.0"),
            "cudnn": _cudnn_number(cudnn or shipped[toolkit] if toolkit else "0.0.0"),
            "count_calls": count_after[0] if count_after else -1,
            "count_then": count_after[1] if count_after else 0,
            "mig_devices_per_process": mig_devices_per_process,
            "log": self._calls,
        }
        lines = [f"{key} {value}" for key, value in facts.items()] + _fault_lines(faults)
        for gpu in self.gpus:
            lines += _gpu_lines(gpu)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "description").write_text("\n".join(lines) + "\n")
        _install(
            folder / "lib",
            workshop,
            driver,
            library_version or driver,
            toolkit,
            frozenset(lacks),
            set(missing),
            set(broken),
        )
        write_root(folder / "root", self.gpus, kernel_driver or driver, files or {})

    def environment(self, **variables: str | None) -> dict[str, str]:
        """The environment of a process on this machine; a variable given as None is unset."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(INHERITED_NOT)}
        own = {
            "HWPROBE_TEST_MACHINE": str(self.folder / "description"),
            "LD_LIBRARY_PATH": os.pathsep.join([str(self.folder / "lib"), *_host_library_folders()]),
            "PYTHONPATH": os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        given = inherited | own | variables
        return {name: value for name, value in given.items() if value is not None}

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        timeout: float = 120,
        cwd: Path | None = None,
        **variables: str | None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on this machine, in its own process group, which is killed whatever happens.

        Raises:
            subprocess.TimeoutExpired: It ran longer than `timeout` seconds.
        """
        with subprocess.Popen(
            command,
            env=self.environment(**variables),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            finally:
                _kill_group(process.pid)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def python(self, source: str, *, timeout: float = 120, **variables: str | None) -> subprocess.CompletedProcess[str]:
        """Runs Python source on this machine, in this interpreter's environment."""
        return self.run([sys.executable, "-c", source], timeout=timeout, **variables)

    def calls(self, *functions: str) -> list[Call]:
        """What the stand-ins were asked, in order; only these functions, in any version, where some are named."""
        if not self._calls.exists():
            return []
        calls = []
        for line in self._calls.read_text().splitlines():
            process, function, *number = line.split()
            calls.append(Call(int(process), function, int(number[0]) if number else None))
        wanted = {name.rstrip("*") for name in functions}
        return [
            call for call in calls if not wanted or call.function.split("_v")[0] in wanted or call.function in wanted
        ]

    def forget_calls(self) -> None:
        """Empties the log of calls."""
        self._calls.unlink(missing_ok=True)

    @property
    def allocations(self) -> list[int]:
        """Sizes in bytes of all allocations of device memory, in order."""
        return [call.number for call in self.calls("bytes") if call.number is not None]


def _cuda_number(version: str) -> int:
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def _cudnn_number(version: str) -> int:
    major, minor, patch = map(int, version.split("."))
    return major * 10000 + minor * 100 + patch if major >= 9 else major * 1000 + minor * 100 + patch


def _known_functions() -> frozenset[str]:
    return frozenset().union(*(functions(soname) for soname in (*DRIVER_LIBRARIES, "libcudart.so.12", "libcudnn.so.9")))


def _fault_lines(faults: Iterable[Fault]) -> list[str]:
    lines = []
    for kind, function, number in faults:
        pattern = "nvmlInit*" if function == "nvmlInit" else function
        stem = pattern.rstrip("*")
        known = any(
            name.startswith(stem) if "*" in pattern else name.split("_v")[0] == stem or name == stem
            for name in _known_functions()
        )
        assert known, f"the stand-ins have no function {function}"
        lines.append(f"{kind} {pattern} {number}")
    return lines


def _number(value: object, names: Mapping[str, int] | None = None) -> int:
    """A fact as the stand-ins read it: -1 for "not supported"."""
    if value is None:
        return -1
    return names[str(value)] if names else int(value)  # type: ignore[call-overload, no-any-return]


def _gpu_lines(gpu: Gpu) -> list[str]:
    domain, bus, device = gpu.pci_address
    major, minor = gpu.compute_capability
    same = (
        "name", "uuid", "pci_subsystem_id", "multiprocessors", "clock_mhz", "memory_total", "memory_used", "memory_reserved",
        "memory_readable", "integrated", "persistence", "ecc", "ecc_pending", "ecc_corrected", "ecc_uncorrected",
        "retired_pending", "remapped_correctable", "remapped_uncorrectable", "remapped_pending", "remapped_failed",
        "fabric_status", "fabric_health", "mig_mode", "mig_pending", "mig_maximum", "in_nvml", "in_cuda",
    )  # fmt: skip
    facts: dict[str, object] = {key: getattr(gpu, key) for key in same}
    facts |= {
        "pci_domain": domain,
        "pci_bus": bus,
        "pci_device": device,
        "pci_device_id": int(gpu.pci_device_id, 16),
        "capability_major": major,
        "capability_minor": minor,
        "speed": gpu.speed if gpu.speed is not None else gpu.multiprocessors * gpu.clock_mhz,
        "architecture": gpu.architecture
        if gpu.architecture is not None
        else boards.architecture_of(gpu.compute_capability),
        "brand": boards.BRANDS[gpu.brand],
        "minor_number": gpu.minor_number if gpu.minor_number is not None else bus,
        "compute_mode": _number(gpu.compute_mode, boards.COMPUTE_MODES),
        "virtualization": _number(gpu.virtualization, boards.VIRTUALIZATION),
        "driver_model": _number(gpu.driver_model, boards.DRIVER_MODELS),
        "fabric_state": _number(gpu.fabric_state, boards.FABRIC_STATES),
    }
    lines = ["gpu", *(f"  {key} {value if isinstance(value, str) else _number(value)}" for key, value in facts.items())]
    lines += [f"  process {pid} {memory}" for pid, memory in gpu.processes]
    lines += [f"  {line}" for line in _fault_lines(gpu.faults)]
    for each in gpu.instances:
        lines += _instance_lines(gpu, each)
    return lines


def _instance_lines(gpu: Gpu, instance: Instance) -> list[str]:
    same = (
        "uuid",
        "index",
        "gpu_instance",
        "compute_instance",
        "multiprocessors",
        "memory_total",
        "memory_used",
        "memory_reserved",
    )
    lines = ["  mig", f"    name {gpu.name} MIG {instance.profile}"]
    lines += [f"    {key} {getattr(instance, key)}" for key in same]
    lines += [f"    gpu_slices {instance.slices}", f"    compute_slices {instance.slices}"]
    return lines + [f"    {line}" for line in _fault_lines(instance.faults)]


def _install(
    folder: Path,
    workshop: Workshop,
    driver: str | None,
    library_version: str | None,
    toolkit: str | None,
    lacks: frozenset[str],
    missing: set[str],
    broken: set[str],
) -> None:
    """Puts the libraries into the folder: the driver's under its version, as an installed driver has them."""
    folder.mkdir(parents=True)
    installed = (*(DRIVER_LIBRARIES if driver else ()), *(TOOLKITS[toolkit] if toolkit else ()))
    for soname in installed:
        if soname in missing:
            continue
        if soname in broken:
            (folder / soname).write_text("not a library\n")
            continue
        if soname not in DRIVER_LIBRARIES:
            shutil.copyfile(workshop.library(soname), folder / soname)
            continue
        real = folder / f"{soname[:-2]}.{library_version}"
        shutil.copyfile(workshop.library(soname, lacks & functions(soname)), real)
        (folder / soname).symlink_to(real.name)


def _host_library_folders() -> list[str]:
    """Folders on the library path that this Python may need, without any that hold NVIDIA's own libraries."""
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    return [str(folder) for folder in folders if not any(folder.glob("lib[cn][uv]*"))]


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
