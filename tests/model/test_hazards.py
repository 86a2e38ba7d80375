"""Each hazard with a model that has it, and beside it the nearest model that does not."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

ROWS = 16


class Hazard(NamedTuple):
    """A hazard: what it is, the finding, a model that has it, and one that is safe; each with its batch."""

    what: str
    id: str
    firing: Callable[[Any], tuple[Any, Any]]
    quiet: Callable[[Any], tuple[Any, Any]]


def _classifier(keras, *, head_dtype=None, activation="softmax", from_logits=False):
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(3, activation=activation, dtype=head_dtype)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits))
    return model


def _labels():
    generator = np.random.default_rng(0)
    return generator.normal(size=(ROWS, 8)).astype("float32"), generator.integers(0, 3, ROWS)


def _one_layer(keras, layer, shape=(8,), dtype="float32", head=True):
    inputs = keras.Input(shape, dtype=dtype)
    outputs = layer(inputs)
    return keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(outputs) if head else outputs)


def _custom(keras, function, **attributes):
    class Custom(keras.layers.Layer):
        def call(self, inputs):
            return function(inputs)

    layer = Custom()
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


def _with_method(keras, **methods):
    model_class = type("Own", (keras.Model,), methods)
    inputs = keras.Input((8,))
    model = model_class(inputs, keras.layers.Dense(1, name="head")(inputs))
    model.compile("sgd", "mse")
    return model


def _ones(*shape):
    return np.ones(shape, "float32")


def _softmax_head(keras):
    return _classifier(keras), _labels()


def _float32_softmax_head(keras):
    return _classifier(keras, head_dtype="float32"), _labels()


def _softmax_then_cast(keras):
    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(3, activation="softmax")(inputs)
    model = keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(outputs))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model, _labels()


def _float16_logits(keras):
    return _classifier(keras, activation=None, from_logits=True), _labels()


def _regression(keras, head_dtype=None, metrics=None, scale=1.0):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, dtype=head_dtype)])
    model.compile("sgd", "mse", metrics=metrics)
    x = _ones(ROWS, 8)
    return model, (x, (1000.0 + np.arange(ROWS)[:, None]).astype("float32") * scale)


def _own_step_with_function(keras):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(keras.losses.mean_squared_error(keras.ops.cast(y, y_pred.dtype), y_pred))

    return _with_method(keras, compute_loss=compute_loss), (_ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def _own_step_with_object(keras):
    loss = keras.losses.MeanSquaredError()

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return loss(y, y_pred)

    return _with_method(keras, compute_loss=compute_loss), (_ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def _compiled_with_function(keras):
    model, _ = _regression(keras)
    model.compile("sgd", keras.losses.mean_squared_error)
    return model, (_ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def _additive_mask(keras):
    def masked(mask):
        scores = keras.ops.zeros_like(mask)
        return keras.ops.softmax(scores + (1.0 - mask) * -1e9)

    return _one_layer(keras, _custom(keras, masked)), _ones(ROWS, 8)


def _half_additive_mask(keras):
    def masked(mask):
        return keras.ops.softmax((1.0 - mask) * -3e4)

    return _one_layer(keras, _custom(keras, masked)), _ones(ROWS, 8)


def _mask_as_setting(keras):
    layer = _custom(keras, lambda inputs: inputs, large_negative=-1e9)
    return _one_layer(keras, layer), _ones(ROWS, 8)


def _mask_in_float32(keras):
    def masked(mask):
        return keras.ops.softmax((1.0 - keras.ops.cast(mask, "float32")) * -1e9)

    return _one_layer(keras, _custom(keras, masked)), _ones(ROWS, 8)


def _softmax_layer_masked(keras):
    scores, mask = keras.Input((8,), name="scores"), keras.Input((8,), dtype="bool", name="mask")
    outputs = keras.layers.Softmax()(scores, mask=mask)
    return keras.Model([scores, mask], keras.layers.Activation("linear", dtype="float32")(outputs)), None


def _custom_softmax_masked(keras):
    scores, mask = keras.Input((8,), name="scores"), keras.Input((8,), name="padding_mask")

    class Masked(keras.layers.Layer):
        def call(self, scores, mask):
            return keras.ops.softmax(keras.ops.where(mask > 0.5, scores, -1e9))

    return keras.Model([scores, mask], Masked()(scores, mask)), None


def _attention_fully_masked(keras):
    ids = keras.Input((8,), dtype="int32")
    embedded = keras.layers.Embedding(32, 16, mask_zero=True)(ids)
    attended = keras.layers.MultiHeadAttention(2, 8)(embedded, embedded)
    return keras.Model(ids, keras.layers.Dense(3, dtype="float32")(attended)), None


def _small_epsilon(keras):
    def normalise(inputs):
        return inputs / (keras.ops.max(keras.ops.abs(inputs), axis=-1, keepdims=True) + 1e-8)

    return _one_layer(keras, _custom(keras, normalise)), _ones(ROWS, 8)


def _epsilon_as_setting(keras):
    return _one_layer(keras, _custom(keras, lambda inputs: inputs, epsilon=1e-8)), _ones(ROWS, 8)


def _large_epsilon(keras):
    def normalise(inputs):
        return inputs / (keras.ops.max(keras.ops.abs(inputs), axis=-1, keepdims=True) + 1e-4)

    return _one_layer(keras, _custom(keras, normalise, epsilon=1e-4)), _ones(ROWS, 8)


def _guarded_normalizations(keras):
    inputs = keras.Input((8,))
    outputs = keras.layers.LayerNormalization(epsilon=1e-12)(inputs)
    outputs = keras.layers.BatchNormalization(epsilon=1e-12)(outputs)
    outputs = keras.layers.GroupNormalization(2, epsilon=1e-12)(outputs)
    outputs = keras.layers.RMSNormalization(epsilon=1e-12)(outputs)
    return keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(outputs)), None


def _unit_normalization(keras):
    return _one_layer(keras, keras.layers.UnitNormalization()), _ones(ROWS, 8)


def _unit_normalization_float32(keras):
    return _one_layer(keras, keras.layers.UnitNormalization(dtype="float32")), _ones(ROWS, 8)


def _raw_data(keras, mean, deviation, dtype=None):
    layer = keras.layers.Normalization(dtype=dtype)
    data = np.random.default_rng(0).normal(mean, deviation, (64, 8)).astype("float32")
    layer.adapt(data)
    return _one_layer(keras, layer), data


def _ids(keras, *, through_reshape, dtype="float32", vocabulary=5000):
    inputs = keras.Input((4,), dtype=dtype)
    ids = keras.layers.Reshape((2, 2))(inputs) if through_reshape else inputs
    embedded = keras.layers.Embedding(vocabulary, 8)(ids)
    model = keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(embedded))
    return model, (np.arange(32) + vocabulary - 32).reshape(8, 4).astype(dtype)


def _positions(keras, dtype):
    class Positions(keras.layers.Layer):
        def call(self, inputs):
            return keras.ops.cast(keras.ops.arange(keras.ops.shape(inputs)[1]), dtype or self.compute_dtype)

    return _one_layer(keras, Positions(), shape=(4096, 1), head=False), np.zeros((2, 4096, 1), "float32")


def _sum(keras, reduce):
    return _one_layer(keras, keras.layers.Lambda(reduce), shape=(70000,)), _ones(2, 70000)


def _cumulative_sum(keras):
    import tensorflow as tf

    return _one_layer(keras, _custom(keras, lambda x: tf.cumsum(x, axis=1)), shape=(4096,)), _ones(2, 4096)


def _variance(keras, in_float32):
    def spread(inputs):
        return keras.ops.var(keras.ops.cast(inputs, "float32") if in_float32 else inputs, axis=-1, keepdims=True)

    return _one_layer(keras, _custom(keras, spread)), np.tile([0.0, 600.0], (ROWS, 4)).astype("float32")


def _dense_of_ones(keras, size, value):
    layer = keras.layers.Dense(4, kernel_initializer="ones")
    return _one_layer(keras, layer, shape=(size,)), np.full((4, size), value, "float32")


def _add(keras, value):
    inputs = keras.Input((8,))
    added = keras.layers.Add()([inputs, inputs])
    return keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(added)), np.full((2, 8), value)


def _exponential(keras, value):
    return _one_layer(keras, _custom(keras, lambda x: keras.ops.log(1.0 + keras.ops.exp(x)))), np.full((2, 8), value)


def _graph_exponential(keras, value):
    inputs = keras.Input((8,))
    outputs = keras.ops.exp(keras.layers.Reshape((8,))(inputs) * 1.0)
    return keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(outputs)), np.full((2, 8), value)


def _softplus(keras, value):
    return _one_layer(keras, keras.layers.Activation("softplus")), np.full((2, 8), value, "float32")


def _activity(keras, **options):
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, **options), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, (_ones(64, 64), _ones(64, 1))


def _added_loss(keras, cast):
    class Penalty(keras.layers.Layer):
        def call(self, inputs):
            values = keras.ops.cast(inputs, "float32") if cast else inputs
            self.add_loss(keras.ops.sum(keras.ops.square(values)))
            return inputs

    inputs = keras.Input((8,))
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(Penalty()(inputs)))
    return model, np.full((ROWS, 8), 30.0, "float32")


def _weight(keras):
    class Scaled(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, inputs):
            return inputs * self.scale

    return _one_layer(keras, Scaled()), _ones(ROWS, 8)


def _islands(keras, dtype):
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(8, dtype=dtype), keras.layers.Dense(8)]
    )
    return model, None


def _recurrent(keras, steps, **options):
    return _one_layer(keras, keras.layers.LSTM(8, **options), shape=(steps, 4)), np.zeros((1, 2, 4), "float32")


def _metric(keras, metric, head_dtype=None):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, kernel_initializer="zeros", dtype=head_dtype)])
    model.compile("sgd", "mse", metrics=[metric])
    return model, (_ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def _data(keras, value):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")])
    x = _ones(ROWS, 8)
    x[0, 0] = value
    return model, x


def _sizes(keras, units):
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(units), keras.layers.Dense(3)]), None


def _tiny_errors(keras, optimizer):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer, "mse", auto_scale_loss=False)
    return model, (_ones(ROWS, 8), np.full((ROWS, 1), 1e-9, "float32"))


HAZARDS = [
    Hazard("a float16 softmax feeds a cross-entropy", "HWP630", _softmax_head, _float32_softmax_head),
    Hazard("a float16 softmax is cast to float32 behind itself", "HWP630", _softmax_then_cast, _float16_logits),
    Hazard("the output is float16", "HWP631", _float16_logits, _float32_softmax_head),
    Hazard(
        "targets near 1000 and a float16 output",
        "HWP632",
        lambda keras: _regression(keras, scale=10.0),
        lambda keras: _regression(keras, head_dtype="float32", scale=10.0),
    ),
    Hazard("a functional loss in an own step", "HWP633", _own_step_with_function, _own_step_with_object),
    Hazard("a functional loss overflows", "HWP672", _own_step_with_function, _compiled_with_function),
    Hazard("an additive mask of -1e9 in the code", "HWP634", _additive_mask, _half_additive_mask),
    Hazard("an additive mask of -1e9 in a setting", "HWP634", _mask_as_setting, _mask_in_float32),
    Hazard("(1 - mask) * -1e9 where the mask is 1", "HWP660", _additive_mask, _half_additive_mask),
    Hazard("a fully masked row of -inf", "HWP664", _custom_softmax_masked, _softmax_layer_masked),
    Hazard("a fully masked row in Keras' attention", "HWP664", _custom_softmax_masked, _attention_fully_masked),
    Hazard("an epsilon of 1e-8 in the code", "HWP635", _small_epsilon, _large_epsilon),
    Hazard("an epsilon of 1e-8 in a setting", "HWP635", _epsilon_as_setting, _guarded_normalizations),
    Hazard("zero divided by zero", "HWP663", _small_epsilon, _large_epsilon),
    Hazard("zeros into normalisation", "HWP663", _unit_normalization, _guarded_normalizations),
    Hazard("UnitNormalization in float16", "HWP636", _unit_normalization, _unit_normalization_float32),
    Hazard(
        "raw data far from zero",
        "HWP637",
        lambda keras: _raw_data(keras, 10000.0, 1.0),
        lambda keras: _raw_data(keras, 10000.0, 1.0, dtype="float32"),
    ),
    Hazard(
        "raw data beyond float16",
        "HWP637",
        lambda keras: _raw_data(keras, 7e5, 1e5),
        lambda keras: _raw_data(keras, 10.0, 5.0),
    ),
    Hazard(
        "float ids through a Reshape",
        "HWP638",
        lambda keras: _ids(keras, through_reshape=True),
        lambda keras: _ids(keras, through_reshape=False),
    ),
    Hazard(
        "float ids beyond 2048",
        "HWP638",
        lambda keras: _ids(keras, through_reshape=True),
        lambda keras: _ids(keras, through_reshape=True, vocabulary=2000),
    ),
    Hazard(
        "integer ids",
        "HWP638",
        lambda keras: _ids(keras, through_reshape=True),
        lambda keras: _ids(keras, through_reshape=True, dtype="int32"),
    ),
    Hazard(
        "positions counted in float16",
        "HWP666",
        lambda keras: _positions(keras, None),
        lambda keras: _positions(keras, "float32"),
    ),
    Hazard(
        "a sum over 70000 elements",
        "HWP660",
        lambda keras: _sum(keras, lambda x: keras.ops.sum(x, axis=-1, keepdims=True)),
        lambda keras: _sum(keras, lambda x: keras.ops.mean(x, axis=-1, keepdims=True)),
    ),
    Hazard(
        "a cumulative sum stops at 2048",
        "HWP665",
        _cumulative_sum,
        lambda keras: _sum(keras, lambda x: keras.ops.mean(x, axis=-1, keepdims=True)),
    ),
    Hazard(
        "a variance of 90000",
        "HWP660",
        lambda keras: _variance(keras, in_float32=False),
        lambda keras: _variance(keras, in_float32=True),
    ),
    Hazard(
        "a dense layer beyond 65504",
        "HWP660",
        lambda keras: _dense_of_ones(keras, 1024, 100.0),
        lambda keras: _dense_of_ones(keras, 16, 1.0),
    ),
    Hazard(
        "a dense layer close to 65504",
        "HWP662",
        lambda keras: _dense_of_ones(keras, 1024, 20.0),
        lambda keras: _dense_of_ones(keras, 1024, 1.0),
    ),
    Hazard("40000 + 40000", "HWP660", lambda keras: _add(keras, 40000.0), lambda keras: _add(keras, 4.0)),
    Hazard(
        "log(1 + exp(12))", "HWP660", lambda keras: _exponential(keras, 12.0), lambda keras: _exponential(keras, 3.0)
    ),
    Hazard(
        "exp(12) as a bare operation of the graph",
        "HWP660",
        lambda keras: _graph_exponential(keras, 12.0),
        lambda keras: _graph_exponential(keras, 3.0),
    ),
    Hazard("softplus(-20)", "HWP667", lambda keras: _softplus(keras, -20.0), lambda keras: _softplus(keras, -2.0)),
    Hazard(
        "an activity regulariser",
        "HWP639",
        lambda keras: _activity(keras, activity_regularizer="l2"),
        lambda keras: _activity(keras, kernel_regularizer="l2"),
    ),
    Hazard(
        "an activity regulariser beside a compiled loss",
        "HWP669",
        lambda keras: _activity(keras, activity_regularizer="l2"),
        lambda keras: _activity(keras, activity_regularizer="l2", dtype="float32"),
    ),
    Hazard(
        "add_loss in float16",
        "HWP672",
        lambda keras: _added_loss(keras, cast=False),
        lambda keras: _added_loss(keras, cast=True),
    ),
    Hazard(
        "a float32 array of NumPy",
        "HWP668",
        lambda keras: (
            _one_layer(keras, _custom(keras, lambda x: keras.ops.multiply(x, np.ones(8, "float32")))),
            _ones(ROWS, 8),
        ),
        _weight,
    ),
    Hazard(
        "a float32 layer in the middle",
        "HWP642",
        lambda keras: _islands(keras, "float32"),
        lambda keras: _islands(keras, None),
    ),
    Hazard(
        "4000 recurrent steps",
        "HWP640",
        lambda keras: _recurrent(keras, 4000),
        lambda keras: _recurrent(keras, 100),
    ),
    Hazard(
        "an LSTM that cuDNN cannot fuse",
        "HWP644",
        lambda keras: _recurrent(keras, 2, activation="relu"),
        lambda keras: _recurrent(keras, 2),
    ),
    Hazard(
        "a metric that wraps a function",
        "HWP673",
        lambda keras: _metric(keras, "mse"),
        lambda keras: _metric(keras, "mse", head_dtype="float32"),
    ),
    Hazard("NaN in the data", "HWP674", lambda keras: _data(keras, np.nan), lambda keras: _data(keras, 2.0)),
    Hazard("data beyond float16", "HWP675", lambda keras: _data(keras, 1e5), lambda keras: _data(keras, 100.0)),
    Hazard("units of 30", "HWP643", lambda keras: _sizes(keras, 30), lambda keras: _sizes(keras, 32)),
    Hazard(
        "a depthwise convolution",
        "HWP645",
        lambda keras: _one_layer_model(keras, keras.layers.DepthwiseConv2D(3)),
        lambda keras: _one_layer_model(keras, keras.layers.Conv2D(8, 3)),
    ),
    Hazard(
        "gradients that vanish without scaling",
        "HWP671",
        lambda keras: _tiny_errors(keras, keras.optimizers.SGD()),
        lambda keras: _tiny_errors(keras, keras.optimizers.SGD(loss_scale_factor=2.0**24)),
    ),
]


def _one_layer_model(keras, layer):
    return _one_layer(keras, layer, shape=(16, 16, 8)), None


@pytest.mark.parametrize("hazard", HAZARDS, ids=[f"{each.id}: {each.what}" for each in HAZARDS])
def test_a_model_with_the_hazard_gets_the_finding(keras, found, hazard):
    model, batch = hazard.firing(keras)
    assert hazard.id in found(model, batch)


@pytest.mark.parametrize("hazard", HAZARDS, ids=[f"{each.id}: {each.what}" for each in HAZARDS])
def test_a_model_without_the_hazard_does_not(keras, found, hazard):
    model, batch = hazard.quiet(keras)
    assert hazard.id not in found(model, batch)
