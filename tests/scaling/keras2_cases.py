"""Cases for Keras 2, run by `test_keras2.py` in a process of its own where `tf.keras` is tf_keras."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from hwprobe.configuration import LossScaling
from hwprobe.scaling import (
    LossScaleGuard,
    adopt,
    calibrate_loss_scale,
    read_scaling,
    register_optimizers,
    set_in_force,
    verify_model,
    verify_scaling,
    wrap_optimizer,
)

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

KINDS = pytest.mark.parametrize("optimizers", [keras.optimizers, keras.optimizers.legacy], ids=["new", "legacy"])
FIXED = LossScaling.static(64.0)
BAD_AND_GOOD = [[0.5, -0.25], [3.0, 4.0], [np.inf, 1.0], [0.125, 2.0], [np.nan, 0.0], [-1.0, 1.0]]


@pytest.fixture(autouse=True)
def _own_policy() -> Iterator[None]:
    yield
    keras.mixed_precision.set_global_policy("float32")
    set_in_force(None)


def step(optimizer: Any, weight: Any, gradient: Any) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.get_scaled_loss(tf.reduce_sum(weight * gradient))
    gradients = optimizer.get_unscaled_gradients(tape.gradient(loss, [weight]))
    optimizer.apply_gradients(zip(gradients, [weight], strict=True))


@KINDS
def test_a_dynamic_scale_is_keras_own_which_is_right(optimizers: Any) -> None:
    optimizer = wrap_optimizer(optimizers.SGD(1.0), LossScaling.dynamic(256.0, growth_steps=7))
    assert isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer)
    assert read_scaling(optimizer).loss_scaling == LossScaling.dynamic(256.0, growth_steps=7)
    assert read_scaling(optimizer).minimum_scale == 1.0


@KINDS
def test_keras_own_fixed_scale_writes_an_infinity_into_the_weights(optimizers: Any) -> None:
    stock = keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(1.0), dynamic=False, initial_scale=64.0)
    weight = tf.Variable([1.0, 1.0])
    step(stock, weight, tf.constant([np.inf, 1.0]))
    assert not np.isfinite(weight.numpy()).all()


@KINDS
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_ours_gives_the_weights_of_float32_without_the_bad_steps(optimizers: Any, graph: bool) -> None:
    truth, weight = tf.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    plain, optimizer = optimizers.SGD(0.5, momentum=0.5), wrap_optimizer(optimizers.SGD(0.5, momentum=0.5), FIXED)
    if optimizers is keras.optimizers:
        optimizer.build([weight])
    run = tf.function(step) if graph else step
    for gradient in BAD_AND_GOOD:
        if np.isfinite(gradient).all():
            plain.apply_gradients([(tf.constant(gradient), truth)])
        run(optimizer, weight, tf.constant(gradient))
    np.testing.assert_allclose(weight.numpy(), truth.numpy(), rtol=1e-6)
    state = read_scaling(optimizer)
    assert (state.scaler, state.scale, state.skipped_steps, state.consecutive_skips) == ("hwprobe", 64.0, 2, 0)


@KINDS
def test_both_replicas_skip_when_one_is_bad(optimizers: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weight = tf.Variable([1.0, 1.0])
        optimizer = wrap_optimizer(optimizers.SGD(1.0), FIXED)
        if optimizers is keras.optimizers:
            optimizer.build([weight])

    @tf.function  # type: ignore[untyped-decorator]
    def run(gradients: Any) -> None:
        def on_replica(gradient: Any) -> None:
            scaled = optimizer.get_scaled_loss(gradient)
            optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients([scaled]), [weight], strict=True))

        strategy.run(on_replica, args=(gradients,))

    for values in ([[0.25, 0.25], [np.inf, 0.25]], [[0.125, 0.25], [0.375, 0.5]]):
        run(
            strategy.experimental_distribute_values_from_function(
                lambda context, values=values: tf.constant(values[context.replica_id_in_sync_group], tf.float32)
            )
        )
    weights = [each.numpy().tolist() for each in strategy.experimental_local_results(weight)]
    assert weights == [[0.5, 0.25], [0.5, 0.25]]
    assert (optimizer.skipped_steps.numpy(), optimizer.consecutive_skips.numpy()) == (1, 0)


def trained(optimizers: Any, scaling: LossScaling) -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,)), keras.layers.Dense(1, dtype="float32")])
    model.compile(wrap_optimizer(optimizers.Adam(0.01), scaling), "mse")
    for value in (1.0, np.nan, 2.0):
        model.fit(np.full((4, 3), value), np.ones((4, 1)), verbose=0)
    return model


@KINDS
def test_fit_skips_the_bad_batch_and_goes_on(optimizers: Any) -> None:
    model = trained(optimizers, FIXED)
    assert all(np.isfinite(each).all() for each in model.get_weights())
    assert read_scaling(model.optimizer).skipped_steps == 1


@KINDS
def test_a_checkpoint_brings_the_counters_back(optimizers: Any, tmp_path: Path) -> None:
    model, other = trained(optimizers, FIXED), trained(optimizers, FIXED)
    other.fit(np.full((4, 3), np.nan), np.ones((4, 1)), verbose=0)
    place = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "checkpoint")
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(place).expect_partial()
    assert read_scaling(other.optimizer).skipped_steps == 1


@KINDS
def test_a_keras_file_brings_the_scaler_back(optimizers: Any, tmp_path: Path) -> None:
    model = trained(optimizers, FIXED)
    model.save(tmp_path / "model.keras")
    keras.mixed_precision.set_global_policy("float32")
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects=register_optimizers())
    assert type(loaded.optimizer) is type(model.optimizer)
    assert read_scaling(loaded.optimizer).loss_scaling == FIXED


def test_wrapping_twice_is_wrapping_once() -> None:
    wrapped = wrap_optimizer(keras.optimizers.SGD(), FIXED)
    assert wrap_optimizer(wrapped) is wrapped


def test_the_global_policy_of_this_keras_says_whether_scaling_is_due() -> None:
    plain = keras.optimizers.SGD()
    assert wrap_optimizer(plain) is plain
    keras.mixed_precision.set_global_policy("mixed_float16")
    assert read_scaling(wrap_optimizer(plain)).loss_scaling == LossScaling.dynamic()


def test_keras_own_scaler_is_not_exchanged_since_it_is_right() -> None:
    model = trained(keras.optimizers, LossScaling.dynamic())
    assert not adopt(model)


class TestGuard:
    def test_it_counts_what_keras_own_scaler_does_not_and_writes_it_into_the_logs(self, tmp_path: Path) -> None:
        model = trained(keras.optimizers, LossScaling.dynamic(2.0**10))
        guard = LossScaleGuard()
        log = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
        x = np.ones((12, 3), "float32")
        x[4:8] = np.nan
        history = model.fit(
            x, np.ones((12, 1)), batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[guard, log]
        )
        assert history.history["skipped_steps"] == [1, 2]
        rows = list(csv.DictReader((tmp_path / "log.csv").open()))
        assert [float(row["loss_scale"]) for row in rows] == history.history["loss_scale"]

    def test_it_says_that_a_scale_at_the_floor_is_stuck(self, caplog: pytest.LogCaptureFixture) -> None:
        optimizer = wrap_optimizer(keras.optimizers.SGD(1.0), LossScaling.dynamic(4.0))
        weight, guard = tf.Variable([1.0]), LossScaleGuard("stop", patience=5)
        with caplog.at_level(logging.ERROR, "hwprobe.scaling"):
            for _ in range(8):
                step(optimizer, weight, tf.constant([np.inf]))
                guard.update(optimizer, loss=1.0)
        assert [each.id for each in guard.findings] == ["HWP614"]
        assert guard.should_stop
        assert "its floor of 1" in caplog.text

    def test_it_restores_the_last_good_epoch_after_poison(self) -> None:
        keras.mixed_precision.set_global_policy("mixed_float16")
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(3,), dtype="float32")])
        stock = keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.SGD(0.01, momentum=0.9), dynamic=False, initial_scale=64.0
        )
        model.compile(stock, "mse")
        x, y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
        good = model.get_weights()[0]
        guard = LossScaleGuard("restore")
        history = model.fit(x, np.full_like(y, np.inf), epochs=5, verbose=0, callbacks=[guard])
        assert [each.id for each in guard.findings] == ["HWP615"]
        assert len(history.epoch) == 1
        assert (model.get_weights()[0] == good).all()


class TestStep:
    def test_the_right_loop_is_right(self) -> None:
        def right(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
            with tf.GradientTape() as tape:
                loss = optimizer.get_scaled_loss(compute_loss())
            gradients = optimizer.get_unscaled_gradients(tape.gradient(loss, variables))
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        for optimizers in (keras.optimizers, keras.optimizers.legacy):
            for scaling in (LossScaling.dynamic(), FIXED):
                assert verify_scaling(wrap_optimizer(optimizers.Adam(), scaling), right)

    def test_a_loop_of_keras_3_is_not(self) -> None:
        def forgets(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
            with tf.GradientTape() as tape:
                loss = optimizer.get_scaled_loss(compute_loss())
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        checked = verify_scaling(wrap_optimizer(keras.optimizers.Adam(), FIXED), forgets)
        assert (checked.verdict, checked.ratio) == ("gradients_not_unscaled", 64.0)
        assert "get_unscaled_gradients" in str(checked)


def test_a_model_is_calibrated_and_left_alone() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential(
        [keras.layers.Dense(16, activation="relu", input_shape=(4,)), keras.layers.Dense(1, dtype="float32")]
    )
    before = [each.copy() for each in model.get_weights()]
    draw = np.random.default_rng(0)
    x = draw.normal(size=(64, 4)).astype("float32")
    calibration = calibrate_loss_scale(model, "mse", [(x, x.sum(axis=1, keepdims=True))], steps=12)
    assert calibration.lowest_bits < calibration.highest_bits
    assert all((left == right).all() for left, right in zip(model.get_weights(), before, strict=True))
    assert keras.mixed_precision.global_policy().name == "mixed_float16"


class TestVerify:
    def test_a_wrapped_model_is_right(self) -> None:
        checked = verify_model(trained(keras.optimizers, LossScaling.dynamic()))
        assert checked, str(checked)

    def test_the_scaler_of_compile_is_not_the_fixed_scale_that_was_decided(self) -> None:
        set_in_force(FIXED)
        keras.mixed_precision.set_global_policy("mixed_float16")
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(3,))])
        model.compile(keras.optimizers.Adam(), "mse")
        assert [each.id for each in verify_model(model).findings] == ["HWP601"]
        model.compile(wrap_optimizer(keras.optimizers.Adam()), "mse")
        assert verify_model(model)

    def test_float16_without_scaling_is_what_a_scale_of_1_is(self) -> None:
        set_in_force(LossScaling.none())
        keras.mixed_precision.set_global_policy("mixed_float16")
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(3,))])
        model.compile(wrap_optimizer(keras.optimizers.Adam()), "mse")
        (found,) = verify_model(model).findings
        assert (found.id, "static=1" in found.fix[0]) == ("HWP601", True)
        model.compile(wrap_optimizer(keras.optimizers.Adam(), "static=1"), "mse")
        assert verify_model(model)
