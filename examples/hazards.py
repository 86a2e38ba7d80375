"""A small text classifier with four mistakes that float16 punishes; `hwprobe audit examples.hazards:make_model`."""

import keras
import numpy as np


class MaskedMean(keras.layers.Layer):
    """Averages over time with weights from an additive mask."""

    def call(self, inputs, padding):
        """Give one vector for each sequence."""
        scores = keras.ops.mean(inputs, axis=-1) + padding * -1e9
        weights = keras.ops.softmax(scores)
        return keras.ops.sum(inputs * weights[:, :, None], axis=1)


def make_model():
    """Give the model and a batch of inputs and targets."""
    keras.config.set_dtype_policy("mixed_float16")
    tokens = keras.Input((32,), dtype="int32", name="tokens")
    padding = keras.Input((32,), name="padding_mask")
    embedded = keras.layers.Embedding(5000, 60, name="embedding")(tokens)
    pooled = MaskedMean(name="pooling")(embedded, padding)
    outputs = keras.layers.Dense(4, activation="softmax", name="classes")(pooled)
    model = keras.Model([tokens, padding], outputs, name="classifier")
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    generator = np.random.default_rng(0)
    ids = generator.integers(1, 5000, (16, 32))
    lengths = generator.integers(8, 32, (16, 1))
    padded = (np.arange(32) >= lengths).astype("float32")
    return model, ([ids, padded], generator.integers(0, 4, 16))
