"""Cases for Keras 3 on JAX, run by `test_jax.py` in a process of its own. None of them may load TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from hwprobe.configuration import LossScaling
from hwprobe.errors import UnsupportedError
from hwprobe.scaling import LossScaleGuard, adopt, calibrate_loss_scale, read_scaling, verify_scaling, wrap_optimizer

BOTH = pytest.mark.parametrize("scaling", [LossScaling.dynamic(256.0), LossScaling.static(64.0)], ids=str)
TRUE_GRADIENTS = [[0.5, -0.25], [3.0, 4.0], [np.inf, 1.0], [0.125, 2.0], [np.nan, 0.0], [-1.0, 1.0]]


@pytest.fixture(autouse=True)
def _without_tensorflow(request: pytest.FixtureRequest) -> Iterator[None]:
    keras.config.set_dtype_policy("mixed_float16")
    yield
    # Keras itself imports a TensorFlow that is installed when it saves (3.15.1, `serialize_keras_object`).
    if request.function is not test_a_keras_file_brings_scale_and_counters_back:
        assert "tensorflow" not in sys.modules


def model_of(optimizer: Any) -> Any:
    # keras.utils.set_random_seed would import a TensorFlow that is installed.
    starts = [keras.initializers.GlorotUniform(seed=seed) for seed in (0, 1)]
    hidden = keras.layers.Dense(8, activation="relu", kernel_initializer=starts[0])
    last = keras.layers.Dense(1, kernel_initializer=starts[1], dtype="float32")
    model = keras.Sequential([keras.Input((3,)), hidden, last])
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model


def data(bad: Iterable[int] = ()) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    for batch in bad:
        x[4 * batch] = np.nan
    return x, y


@BOTH
@pytest.mark.parametrize(
    "settings",
    [{}, {"clipnorm": 1.0}, {"global_clipnorm": 1.0}, {"gradient_accumulation_steps": 2}, {"use_ema": True}],
    ids=str,
)
def test_apply_outside_of_a_compiled_function_gives_the_weights_of_float32(
    settings: dict[str, Any], scaling: LossScaling
) -> None:
    truth, weight = keras.Variable([1.0, -2.0]), keras.Variable([1.0, -2.0])
    plain = keras.optimizers.SGD(0.5, **settings)
    optimizer = wrap_optimizer(keras.optimizers.SGD(0.5, **settings), scaling)
    for gradient in TRUE_GRADIENTS:
        gradient = keras.ops.convert_to_tensor(np.array(gradient, "float32"))
        if bool(keras.ops.all(keras.ops.isfinite(gradient))):
            plain.apply([gradient], [truth])
        optimizer.apply([optimizer.scale_loss(gradient)], [weight])
    np.testing.assert_allclose(weight.numpy(), truth.numpy(), rtol=1e-6)
    assert read_scaling(optimizer).skipped_steps == 2


def test_keras_own_scaler_cannot_do_that() -> None:
    stock = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
    with pytest.raises(Exception, match="traced"):
        stock.apply([keras.ops.convert_to_tensor(1.0)], [keras.Variable(1.0)])


@BOTH
def test_fit_skips_bad_batches_and_the_guard_counts_them(scaling: LossScaling) -> None:
    model, guard = model_of(wrap_optimizer(keras.optimizers.Adam(0.05), scaling)), LossScaleGuard()
    x, y = data(bad=[2, 3])
    history = model.fit(x, y, batch_size=4, epochs=5, shuffle=False, verbose=0, callbacks=[guard])
    assert history.history["skipped_steps"] == [2, 4, 6, 8, 10]
    assert int(model.optimizer.iterations) == 40
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert model.evaluate(*data(), verbose=0) < 1.0


def test_the_guard_exchanges_keras_own_scaler() -> None:
    model = model_of(keras.optimizers.Adam(0.05))
    x, y = data(bad=[1])
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=[LossScaleGuard()])
    assert read_scaling(model.optimizer).skipped_steps == 1
    assert not adopt(model)


def test_the_guard_puts_weights_and_optimizer_back() -> None:
    model = model_of(keras.optimizers.Adam(0.05, loss_scale_factor=8.0))
    model.compile(keras.optimizers.Adam(0.05, loss_scale_factor=8.0), "mse", auto_scale_loss=False)
    good = model.get_weights()
    x, y = data(bad=range(10))
    model.fit(x, y, batch_size=4, epochs=3, verbose=0, callbacks=[LossScaleGuard("restore")])
    assert all((left == right).all() for left, right in zip(model.get_weights(), good, strict=True))


def test_what_needs_tensorflow_says_so() -> None:
    optimizer = wrap_optimizer(keras.optimizers.Adam(), "dynamic")
    with pytest.raises(UnsupportedError, match="this Keras runs on jax"):
        verify_scaling(optimizer, lambda *_: None)
    with pytest.raises(UnsupportedError, match="this Keras runs on jax"):
        calibrate_loss_scale(model_of(optimizer), "mse", [data()])


# The last one, since TensorFlow is loaded then.
def test_a_keras_file_brings_scale_and_counters_back(tmp_path: Path) -> None:
    model = model_of(wrap_optimizer(keras.optimizers.Adam(0.05), LossScaling.dynamic(256.0)))
    x, y = data(bad=[1])
    model.fit(x, y, batch_size=4, verbose=0, shuffle=False)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert read_scaling(loaded.optimizer) == read_scaling(model.optimizer)
    assert read_scaling(loaded.optimizer).skipped_steps == 1
