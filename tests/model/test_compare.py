"""Comparisons that are really trained: the same starts, the pattern of the loss scalings, early ends, user's models."""

import itertools
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from hwprobe.cli.compare import compare
from hwprobe.comparison import running
from hwprobe.comparison.factory import factory_task
from hwprobe.comparison.facts import Comparison, TaskResult, VariantResult
from hwprobe.comparison.running import compare_tasks
from hwprobe.comparison.tasks import BUILTIN_TASKS, Task, builtin_task
from hwprobe.comparison.training import build_under, memory_of
from hwprobe.comparison.variants import parse_variants
from hwprobe.errors import InputError
from hwprobe.serialize import from_json

PATTERN = (
    "float32,mixed_float16:dynamic,mixed_float16:static=auto,mixed_float16:static=2^24,mixed_float16:none,"
    "mixed_bfloat16"
)


def _task(name: str) -> Task:
    if name.startswith("digits"):
        pytest.importorskip("sklearn", reason="the digits ship inside of scikit-learn")
    return builtin_task(name)


def _measure(
    keras: Any, task: str, variants: str = PATTERN, **options: Any
) -> tuple[TaskResult, dict[str, VariantResult]]:
    keras.config.set_dtype_policy("float32")
    result = compare_tasks([_task(task)], parse_variants(variants), **{"seeds": 2, **options})
    return result.tasks[0], {variant.variant: variant for variant in result.tasks[0].variants}


@pytest.mark.parametrize("task", ["digits_mlp", "regression_large"])
def test_too_large_a_static_scale_loses_its_runs_and_nothing_else_does(keras: Any, task: str) -> None:
    _, by_name = _measure(keras, task, steps=100)
    assert by_name["mixed_float16:static=2^24"].lost == 2
    assert sum(variant.lost for variant in by_name.values()) == 2
    automatic, bfloat16, float32 = (
        by_name[name] for name in ("mixed_float16:static=auto", "mixed_bfloat16", "float32")
    )
    assert automatic.loss_scaling is not None
    assert automatic.loss_scaling.mode == "static"
    assert bfloat16.loss_scaling is not None
    assert bfloat16.loss_scaling.mode == "none"
    assert bfloat16.metric is not None
    assert float32.metric is not None
    assert bfloat16.metric.mean == pytest.approx(float32.metric.mean, rel=0.1)


def test_a_dynamic_scale_comes_down_at_the_cost_of_a_few_steps(keras: Any) -> None:
    _, by_name = _measure(keras, "regression_large", "float32,mixed_float16:dynamic", steps=60)
    for run in by_name["mixed_float16:dynamic"].runs:
        assert run.skipped_steps is not None
        assert 8 <= run.skipped_steps <= 16
        assert run.first_bad_step == 0
        assert run.non_finite_steps == run.skipped_steps
        assert run.scales[-1] == run.scales[0] * 2.0 ** (1 - run.skipped_steps)


def test_tiny_gradients_vanish_without_scaling_and_only_then(keras: Any) -> None:
    task, by_name = _measure(keras, "regression_tiny", steps=200)
    assert sum(variant.lost for variant in by_name.values()) == 0
    zero_shares: dict[str, Any] = {name: variant.zero_share for name, variant in by_name.items()}
    assert zero_shares["mixed_float16:none"] > 0.9
    assert all(share < 0.3 for name, share in zero_shares.items() if not name.endswith(":none"))
    assert any(sentence.startswith("mixed_float16:none has a worse") for sentence in task.verdict)
    scaling = by_name["mixed_float16:static=auto"].loss_scaling
    assert scaling is not None
    assert scaling.initial_scale is not None
    assert scaling.initial_scale > 2.0**14


@pytest.mark.parametrize("task", ["digits_cnn", "text"])
def test_the_larger_tasks_learn_in_float16_too(keras: Any, task: str) -> None:
    variants = "float32,mixed_float16:dynamic,mixed_float16:static=2^24"
    _, by_name = _measure(keras, task, variants, steps=30, seeds=1)
    assert by_name["mixed_float16:static=2^24"].lost == 1
    for name in ("float32", "mixed_float16:dynamic"):
        losses: Any = by_name[name].runs[0].losses
        assert np.mean(losses[-5:]) < np.mean(losses[:5])
    reference, mixed = (by_name[name].runs[0].losses for name in ("float32", "mixed_float16:dynamic"))
    assert mixed[0] == pytest.approx(reference[0], rel=0.01)


def test_every_variant_starts_from_the_same_weights_on_the_same_data(keras: Any) -> None:
    _, by_name = _measure(keras, "digits_mlp", "mixed_bfloat16,float32,mixed_float16:none", steps=6)
    for seed in range(2):
        first: list[Any] = [variant.runs[seed].losses[0] for variant in by_name.values()]
        assert max(first) - min(first) < 0.02
    losses = {variant.runs[seed].losses[0] for variant in by_name.values() for seed in range(2)}
    assert len(losses) > 3, "the seeds start from different weights"


def test_the_global_policy_is_the_same_afterwards(keras: Any) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert build_under(lambda: keras.layers.Dense(1).compute_dtype, "mixed_float16") == "float16"
    with pytest.raises(RuntimeError):
        build_under(_fail, "float32")
    assert keras.config.dtype_policy().name == "mixed_bfloat16"


def _fail() -> None:
    raise RuntimeError("no")


def _interrupt_after(calls: int) -> Callable[[str, int, int], None]:
    def progress(what: str, done: int, total: int) -> None:
        if what.endswith("training") and done >= calls:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_comparison_keeps_what_was_measured(keras: Any) -> None:
    keras.config.set_dtype_policy("float32")
    tasks = [builtin_task("regression_large"), builtin_task("regression_tiny")]
    result = compare_tasks(
        tasks, parse_variants("float32,mixed_bfloat16"), seeds=3, steps=10, progress=_interrupt_after(14)
    )
    assert result.stopped == "interrupted"
    assert [task.task for task in result.tasks] == ["regression_large"]
    assert [[run.steps for run in variant.runs] for variant in result.tasks[0].variants] == [[10, 4], [10, 4]]


def test_the_time_limit_ends_a_comparison_too(keras: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keras.config.set_dtype_policy("float32")
    seconds = itertools.count()
    # A clock that moves on by a second each time that somebody looks at it.
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    result = compare_tasks(
        [builtin_task("regression_large")], parse_variants("float32"), steps=10**6, time_limit_seconds=3.0
    )
    assert result.stopped == "time limit"
    assert result.tasks[0].variants[0].runs[0].steps == 3


def test_a_task_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="digits_mlp"):
        builtin_task("imagenet")


def test_missing_scikit_learn_is_named_with_its_extra(keras: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"tf-hwprobe\[compare\]"):
        builtin_task("digits_mlp")


@pytest.mark.parametrize("name", BUILTIN_TASKS)
def test_the_data_of_a_task_depends_on_the_seed_alone(keras: Any, name: str) -> None:
    task = _task(name)
    one, same, other = (next(task.batches(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one[0], same[0])
    assert not np.array_equal(one[0], other[0])


class _Memory:
    """Stands in for `tf.config.experimental` on a GPU."""

    def __init__(self) -> None:
        self.info = {"current": 100, "peak": 900}

    def reset_memory_stats(self, device: str) -> None:
        self.info["peak"] = self.info["current"]

    def get_memory_info(self, device: str) -> dict[str, int]:
        return dict(self.info)


def test_a_device_that_tells_is_asked_for_the_peak_above_what_is_resident() -> None:
    memory = _Memory()
    assert memory_of(lambda: memory.info.update(peak=700), memory, "GPU:0") == 600


def test_a_device_that_does_not_tell_still_does_the_work(keras: Any) -> None:
    import tensorflow as tf

    done = []
    assert memory_of(lambda: done.append(1), tf.config.experimental, "CPU:0") is None
    assert done == [1]


FACTORIES = """
import keras
import numpy as np

def _model():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1, dtype="float32")])

def _data():
    generator = np.random.default_rng(0)
    return [(x, x.sum(axis=1, keepdims=True)) for x in generator.normal(size=(6, 8, 4)).astype("float32")]

def make():
    return _model(), "mse", _data()

def compiled():
    model = _model()
    model.compile(keras.optimizers.SGD(0.05), keras.losses.mean_squared_error)
    return model, None, (batch for batch in _data())

def unbuilt():
    return keras.Sequential([keras.layers.Dense(1)]), "mse", _data()

def two():
    return _model(), "mse"

def no_loss():
    return _model(), None, _data()

def no_data():
    return _model(), "mse", []

def wrong_shape():
    return _model(), "mse", [(np.ones((8, 99), "float32"), np.ones((8, 1), "float32"))]

def broken_data():
    def batches():
        yield _data()[0]
        raise OSError("the disk is gone")
    return _model(), "mse", batches()

def weighted():
    return _model(), "mse", [(x, y, np.ones(8)) for x, y in _data()]
"""


@pytest.fixture
def folder(keras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "my_task.py").write_text(FACTORIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("my_task", None)


@pytest.mark.parametrize("factory", ["make", "compiled", "unbuilt"])
def test_a_users_model_is_compared(folder: Path, factory: str) -> None:
    small = ["--variants", "float32,mixed_float16:dynamic", "--seeds", "2", "--steps", "30"]
    result = CliRunner().invoke(
        compare,
        [f"my_task:{factory}", *small, "--format", "json", "--html", "report.html"],
    )
    assert result.exit_code == 0, result.output
    answer = from_json(result.stdout, Comparison)
    losses: Any = answer.tasks[0].variants[1].runs[0].losses
    assert losses[-1] < losses[0]
    assert [variant.variant for variant in answer.tasks[0].variants] == ["float32", "mixed_float16:dynamic"]
    assert "<svg" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("two", "returned 2 things"),
        ("no_loss", "gave no loss"),
        ("no_data", "no batch"),
        ("weighted", "sample weights are not used"),
        ("missing", "has no 'missing'"),
    ],
)
def test_a_factory_that_does_not_fit_is_refused(folder: Path, factory: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        factory_task(f"my_task:{factory}")


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("wrong_shape", "my_task:wrong_shape: ValueError: Exception encountered when calling"),
        ("broken_data", "my_task:broken_data: OSError: the disk is gone"),
    ],
)
def test_what_a_users_code_raises_while_it_trains_is_told_in_one_sentence(
    folder: Path, factory: str, words: str
) -> None:
    result = CliRunner().invoke(
        compare, [f"my_task:{factory}", "--variants", "float32", "--seeds", "1", "--steps", "4"]
    )
    assert isinstance(result.exception, InputError), result.exception
    assert words in str(result.exception)
    assert str(result.exception).isprintable()
    assert "Arguments received" not in str(result.exception)
    assert "compare.py" not in str(result.exception)


def test_a_model_of_tf_keras_is_refused(folder: Path) -> None:
    pytest.importorskip("tf_keras")
    (folder / "old_task.py").write_text(
        "import tf_keras\ndef make():\n    return tf_keras.Sequential([tf_keras.layers.Dense(1)]), 'mse', [1]\n"
    )
    with pytest.raises(InputError, match="Keras 3"):
        factory_task("old_task:make")
    del sys.modules["old_task"]


def test_the_command_prints_a_table_and_a_verdict(folder: Path) -> None:
    result = CliRunner().invoke(
        compare, ["--task", "regression_large", "--variants", "float32,mixed_bfloat16", "--seeds", "2", "--steps", "8"]
    )
    assert result.exit_code == 0, result.output
    assert "regression_large: regression on targets of 1000" in result.output
    assert "- no run was lost in any of 2 variants" in result.output


def test_a_factory_and_a_task_are_one_too_many(folder: Path) -> None:
    result = CliRunner().invoke(compare, ["my_task:make", "--task", "text"])
    assert result.exit_code == 2
    assert "not both" in result.output


@pytest.mark.parametrize("option", ["--html", "--output"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_trained(folder: Path, option: str) -> None:
    result = CliRunner().invoke(compare, ["--task", "regression_large", option, "missing/report"])
    assert result.exit_code == 2
    assert "cannot be written" in result.output


def test_the_result_can_go_to_a_file(folder: Path) -> None:
    arguments = ["--task", "regression_large", "--variants", "float32", "--seeds", "1", "--steps", "5"]
    result = CliRunner().invoke(compare, [*arguments, "--format", "json", "--output", "compare.json"])
    assert result.stdout == ""
    assert json.loads((folder / "compare.json").read_text())["schema"] == "hwprobe.compare/1"


def _read(descriptor: int, seen: bytearray) -> None:
    """Read a terminal to its end, so that whoever writes to it never waits."""
    try:
        while text := os.read(descriptor, 65536):
            seen += text
    except OSError:
        # What Linux says when the last one who had the terminal open is gone.
        pass


def test_ctrl_c_shows_what_was_measured_and_a_terminal_sees_the_bar() -> None:
    arguments = ["--task", "regression_large", "--variants", "float32", "--seeds", "1", "--steps", "1000000"]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hwprobe", "compare", *arguments, "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    seen = bytearray()
    reader = threading.Thread(target=_read, args=(master, seen))
    reader.start()
    try:
        until = time.monotonic() + 300.0
        while b"regression_large: training" not in seen and time.monotonic() < until:
            time.sleep(0.05)
        assert b"regression_large: training" in seen
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(master)
    assert process.returncode == 130
    answer = from_json(stdout, Comparison)
    assert answer.stopped == "interrupted"
    assert answer.tasks[0].variants[0].runs[0].steps > 0
