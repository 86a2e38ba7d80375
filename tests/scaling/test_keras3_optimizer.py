"""hwprobe's scaler for Keras 3 against the truth of float32, with Keras' own beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwprobe.configuration import LossScaling
from hwprobe.scaling import wrap_optimizer

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")


FIXED = LossScaling.static(1024.0)
DYNAMIC = LossScaling.dynamic()
BOTH = pytest.mark.parametrize("scaling", [DYNAMIC, FIXED], ids=["dynamic", "fixed"])


def ours(scaling: LossScaling = DYNAMIC, **settings: Any) -> Any:
    return wrap_optimizer(keras.optimizers.SGD(1.0, **settings), scaling)


def stock() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0))


def feed(optimizer: Any, variable: Any, *gradients: Any) -> Any:
    """Apply true gradients as a training step would: multiplied by the scale."""
    for gradient in gradients:
        optimizer.apply([optimizer.scale_loss(tf.constant(gradient, tf.float32))], [variable])
    return variable.numpy()


def embedding_step(optimizer: Any) -> Any:
    """One step on an Embedding whose gradient is infinite at the first of two occurrences of a token."""
    table = keras.layers.Embedding(4, 2, embeddings_initializer="ones")
    table.build((None,))
    weights = table.trainable_variables
    optimizer.build(weights)
    slices = tf.IndexedSlices(tf.constant([[np.inf, 1.0], [1.0, 1.0]]), tf.constant([3, 3]), tf.constant([4, 2]))
    optimizer.apply([slices], weights)
    return weights[0].numpy()


class TestRepeatedToken:
    def test_keras_own_scaler_writes_the_infinity_into_the_weights(self) -> None:
        optimizer = stock()
        assert not np.isfinite(embedding_step(optimizer)).all()
        assert float(optimizer.dynamic_scale) == 2.0**15

    @BOTH
    def test_ours_skips_the_step_and_counts_it(self, scaling: LossScaling) -> None:
        optimizer = ours(scaling)
        assert (embedding_step(optimizer) == 1.0).all()
        assert int(optimizer.skipped_steps) == 1
        assert float(optimizer.dynamic_scale) == (2.0**14 if scaling is DYNAMIC else 1024.0)

    @BOTH
    def test_a_finite_sparse_gradient_is_unscaled_and_applied_to_each_row_that_it_names(
        self, scaling: LossScaling
    ) -> None:
        table = keras.Variable(np.ones((4, 2), "float32"))
        optimizer = ours(scaling)
        optimizer.build([table])
        values = optimizer.scale_loss(tf.constant([[1.0, 2.0], [0.5, 0.25]]))
        optimizer.apply([tf.IndexedSlices(values, tf.constant([1, 1]), tf.constant([4, 2]))], [table])
        assert table.numpy().tolist() == [[1, 1], [-0.5, -1.25], [1, 1], [1, 1]]


class TestBadBatches:
    def test_keras_own_scale_reaches_zero_and_the_next_good_batch_destroys_the_weights(self) -> None:
        optimizer, weight = stock(), keras.Variable(1.0)
        assert feed(optimizer, weight, *[np.nan] * 200) == 1.0
        assert float(optimizer.dynamic_scale) == 0.0
        assert np.isnan(feed(optimizer, weight, 0.5))

    @pytest.mark.parametrize(("scaling", "floor"), [(DYNAMIC, 2.0**-14), (FIXED, 1024.0)], ids=["dynamic", "fixed"])
    def test_ours_keeps_a_scale_to_return_with(self, scaling: LossScaling, floor: float) -> None:
        optimizer, weight = ours(scaling), keras.Variable(1.0)
        assert feed(optimizer, weight, *[np.nan] * 200) == 1.0
        assert float(optimizer.dynamic_scale) == floor
        assert (int(optimizer.skipped_steps), int(optimizer.consecutive_skips)) == (200, 200)
        assert feed(optimizer, weight, 0.5) == 0.5
        assert (int(optimizer.skipped_steps), int(optimizer.consecutive_skips)) == (200, 0)
        assert int(optimizer.iterations) == 1


class TestFixedScale:
    def test_keras_own_factor_writes_an_infinite_gradient_into_the_weights(self) -> None:
        weight = keras.Variable([1.0, 1.0])
        optimizer = keras.optimizers.SGD(1.0, loss_scale_factor=128.0)
        optimizer.apply([tf.constant([np.inf, 1.0])], [weight])
        assert not np.isfinite(weight.numpy()).all()

    def test_keras_own_factor_cannot_divide_the_gradient_of_an_embedding(self) -> None:
        with pytest.raises(TypeError):
            embedding_step(keras.optimizers.SGD(1.0, loss_scale_factor=128.0))

    def test_keras_own_compile_drops_the_factor(self, mixed_float16: None) -> None:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1.0, loss_scale_factor=128.0), "mse")
        assert model.optimizer.inner_optimizer.loss_scale_factor is None

    def test_ours_survives_compile_and_skips(self, mixed_float16: None) -> None:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(wrap_optimizer(keras.optimizers.SGD(1.0, loss_scale_factor=128.0)), "mse")
        before = model.get_weights()[0]
        model.fit(np.full((4, 2), np.inf), np.zeros((4, 1)), verbose=0)
        assert float(model.optimizer.dynamic_scale) == 128.0
        assert int(model.optimizer.skipped_steps) == 1
        assert (model.get_weights()[0] == before).all()

    def test_the_scale_never_moves(self) -> None:
        optimizer, weight = ours(LossScaling.static(3.0)), keras.Variable(1.0)
        feed(optimizer, weight, *[0.25] * 5, np.inf, *[0.25] * 5)
        assert float(optimizer.dynamic_scale) == 3.0


class TestDynamicScale:
    def test_it_doubles_after_the_growth_steps_and_stops_at_the_ceiling(self) -> None:
        optimizer, weight = ours(LossScaling.dynamic(2.0**22, growth_steps=2)), keras.Variable(1.0)
        scales = []
        for _ in range(8):
            feed(optimizer, weight, 0.0)
            scales.append(float(optimizer.dynamic_scale))
        assert [float(np.log2(each)) for each in scales] == [22, 23, 23, 24, 24, 24, 24, 24]

    def test_a_skip_starts_the_growth_steps_anew(self) -> None:
        optimizer, weight = ours(LossScaling.dynamic(64.0, growth_steps=3)), keras.Variable(1.0)
        feed(optimizer, weight, 0.0, 0.0, np.inf, 0.0, 0.0)
        assert (float(optimizer.dynamic_scale), int(optimizer.step_counter)) == (32.0, 2)
        feed(optimizer, weight, 0.0)
        assert (float(optimizer.dynamic_scale), int(optimizer.step_counter)) == (64.0, 0)

    @pytest.mark.parametrize(
        ("description", "arguments"),
        [
            ("a floor above the first scale", {"initial_scale": 1.0, "minimum_scale": 2.0}),
            ("a ceiling below it", {"initial_scale": 8.0, "maximum_scale": 4.0}),
            ("a scale of zero", {"initial_scale": 0.0}),
            ("a scale without end", {"initial_scale": float("inf")}),
            ("growth at every zeroth step", {"dynamic_growth_steps": 0}),
        ],
    )
    def test_bounds_that_cannot_hold_are_refused(self, description: str, arguments: dict[str, Any]) -> None:
        kind = type(ours())
        with pytest.raises(ValueError, match=r"scale|growth"):
            kind(keras.optimizers.SGD(1.0), **arguments)

    def test_a_first_scale_outside_the_usual_bounds_widens_them(self) -> None:
        assert ours(LossScaling.dynamic(2.0**30)).maximum_scale == 2.0**30
        assert ours(LossScaling.dynamic(2.0**-20)).minimum_scale == 2.0**-20


class TestScaleLoss:
    def test_keras_own_overflows_a_float16_loss_before_it_is_built(self) -> None:
        assert np.isinf(float(stock().scale_loss(tf.constant(3.0, tf.float16))))

    def test_ours_scales_a_float16_loss_in_float32(self) -> None:
        assert float(ours().scale_loss(tf.constant(3.0, tf.float16))) == 3.0 * 2.0**15

    def test_a_float64_loss_keeps_its_precision(self) -> None:
        assert ours(FIXED).scale_loss(tf.constant(3.0, tf.float64)).dtype == tf.float64


TRUE_GRADIENTS = [[0.5, -0.25], [3.0, 4.0], [np.inf, 1.0], [0.125, 2.0], [np.nan, 0.0], [-1.0, 1.0], [0.25, 0.75]]

SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.5},
    "clipnorm": {"clipnorm": 1.0},
    "global_clipnorm": {"global_clipnorm": 1.0},
    "clipvalue": {"clipvalue": 0.5},
    "weight_decay": {"weight_decay": 0.25},
    "accumulation": {"gradient_accumulation_steps": 2},
    "ema": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
}


@BOTH
@pytest.mark.parametrize("execution", ["eager", "graph", "xla"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_weights_are_those_of_float32_without_the_bad_steps(
    settings: dict[str, Any], execution: str, scaling: LossScaling
) -> None:
    truth = keras.Variable([1.0, -2.0])
    plain = keras.optimizers.SGD(0.5, **settings)
    for gradient in TRUE_GRADIENTS:
        if np.isfinite(gradient).all():
            plain.apply([tf.constant(gradient)], [truth])

    weight = keras.Variable([1.0, -2.0])
    optimizer = wrap_optimizer(keras.optimizers.SGD(0.5, **settings), scaling)
    optimizer.build([weight])

    def step(gradient: Any) -> None:
        optimizer.apply([optimizer.scale_loss(gradient)], [weight])

    run = step if execution == "eager" else tf.function(step, jit_compile=execution == "xla")
    for gradient in TRUE_GRADIENTS:
        run(tf.constant(gradient, tf.float32))
    np.testing.assert_allclose(weight.numpy(), truth.numpy(), rtol=1e-6)
    assert int(optimizer.skipped_steps) == 2
    assert int(optimizer.iterations) == int(plain.iterations)


@BOTH
def test_adam_keeps_its_moments_through_a_skipped_step(scaling: LossScaling) -> None:
    truth, weight = keras.Variable([1.0, -2.0]), keras.Variable([1.0, -2.0])
    plain, optimizer = keras.optimizers.Adam(0.1), wrap_optimizer(keras.optimizers.Adam(0.1), scaling)
    for gradient in TRUE_GRADIENTS:
        if np.isfinite(gradient).all():
            plain.apply([tf.constant(gradient)], [truth])
    feed(optimizer, weight, *TRUE_GRADIENTS)
    np.testing.assert_allclose(weight.numpy(), truth.numpy(), rtol=1e-6)


def test_a_variable_without_a_gradient_is_passed_over() -> None:
    first, second = keras.Variable(1.0), keras.Variable(1.0)
    optimizer = ours()
    optimizer.build([first, second])
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply([optimizer.scale_loss(tf.constant(0.5)), None], [first, second])
    assert (first.numpy(), second.numpy()) == (0.5, 1.0)


def test_the_learning_rate_is_that_of_the_wrapped_optimizer() -> None:
    optimizer = ours()
    optimizer.learning_rate = 0.25
    assert float(optimizer.inner_optimizer.learning_rate) == 0.25
