"""What TensorFlow itself lists, through both doors, on machines of ours."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.tensorflow import newest_release
from hwprobe.knowledge.versions import cuda_release
from hwprobe.probe.child import Answer, ask
from hwprobe.probe.tensorflow_build import read_build
from hwprobe.probe.tensorflow_runtime import messages
from hwprobe.report import TensorFlowDevice
from hwprobe.serialize import from_builtins
from hwprobe.source import SourceStatus
from tests.machine import A100, GT_1030, T4, Case, Gpu, Machine, python_in_forks
from tests.machine.workshop import TOOLKITS
from tests.probe.site_packages import Site

GENEROUS = 300.0
READER = "hwprobe.probe.tensorflow_runtime:read"
MakeMachine = Callable[..., Machine]


@functools.cache
def toolkit() -> str:
    """The stand-in libraries that the installed TensorFlow opens."""
    tensorflow, _, _ = read_build()
    if tensorflow is None or not tensorflow.is_cuda_build:
        pytest.skip("no TensorFlow with CUDA is installed")
    release = cuda_release(tensorflow.cuda_version or newest_release().cuda)
    assert release is not None
    return "12.5" if release >= (12, 5) else "12.2" if release >= (12, 0) else "11.8"


@pytest.fixture
def gpus(machine: MakeMachine) -> MakeMachine:
    """Makes machines with these GPUs and the libraries that the installed TensorFlow opens."""

    def make(*listed: Gpu, **facts: object) -> Machine:
        return machine(gpus=listed, toolkit=toolkit(), **facts)

    return make


def answer_on(machine: Machine, **variables: str) -> Answer:
    return ask(READER, {}, timeout_seconds=GENEROUS, environment=machine.environment(**variables))


def devices_of(answer: Answer) -> tuple[TensorFlowDevice, ...]:
    assert answer.status is SourceStatus.OK, answer
    assert answer.data is not None
    return from_builtins(answer.data["devices"], tuple[TensorFlowDevice, ...])


def test_every_fact_of_every_gpu_without_the_whole_import(gpus: MakeMachine) -> None:
    m = gpus(T4, A100)
    answer = answer_on(m)
    assert answer.data is not None
    assert answer.data["public"] is False
    t4, a100 = m.gpus
    assert devices_of(answer) == tuple(
        TensorFlowDevice(
            name=name,
            description=gpu.name,
            compute_capability=capability,
            pci_bus_id=str(gpu.pci_bus_id).lower(),
            uuid=str(gpu.uuid).removeprefix("GPU-").lower(),
        )
        for name, gpu, capability in (
            ("GPU:0", a100, ComputeCapability(8, 0)),
            ("GPU:1", t4, ComputeCapability(7, 5)),
        )
    )


def test_it_takes_nothing_on_any_gpu(gpus: MakeMachine) -> None:
    m = gpus(T4)
    devices_of(answer_on(m))
    assert m.allocations == []
    assert m.calls("cuDevicePrimaryCtxRetain", "cuCtxCreate") == []


def test_a_gpu_that_tensorflow_leaves_out_is_in_its_log_and_keeps_the_ordinals_of_the_others(
    gpus: MakeMachine,
) -> None:
    m = gpus(A100, GT_1030, T4)
    answer = answer_on(m, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    found = devices_of(answer)
    assert [device.name for device in found] == ["GPU:0", "GPU:2"]
    assert [device.pci_bus_id for device in found] == [str(m.gpus[each].pci_bus_id).lower() for each in (0, 2)]
    (left_out,) = [text for text in messages(answer.stderr) if text.startswith("Ignoring visible gpu device")]
    assert "core count" in left_out


def test_a_library_that_is_missing_leaves_an_empty_list_and_tensorflows_own_words(gpus: MakeMachine) -> None:
    answer = answer_on(gpus(T4, missing=[TOOLKITS[toolkit()].libraries[-1]]), TF_CPP_MIN_LOG_LEVEL="3")
    assert devices_of(answer) == ()
    assert any(text.startswith("Cannot dlopen some GPU libraries") for text in messages(answer.stderr))


def test_both_doors_say_the_same(gpus: MakeMachine) -> None:
    m = gpus(T4, A100)
    source = (
        "import json\n"
        "from hwprobe.probe.tensorflow_runtime import read_in_process\n"
        "from hwprobe.serialize import to_builtins\n"
        "devices, initialized, source = read_in_process()\n"
        "print(json.dumps([to_builtins(devices), initialized, source.status.value]))\n"
    )
    (done,) = python_in_forks([Case(m, source)])
    assert done.returncode == 0, done.stderr
    devices, initialized, status = json.loads(done.stdout)
    assert from_builtins(devices, tuple[TensorFlowDevice, ...]) == devices_of(answer_on(m))
    assert (initialized, status) == (False, "ok")


def test_a_context_that_is_up_is_told_and_one_that_is_not_stays_down(gpus: MakeMachine) -> None:
    m = gpus(T4)
    source = (
        "from hwprobe.probe.tensorflow_runtime import read_in_process\n"
        "import tensorflow as tf\n"
        "print(read_in_process()[1])\n"
        "tf.config.set_logical_device_configuration(\n"
        "    tf.config.list_physical_devices('GPU')[0], [tf.config.LogicalDeviceConfiguration(memory_limit=1024)])\n"
        "tf.config.list_logical_devices()\n"
        "print(read_in_process()[1])\n"
    )
    (done,) = python_in_forks([Case(m, source)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "True"]


PACKAGE = {"tensorflow/__init__.py": "", "tensorflow/python/__init__.py": "", "tensorflow/python/eager/__init__.py": ""}

PUBLIC = """
class Device:
    device_type = "GPU"
    name = "/physical_device:GPU:3"

class config:
    list_physical_devices = staticmethod(lambda: [Device()])
    class experimental:
        get_device_details = staticmethod(lambda device: {"device_name": "from the public door"})
"""

CONTEXT = """
class Context:
    def list_physical_devices(self):
        class Device:
            device_type = "GPU"
            name = "/physical_device:GPU:0"
        return [Device()]
    def get_device_details(self, device):
        return {"device_name": "from the private door"}
def context():
    return Context()
"""


def without_tensorflow() -> list[str]:
    return [path for path in sys.path if not (Path(path or ".") / "tensorflow").is_dir()]


def answer_of(folder: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, **variables: str) -> Answer:
    site = Site(folder / "site-packages")
    site.install("tensorflow", "2.99.0", {**PACKAGE, **files})
    monkeypatch.setattr(sys, "path", [str(site.folder), *without_tensorflow()])
    return ask(READER, {}, timeout_seconds=GENEROUS, environment=os.environ | variables)


def descriptions(answer: Answer) -> list[str | None]:
    return [device.description for device in devices_of(answer)]


def test_the_private_door_is_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"tensorflow/__init__.py": PUBLIC, "tensorflow/python/eager/context.py": CONTEXT}
    assert descriptions(answer_of(tmp_path, files, monkeypatch)) == ["from the private door"]


BEHIND_THE_PRIVATE_DOOR = [
    ("is not there", None),
    ("does not import", "import nothing_of_that_name"),
    ("needs the whole package", "import tensorflow\ntensorflow.config"),
    ("has another form", "def context():\n    return None\n"),
    ("has other details", CONTEXT.replace("def get_device_details(self, device)", "def get_device_details(self)")),
    ("ends the process", "import os\nos._exit(0)"),
    ("leaves", "raise SystemExit(0)"),
    ("dies by a signal", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"),
    ("aborts", "import os\nos.abort()"),
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="without fork the public door is the only one")
@pytest.mark.parametrize(
    "context", [case[1] for case in BEHIND_THE_PRIVATE_DOOR], ids=[case[0] for case in BEHIND_THE_PRIVATE_DOOR]
)
def test_whatever_is_wrong_behind_the_private_door_the_public_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str | None
) -> None:
    files = {"tensorflow/__init__.py": PUBLIC}
    if context is not None:
        files["tensorflow/python/eager/context.py"] = context
    answer = answer_of(tmp_path, files, monkeypatch)
    assert descriptions(answer) == ["from the public door"]
    assert answer.data is not None
    assert answer.data["public"] is True


@pytest.mark.parametrize("plugin", ["folder", "variable"])
def test_plugins_are_loaded_by_the_public_door_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugin: str
) -> None:
    files = {"tensorflow/__init__.py": PUBLIC, "tensorflow/python/eager/context.py": CONTEXT}
    if plugin == "folder":
        files["tensorflow-plugins/libacme.so"] = ""
    variables = {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/opt/acme.so"} if plugin == "variable" else {}
    assert descriptions(answer_of(tmp_path, files, monkeypatch, **variables)) == ["from the public door"]


def test_devices_without_cuda_have_no_capability_and_the_driver_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = devices_of(answer_of(tmp_path, {"tensorflow/__init__.py": PUBLIC}, monkeypatch))
    assert found == TensorFlowDevice(name="GPU:3", description="from the public door")


def test_processors_and_xla_devices_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = "".join(
        f"class D{number}:\n    device_type, name = {kind!r}, '/physical_device:{kind}:0'\n"
        for number, kind in enumerate(["CPU", "XLA_CPU", "XLA_GPU", "ACME"])
    )
    text = f"{kinds}{PUBLIC}\nconfig.list_physical_devices = staticmethod(lambda: [D0(), D1(), D2(), D3()])\n"
    (found,) = devices_of(answer_of(tmp_path, {"tensorflow/__init__.py": text}, monkeypatch))
    assert (found.name, found.device_type) == ("ACME:0", "ACME")


def test_without_tensorflow_the_answer_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", without_tensorflow())
    answer = ask(READER, {}, timeout_seconds=GENEROUS)
    assert answer.status is SourceStatus.ABSENT


def test_a_tensorflow_that_does_not_import_fails_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "raise AttributeError('_ARRAY_API not found')"
    answer = answer_of(tmp_path, {"tensorflow/__init__.py": text}, monkeypatch)
    assert answer.status is SourceStatus.FAILED
    assert answer.reason is not None
    assert "AttributeError: _ARRAY_API not found" in answer.reason


REFUSING = """
class errors:
    class OpError(Exception):
        pass

class config:
    def list_physical_devices():
        raise errors.OpError("cudaGetDevice() failed")
    class experimental:
        get_device_details = None
"""


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("import nothing_of_that_name", SourceStatus.FAILED, "No module named 'nothing_of_that_name'"),
        ("raise TypeError('Descriptors cannot be created')", SourceStatus.FAILED, "TypeError: Descriptors cannot"),
        (REFUSING, SourceStatus.FAILED, "OpError: cudaGetDevice() failed"),
        (None, SourceStatus.ABSENT, "No module named 'tensorflow'"),
    ],
    ids=["a module is missing", "protobuf is too new", "TensorFlow's own error", "no TensorFlow"],
)
def test_in_the_users_process_nothing_is_raised(
    tmp_path: Path, text: str | None, status: SourceStatus, reason: str
) -> None:
    site = Site(tmp_path / "site-packages")
    if text is not None:
        site.install("tensorflow", "2.99.0", {"tensorflow/__init__.py": text})
    reader = "tests.probe.tensorflow_readers:in_process_listing"
    answer = ask(reader, {"folder": str(site.folder)}, timeout_seconds=GENEROUS)
    assert answer.data is not None, answer
    assert (answer.data["devices"], answer.data["initialized"]) == (None, None)
    assert answer.data["status"] == status.value
    assert reason in answer.data["reason"]


LOGS = [
    (
        "2.18 and newer",
        "W0000 00:00:1796067898.558485    9460 gpu_device.cc:2365] Cannot dlopen some GPU libraries.\nSkipping\n",
        ("Cannot dlopen some GPU libraries.",),
    ),
    (
        "before 2.18",
        "2026-11-30 20:01:54.756115: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call\n",
        ("failed call",),
    ),
    ("only information", "I0000 00:00:1.2    9 cudart_stub.cc:31] Could not find cuda drivers on your machine\n", ()),
    (
        "a GPU left out is information that matters",
        "I0000 00:00:1.2    9 gpu_device.cc:2343] Ignoring visible gpu device (device: 1) with core count: 3.\n",
        ("Ignoring visible gpu device (device: 1) with core count: 3.",),
    ),
    ("said twice", "W0000 00:00:1.2    9 a.cc:1] same\nW0000 00:00:1.3    9 a.cc:1] same\n", ("same",)),
    ("noise: registered twice", "E0000 00:00:1.2    9 cuda_dnn.cc:8310] cuDNN has already been registered\n", ()),
    ("noise: TensorRT", "2026-11-30 20:01:18.5: W tensorflow/utils/py_utils.cc:38] TF-TRT Warning: Could not\n", ()),
    ("other text", "WARNING: All log messages before absl::InitializeLog()\nTraceback (most recent call last):\n", ()),
    ("nothing", "", ()),
]


@pytest.mark.parametrize(("log", "expected"), [case[1:] for case in LOGS], ids=[case[0] for case in LOGS])
def test_what_matters_is_picked_from_the_log(log: str, expected: tuple[str, ...]) -> None:
    assert messages(log) == expected


def test_a_flood_of_warnings_is_cut() -> None:
    log = "".join(f"W0000 00:00:1.2    9 a.cc:1] {number} {'x' * 1000}\n" for number in range(100))
    kept = messages(log)
    assert [text.split()[0] for text in kept] == [str(number) for number in range(80, 100)]
    assert max(map(len, kept)) == 500
