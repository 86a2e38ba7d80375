"""The same few things in every environment of the matrix: check, auto_configure, run, loss scaling, and the tables.

`make test` runs them in its own environment, `make matrix` in all of them.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from hwprobe.knowledge.tensorflow import library_packages, release, sonames
from hwprobe.knowledge.versions import cuda_release, cudnn_major
from hwprobe.probe.elf import read_search_path
from hwprobe.probe.fatbin import read_compute_capabilities
from hwprobe.probe.tensorflow_build import parse_build_info, read_build
from tests.machine import A100, T4, Case, Machine, python_in_forks
from tests.matrix.environments import Expected, expected_here

MakeMachine = Callable[..., Machine]
GENEROUS = 300
BOARDS = {"no GPU": (), "T4": (T4,), "A100": (A100,)}


@pytest.fixture(scope="module")
def expected() -> Expected:
    return expected_here()


@pytest.fixture
def make(machine: MakeMachine, expected: Expected) -> Callable[[str], Machine]:
    """Makes a machine with the named board and the CUDA libraries that the TensorFlow of this environment opens."""

    def of(board: str) -> Machine:
        gpus = BOARDS[board]
        driver = "580.95.05" if gpus else None
        return machine(gpus=gpus, toolkit=expected.toolkit, cudnn=expected.cudnn, driver=driver)

    return of


def policy_on(expected: Expected, board: str) -> str:
    return {"no GPU": "float32", "T4": expected.t4, "A100": expected.a100}[board]


def each(expected: Expected, machines: Sequence[Machine], source: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs the source on each machine, behind one import of TensorFlow where several can share it."""
    variables = dict(expected.variables)
    # What TensorFlow loads at its import is in the folder of one machine, and one without a driver has other libraries.
    together = [m for m in machines if expected.on_tensorflow and "libcuda.so.1" in m.libraries]
    forked = iter(python_in_forks([Case(m, source, variables) for m in together]) if together else ())
    return [next(forked) if m in together else m.python(source, timeout=GENEROUS, **variables) for m in machines]


def answer(end: subprocess.CompletedProcess[str]) -> Any:
    assert end.returncode == 0, end.stderr[-3000:]
    return json.loads(end.stdout.splitlines()[-1])


def build_facts() -> tuple[Path, dict[str, Any]]:
    tensorflow, _, _ = read_build()
    assert tensorflow is not None
    assert tensorflow.location is not None
    location = Path(tensorflow.location)
    return location, parse_build_info((location / "python/platform/build_info.py").read_text(encoding="utf-8"))


def test_this_is_the_environment_that_is_meant(expected: Expected) -> None:
    python = ".".join(platform.python_version_tuple()[:2])
    assert python in expected.python or not expected.python
    tensorflow, keras, _ = read_build()
    assert (None if tensorflow is None else tensorflow.version) == expected.tensorflow
    if expected.keras is not None:
        assert keras is not None
        assert keras.legacy is ("TF_USE_LEGACY_KERAS" in expected.variables)
        version = keras.tf_keras_version if keras.legacy else keras.version
        assert version is not None
        assert (version.startswith("3")) is (expected.keras == 3)
    if expected.nvml_binding is not None:
        assert metadata.version("nvidia-ml-py") == expected.nvml_binding


def test_the_table_of_releases_says_what_the_build_says(expected: Expected) -> None:
    if expected.tensorflow is None:
        assert read_build()[0] is None
        return
    known = release(expected.tensorflow)
    assert known is not None
    assert known.known
    location, facts = build_facts()
    assert facts["is_cuda_build"] is bool(expected.architectures)
    recorded = facts.get("cuda_compute_capabilities")
    assert (recorded is not None) is (known.cuda_recorded and bool(expected.architectures))
    if recorded is not None:
        assert tuple(recorded) == known.architectures
        assert cuda_release(facts["cuda_version"]) == cuda_release(known.cuda)
        assert cudnn_major(facts["cudnn_version"]) == cudnn_major(known.cudnn_minimum)
    wheel = metadata.distribution("tensorflow" if expected.architectures else "tensorflow-cpu")
    assert ("and-cuda" in wheel.metadata.get_all("Provides-Extra", [])) is known.and_cuda
    requirements = [text for text in wheel.requires or () if text.startswith("keras") and "extra" not in text]
    assert len(requirements) == 1
    assert location.name == "tensorflow"


def test_the_table_names_the_versions_that_do_not_look_where_the_wheels_put_their_libraries(expected: Expected) -> None:
    if not expected.architectures:
        tensorflow, _, _ = read_build()
        assert tensorflow is None or not tensorflow.is_cuda_build
        return
    assert expected.tensorflow is not None
    known = release(expected.tensorflow)
    assert known is not None
    location, _ = build_facts()
    searched = read_search_path(str(location / "libtensorflow_framework.so.2")).folders
    package_of = {row.library: row.package for row in library_packages()}
    wanted = {package_of[name.partition(".so")[0]] for name in sonames(known.cuda, known.cudnn_minimum, "Linux")}
    overlooked = {
        package
        for package in wanted
        if not any(folder.endswith(f"/nvidia/{package.replace('-', '_')}/lib") for folder in searched)
    }
    assert bool(overlooked) is (known.misses_pip_libraries(expected.tensorflow) or not known.and_cuda), overlooked


def test_the_fat_binaries_hold_what_the_table_says(expected: Expected) -> None:
    if expected.tensorflow is None:
        assert read_build()[0] is None
        return
    location, facts = build_facts()
    found = read_compute_capabilities(str(location))
    assert found == expected.architectures
    known = release(expected.tensorflow)
    assert known is not None
    if found:
        # build_info.py names one entry for machine code and PTX; the libraries hold both.
        assert set(known.architectures) <= set(found)
        assert {entry.replace("compute_", "sm_") for entry in known.architectures} == set(found) - {found[-1]}
    tensorflow, _, _ = read_build()
    assert tensorflow is not None
    assert tensorflow.compute_capabilities_origin == (
        None if not found else "fatbin" if "cuda_compute_capabilities" not in facts else "build_info"
    )


@pytest.mark.parametrize("board", ["no GPU", "A100"])
def test_check(board: str, make: Callable[[str], Machine], expected: Expected) -> None:
    m = make(board)
    command = [sys.executable, "-m", "hwprobe", "check", "--format", "json"]
    done = m.run(command, timeout=GENEROUS, **expected.variables)
    said = json.loads(done.stdout)
    decision, report = said["decision"], said["report"]
    assert decision["dtype_policy"] == policy_on(expected, board), said["findings"]
    scaled = decision["dtype_policy"] == "mixed_float16"
    assert decision["loss_scaling"]["mode"] == ("dynamic" if scaled else "none")
    primary = [finding["id"] for finding in said["findings"] if finding["primary"]]
    assert done.returncode == expected.exit_status[board == "A100"], said["findings"]
    if board == "A100":
        assert primary == ([expected.finding] if expected.finding else []), said["findings"]
    sources = {name: source["status"] for name, source in report["sources"].items()}
    assert sources["nvml"] == sources["cuda"] == ("ok" if BOARDS[board] else "absent"), report["sources"]
    assert sources["tensorflow_build"] == ("ok" if expected.tensorflow else "absent")
    assert sources["tensorflow_runtime"] == ("ok" if expected.tensorflow else "absent"), report["sources"]
    listed = [device["tensorflow_name"] for device in report["devices"]]
    has_code = bool(expected.architectures)
    assert listed == [f"GPU:{number}" if has_code else None for number in range(len(BOARDS[board]))]
    if BOARDS[board]:
        assert report["driver"]["nvml_binding"] == metadata.version("nvidia-ml-py")
        foreign = report["driver"]["foreign_pynvml"]
        assert (foreign is not None) is (expected.name == "no-tensorflow"), foreign


CONFIGURE = """
import json, os, sys
import hwprobe
applied, again = (hwprobe.auto_configure(quiet=True) for _ in range(2))
imported = "tensorflow" in sys.modules
said = {
    "dtype_policy": applied.decision.dtype_policy,
    "again": sorted({step.status for step in again.steps}),
    "complete": applied.complete and again.complete,
    "in_force": bool(hwprobe.verify()),
    "errors": [step.error for step in applied.steps if step.status not in ("changed", "unchanged", "skipped")],
    "imported": imported,
}
try:
    if "KERAS_BACKEND" in os.environ:
        import keras
    else:
        from tensorflow import keras
    said["keras"] = keras.mixed_precision.global_policy().name
    said["generation"] = 3 if hasattr(keras, "ops") else 2
except ModuleNotFoundError as error:
    said["keras"] = str(error)
if imported:
    import tensorflow as tf
    from tensorflow.python.eager import context
    said["growth"] = [tf.config.experimental.get_memory_growth(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    said["left_down"] = not context.context()._initialized
said["imported_later"] = "tensorflow" in sys.modules
print(json.dumps(said))
"""


def test_auto_configure(make: Callable[[str], Machine], expected: Expected) -> None:
    ends = each(expected, [make(board) for board in BOARDS], CONFIGURE)
    for board, end in zip(BOARDS, ends, strict=True):
        said = answer(end)
        policy = policy_on(expected, board)
        assert (board, said["dtype_policy"], said["errors"]) == (board, policy, [])
        assert (said["complete"], said["in_force"]) == (True, True), said
        assert set(said["again"]) <= {"unchanged", "skipped"}
        assert said["imported"] is said["imported_later"] is expected.on_tensorflow
        if expected.keras is None:
            assert said["keras"] == "No module named 'tensorflow'"
        else:
            assert (said["keras"], said["generation"]) == (policy, expected.keras)
        if expected.on_tensorflow:
            assert said["growth"] == [True] * len(BOARDS[board] if expected.lists_gpus else ())
            assert said["left_down"]


RUN = """
import os, sys
assert sys.argv[1:] == ["--policy", "the script's own"]
if "KERAS_BACKEND" in os.environ:
    import keras
else:
    from tensorflow import keras
import hwprobe
print(keras.mixed_precision.global_policy().name, bool(hwprobe.verify()))
print("tensorflow" in sys.modules)
sys.exit(5)
"""


def test_run(make: Callable[[str], Machine], expected: Expected, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RUN)
    command = [sys.executable, "-m", "hwprobe", "run", str(script), "--policy", "the script's own"]
    done = make("T4").run(command, timeout=GENEROUS, **expected.variables)
    if expected.keras is None:
        assert done.returncode == 1
        assert "ModuleNotFoundError: No module named 'tensorflow'" in done.stderr
        assert "hwprobe: nothing was configured" in done.stderr
    else:
        assert done.returncode == 5, done.stderr
        assert done.stdout.split() == [expected.t4, "True", str(expected.on_tensorflow)]


STEP = """
import json, os
import numpy
import hwprobe
from hwprobe.scaling import read_scaling
if "KERAS_BACKEND" in os.environ:
    import keras
else:
    from tensorflow import keras

def one_step(model, value):
    before = model.get_weights()[0]
    model.train_on_batch(numpy.array([[value]], "float32"), numpy.array([[0.0]], "float32"))
    return bool((model.get_weights()[0] != before).any())

said = {}
for scaling in ("dynamic=1024", "static=1024"):
    layer = keras.layers.Dense(1, use_bias=False, dtype="mixed_float16")
    model = keras.Sequential([keras.Input(shape=(1,)), layer])
    optimizer = hwprobe.wrap_optimizer(keras.optimizers.SGD(0.125), scaling)
    model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    moved = [one_step(model, value) for value in (1.0, numpy.inf, 1.0)]
    said[scaling] = [moved, read_scaling(model.optimizer).scale, bool(numpy.isfinite(model.get_weights()[0]).all())]
print(json.dumps(said))
"""


def test_a_step_that_overflows_changes_no_weight_and_halves_a_dynamic_scale(
    make: Callable[[str], Machine], expected: Expected
) -> None:
    if expected.keras is None:
        pytest.skip("there is no Keras in this environment, nor should there be")
    (end,) = each(expected, [make("no GPU")], textwrap.dedent(STEP))
    assert answer(end) == {
        "dynamic=1024": [[True, False, True], 512.0, True],
        "static=1024": [[True, False, True], 1024.0, True],
    }
