"""The machine of ours is what it claims: TensorFlow runs on it, faults strike, nothing of the host shows through."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import open_workshop
from tests.machine import (
    A100,
    GB10,
    GT_1030,
    GTX_980,
    GTX_1660_TI,
    P100,
    T4,
    Case,
    Workshop,
    gpu,
    python_in_forks,
)
from tests.machine.asking import MIB, NVML, MachineFactory, answers, names_in_cuda


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.01)


TENSORFLOW = """
import json
import tensorflow as tf

def gpus():
    return [[device.name[-5:], *tf.config.experimental.get_device_details(device).values()]
            for device in tf.config.list_physical_devices("GPU")]

def initialized():
    from tensorflow.python.eager import context
    return context.context()._initialized
"""
LIST = f"{TENSORFLOW}\nprint(json.dumps([gpus(), initialized()]))"
GROW = f"""{TENSORFLOW}
for device in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(device, True)
before = initialized()
with tf.device("GPU:0"):
    there = tf.constant([1.0, 2.0])
print(json.dumps([before, [device.name for device in tf.config.list_logical_devices("GPU")], there.numpy().tolist()]))
"""
TAKE = f"{TENSORFLOW}\nwith tf.device('GPU:0'):\n    tf.constant([1.0])\nprint(json.dumps(gpus()))"


class TestTensorFlow:
    def test_it_lists_the_gpus_of_every_machine(self, machine: MachineFactory) -> None:
        """All of TensorFlow's own answers, one import for them all."""
        split = A100.mig_on("3g.40gb", "1g.10gb")
        cases: list[tuple[Case, list[list[object]]]] = [
            (Case(machine(gpus=[]), LIST), []),
            (Case(machine(gpus=[T4]), LIST), [["GPU:0", [7, 5], "Tesla T4"]]),
            (
                Case(machine(gpus=[T4, A100]), LIST),
                [["GPU:0", [8, 0], "NVIDIA A100-SXM4-80GB"], ["GPU:1", [7, 5], "Tesla T4"]],
            ),
            (Case(machine(gpus=[T4, A100]), LIST, {"CUDA_VISIBLE_DEVICES": "1"}), [["GPU:0", [7, 5], "Tesla T4"]]),
            (Case(machine(gpus=[T4, A100]), LIST, {"CUDA_VISIBLE_DEVICES": ""}), []),
            (Case(machine(gpus=[GTX_980]), LIST), [["GPU:0", [5, 2], "NVIDIA GeForce GTX 980"]]),
            (Case(machine(gpus=[GB10]), LIST), [["GPU:0", [12, 1], "NVIDIA GB10"]]),
            (Case(machine(gpus=[GT_1030]), LIST), [["GPU:0", [6, 1], "NVIDIA GeForce GT 1030"]]),
            (Case(machine(gpus=[GT_1030, T4]), LIST), [["GPU:0", [7, 5], "Tesla T4"]]),
            (Case(machine(gpus=[A100, A100.lost()]), LIST), [["GPU:0", [8, 0], "NVIDIA A100-SXM4-80GB"]]),
            (Case(machine(gpus=[split]), LIST), [["GPU:0", [8, 0], "NVIDIA A100-SXM4-80GB MIG 3g.40gb"]]),
            (Case(machine(gpus=[A100.mig_on()]), LIST), []),
            (Case(machine(gpus=[A100], cu_init=802), LIST), []),
            (Case(machine(gpus=[A100], nvml_init=18), LIST), []),
        ]
        ends = python_in_forks([case for case, _ in cases])
        for (case, listed), end in zip(cases, ends, strict=True):
            assert end.returncode == 0, end.stderr
            assert json.loads(end.stdout) == [listed, False], case.machine.gpus
            assert case.machine.calls("cuDevicePrimaryCtxRetain", "cuCtxCreate", "cuMemAlloc") == []

    def test_it_starts_its_context_and_its_appetite_is_written_down(self, machine: MachineFactory) -> None:
        growing = Case(machine(gpus=[T4, P100]), GROW)
        taking = Case(machine(gpus=[T4]), TAKE)
        crowded = Case(machine(gpus=[T4.using("5 GiB")]), TAKE)
        ampere = Case(machine(gpus=[A100.but(memory_total=15 << 30)]), TAKE)
        prohibited = Case(machine(gpus=[T4.but(compute_mode="prohibited")]), TAKE)
        forced = Case(machine(gpus=[T4]), TAKE, {"TF_FORCE_GPU_ALLOW_GROWTH": "true"})
        ends = python_in_forks([growing, taking, crowded, ampere, prohibited, forced])
        assert json.loads(ends[0].stdout) == [False, ["/device:GPU:0", "/device:GPU:1"], [1.0, 2.0]], ends[0].stderr
        assert growing.machine.allocations[0] == 2 * MIB
        # Free memory less TensorFlow's own reserve: 1050 MiB for capability 7, 1536 MiB for 8.
        assert taking.machine.allocations[0] == (15360 - 1050) * MIB
        assert crowded.machine.allocations[0] == (10240 - 1050) * MIB
        assert ampere.machine.allocations[0] == (15360 - 1536) * MIB
        assert ends[4].returncode == 1
        assert "unknown error" in ends[4].stderr
        assert prohibited.machine.allocations == []
        assert forced.machine.allocations[0] == 2 * MIB

    @pytest.mark.parametrize("missing", ["libnvidia-ml.so.1", "libcuda.so.1", "libcudnn.so.9"])
    def test_it_lists_nothing_without_a_library(self, machine: MachineFactory, missing: str) -> None:
        done = machine(gpus=[T4], missing=[missing]).python(LIST)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [[], False]


class TestLibraries:
    @pytest.mark.parametrize(
        ("toolkit", "cudnn", "version"), [("12.5", None, 90300), ("12.5", "9.10.2", 91002), ("11.8", "8.9.7", 8907)]
    )
    def test_cudnn_knows_its_version(
        self, machine: MachineFactory, toolkit: str, cudnn: str | None, version: int
    ) -> None:
        soname = "libcudnn.so.8" if toolkit == "11.8" else "libcudnn.so.9"
        source = f"import ctypes; print(ctypes.CDLL('{soname}').cudnnGetVersion())"
        assert machine(toolkit=toolkit, cudnn=cudnn).python(source).stdout == f"{version}\n"

    @pytest.mark.parametrize("toolkit", ["12.5", "12.2", "11.8"])
    def test_every_library_of_a_toolkit_loads(self, machine: MachineFactory, toolkit: str) -> None:
        m = machine(gpus=[T4], toolkit=toolkit)
        assert len(m.libraries) in (9, 10)
        source = f"import ctypes\nfor name in {m.libraries}: ctypes.CDLL(name)"
        assert m.python(source).stderr == ""

    def test_a_broken_library_is_there_and_does_not_load(self, machine: MachineFactory) -> None:
        done = machine(broken=["libcudnn.so.9"]).python("import ctypes; ctypes.CDLL('libcudnn.so.9')")
        assert "libcudnn.so.9: file too short" in done.stderr or "invalid ELF header" in done.stderr

    def test_the_driver_libraries_carry_its_version_in_their_file_names(self, machine: MachineFactory) -> None:
        m = machine(gpus=[T4], driver="535.104.05", library_version="535.129.03")
        assert (m.folder / "lib/libcuda.so.1").resolve().name == "libcuda.so.535.129.03"
        assert (m.folder / "lib/libnvidia-ml.so.1").resolve().name == "libnvidia-ml.so.535.129.03"


class TestTrouble:
    @pytest.mark.parametrize(("how", "survives"), [("hang", False), ("stubborn", True)])
    @pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
    def test_a_call_that_hangs(self, machine: MachineFactory, how: str, survives: bool, function: str) -> None:
        m = machine(gpus=[T4], **{how: [function]})
        source = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
        with subprocess.Popen([sys.executable, "-c", source], env=m.environment()) as process:
            wait_until(lambda: bool(m.calls("nvmlInitWithFlags" if function == "nvmlInit" else function)))
            process.terminate()
            if survives:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.5)
                process.kill()
            assert process.wait(30) == -(signal.SIGKILL if survives else signal.SIGTERM)

    def test_run_kills_the_children_of_what_does_not_end(self, machine: MachineFactory) -> None:
        m = machine(gpus=[T4], stubborn=["cuInit"])
        hangs = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
        with pytest.raises(subprocess.TimeoutExpired):
            m.python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hangs!r}])", timeout=5)
        (call,) = m.calls("cuInit")
        wait_until(lambda: not psutil.pid_exists(call.process) or psutil.Process(call.process).status() == "zombie")

    def test_a_call_that_crashes_takes_its_process_along(self, machine: MachineFactory) -> None:
        done = machine(gpus=[T4], crash=["cuInit"]).python("import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)")
        assert done.returncode == -signal.SIGABRT

    def test_one_gpu_hangs_and_the_other_answers(self, machine: MachineFactory) -> None:
        m = machine(gpus=[T4, A100.hanging("nvmlDeviceGetName")])
        source = f"{NVML}\nfor handle in handles:\n    print(nvmlDeviceGetName(handle), flush=True)"
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            m.python(source, timeout=5)
        assert caught.value.stdout in (b"Tesla T4\n", "Tesla T4\n")

    @pytest.mark.parametrize(
        "facts",
        [
            {"fail": {"nvmlDeviceGetNmae": 1}},
            {"hang": ["cuInti"]},
            {"lacks": ["nvmlDeviceGetMemoryInfo_v9"]},
            {"missing": ["libcudnn.so.8"]},
            {"gpus": [T4.at("00000000:01:00.0"), A100.at("00000000:01:00.0")]},
            {"gpus": [T4.failing(cuDeviceGetNmae=1)]},
        ],
        ids=str,
    )
    def test_a_description_that_means_nothing_is_refused(self, machine: MachineFactory, facts: dict[str, Any]) -> None:
        with pytest.raises(AssertionError):
            machine(**facts)


class TestWorkshop:
    def test_without_a_compiler_ci_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="no C compiler"):
            open_workshop(tmp_path)

    def test_without_a_compiler_anybody_else_skips(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.delenv("CI", raising=False)
        with pytest.raises(pytest.skip.Exception, match="no C compiler"):
            open_workshop(tmp_path)

    def test_a_library_is_built_once(self, workshop: Workshop) -> None:
        first = workshop.library("libcuda.so.1")
        built = first.stat().st_mtime_ns
        assert workshop.library("libcuda.so.1") == first
        assert first.stat().st_mtime_ns == built
        assert workshop.library("libcuda.so.1", frozenset({"cuDeviceGetUuid_v2"})) != first


class TestSurroundings:
    def test_a_process_inherits_nothing_that_steers_gpus(
        self, machine: MachineFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH", "SLURM_JOB_ID", "HWPROBE_POLICY"):
            monkeypatch.setenv(name, "1")
        monkeypatch.setenv("UNRELATED", "stays")
        environment = machine(gpus=[T4]).environment(CUDA_DEVICE_ORDER="PCI_BUS_ID", HOME=None)
        steering = {name for name in environment if name.startswith(("CUDA", "TF_", "SLURM", "HWPROBE", "HOME"))}
        assert steering == {"CUDA_DEVICE_ORDER", "HWPROBE_TEST_MACHINE", "HWPROBE_TEST_TODAY"}
        assert environment["UNRELATED"] == "stays"

    def test_a_healthy_machine_shows_its_gpus_to_linux(self, machine: MachineFactory) -> None:
        root = machine(gpus=[T4, GTX_1660_TI], driver="535.104.05").folder / "root"
        assert "Kernel Module  535.104.05 " in (root / "proc/driver/nvidia/version").read_text()
        devices = root / "sys/bus/pci/devices"
        assert sorted(path.name for path in devices.iterdir()) == ["0000:0a:00.0", "0000:0d:00.0"]
        assert (devices / "0000:0d:00.0/device").read_text() == "0x2182\n"
        assert (devices / "0000:0a:00.0/class").read_text() == "0x030200\n"
        assert (devices / "0000:0a:00.0/driver").resolve().name == "nvidia"
        assert sorted(path.name for path in (root / "dev").iterdir()) == [
            "nvidia-uvm",
            "nvidia-uvm-tools",
            "nvidia0",
            "nvidia1",
            "nvidiactl",
        ]

    def test_without_a_driver_the_boards_stay_on_the_bus(self, machine: MachineFactory) -> None:
        m = machine(gpus=[T4], driver=None, files={"proc/device-tree/model": "Jetson", "proc/cpuinfo": None})
        root = m.folder / "root"
        assert [path.name for path in (root / "sys/bus/pci/devices").iterdir()] == ["0000:0a:00.0"]
        assert list((root / "dev").iterdir()) == []
        assert not (root / "proc/driver").exists()
        assert not (root / "proc/cpuinfo").exists()
        assert (root / "proc/device-tree/model").read_text() == "Jetson"

    def test_the_host_probe_of_a_process_reads_these_files(self, machine: MachineFactory) -> None:
        m = machine(gpus=[T4])
        done = m.python("import hwprobe.probe.host as host; print(host.ROOT)")
        assert done.stdout == f"{m.folder / 'root'}\n", done.stderr

    def test_a_board_of_any_kind_can_be_described(self, machine: MachineFactory) -> None:
        board = gpu(
            "NVIDIA Rubin", "13.0", memory="288 GiB", pci_device_id="3001", multiprocessors=224, architecture=13
        )
        m = machine(gpus=[board])
        assert answers(m, "GetArchitecture") == 13
        assert names_in_cuda(m) == ["NVIDIA Rubin"]
