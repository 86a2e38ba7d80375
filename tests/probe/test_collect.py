"""The whole report: all sources asked side by side on a machine of the tests, joined, with how each one answered."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwprobe.probe import collect as collect_module
from hwprobe.probe.collect import CUDA, LIBRARIES, NVML, collect
from hwprobe.report import Report, SharedLibrary
from hwprobe.serialize import from_json, to_json
from hwprobe.source import SourceStatus
from tests.machine import A100, GB10, GT_1030, H100, T4, Machine

ROOT = Path(__file__).parents[2]
READERS = "tests.probe.readers"

MakeMachine = Callable[..., Machine]

COLLECT = """
import json, sys
from hwprobe.probe.collect import collect
from hwprobe.serialize import to_json
report = collect(**json.loads(sys.argv[1]))
assert "tensorflow" not in sys.modules and "pynvml" not in sys.modules
print(to_json(report))
"""


def report_of(machine: Machine, *, runtime: bool = False, timeout_seconds: float = 120.0, **variables: str) -> Report:
    arguments = json.dumps({"runtime": runtime, "timeout_seconds": timeout_seconds})
    done = machine.run([sys.executable, "-c", COLLECT, arguments], cwd=ROOT, timeout=300, **variables)
    assert done.returncode == 0, done.stderr
    report = from_json(done.stdout, Report)
    assert from_json(to_json(report), Report) == report
    return report


def statuses(report: Report) -> dict[str, str]:
    sources = report.sources
    return {name: getattr(sources, name).status.value for name in sources.__struct_fields__}


def test_the_fast_report_has_everything_but_tensorflows_own_answer(machine: MakeMachine) -> None:
    m = machine(gpus=[T4, A100], driver="535.104.05", cuda="12.2")
    report = report_of(m)
    assert statuses(report) == {
        "nvml": "ok",
        "cuda": "ok",
        "tensorflow_build": "ok",
        "tensorflow_runtime": "skipped",
        "host": "ok",
    }
    assert "--fast" in str(report.sources.tensorflow_runtime.reason)
    t4, a100 = report.devices
    assert (t4.nvml_index, t4.cuda_index, t4.visible, t4.tensorflow_name) == (0, 1, True, None)
    assert (a100.nvml_index, a100.cuda_index, a100.visible) == (1, 0, True)
    assert [gpu.uuid for gpu in report.devices] == [gpu.uuid for gpu in m.gpus]
    assert a100.multiprocessors == 108
    driver = report.driver
    assert driver is not None
    assert (driver.version, driver.kernel_version, driver.cuda_version) == ("535.104.05", "535.104.05", "12.2")
    assert (driver.nvml_library_version, driver.cuda_library_version) == ("535.104.05", "535.104.05")
    assert (driver.device_count, driver.foreign_pynvml) == (2, None)
    assert driver.nvml_binding
    assert report.tensorflow is not None
    assert report.tensorflow.devices is None
    assert [library.loads for library in report.tensorflow.libraries] == [True] * 7


def test_tensorflow_is_asked_in_a_process_of_its_own_and_joined_by_cudas_ordinals(machine: MakeMachine) -> None:
    report = report_of(machine(gpus=[T4, A100, GT_1030]), runtime=True)
    assert report.sources.tensorflow_runtime.status is SourceStatus.OK, report.sources
    # TensorFlow leaves out GPUs with few multiprocessors beside larger ones, and says so.
    assert [(gpu.name, gpu.tensorflow_name) for gpu in report.devices] == [
        ("Tesla T4", "GPU:1"),
        ("NVIDIA A100-SXM4-80GB", "GPU:0"),
        ("NVIDIA GeForce GT 1030", None),
    ]
    assert [gpu.visible for gpu in report.devices] == [True, True, True]
    assert report.tensorflow is not None
    assert report.tensorflow.devices is not None
    assert [device.pci_bus_id for device in report.tensorflow.devices] == ["00000000:0d:00.0", "00000000:0a:00.0"]
    assert any("Ignoring visible gpu device" in message for message in report.tensorflow.messages)


def test_without_a_driver_nothing_nvidia_is_known_and_nothing_has_failed(machine: MakeMachine) -> None:
    report = report_of(machine(gpus=[], driver=None))
    assert report.devices == ()
    assert report.driver is None
    assert statuses(report)["nvml"] == statuses(report)["cuda"] == "absent"
    assert report.tensorflow is not None
    assert len(report.tensorflow.libraries) == 7
    assert all(library == SharedLibrary(soname=library.soname) for library in report.tensorflow.libraries)


def test_each_missing_library_is_named(machine: MakeMachine) -> None:
    report = report_of(machine(gpus=[T4], missing=["libcudnn.so.9"]))
    assert report.tensorflow is not None
    loads = {library.soname: library.loads for library in report.tensorflow.libraries}
    assert loads.pop("libcudnn.so.9") is False
    assert set(loads.values()) == {True}


@pytest.mark.parametrize(
    ("facts", "variables", "visible"),
    [
        pytest.param({}, {"CUDA_VISIBLE_DEVICES": "1"}, [True, False], id="one hidden"),
        pytest.param({}, {"CUDA_VISIBLE_DEVICES": ""}, [False, False], id="all hidden"),
        pytest.param({"cu_init": 802}, {}, [None, None], id="CUDA does not start"),
    ],
)
def test_visible_is_what_cuda_says(
    machine: MakeMachine, facts: dict[str, Any], variables: dict[str, Any], visible: list[bool | None]
) -> None:
    report = report_of(machine(gpus=[T4, A100], **facts), **variables)
    assert [gpu.visible for gpu in report.devices] == visible
    assert [gpu.name for gpu in report.devices] == ["Tesla T4", "NVIDIA A100-SXM4-80GB"]


def test_cuda_that_does_not_start_leaves_nvmls_facts_and_the_librarys_path(machine: MakeMachine) -> None:
    report = report_of(machine(gpus=[H100], cu_init=802))
    assert (report.sources.cuda.status, report.sources.cuda.code) == (SourceStatus.FAILED, 802)
    assert report.sources.cuda.error == "CUDA_ERROR_SYSTEM_NOT_READY"
    assert report.sources.nvml.status is SourceStatus.OK
    assert report.driver is not None
    assert str(report.driver.cuda_library).endswith("libcuda.so.580.95.05")


def test_nvml_that_hangs_costs_its_facts_and_not_the_report(machine: MakeMachine) -> None:
    report = report_of(machine(gpus=[T4], stubborn=["nvmlInit"]), timeout_seconds=5.0)
    assert report.sources.nvml.status is SourceStatus.TIMEOUT
    assert str(report.sources.nvml.reason).startswith("no answer within 5 s; without persistence mode")
    (gpu,) = report.devices
    assert (gpu.name, gpu.nvml_index, gpu.cuda_index, gpu.visible) == ("Tesla T4", None, 0, True)
    assert gpu.pci_device_id == "1EB8"
    assert report.driver is not None
    assert report.driver.cuda_version == "13.0"
    assert report.driver.device_count is None


def test_a_lost_gpu_stays_in_the_report_beside_the_sound_one(machine: MakeMachine) -> None:
    sound, lost = report_of(machine(gpus=[A100, A100.lost()])).devices
    assert (sound.visible, sound.error) == (True, None)
    assert (lost.nvml_index, lost.visible, lost.error_code) == (1, False, 15)


def test_a_gb10_gets_its_memory_from_cuda(machine: MakeMachine) -> None:
    (gpu,) = report_of(machine(gpus=[GB10])).devices
    assert gpu.memory.kind == "unified"
    assert gpu.memory.total_bytes == GB10.memory_total


def test_mig_is_joined_through_the_whole_chain(machine: MakeMachine) -> None:
    m = machine(gpus=[A100.mig_on("2g.20gb", "1g.10gb")])
    (gpu,) = report_of(m, CUDA_VISIBLE_DEVICES=str(m.gpus[0].instances[1].uuid)).devices
    assert gpu.visible is True
    assert gpu.mig is not None
    assert [instance.visible for instance in gpu.mig.instances] == [False, True]
    (none,) = report_of(machine(gpus=[A100.mig_on()])).devices
    assert none.visible is False
    assert none.mig is not None
    assert none.mig.instances == ()


IN_PROCESS = """
import json, sys
from hwprobe.probe.collect import collect_in_process
from hwprobe.serialize import to_json
report = collect_in_process()
if "tensorflow" in sys.modules:
    from tensorflow.python.eager import context
    assert not context.context()._initialized
assert "pynvml" not in sys.modules
print(to_json(report))
"""


def in_process(machine: Machine, **variables: str) -> Report:
    done = machine.run([sys.executable, "-c", IN_PROCESS], cwd=ROOT, timeout=300, **variables)
    assert done.returncode == 0, done.stderr
    return from_json(done.stdout, Report)


def test_a_process_whose_tensorflow_lists_every_gpu_asks_nobody_else(machine: MakeMachine) -> None:
    m = machine(gpus=[T4, A100])
    report = in_process(m)
    assert len({call.process for call in m.calls()}) == 1
    assert report.sources.nvml.status is SourceStatus.SKIPPED
    assert report.sources.cuda.status is SourceStatus.OK
    assert report.tensorflow is not None
    assert report.tensorflow.initialized is False
    whole = report_of(m)
    facts = ("name", "uuid", "pci_bus_id", "pci_device_id", "compute_capability", "multiprocessors", "cuda_index")
    told = {tuple(getattr(gpu, fact) for fact in facts) for gpu in report.devices}
    assert told == {tuple(getattr(gpu, fact) for fact in facts) for gpu in whole.devices}
    assert sorted(str(gpu.tensorflow_name) for gpu in report.devices) == ["GPU:0", "GPU:1"]


def test_a_process_whose_tensorflow_lists_none_asks_why(machine: MakeMachine) -> None:
    report = in_process(machine(gpus=[T4]), CUDA_VISIBLE_DEVICES="")
    (gpu,) = report.devices
    assert (gpu.name, gpu.visible) == ("Tesla T4", False)
    assert statuses(report)["nvml"] == "ok"
    assert report.sources.cuda.code == 100
    assert report.tensorflow is not None
    assert report.tensorflow.devices == ()


def test_a_process_whose_keras_runs_on_jax_does_not_import_tensorflow(machine: MakeMachine) -> None:
    report = in_process(machine(gpus=[T4]), KERAS_BACKEND="jax")
    assert report.sources.tensorflow_runtime.status is SourceStatus.SKIPPED
    assert report.tensorflow is not None
    assert report.tensorflow.devices is None
    assert [gpu.name for gpu in report.devices] == ["Tesla T4"]


@pytest.fixture
def drivers_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that shows something of NVIDIA."""
    monkeypatch.setattr(collect_module, "absent_library", lambda soname, host: None)


@pytest.mark.usefixtures("drivers_are_asked")
@pytest.mark.parametrize("source", [NVML, CUDA])
def test_an_answer_of_another_form_is_a_failed_source(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setitem(collect_module.READERS, source, f"{READERS}:nonsense")
    answered = getattr(collect(runtime=False).sources, source.lower())
    assert answered.status is SourceStatus.FAILED
    assert "not understood: data: Expected `array | null`, got `str` - at `$.devices`" in str(answered.reason)


@pytest.mark.usefixtures("drivers_are_asked")
def test_libraries_that_crash_when_they_are_tried_are_a_fault_of_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(collect_module.READERS, CUDA, f"{READERS}:fail")
    monkeypatch.setitem(collect_module.READERS, LIBRARIES, f"{READERS}:abort")
    report = collect(runtime=False)
    assert report.sources.tensorflow_build.status is SourceStatus.FAILED
    reason = str(report.sources.tensorflow_build.reason)
    assert reason.startswith("its shared libraries could not be tried: the child process died by signal 6 (SIGABRT)")
    assert report.tensorflow is not None
    assert report.tensorflow.is_cuda_build is True
    assert [library.loads for library in report.tensorflow.libraries] == [None] * 7


@pytest.mark.usefixtures("drivers_are_asked")
def test_whoever_watches_is_told_each_slow_source_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(collect_module.READERS, NVML, f"{READERS}:hang")
    told: list[str] = []
    report = collect(runtime=False, timeout_seconds=4.0, on_wait=told.append)
    assert report.sources.nvml.status is SourceStatus.TIMEOUT
    assert told.count("NVML") == 1
