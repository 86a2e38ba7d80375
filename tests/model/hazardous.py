"""Small models that have a hazard, and the nearest ones that do not; most of them with a batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ModelAndBatch = tuple[Any, Any]

ROWS = 16


def classifier(
    keras: Any, *, head_dtype: str | None = None, activation: str | None = "softmax", from_logits: bool = False
) -> Any:
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(3, activation=activation, dtype=head_dtype)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits))
    return model


def labels() -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(ROWS, 8)).astype("float32"), generator.integers(0, 3, ROWS)


def one_layer(keras: Any, layer: Any, shape: tuple[int, ...] = (8,), dtype: str = "float32", head: bool = True) -> Any:
    inputs = keras.Input(shape, dtype=dtype)
    outputs = layer(inputs)
    return keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(outputs) if head else outputs)


def custom(keras: Any, function: Callable[[Any], Any], **attributes: object) -> Any:
    class Custom(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return function(inputs)

    layer = Custom()
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


def with_method(keras: Any, **methods: Callable[..., Any]) -> Any:
    model_class = type("Own", (keras.Model,), methods)
    inputs = keras.Input((8,))
    model = model_class(inputs, keras.layers.Dense(1, name="head")(inputs))
    model.compile("sgd", "mse")
    return model


def ones(*shape: int) -> Array:
    return np.ones(shape, "float32")


def softmax_head(keras: Any) -> ModelAndBatch:
    return classifier(keras), labels()


def float32_softmax_head(keras: Any) -> ModelAndBatch:
    return classifier(keras, head_dtype="float32"), labels()


def softmax_then_cast(keras: Any) -> ModelAndBatch:
    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(3, activation="softmax")(inputs)
    model = keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(outputs))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model, labels()


def float16_logits(keras: Any) -> ModelAndBatch:
    return classifier(keras, activation=None, from_logits=True), labels()


def regression(
    keras: Any, head_dtype: str | None = None, metrics: list[Any] | None = None, scale: float = 1.0
) -> ModelAndBatch:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, dtype=head_dtype)])
    model.compile("sgd", "mse", metrics=metrics)
    x = ones(ROWS, 8)
    return model, (x, (1000.0 + np.arange(ROWS)[:, None]).astype("float32") * scale)


def own_step_with_function(keras: Any) -> ModelAndBatch:
    def compute_loss(
        self: Any, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return keras.ops.mean(keras.losses.mean_squared_error(keras.ops.cast(y, y_pred.dtype), y_pred))

    return with_method(keras, compute_loss=compute_loss), (ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def own_step_with_object(keras: Any) -> ModelAndBatch:
    loss = keras.losses.MeanSquaredError()

    def compute_loss(
        self: Any, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return loss(y, y_pred)

    return with_method(keras, compute_loss=compute_loss), (ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def compiled_with_function(keras: Any) -> ModelAndBatch:
    model, _ = regression(keras)
    model.compile("sgd", keras.losses.mean_squared_error)
    return model, (ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def additive_mask(keras: Any) -> ModelAndBatch:
    def masked(mask: Any) -> Any:
        scores = keras.ops.zeros_like(mask)
        return keras.ops.softmax(scores + (1.0 - mask) * -1e9)

    return one_layer(keras, custom(keras, masked)), ones(ROWS, 8)


def half_additive_mask(keras: Any) -> ModelAndBatch:
    def masked(mask: Any) -> Any:
        return keras.ops.softmax((1.0 - mask) * -3e4)

    return one_layer(keras, custom(keras, masked)), ones(ROWS, 8)


def mask_as_setting(keras: Any) -> ModelAndBatch:
    layer = custom(keras, lambda inputs: inputs, large_negative=-1e9)
    return one_layer(keras, layer), ones(ROWS, 8)


def mask_in_float32(keras: Any) -> ModelAndBatch:
    def masked(mask: Any) -> Any:
        return keras.ops.softmax((1.0 - keras.ops.cast(mask, "float32")) * -1e9)

    return one_layer(keras, custom(keras, masked)), ones(ROWS, 8)


def softmax_layer_masked(keras: Any) -> ModelAndBatch:
    scores, mask = keras.Input((8,), name="scores"), keras.Input((8,), dtype="bool", name="mask")
    outputs = keras.layers.Softmax()(scores, mask=mask)
    return keras.Model([scores, mask], keras.layers.Activation("linear", dtype="float32")(outputs)), None


def custom_softmax_masked(keras: Any) -> ModelAndBatch:
    scores, mask = keras.Input((8,), name="scores"), keras.Input((8,), name="padding_mask")

    class Masked(keras.layers.Layer):  # type: ignore[misc]
        def call(self, scores: Any, mask: Any) -> Any:
            return keras.ops.softmax(keras.ops.where(mask > 0.5, scores, -1e9))

    return keras.Model([scores, mask], Masked()(scores, mask)), None


def attention_fully_masked(keras: Any) -> ModelAndBatch:
    ids = keras.Input((8,), dtype="int32")
    embedded = keras.layers.Embedding(32, 16, mask_zero=True)(ids)
    attended = keras.layers.MultiHeadAttention(2, 8)(embedded, embedded)
    return keras.Model(ids, keras.layers.Dense(3, dtype="float32")(attended)), None


def small_epsilon(keras: Any) -> ModelAndBatch:
    def normalise(inputs: Any) -> Any:
        return inputs / (keras.ops.max(keras.ops.abs(inputs), axis=-1, keepdims=True) + 1e-8)

    return one_layer(keras, custom(keras, normalise)), ones(ROWS, 8)


def epsilon_as_setting(keras: Any) -> ModelAndBatch:
    return one_layer(keras, custom(keras, lambda inputs: inputs, epsilon=1e-8)), ones(ROWS, 8)


def large_epsilon(keras: Any) -> ModelAndBatch:
    def normalise(inputs: Any) -> Any:
        return inputs / (keras.ops.max(keras.ops.abs(inputs), axis=-1, keepdims=True) + 1e-4)

    return one_layer(keras, custom(keras, normalise, epsilon=1e-4)), ones(ROWS, 8)


def guarded_normalizations(keras: Any) -> ModelAndBatch:
    inputs = keras.Input((8,))
    outputs = keras.layers.LayerNormalization(epsilon=1e-12)(inputs)
    outputs = keras.layers.BatchNormalization(epsilon=1e-12)(outputs)
    outputs = keras.layers.GroupNormalization(2, epsilon=1e-12)(outputs)
    outputs = keras.layers.RMSNormalization(epsilon=1e-12)(outputs)
    return keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(outputs)), None


def unit_normalization(keras: Any) -> ModelAndBatch:
    return one_layer(keras, keras.layers.UnitNormalization()), ones(ROWS, 8)


def unit_normalization_float32(keras: Any) -> ModelAndBatch:
    return one_layer(keras, keras.layers.UnitNormalization(dtype="float32")), ones(ROWS, 8)


def raw_data(keras: Any, mean: float, deviation: float, dtype: str | None = None) -> ModelAndBatch:
    layer = keras.layers.Normalization(dtype=dtype)
    data = np.random.default_rng(0).normal(mean, deviation, (64, 8)).astype("float32")
    layer.adapt(data)
    return one_layer(keras, layer), data


def ids(keras: Any, *, through_reshape: bool, dtype: str = "float32", vocabulary: int = 5000) -> ModelAndBatch:
    inputs = keras.Input((4,), dtype=dtype)
    ids = keras.layers.Reshape((2, 2))(inputs) if through_reshape else inputs
    embedded = keras.layers.Embedding(vocabulary, 8)(ids)
    model = keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(embedded))
    return model, (np.arange(32) + vocabulary - 32).reshape(8, 4).astype(dtype)


def positions(keras: Any, dtype: str | None) -> ModelAndBatch:
    class Positions(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return keras.ops.cast(keras.ops.arange(keras.ops.shape(inputs)[1]), dtype or self.compute_dtype)

    return one_layer(keras, Positions(), shape=(4096, 1), head=False), np.zeros((2, 4096, 1), "float32")


def reduction(keras: Any, reduce: Callable[[Any], Any]) -> ModelAndBatch:
    return one_layer(keras, keras.layers.Lambda(reduce), shape=(70000,)), ones(2, 70000)


def cumulative_sum(keras: Any) -> ModelAndBatch:
    import tensorflow as tf

    return one_layer(keras, custom(keras, lambda x: tf.cumsum(x, axis=1)), shape=(4096,)), ones(2, 4096)


def variance(keras: Any, in_float32: bool) -> ModelAndBatch:
    def spread(inputs: Any) -> Any:
        return keras.ops.var(keras.ops.cast(inputs, "float32") if in_float32 else inputs, axis=-1, keepdims=True)

    return one_layer(keras, custom(keras, spread)), np.tile([0.0, 600.0], (ROWS, 4)).astype("float32")


def dense_of_ones(keras: Any, size: int, value: float) -> ModelAndBatch:
    layer = keras.layers.Dense(4, kernel_initializer="ones")
    return one_layer(keras, layer, shape=(size,)), np.full((4, size), value, "float32")


def add(keras: Any, value: float) -> ModelAndBatch:
    inputs = keras.Input((8,))
    added = keras.layers.Add()([inputs, inputs])
    return keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(added)), np.full((2, 8), value)


def exponential(keras: Any, value: float) -> ModelAndBatch:
    return one_layer(keras, custom(keras, lambda x: keras.ops.log(1.0 + keras.ops.exp(x)))), np.full((2, 8), value)


def graph_exponential(keras: Any, value: float) -> ModelAndBatch:
    inputs = keras.Input((8,))
    outputs = keras.ops.exp(keras.layers.Reshape((8,))(inputs) * 1.0)
    return keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(outputs)), np.full((2, 8), value)


def softplus(keras: Any, value: float) -> ModelAndBatch:
    return one_layer(keras, keras.layers.Activation("softplus")), np.full((2, 8), value, "float32")


def activity(keras: Any, **options: Any) -> ModelAndBatch:
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, **options), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, (ones(64, 64), ones(64, 1))


def added_loss(keras: Any, cast: bool) -> ModelAndBatch:
    class Penalty(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            values = keras.ops.cast(inputs, "float32") if cast else inputs
            self.add_loss(keras.ops.sum(keras.ops.square(values)))
            return inputs

    inputs = keras.Input((8,))
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(Penalty()(inputs)))
    return model, np.full((ROWS, 8), 30.0, "float32")


def weight(keras: Any) -> ModelAndBatch:
    class Scaled(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale

    return one_layer(keras, Scaled()), ones(ROWS, 8)


def islands(keras: Any, dtype: str | None) -> ModelAndBatch:
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(8, dtype=dtype), keras.layers.Dense(8)]
    )
    return model, None


def recurrent(keras: Any, steps: int, **options: Any) -> ModelAndBatch:
    return one_layer(keras, keras.layers.LSTM(8, **options), shape=(steps, 4)), np.zeros((1, 2, 4), "float32")


def metric(keras: Any, metric: str, head_dtype: str | None = None) -> ModelAndBatch:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, kernel_initializer="zeros", dtype=head_dtype)])
    model.compile("sgd", "mse", metrics=[metric])
    return model, (ones(ROWS, 8), np.full((ROWS, 1), 300.0, "float32"))


def data(keras: Any, value: float) -> ModelAndBatch:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")])
    x = ones(ROWS, 8)
    x[0, 0] = value
    return model, x


def sizes(keras: Any, units: int) -> ModelAndBatch:
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(units), keras.layers.Dense(3)]), None


def tiny_errors(keras: Any, optimizer: Any) -> ModelAndBatch:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer, "mse", auto_scale_loss=False)
    return model, (ones(ROWS, 8), np.full((ROWS, 1), 1e-9, "float32"))


def one_layer_model(keras: Any, layer: Any) -> ModelAndBatch:
    return one_layer(keras, layer, shape=(16, 16, 8)), None
