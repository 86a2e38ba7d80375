"""macOS, Windows, WSL2 and GPUs of other makers, by standing in at the outermost door.

What Python says about the platform, the files under `/` and a TensorFlow that lists a GPU of its own kind are stood in
for; everything of hwprobe's runs.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from hwprobe.preflight import Check, check
from hwprobe.probe import host
from hwprobe.probe.host import ENVIRONMENT, ENVIRONMENT_PRESENCE, LINUX_ONLY
from hwprobe.render.formats import FORMATS, write
from hwprobe.source import SourceStatus
from tests.machine import A100, T4, Case, Machine, python_in_forks
from tests.probe.site_packages import CPU_BUILD, Site, build_info
from tests.probe.test_tensorflow_runtime import without_tensorflow

MakeMachine = Callable[..., Machine]
ROOT = Path(__file__).parents[2]
ROCM_BUILD = build_info(is_cuda_build=False, is_rocm_build=True, is_tensorrt_build=False)

LISTING = """
class Device:
    device_type = "GPU"
    name = "/physical_device:GPU:0"

class config:
    list_physical_devices = staticmethod(lambda: [Device()])
    class experimental:
        get_device_details = staticmethod(lambda device: {{"device_name": {name!r}}})
"""


class Other(NamedTuple):
    """A machine whose GPU is not NVIDIA's.

    Attributes:
        system: What `platform.system()` says.
        tensorflow: Distribution and version.
        build: Its `build_info.py`.
        plugin: Distribution and version of the plug-in that brings the GPU; None for a build of TensorFlow's own.
        device: What TensorFlow calls the GPU.
        files: Under the folder that stands for `/`.
    """

    system: str
    tensorflow: tuple[str, str]
    build: str
    plugin: tuple[str, str] | None
    device: str
    files: dict[str, str] = {}


AMD = "sys/bus/pci/devices/0000:03:00.0"
OTHERS = {
    "Metal": Other("Darwin", ("tensorflow", "2.18.1"), CPU_BUILD, ("tensorflow-metal", "1.2.0"), "METAL"),
    "DirectML": Other(
        "Windows", ("tensorflow-intel", "2.10.1"), CPU_BUILD, ("tensorflow-directml-plugin", "0.4.0.dev230202"), "DML"
    ),
    "ROCm": Other(
        "Linux",
        ("tensorflow-rocm", "2.14.0.600"),
        ROCM_BUILD,
        None,
        "AMD Instinct MI250X",
        {f"{AMD}/vendor": "0x1002\n", f"{AMD}/device": "0x740c\n", f"{AMD}/class": "0x038000\n", "dev/kfd": ""},
    ),
}

NVIDIA_ADVICE = ("nvidia", "cuda_visible_devices", "and-cuda", "driver", "libcuda", "capability")


@pytest.fixture
def plain_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*ENVIRONMENT, *ENVIRONMENT_PRESENCE}:
        monkeypatch.delenv(name, raising=False)


def check_on(other: Other, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    site = Site(folder / "site-packages")
    name, version = other.tensorflow
    files = {
        "tensorflow/__init__.py": LISTING.format(name=other.device),
        "tensorflow/python/platform/build_info.py": other.build,
    }
    site.install(name, version, files, top_level=["tensorflow"])
    if other.plugin is not None:
        site.install(*other.plugin, {"tensorflow-plugins/plugin.so": ""})
    root = folder / "root"
    for path, text in {"proc/sys/kernel/osrelease": "6.1.0\n", "dev/null": "", **other.files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    with monkeypatch.context() as stand_in:
        stand_in.setattr(host, "ROOT", root)
        stand_in.setattr(platform, "system", lambda: other.system)
        stand_in.setattr(sys, "path", [str(site.folder), *without_tensorflow()])
        return check(timeout_seconds=300)


@pytest.mark.usefixtures("plain_process")
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_gpu_of_its_own_kind_computes_in_float32_and_gets_no_advice_for_nvidias(
    other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = check_on(other, tmp_path, monkeypatch)
    assert result.decision is not None
    assert result.report is not None
    (gpu,) = result.report.devices
    assert (gpu.kind, gpu.tensorflow_name, gpu.name) == ("other", "GPU:0", other.device)
    assert (result.decision.dtype_policy, result.decision.loss_scaling.mode) == ("float32", "none")
    assert "not an NVIDIA GPU" in result.decision.rejected["mixed_float16"]
    assert result.exit_status == 0, result.findings
    assert [finding.id for finding in result.findings if finding.severity.value != "info"] == []
    advice = " ".join(step for finding in result.findings for step in finding.fix).lower()
    assert [word for word in NVIDIA_ADVICE if word in advice] == []
    (said,) = [finding for finding in result.findings if finding.id == "HWP313"]
    assert other.device in said.message
    assert (other.plugin[0] if other.plugin else "ROCm") in said.message
    assert "float32 by default" in said.message
    for name in FORMATS:
        assert write(result, name)


@pytest.mark.usefixtures("plain_process")
@pytest.mark.parametrize("name", ["Metal", "DirectML"])
def test_what_only_linux_can_tell_is_absent_with_its_reason(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OTHERS[name]
    report = check_on(other, tmp_path, monkeypatch).report
    assert report is not None
    assert set(report.host.absent) == set(LINUX_ONLY)
    assert all(f"this is {other.system}" in reason for reason in report.host.absent.values())
    assert report.host.memory_total_bytes == psutil.virtual_memory().total
    assert report.driver is None
    sources = report.sources
    assert (sources.nvml.status, sources.cuda.status) == (SourceStatus.ABSENT, SourceStatus.ABSENT)
    assert sources.nvml.reason
    assert sources.cuda.reason


WSL = {
    "proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n",
    "proc/driver/nvidia/version": None,
    "dev/dxg": "",
    **dict.fromkeys(("dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-uvm-tools")),
    **{f"sys/bus/pci/devices/0000:0a:00.0/{file}": None for file in ("vendor", "device", "class")},
}


def test_under_wsl2_the_gpu_is_there_without_bus_nodes_or_kernel_module(machine: MakeMachine) -> None:
    m = machine(gpus=[A100], files=WSL)
    done = m.run([sys.executable, "-m", "hwprobe", "check", "--format", "json"], timeout=300)
    said = json.loads(done.stdout)
    assert said["report"]["host"]["wsl"] is True
    assert said["report"]["driver"]["kernel_version"] is None
    assert (said["decision"]["dtype_policy"], done.returncode) == ("mixed_bfloat16", 0), said["findings"]
    assert [finding["id"] for finding in said["findings"] if finding["severity"] != "info"] == []


def test_under_wsl2_without_its_libraries_nobody_is_told_to_install_a_linux_driver(machine: MakeMachine) -> None:
    m = machine(gpus=[A100], files=WSL, missing=["libcuda.so.1", "libnvidia-ml.so.1"])
    done = m.run([sys.executable, "-m", "hwprobe", "check", "--format", "json"], timeout=300)
    said = json.loads(done.stdout)
    # Windows shows any maker's GPU as /dev/dxg, so this is not an error of a machine that should have NVIDIA's.
    (missing,) = [finding for finding in said["findings"] if finding["id"] == "HWP109"]
    assert "/usr/lib/wsl/lib" in missing["message"]
    assert "on Windows" in missing["fix"][0]
    assert [step for finding in said["findings"] for step in finding["fix"] if "apt" in step] == []


STAND_IN = """
import asyncio, ctypes, importlib, multiprocessing, os, pkgutil, platform, signal, subprocess, sys
import click, psutil, rich.console, sysconfig
sysconfig.get_config_vars()
system = {system!r}
platform.system = lambda: system
platform.machine = lambda: {{"Darwin": "arm64", "Windows": "AMD64"}}[system]
sys.platform = {{"Darwin": "darwin", "Windows": "win32"}}[system]
"""

IMPORT_ALL = """
if system == "Windows":
    for name in ("fcntl", "grp", "pwd", "resource", "termios"):
        sys.modules[name] = None
    gone = "fork geteuid getuid killpg register_at_fork RTLD_NOLOAD sched_getaffinity uname"
    for name in gone.split():
        delattr(os, name)
    del signal.SIGKILL
import hwprobe
names = [each.name for each in pkgutil.walk_packages(hwprobe.__path__, "hwprobe.") if "__main__" not in each.name]
for name in names:
    importlib.import_module(name)
for name in hwprobe.__all__:
    getattr(hwprobe, name)
print(len(names) > 100, [name for name in ("tensorflow", "keras", "pynvml") if name in sys.modules])
"""


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_everything_imports(system: str) -> None:
    program = f"{STAND_IN.format(system=system)}\n{IMPORT_ALL}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "True []\n", done.stderr


CONFIGURE = """
import hwprobe
from hwprobe.probe.collect import collect_in_process
applied = hwprobe.auto_configure()
print(applied.decision.dtype_policy, applied.complete, bool(hwprobe.verify()))
report = collect_in_process()
print(report.host.system, report.driver, report.sources.tensorflow_runtime.status.value, len(report.host.absent))
"""


def test_auto_configure_works_where_nothing_but_tensorflow_can_be_asked(machine: MakeMachine) -> None:
    systems = ("Darwin", "Windows")
    m = machine(driver=None)
    ends = python_in_forks([Case(m, f"{STAND_IN.format(system=system)}\n{CONFIGURE}") for system in systems])
    for system, end in zip(systems, ends, strict=True):
        assert end.stdout.splitlines() == ["float32 True True", f"{system} None ok {len(LINUX_ONLY)}"], end.stderr
        assert "hwprobe: float32: no usable GPU, computing on the CPU" in end.stderr


def test_the_same_machine_as_linux_reads_all_that(machine: MakeMachine) -> None:
    """The quiet case beside the others: without a stand-in nothing is absent."""
    (end,) = python_in_forks([Case(machine(gpus=[T4]), CONFIGURE)])
    assert end.stdout.splitlines()[0] == "mixed_float16 True True", end.stderr
    assert end.stdout.splitlines()[1].startswith("Linux Driver(")
