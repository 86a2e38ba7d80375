"""A small text classifier with mistakes that float16 punishes, and the same one without them.

hwprobe audit examples.hazards:with_mistakes
hwprobe audit examples.hazards:mended
"""

import keras
import numpy as np

import hwprobe


class MaskedMean(keras.layers.Layer):
    """Averages over time with weights from an additive mask."""

    def call(self, inputs, padding):
        """Give one vector for each sequence."""
        scores = keras.ops.mean(inputs, axis=-1) + padding * -1e9
        weights = keras.ops.softmax(scores)
        return keras.ops.sum(inputs * weights[:, :, None], axis=1)


class MendedMean(keras.layers.Layer):
    """The same, with a mask that float16 can hold."""

    def call(self, inputs, padding):
        """Give one vector for each sequence."""
        scores = keras.ops.mean(inputs, axis=-1) + padding * -3e4
        weights = keras.ops.softmax(scores)
        return keras.ops.sum(inputs * weights[:, :, None], axis=1)


def with_mistakes():
    """Give the model and a batch of inputs and targets."""
    return classifier(60, MaskedMean, head_dtype=None, optimizer=keras.optimizers.Adam())


def mended():
    """Give the model without the mistakes, and the same batch."""
    optimizer = hwprobe.wrap_optimizer(keras.optimizers.Adam(), "dynamic")
    return classifier(64, MendedMean, head_dtype="float32", optimizer=optimizer)


def classifier(width, pooling, head_dtype, optimizer):
    """Build the classifier under mixed_float16 and draw a batch for it."""
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("mixed_float16")
    tokens = keras.Input((32,), dtype="int32", name="tokens")
    padding = keras.Input((32,), name="padding_mask")
    embedded = keras.layers.Embedding(5000, width, name="embedding")(tokens)
    pooled = pooling(name="pooling")(embedded, padding)
    outputs = keras.layers.Dense(4, activation="softmax", dtype=head_dtype, name="classes")(pooled)
    model = keras.Model([tokens, padding], outputs, name="classifier")
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    generator = np.random.default_rng(0)
    ids = generator.integers(1, 5000, (16, 32))
    padded = (np.arange(32) >= generator.integers(8, 32, (16, 1))).astype("float32")
    return model, ([ids, padded], generator.integers(0, 4, 16))
