"""One machine of ours: its description, its libraries, its files, and the processes that run on it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.dates import TODAY
from tests.machine.description import cuda_number, cudnn_number, describe
from tests.machine.gpus import Gpu
from tests.machine.root import write_root
from tests.machine.workshop import TOOLKITS, Workshop

HOOK = Path(__file__).parent / "hook"
NOT_INHERITED = (
    *("CUDA", "HWPROBE", "KERAS", "LD_", "NVIDIA", "NVML", "PYTHONPATH", "TF_", "XLA_"),
    *("CONDA", "GPU_", "HIP_", "HSA_", "JPY_", "ROCR_", "container"),
    *("FLUX_", "JOB_", "KUBERNETES", "LSB_", "MPI", "OMPI_", "PBS_", "PMI", "SGE_", "SLURM"),
)
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
        libraries: File names of the libraries that a process can load.
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
        self.folder = folder
        self.gpus = _in_nvml_order(gpus)
        self._calls = folder / "calls"
        count_calls, count_then = count_after or (-1, 0)
        facts = {
            "driver": driver or "",
            "nvml_version": f"{cuda.split('.')[0]}.{driver}",
            "cuda": cuda_number(cuda),
            "cudart": cuda_number(toolkit or "0.0"),
            "cudnn": cudnn_number(cudnn or TOOLKITS[toolkit].cudnn) if toolkit else 0,
            "count_calls": count_calls,
            "count_then": count_then,
            "mig_devices_per_process": mig_devices_per_process,
            "log": self._calls,
        }
        faults = [
            *(("fail", function, code) for function, code in (fail or {}).items()),
            *(("fail", function, code) for function, code in (("nvmlInit", nvml_init), ("cuInit", cu_init)) if code),
            *(("hang", function, 0) for function in hang),
            *(("stubborn", function, 0) for function in stubborn),
            *(("crash", function, 0) for function in crash),
            *(("slow", function, milliseconds) for function, milliseconds in (slow or {}).items()),
        ]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "description").write_text(describe(facts, faults, self.gpus))
        self.libraries = workshop.install(
            folder / "lib",
            driver=library_version or driver if driver else None,
            toolkit=toolkit,
            lacks=frozenset(lacks),
            missing=frozenset(missing),
            broken=frozenset(broken),
        )
        write_root(folder / "root", self.gpus, kernel_driver or driver if driver else None, files or {})

    @property
    def library_path(self) -> str:
        """`LD_LIBRARY_PATH` of every process on this machine."""
        return os.pathsep.join([str(self.folder / "lib"), *_host_library_folders()])

    def environment(self, **variables: str | None) -> dict[str, str]:
        """The environment of a process on this machine; a variable given as None is unset."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        own = {
            "HWPROBE_TEST_MACHINE": str(self.folder / "description"),
            "HWPROBE_TEST_TODAY": TODAY,
            "LD_LIBRARY_PATH": self.library_path,
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
        return self.run([sys.executable, "-c", source], timeout=timeout, cwd=None, **variables)

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


def _in_nvml_order(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """By PCI bus, each in its place."""
    placed = [gpu.placed(position) for position, gpu in enumerate(gpus)]
    placed.sort(key=lambda gpu: gpu.pci_address)
    for fact in ("pci_address", "uuid"):
        values = [getattr(gpu, fact) for gpu in placed]
        assert len(set(values)) == len(values), f"two GPUs have one {fact}: {values}"
    return tuple(gpu.but(minor_number=minor) for minor, gpu in enumerate(placed))


def _host_library_folders() -> list[str]:
    """Folders on the library path that this Python may need, without any that hold NVIDIA's own libraries."""
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    return [str(folder) for folder in folders if not any(folder.glob("lib[cn][uv]*"))]


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
