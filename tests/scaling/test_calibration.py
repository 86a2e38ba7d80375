"""Calibration on tasks whose gradients lie in known places."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hwprobe.cli.calibrate import calibrate as command
from hwprobe.configuration import LossScaling
from hwprobe.errors import InputError, UnsupportedError
from hwprobe.scaling import Calibration, calibrate_loss_scale, wrap_optimizer
from hwprobe.scaling.calibration import GradientRange, ScaleEffect, ShadowRun
from hwprobe.serialize import from_json, to_json
from tests.scaling import tasks

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
pytest.importorskip("sklearn")

EVERY_FIELD = Calibration(
    verdict="static",
    reason="6 bits from either end",
    scale=128.0,
    lowest_bits=1,
    highest_bits=13,
    model="characters",
    steps=60,
    losses=(4.6, 2.4),
    largest=0.894,
    smallest_step_largest=0.05,
    percentile_9999=0.0625,
    effects=(ScaleEffect(scale=128.0, headroom_bits=9.2, lost_share=0.0001, subnormal_share=0.04),),
    ranges=(
        GradientRange(
            name="output of dense", elements=9, zero_share=0.5, largest=0.1, lowest_bits=-2, highest_bits=None
        ),
    ),
    limits_above="weight places/places",
    limits_below="output of dense",
    drift_bits=-2.7,
    later_drift_bits=1.5,
    shadow_runs=(ShadowRun(scale=128.0, steps=50, overflows=1, zero_share=0.1, float32_zero_share=0.09),),
    histogram=(0, 3, 5),
    histogram_from=-7,
)


@functools.cache
def calibrated(name: str) -> Calibration:
    """Calibrate a task of mixed_float16, once for all tests."""
    task = tasks.TASKS[name](keras, count=40)
    return calibrate_loss_scale(task.model, task.loss, task.batches, 40, optimizer=task.optimizer)


def train(name: str, scaling: LossScaling | None, steps: int, seed: int = 0) -> tuple[Any, float]:
    """Train one of the tasks under the policy in force, and give its model and the last batch's loss."""
    task = tasks.TASKS[name](keras, seed=seed, count=steps + 1)
    optimizer = task.optimizer if scaling is None else wrap_optimizer(task.optimizer, scaling)
    task.model.compile(optimizer, task.loss, auto_scale_loss=False)
    x, y = (np.concatenate(part) for part in zip(*task.batches[:steps], strict=True))
    task.model.fit(x, y, batch_size=len(task.batches[0][0]), shuffle=False, verbose=0)
    held_x, held_y = task.batches[-1]
    return task.model, float(task.loss(held_y, task.model(held_x)))


@pytest.mark.parametrize(
    ("name", "lowest", "highest"), [("mlp", -2, 16), ("deep", -3, 15), ("reg", -10, 0), ("tinyreg", 14, 21)]
)
def test_the_interval_is_where_the_gradients_of_the_task_put_it(
    mixed_float16: None, name: str, lowest: int, highest: int
) -> None:
    calibration = calibrated(name)
    assert calibration.lowest_bits == pytest.approx(lowest, abs=2)
    assert calibration.highest_bits == pytest.approx(highest, abs=2)
    assert calibration.steps == 40
    assert [each.overflows for each in calibration.shadow_runs][-1] == 0


def test_gradients_that_span_more_than_float16_holds_ask_for_dynamic(mixed_float16: None) -> None:
    calibration = calibrated("two_sizes")
    assert calibration.verdict == "dynamic"
    assert calibration.lowest_bits > calibration.highest_bits
    assert (calibration.midpoint, calibration.shadow_runs) == (None, ())
    assert calibration.loss_scaling == LossScaling.dynamic()
    assert "unsafe" in str(calibration)


def test_a_model_with_room_on_both_sides_needs_no_scaling(mixed_float16: None) -> None:
    calibration = calibrated("deep")
    assert (calibration.verdict, calibration.scale) == ("none", 1.0)
    assert calibration.loss_scaling == LossScaling.none()


def test_gradients_that_are_lost_without_scaling_train_in_the_middle_of_the_interval(mixed_float16: None) -> None:
    calibration = calibrated("scaled_down")
    assert calibration.verdict == "static"
    effect = {each.scale: each.lost_share for each in calibration.effects}
    assert effect[1.0] > 0.5
    assert calibration.scale is not None
    assert effect[calibration.scale] < 0.001
    _, scaled = train("scaled_down", calibration.loss_scaling, 200)
    _, unscaled = train("scaled_down", None, 200)
    keras.config.set_dtype_policy("float32")
    _, truth = train("scaled_down", None, 200)
    assert scaled == pytest.approx(truth, rel=0.3)
    assert unscaled > 4 * truth


def test_large_gradients_ask_for_a_scale_below_one_which_trains_where_128_does_not(mixed_float16: None) -> None:
    calibration = calibrated("reg")
    assert calibration.midpoint is not None
    assert calibration.midpoint < 1.0
    model, scaled = train("reg", LossScaling.static(calibration.midpoint), 150)
    assert int(model.optimizer.skipped_steps) == 0
    too_high, _ = train("reg", LossScaling.static(2.0**15), 20)
    assert int(too_high.optimizer.skipped_steps) == 20
    keras.config.set_dtype_policy("float32")
    _, truth = train("reg", None, 150)
    assert scaled == pytest.approx(truth, rel=0.05)


def test_the_model_is_left_alone(mixed_float16: None) -> None:
    task = tasks.digit_mlp(keras, count=4)
    task.model.compile(wrap_optimizer(task.optimizer), task.loss)
    before = [each.copy() for each in task.model.get_weights()]
    attributes = {name: id(value) for name, value in vars(task.model).items()}
    calls = [layer.call for layer in task.model.layers]
    calibrate_loss_scale(task.model, task.loss, task.batches, 4)
    assert all((left == right).all() for left, right in zip(task.model.get_weights(), before, strict=True))
    assert {name: id(value) for name, value in vars(task.model).items()} == attributes
    assert [layer.call for layer in task.model.layers] == calls
    assert not task.model.optimizer.built
    assert keras.config.dtype_policy().name == "mixed_float16"


def small(dtype: str | None = None) -> Any:
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, activation="relu", dtype=dtype), keras.layers.Dense(1, dtype=dtype)]
    )


def few_batches() -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(8, 16, 4)).astype("float32")
    return [(each, each.sum(axis=1, keepdims=True)) for each in x]


class TestWhatIsTaken:
    def test_a_float32_model_is_tried_in_float16_with_a_float32_head(self, float32: None) -> None:
        calibration = calibrate_loss_scale(small(), "mse", few_batches(), 4)
        assert calibration.shadow_runs
        assert "dense" in " ".join(each.name for each in calibration.ranges)

    def test_a_bfloat16_model_too(self, float32: None) -> None:
        assert calibrate_loss_scale(small("mixed_bfloat16"), "mse", few_batches(), 4).shadow_runs

    def test_a_function_that_builds_the_model(self, float32: None) -> None:
        class Own(keras.Model):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.last = keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1, dtype="float32")

            def call(self, x: Any) -> Any:
                return self.last(self.first(x))

        with pytest.raises(InputError, match="pass a function without arguments that builds it"):
            calibrate_loss_scale(Own(), "mse", few_batches(), 4)
        assert calibrate_loss_scale(Own, "mse", few_batches(), 4).shadow_runs
        assert keras.config.dtype_policy().name == "float32"

    @pytest.mark.parametrize(
        "data",
        [
            lambda: iter(few_batches()[:3]),
            lambda: tf.data.Dataset.from_tensor_slices(few_batches()[0]).batch(4),
            lambda: [(x, y, np.ones(len(x), "float32")) for x, y in few_batches()],
        ],
        ids=["a generator", "a dataset", "sample weights"],
    )
    def test_data_in_every_form_is_used_from_the_start_again(
        self, mixed_float16: None, data: Callable[[], Any]
    ) -> None:
        assert calibrate_loss_scale(small(), "mse", data(), 6).steps == 6

    def test_a_loss_function_sees_float32_predictions_as_in_compile(self, mixed_float16: None) -> None:
        seen = []

        def loss(y_true: Any, y_pred: Any) -> Any:
            seen.append(y_pred.dtype)
            return tf.reduce_mean(tf.square(y_true - y_pred))

        calibrate_loss_scale(small(), loss, few_batches(), 2)
        assert set(seen) == {tf.float32}

    def test_weights_of_a_later_checkpoint_show_how_the_gradients_move(self, mixed_float16: None) -> None:
        model = small()
        later = [4096.0 * each for each in model.get_weights()]
        calibration = calibrate_loss_scale(model, "mse", few_batches(), 10, later_weights=later)
        assert calibration.later_drift_bits is not None
        assert calibration.later_drift_bits > 10
        assert calibration.verdict == "dynamic"

    def test_progress_is_told_to_the_end(self, mixed_float16: None) -> None:
        told = []
        calibrate_loss_scale(small(), "mse", few_batches(), 5, progress=lambda done, total: told.append((done, total)))
        assert told[0][0] == 1
        assert told[-1] == (55, 55)

    @pytest.mark.parametrize(
        ("description", "arguments", "message"),
        [
            ("one step", {"steps": 1}, "at least 2 are needed"),
            ("no batch", {"data": []}, "there is no batch"),
            ("no iterable", {"data": 5}, "expected an iterable of batches"),
            ("batches without targets", {"data": [np.ones((4, 4))]}, "a batch is"),
            ("a loss that is not known", {"loss": "mean_cubed_error"}, "expected a Keras loss"),
            ("no loss", {"loss": None}, "expected a Keras loss"),
            ("no model", {"model": 5}, "expected a Keras model"),
            ("NaN in the data", {"data": [(np.full((4, 4), np.nan), np.ones((4, 1)))]}, "not finite even in float32"),
            ("a loss without the model", {"loss": lambda y, p: tf.reduce_sum(0.0 * p)}, "all gradients are zero"),
        ],
    )
    def test_what_cannot_be_used_is_named(
        self, mixed_float16: None, description: str, arguments: dict[str, Any], message: str
    ) -> None:
        given = {"model": small(), "loss": "mse", "data": few_batches(), "steps": 3} | arguments
        with pytest.raises(InputError, match=message):
            calibrate_loss_scale(**given)


class TestResult:
    def test_it_comes_back_from_its_file_whole(self, tmp_path: Path) -> None:
        EVERY_FIELD.save(tmp_path / "calibration.json")
        assert Calibration.load(tmp_path / "calibration.json") == EVERY_FIELD
        assert from_json(to_json(EVERY_FIELD), Calibration) == EVERY_FIELD

    @pytest.mark.parametrize(("text", "message"), [("{", "calibration.json"), ('{"schema": "other/1"}', "schema")])
    def test_a_file_that_is_none_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "calibration.json").write_text(text)
        with pytest.raises(InputError, match=message):
            Calibration.load(tmp_path / "calibration.json")

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"cannot read .*missing\.json: No such file"):
            Calibration.load(tmp_path / "missing.json")

    def test_it_prints_its_evidence(self) -> None:
        text = str(EVERY_FIELD)
        assert text.splitlines()[0] == "a fixed loss scale of 2**7 fits characters (6 bits from either end)"
        for part in ("2**1 to 2**13", "60 float32 steps", "output of dense", "-2.7 bits", "+1.5 bits", "1 overflows"):
            assert part in text

    def test_it_is_a_wish_that_wrap_optimizer_understands(self) -> None:
        wrapped = wrap_optimizer(keras.optimizers.SGD(), EVERY_FIELD)
        assert (wrapped.dynamic, wrapped.initial_scale) == (False, 128.0)

    @pytest.mark.parametrize("ending", ["png", "svg"])
    def test_it_is_drawn(self, tmp_path: Path, ending: str) -> None:
        pytest.importorskip("matplotlib")
        EVERY_FIELD.plot(tmp_path / f"histogram.{ending}")
        assert (tmp_path / f"histogram.{ending}").stat().st_size > 1000

    def test_a_picture_of_an_unknown_kind_is_refused(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        with pytest.raises(InputError, match="cannot write"):
            EVERY_FIELD.plot(tmp_path / "histogram.unknown")

    def test_drawing_without_matplotlib_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
        with pytest.raises(UnsupportedError, match=r"tf-hwprobe\[plots\]"):
            EVERY_FIELD.plot(tmp_path / "histogram.png")


FACTORY = """
import keras
import numpy as np

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(8, activation="relu")
        self.last = keras.layers.Dense(1, dtype="float32")

    def call(self, x):
        return self.last(self.first(x))

def graph():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1, dtype="float32")])
    return model, "mse", batches()

def subclassed():
    return Own(), "mse", batches()

def batches():
    x = np.random.default_rng(0).normal(size=(4, 16, 4)).astype("float32")
    return [(each, each.sum(axis=1, keepdims=True)) for each in x]

def half():
    return 1, 2

def broken():
    return 1 / 0
"""


class TestCommand:
    @pytest.fixture
    def call(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
        (tmp_path / "calibrated_models.py").write_text(FACTORY)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.path", list(__import__("sys").path))
        return lambda *arguments: CliRunner().invoke(command, arguments, catch_exceptions=True)

    def test_it_prints_the_result(self, call: Callable[..., Result], float32: None) -> None:
        result = call("calibrated_models:graph", "--steps", "3")
        assert result.exit_code == 0, result.output
        assert "scales that fit" in result.output

    def test_it_writes_json_and_a_file(self, call: Callable[..., Result], float32: None, tmp_path: Path) -> None:
        result = call("calibrated_models:graph", "--steps", "3", "--format", "json", "--save", "result.json")
        assert json.loads(result.stdout)["schema"] == "hwprobe.calibration/1"
        assert Calibration.load(tmp_path / "result.json").steps == 3

    @pytest.mark.parametrize("option", ["--save", "--plot"])
    def test_the_result_is_not_lost_where_a_file_cannot_be_written(
        self, call: Callable[..., Result], float32: None, option: str
    ) -> None:
        result = call("calibrated_models:graph", "--steps", "3", option, "no/such/folder.svg")
        assert isinstance(result.exception, InputError)
        assert "scales that fit" in result.output

    def test_a_model_that_cannot_be_copied_is_built_under_each_policy(
        self, call: Callable[..., Result], float32: None
    ) -> None:
        result = call("calibrated_models:subclassed", "--steps", "3")
        assert result.exit_code == 0, result.output

    @pytest.mark.parametrize(
        ("factory", "message"),
        [
            ("calibrated_models", "expected module:factory, for instance"),
            ("no_such_module:f", "there is no module 'no_such_module'"),
            ("calibrated_models:nothing", "has no 'nothing'"),
            ("calibrated_models:broken", r"broken: ZeroDivisionError: division by zero \(.*calibrated_models.py:\d+\)"),
            ("calibrated_models:half", r"expected it to return \(model, loss, data\), got tuple of 2"),
        ],
    )
    def test_a_factory_that_cannot_be_used_is_refused(
        self, call: Callable[..., Result], factory: str, message: str
    ) -> None:
        result = call(factory)
        assert isinstance(result.exception, InputError)
        with pytest.raises(InputError, match=message):
            raise result.exception
