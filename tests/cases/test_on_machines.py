"""Cases that need the real TensorFlow: what may be called before what, and what a check must not touch."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.machine import T4, Case, Machine, python_in_forks
from tests.schema import valid

ROOT = Path(__file__).parents[2]

SCRIPTS = {
    "C054 an import has initialised TensorFlow": """
        tf.constant(1)
        applied = hwprobe.auto_configure()
        try:
            hwprobe.auto_configure(strict=True)
        except hwprobe.ApplyError as error:
            strict = str(error)
        tell(growth=applied.step("memory_growth").status, policy=policy(), strict=strict)
    """,
    "C055 the context is left alone": """
        hwprobe.auto_configure()
        down = not context.context()._initialized
        cpu = tf.config.list_physical_devices("CPU")[0]
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, halves)
        tell(down=down, cpus=len(tf.config.list_logical_devices("CPU")))
    """,
    "C057 a limit was set before": """
        gpu = tf.config.list_physical_devices("GPU")[0]
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=1024)
        tf.config.set_logical_device_configuration(gpu, [limit])
        applied = hwprobe.auto_configure()
        step = applied.step("memory_growth")
        kept = tf.config.get_logical_device_configuration(gpu)[0].memory_limit
        tell(growth=step.status, why=step.error, kept=kept, policy=policy())
    """,
    "C060 logical devices are never listed": """
        def refuse(*_, **__):
            raise AssertionError("list_logical_devices initialises TensorFlow")
        tf.config.list_logical_devices = tf.config.experimental.list_logical_devices = refuse
        context.Context.list_logical_devices = refuse
        applied = hwprobe.auto_configure()
        tell(complete=applied.complete, policy=policy(), down=not context.context()._initialized)
    """,
    "C096 both Keras of one process": """
        import keras, tf_keras
        hwprobe.auto_configure()
        tell(keras=keras.config.dtype_policy().name, tf_keras=tf_keras.mixed_precision.global_policy().name)
    """,
}

HIDDEN = {
    "C059 no GPU": """
        applied = hwprobe.auto_configure()
        step = applied.step("memory_growth")
        tell(growth=step.status, why=step.error, policy=policy(), complete=applied.complete)
    """,
    "C100 a strategy on the second line": """
        hwprobe.auto_configure()
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        tell(workers=strategy.num_replicas_in_sync)
    """,
}

PREAMBLE = """
import json, os, sys
import tensorflow as tf
from tensorflow.python.eager import context
import hwprobe

def tell(**facts):
    print("told:" + json.dumps(facts))

def policy():
    return tf.keras.mixed_precision.global_policy().name
"""

TF_CONFIG = json.dumps({"cluster": {"worker": ["localhost:23456"]}, "task": {"type": "worker", "index": 0}})


def dedented(source: str) -> str:
    return "\n".join(line[8:] for line in source.splitlines())


@pytest.fixture(scope="module")
def told(machine_of_module: Callable[..., Machine]) -> dict[str, dict[str, Any]]:
    """What each script says on a machine with a T4, some of them with the T4 hidden."""
    m = machine_of_module(gpus=[T4])
    hide = {"CUDA_VISIBLE_DEVICES": "-1"}
    cases = [Case(m, PREAMBLE + dedented(source)) for source in SCRIPTS.values()]
    cases += [Case(m, PREAMBLE + dedented(source), {**hide, "TF_CONFIG": TF_CONFIG}) for source in HIDDEN.values()]
    names = [name.partition(" ")[0] for name in (*SCRIPTS, *HIDDEN)]
    ends = python_in_forks(cases)
    answers: dict[str, dict[str, Any]] = {}
    for name, end in zip(names, ends, strict=True):
        assert end.returncode == 0, f"{name}\n{end.stderr[-2000:]}"
        line = next(line for line in end.stdout.splitlines() if line.startswith("told:"))
        answers[name] = {**json.loads(line.removeprefix("told:")), "stderr": end.stderr}
    return answers


@pytest.fixture(scope="module")
def machine_of_module(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Machine]:
    def make(**facts: Any) -> Machine:
        return Machine(tmp_path_factory.mktemp("machine"), workshop, **facts)

    return make


def test_c054_what_came_too_late_is_said_and_the_rest_is_done(told: dict[str, dict[str, Any]]) -> None:
    said = told["C054"]
    assert (said["growth"], said["policy"]) == ("too_late", "mixed_float16")
    assert "memory_growth of GPU:0" in said["strict"]
    assert "call hwprobe before the first tensor" in said["strict"]
    assert "hwprobe: warning: memory_growth of GPU:0 was not set" in said["stderr"]


def test_c055_a_logical_configuration_still_works_afterwards(told: dict[str, dict[str, Any]]) -> None:
    assert (told["C055"]["down"], told["C055"]["cpus"]) == (True, 2)


def test_c057_a_limit_is_kept_and_growth_left_alone(told: dict[str, dict[str, Any]]) -> None:
    said = told["C057"]
    assert (said["growth"], said["kept"], said["policy"]) == ("skipped", 1024, "mixed_float16")
    assert "sets a limit, which is kept" in said["why"]


def test_c059_without_a_gpu_growth_is_no_question(told: dict[str, dict[str, Any]]) -> None:
    said = told["C059"]
    assert (said["growth"], said["policy"], said["complete"]) == ("skipped", "float32", True)
    assert said["why"] == "TensorFlow lists no GPU"


def test_c060_nothing_that_initialises_is_called(told: dict[str, dict[str, Any]]) -> None:
    said = told["C060"]
    assert (said["complete"], said["policy"], said["down"]) == (True, "mixed_float16", True)


def test_c096_the_policy_is_set_in_both_kerases(told: dict[str, dict[str, Any]]) -> None:
    assert (told["C096"]["keras"], told["C096"]["tf_keras"]) == ("mixed_float16", "mixed_float16")


def test_c100_a_strategy_of_several_workers_can_be_made_on_the_next_line(told: dict[str, dict[str, Any]]) -> None:
    assert told["C100"]["workers"] == 1


TAKES_MEMORY = ("cuCtxCreate*", "cuDevicePrimaryCtxRetain*", "cuMemAlloc*", "cuLaunchKernel*", "cuModuleLoad*")
READS_PROCESSES = ("nvmlDeviceGetComputeRunningProcesses*", "nvmlDeviceGetGraphicsRunningProcesses*")


def test_c045_c062_a_check_takes_nothing_and_asks_for_no_processes(machine: Callable[..., Machine]) -> None:
    """No context, no memory, no kernel that could hang (C020), and no list of processes, which drivers get wrong."""
    m = machine(gpus=[T4.using("3 GiB", by=4294967295)])
    done = m.run([sys.executable, "-m", "hwprobe", "check", "--format", "json"], timeout=240)
    assert valid(done.stdout)["verdict"] == "ready", done.stdout
    assert m.calls("cuInit")
    made = {call.function for call in m.calls()}
    prefixes = tuple(name.rstrip("*") for name in (*TAKES_MEMORY, *READS_PROCESSES))
    assert [name for name in made if name.startswith(prefixes)] == []
    assert m.allocations == []


def test_c052_hwprobe_asks_no_cluster_resolver() -> None:
    imports = {
        name.name if isinstance(node, ast.Import) else f"{node.module}.{name.name}"
        for path in (ROOT / "hwprobe").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert not [name for name in imports if "cluster_resolver" in name.lower() or "ClusterResolver" in name]


class TestLossScaling:
    """C067: a loop that forgets to scale under a scaler that divides."""

    def test_c067_an_update_that_is_off_by_the_scale_is_found(self) -> None:
        keras = pytest.importorskip("keras", minversion="3.0")
        tf = pytest.importorskip("tensorflow")
        from hwprobe.scaling.step_check import verify_scaling

        def forgets(optimizer: Any, variables: Any, compute_loss: Any) -> None:
            with tf.GradientTape() as tape:
                loss = compute_loss()
            optimizer.apply(tape.gradient(loss, variables), variables)

        checked = verify_scaling(keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(1.0)), forgets)
        assert checked.verdict == "loss_not_scaled"
        assert "32768 times too small" in checked.message
