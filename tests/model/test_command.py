"""`hwprobe audit` as it is typed: what it loads, what it refuses, what it prints, how it exits."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hwprobe.cli.audit import audit
from hwprobe.errors import InputError
from hwprobe.model.facts import Audit
from hwprobe.serialize import from_json


@pytest.fixture
def run(keras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Run the command in an empty folder, with modules that are imported there forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(audit, list(arguments))

    yield invoke
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def _write(tmp_path: Path, text: str, name: str = "train.py") -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")


HAZARDOUS = """
import keras
import numpy as np

def make_model():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(3, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    return model

def with_batch():
    return make_model(), (np.ones((4, 8), "float32"), np.arange(4) % 3)

def with_data():
    model, batch = with_batch()
    return model, model.loss, [batch, batch]

def broken():
    return np.full((1e5, 8), 1.0)

def needs(argument):
    return argument

def four():
    return 1, 2, 3, 4

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(8, dtype="mixed_float16")
        self.head = keras.layers.Dense(3)

    def call(self, inputs):
        return self.head(self.inner(inputs))

def unbuilt():
    return Own()

def unbuilt_with_batch():
    return Own(), np.ones((4, 8), "float32")

def unbuilt_with_a_wrong_batch():
    return Own(), "text"

def no_data():
    return make_model(), "mse", 5

def broken_data():
    def batches():
        raise OSError("the disk is gone")
        yield
    return make_model(), "mse", batches()

not_a_function = 7
"""


def test_a_factory_is_audited_and_the_exit_status_follows_the_worst_finding(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    _write(tmp_path, HAZARDOUS)
    lenient = run("train:make_model")
    assert lenient.exit_code == 0, lenient.output
    assert "warning HWP630 dense_" in lenient.output
    assert "give dense_" in lenient.output
    assert run("train:make_model", "--fail-on", "warning").exit_code == 1


@pytest.mark.parametrize("factory", ["with_batch", "with_data"])
def test_a_factory_may_bring_a_batch(run: Callable[..., Result], tmp_path: Path, factory: str) -> None:
    _write(tmp_path, HAZARDOUS)
    result = run(f"train:{factory}", "--format", "json")
    answer = from_json(result.stdout, Audit)
    assert answer.probe.passes[0].batch == "given"
    assert answer.probe.loss == "compiled"


def test_a_model_without_weights_gets_them_from_its_batch_and_is_unknown_without_one(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    _write(tmp_path, HAZARDOUS)
    built = run("train:unbuilt_with_batch")
    assert built.exit_code == 0, built.output
    assert "probed in float32 and mixed_float16 on: given" in built.output
    unbuilt = run("train:unbuilt")
    assert unbuilt.exit_code == 3
    assert "it was not probed (the model is not built yet" in unbuilt.output
    assert unbuilt.output.count("the model is not built yet") == 1


def test_the_layers_are_listed_on_request(run: Callable[..., Result], tmp_path: Path) -> None:
    _write(tmp_path, HAZARDOUS)
    assert "differs by" in run("train:with_batch", "--layers").output
    assert "differs by" not in run("train:with_batch").output


def test_a_saved_model_is_audited(run: Callable[..., Result], keras: Any, tmp_path: Path) -> None:
    keras.config.set_dtype_policy("float32")
    keras.Sequential([keras.Input((8,)), keras.layers.Dense(3, activation="softmax")]).save(tmp_path / "model.keras")
    plain = run("model.keras")
    assert plain.exit_code == 0
    assert "none in 16 bits" in plain.output
    assert "HWP630" in run("model.keras", "--dtype-policy", "mixed_float16").output


def test_the_answer_can_go_to_a_file(run: Callable[..., Result], tmp_path: Path) -> None:
    _write(tmp_path, HAZARDOUS)
    result = run("train:make_model", "--format", "json", "--output", "audit.json")
    assert result.stdout == ""
    assert json.loads((tmp_path / "audit.json").read_text())["schema"] == "hwprobe.audit/1"


def test_code_in_a_file_is_refused_and_another_way_is_named(
    run: Callable[..., Result], keras: Any, tmp_path: Path
) -> None:
    keras.Sequential([keras.Input((8,)), keras.layers.Lambda(lambda x: x * 2.0)]).save(tmp_path / "lambda.keras")
    error = run("lambda.keras").exception
    assert isinstance(error, InputError)
    assert "never run" in str(error)
    assert "module:factory" in str(error)


def test_a_class_of_ones_own_is_not_known_to_a_file(run: Callable[..., Result], keras: Any, tmp_path: Path) -> None:
    class Own(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs

    keras.Sequential([keras.Input((8,)), Own()]).save(tmp_path / "own.keras")
    error = run("own.keras").exception
    assert isinstance(error, InputError)
    assert "module:factory" in str(error)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("missing.keras", "missing.keras does not exist"),
        ("text.keras", "not a .keras file"),
        ("weights.h5", "expected FILE.keras or module:factory"),
        ("train", "expected FILE.keras or module:factory"),
        ("train:", "expected FILE.keras or module:factory"),
        ("train.py:make_model", "no module"),
        ("my-script:make_model", "write train, not train.py"),
        ("nowhere:make_model", "there is no module 'nowhere'"),
        ("imports_missing:make", "No module named 'surely_not_here'"),
        ("syntax:make", "SyntaxError"),
        ("raises:make", "importing raises failed: RuntimeError: no licence"),
        ("train:make_modell", "did you mean make_model?"),
        ("train:not_a_function", "is a int, not a function"),
        ("train:broken", "train.py:18"),
        ("train:needs", "TypeError"),
        ("train:no_data", "train:no_data: its data gives no batch: TypeError: 'int' object is not iterable"),
        ("train:broken_data", "its data gives no batch: OSError: the disk is gone"),
        ("train:unbuilt_with_a_wrong_batch", "the model cannot be called on its batch: "),
    ],
)
def test_a_target_that_cannot_be_loaded_is_named_in_one_sentence(
    run: Callable[..., Result], tmp_path: Path, target: str, words: str
) -> None:
    _write(tmp_path, HAZARDOUS)
    _write(tmp_path, "import surely_not_here", "imports_missing.py")
    _write(tmp_path, "def make(:", "syntax.py")
    _write(tmp_path, "raise RuntimeError('no licence')", "raises.py")
    _write(tmp_path, "not a zip", "text.keras")
    _write(tmp_path, "not a model", "weights.h5")
    error = run(target).exception
    assert isinstance(error, InputError)
    assert words in str(error)
    assert "\n" not in str(error)


def test_a_factory_that_returns_something_else_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    _write(tmp_path, HAZARDOUS)
    result = run("train:four")
    assert result.exit_code == 2
    assert "returned 4 things" in result.output


def test_what_was_not_checked_is_said(run: Callable[..., Result], tmp_path: Path) -> None:
    _write(
        tmp_path,
        """
import keras
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(1)
    def call(self, inputs):
        return self.head(inputs)
def make():
    return Own()
""",
    )
    output = run("train:make").output
    assert "it was not probed" in output
    assert "not checked:" in output


def test_a_name_from_a_file_cannot_move_the_cursor(run: Callable[..., Result], tmp_path: Path) -> None:
    _write(
        tmp_path,
        r"""
import keras
def make():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, name="\x1b[2J")], name="\x1b[2Jmodel")
""",
    )
    assert "\x1b" not in run("train:make").output
