"""A model is the same after an audit: weights, optimizer, statistics, random state, attributes."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hwprobe.model.audit import audit
from hwprobe.model.untouched import operations

Trained = tuple[Any, npt.NDArray[Any], npt.NDArray[Any]]


def _digest(model: Any) -> str:
    parts = [np.asarray(variable).tobytes() for variable in model.variables]
    parts += [np.asarray(variable).tobytes() for variable in model.optimizer.variables]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _attributes(model: Any) -> dict[tuple[str, str], tuple[int, list[Any] | None]]:
    owners = [("model", model), *operations(model)]
    return {
        (name, attribute): (id(value), list(value) if isinstance(value, (list, dict, set)) else None)
        for name, owner in owners
        for attribute, value in vars(owner).items()
    }


@pytest.fixture
def trained(keras: Any) -> Trained:
    """A model with everything that an audit could move: statistics, dropout, a counter, a plain tf.Variable."""
    import tensorflow as tf

    class Counting(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="counting")
            self.calls = 0
            self.seen: list[int] = []
            self.total = tf.Variable(0.0, trainable=False)
            self.random = tf.random.Generator.from_seed(1)

        def call(self, inputs: Any) -> Any:
            self.calls += 1
            self.seen.append(self.calls)
            self.total.assign_add(1.0)
            self.add_loss(keras.ops.cast(keras.ops.mean(inputs), "float32"))
            return inputs + tf.cast(self.random.normal(()), inputs.dtype)

    inputs = keras.Input((8,))
    outputs = keras.layers.Normalization(mean=1.0, variance=2.0)(inputs)
    outputs = keras.layers.Dense(8)(outputs)
    outputs = keras.layers.BatchNormalization()(outputs)
    outputs = keras.layers.Dropout(0.5)(outputs)
    outputs = Counting()(outputs)
    outputs = keras.layers.Dense(3, activation="softmax")(keras.ops.exp(outputs * 0.1))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = np.random.default_rng(0).normal(size=(32, 8)).astype("float32"), np.arange(32) % 3
    model.fit(x, y, verbose=0)
    return model, x, y


def test_weights_optimizer_statistics_and_random_state_stay(trained: Trained) -> None:
    model, x, y = trained
    before = _digest(model)
    result = audit(model, (x, y))
    assert result.probe.status == "ok"
    assert result.probe.loss == "compiled"
    assert _digest(model) == before


def test_attributes_stay_even_those_of_custom_layers(trained: Trained) -> None:
    model, x, y = trained
    counting = model.get_layer("counting")
    before, total, random = _attributes(model), float(counting.total), counting.random.state.numpy().tolist()
    audit(model, (x, y))
    assert _attributes(model) == before
    assert float(counting.total) == total
    assert counting.random.state.numpy().tolist() == random


def test_predictions_and_training_go_on_as_if_nothing_had_happened(trained: Trained, keras: Any) -> None:
    model, x, y = trained
    random = model.get_layer("counting").random.state
    start = random.numpy()
    before = model.predict(x, verbose=0)
    audit(model, (x, y))
    assert model.layers[2].compute_dtype == "float16"
    random.assign(start)
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    model.fit(x, y, verbose=0)


def test_a_model_that_was_never_compiled_stays_so(keras: Any) -> None:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    audit(model, np.ones((4, 8), "float32"))
    assert model.compiled is False
    assert getattr(model, "optimizer", None) is None


def test_a_failing_pass_leaves_the_model_as_it_was(keras: Any) -> None:
    class Broken(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            if keras.ops.is_tensor(inputs) and inputs.dtype == "float16":
                raise ValueError("no float16 here")
            return inputs

    keras.config.set_dtype_policy("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), Broken(), keras.layers.Dense(2)])
    before = _attributes(model)
    result = audit(model, np.ones((4, 8), "float32"), dtype_policy="mixed_float16")
    assert [finding.id for finding in result.findings if finding.primary] == ["HWP669"]
    assert _attributes(model) == before


def test_functions_that_tensorflow_traced_keep_their_dtype(keras: Any) -> None:
    import tensorflow as tf

    class Traced(keras.layers.Layer):  # type: ignore[misc]
        @tf.function  # type: ignore[untyped-decorator]
        def call(self, inputs: Any) -> Any:
            return tf.ones_like(inputs, dtype=self.compute_dtype) * tf.cast(inputs, self.compute_dtype)

    ids = keras.Input((4,), dtype="int32")
    model = keras.Model(ids, Traced()(ids))
    assert model(np.ones((2, 4), "int32")).dtype == "float16"
    audit(model, np.ones((2, 4), "int32"))
    assert model(np.ones((2, 4), "int32")).dtype == "float16"
    assert not tf.config.functions_run_eagerly()
