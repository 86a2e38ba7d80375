"""The guard in `fit` and in a loop of one's own, with real models that go wrong in one way each."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwprobe.configuration import LossScaling
from hwprobe.errors import InputError
from hwprobe.scaling import LossScaleGuard, wrap_optimizer
from hwprobe.scaling.keras3_optimizer import is_checked

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")


def model_of(optimizer: Any, *hidden: Any, **compile_arguments: Any) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), *hidden, keras.layers.Dense(1, dtype="float32", name="head")])
    model.compile(optimizer, keras.losses.MeanSquaredError(), **compile_arguments)
    return model


def batches(*values: float) -> tuple[np.ndarray, np.ndarray]:
    """Four rows for each value."""
    x = np.repeat(np.array(values, "float32"), 4)[:, None] * np.ones((1, 3), "float32")
    return x, np.ones((len(x), 1), "float32")


def fit(model: Any, *values: float, callbacks: list[Any], epochs: int = 1) -> Any:
    x, y = batches(*values)
    return model.fit(x, y, batch_size=4, shuffle=False, epochs=epochs, verbose=0, callbacks=callbacks)


def ids(guard: LossScaleGuard) -> list[str]:
    return [each.id for each in guard.findings]


class TestInFit:
    def test_it_is_a_callback_of_keras(self) -> None:
        assert isinstance(LossScaleGuard(), keras.callbacks.Callback)

    def test_a_good_training_is_told_nothing(self, mixed_float16: None) -> None:
        guard = LossScaleGuard()
        fit(model_of(wrap_optimizer(keras.optimizers.SGD(0.01))), *[1.0] * 12, callbacks=[guard])
        assert ids(guard) == []
        assert (guard.loss_scale, guard.skipped_steps, guard.should_stop) == (2.0**15, 0, False)

    def test_scale_and_skips_are_in_the_history_and_the_csv_file(self, mixed_float16: None, tmp_path: Path) -> None:
        guard, log = LossScaleGuard(), keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
        model = model_of(wrap_optimizer(keras.optimizers.SGD(0.01), LossScaling.dynamic(256.0)))
        history = fit(model, 1.0, np.nan, 1.0, epochs=2, callbacks=[guard, log])
        assert history.history["loss_scale"] == [128.0, 64.0]
        assert history.history["skipped_steps"] == [1, 2]
        with (tmp_path / "log.csv").open() as stream:
            rows = list(csv.DictReader(stream))
        assert [row["skipped_steps"] for row in rows] == ["1", "2"]

    def test_tensorboard_gets_them_too(self, mixed_float16: None, tmp_path: Path) -> None:
        guard, board = LossScaleGuard(), keras.callbacks.TensorBoard(tmp_path)
        fit(model_of(wrap_optimizer(keras.optimizers.SGD(0.01))), 1.0, callbacks=[guard, board])
        (events,) = (tmp_path / "train").glob("events*")
        tags = {
            value.tag for event in tf.compat.v1.train.summary_iterator(str(events)) for value in event.summary.value
        }
        assert {"epoch_loss_scale", "epoch_skipped_steps"} <= tags

    def test_keras_own_scaler_is_exchanged_when_training_starts(self, mixed_float16: None) -> None:
        model = model_of(keras.optimizers.SGD(0.01))
        fit(model, 1.0, np.nan, 1.0, callbacks=[LossScaleGuard()])
        assert is_checked(model.optimizer)
        assert int(model.optimizer.skipped_steps) == 1

    def test_it_can_be_kept_and_its_skips_are_counted_all_the_same(self, mixed_float16: None) -> None:
        guard, model = LossScaleGuard(exchange=False), model_of(keras.optimizers.SGD(0.01))
        fit(model, 1.0, np.nan, np.nan, 1.0, callbacks=[guard])
        assert type(model.optimizer) is keras.optimizers.LossScaleOptimizer
        assert guard.skipped_steps == 2

    def test_a_model_without_scaling_is_watched_as_well(self, float32: None) -> None:
        guard = LossScaleGuard()
        fit(model_of(keras.optimizers.SGD(0.01)), 1.0, callbacks=[guard])
        assert (guard.loss_scale, guard.skipped_steps) == (1.0, 0)

    def test_several_steps_in_one_execution_are_counted(self, mixed_float16: None) -> None:
        guard = LossScaleGuard()
        model = model_of(wrap_optimizer(keras.optimizers.SGD(0.01)), steps_per_execution=3)
        fit(model, 1.0, np.nan, 1.0, np.nan, np.nan, np.nan, callbacks=[guard])
        assert guard.skipped_steps == 4


class TestForwardPass:
    def test_bad_data_is_called_that_and_the_training_stops(
        self, mixed_float16: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        guard = LossScaleGuard("stop", patience=4)
        model = model_of(wrap_optimizer(keras.optimizers.SGD(0.01)))
        with caplog.at_level(logging.WARNING, "hwprobe.scaling"):
            history = fit(model, *[np.nan] * 6, epochs=3, callbacks=[guard])
        assert ids(guard) == ["HWP612", "HWP612"]
        assert len(history.epoch) == 1
        assert "the forward pass or the data is the cause, not the loss scale" in caplog.text

    def test_with_a_sample_the_layer_is_named(self, mixed_float16: None) -> None:
        x, y = batches(300.0)
        guard = LossScaleGuard(sample=(x, y))
        large = keras.layers.Dense(4, kernel_initializer=keras.initializers.Constant(100.0), name="large")
        fit(model_of(wrap_optimizer(keras.optimizers.SGD(0.01)), large), 300.0, callbacks=[guard])
        assert ids(guard) == ["HWP612"]
        assert guard.findings[0].evidence["layer"] == "large"

    def test_a_sample_that_is_fine_points_at_the_data(self, mixed_float16: None) -> None:
        guard = LossScaleGuard(sample=batches(1.0))
        fit(model_of(wrap_optimizer(keras.optimizers.SGD(0.01))), np.nan, callbacks=[guard])
        assert "look at the data of that step" in guard.findings[0].message


class TestBackwardPass:
    def test_a_gradient_that_overflows_at_any_scale_is_a_collapse_and_then_a_scale_that_is_stuck(
        self, mixed_float16: None
    ) -> None:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def spoil(x: Any) -> Any:
            return tf.identity(x), lambda upstream: upstream * np.float32("inf")

        guard = LossScaleGuard("stop")
        model = model_of(wrap_optimizer(keras.optimizers.SGD(0.01)), keras.layers.Dense(2), keras.layers.Lambda(spoil))
        fit(model, *[1.0] * 60, callbacks=[guard])
        assert ids(guard) == ["HWP613", "HWP614"]
        assert guard.should_stop

    def test_lost_gradients_are_found_with_a_sample(self, mixed_float16: None) -> None:
        x, _ = batches(1.0)
        y = np.full((4, 1), 1e-4, "float32")
        first = keras.layers.Dense(8, kernel_initializer=keras.initializers.Constant(1e-4))
        guard = LossScaleGuard(sample=(x, y), exchange=False)
        model = model_of(keras.optimizers.SGD(1e-6), first, auto_scale_loss=False)
        model.get_layer("head").kernel.assign(np.full((8, 1), 1e-4))
        fit(model, 1.0, callbacks=[guard])
        assert ids(guard) == ["HWP616"]
        healthy = LossScaleGuard(sample=(x, y))
        fit(model_of(wrap_optimizer(keras.optimizers.SGD(1e-6))), 1.0, callbacks=[healthy])
        assert ids(healthy) == []


class TestPoison:
    def lost(self, **arguments: Any) -> tuple[Any, LossScaleGuard, Any, Any, list[Any], list[Any]]:
        """A model that Keras' own fixed scale lets be destroyed in the second epoch."""
        model = model_of(keras.optimizers.SGD(0.01, momentum=0.5, loss_scale_factor=8.0), auto_scale_loss=False)
        guard = LossScaleGuard(**arguments)
        good = fit(model, 1.0, 1.0, callbacks=[guard])
        weights = model.get_weights()
        moments = [each.numpy() for each in model.optimizer.variables]
        x, y = batches(1.0, 1.0)
        y[:] = np.inf
        history = model.fit(x, y, batch_size=4, epochs=4, verbose=0, callbacks=[guard])
        return model, guard, good, history, weights, moments

    def test_it_is_told_and_nothing_else_is_done_unless_asked(self, mixed_float16: None) -> None:
        model, guard, _, history, _, _ = self.lost()
        assert ids(guard) == ["HWP615"]
        assert len(history.epoch) == 4
        assert not np.isfinite(model.get_weights()[0]).all()

    def test_the_training_is_stopped_on_request(self, mixed_float16: None) -> None:
        _, guard, _, history, _, _ = self.lost(on_failure="stop")
        assert guard.should_stop
        assert len(history.epoch) == 1

    def test_weights_and_optimizer_are_put_back_on_request(self, mixed_float16: None) -> None:
        model, _, _, history, weights, moments = self.lost(on_failure="restore")
        assert len(history.epoch) == 1
        assert all((left == right).all() for left, right in zip(model.get_weights(), weights, strict=True))
        assert all((now.numpy() == then).all() for now, then in zip(model.optimizer.variables, moments, strict=True))


class TestInALoopOfOnesOwn:
    def loop(self, guard: LossScaleGuard, optimizer: Any, *gradients: float, model: Any = None) -> list[list[str]]:
        weight = keras.Variable(1.0)
        said = []
        for gradient in gradients:
            optimizer.apply([optimizer.scale_loss(tf.constant(gradient, tf.float32))], [weight])
            said.append([each.id for each in guard.update(optimizer, loss=1.0, model=model)])
        return said

    def test_update_says_each_thing_in_the_step_that_shows_it(self) -> None:
        optimizer = wrap_optimizer(keras.optimizers.SGD(0.1), LossScaling.static(4.0))
        guard = LossScaleGuard("stop", patience=3)
        said = self.loop(guard, optimizer, 1.0, np.inf, np.inf, np.inf, np.inf)
        assert said == [[], [], [], ["HWP614"], []]
        assert guard.should_stop
        assert guard.skipped_steps == 4

    def test_a_start_is_told_without_alarm(self) -> None:
        guard = LossScaleGuard("stop")
        said = self.loop(guard, wrap_optimizer(keras.optimizers.SGD(0.1), "dynamic"), np.inf, np.inf, 1.0, 1.0)
        assert said == [[], [], ["HWP611"], []]
        assert not guard.should_stop

    def test_a_model_that_is_handed_over_is_restored(self, float32: None) -> None:
        model = model_of(keras.optimizers.SGD(0.1))
        good = model.get_weights()[0]
        guard = LossScaleGuard("restore")
        guard.update(model.optimizer, loss=0.5, model=model)
        model.layers[-1].kernel.assign(good * np.nan)
        guard.update(model.optimizer, loss=float("nan"), model=model)
        assert ids(guard) == ["HWP615"]
        assert (model.get_weights()[0] == good).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_failure": "panic"}, "expected one of warn, stop, restore"),
        ({"patience": 0}, "expected at least 1"),
        ({"sample": [np.ones(3)]}, "expected a batch"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LossScaleGuard(**arguments)


def test_a_class_of_ones_own_is_a_callback_as_well() -> None:
    class Mine(LossScaleGuard):
        pass

    assert isinstance(Mine(), keras.callbacks.Callback)
    assert isinstance(Mine(), Mine)
