"""Small tasks whose gradients lie in different ranges, with data that is there without a network."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Task(NamedTuple):
    """A model, its loss and its batches."""

    model: Any
    loss: Any
    batches: list[tuple[np.ndarray, np.ndarray]]
    optimizer: Any


def batches_of(x: np.ndarray, y: np.ndarray, size: int, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    order = np.random.default_rng(seed)
    chosen = [order.integers(0, len(x), size) for _ in range(count)]
    return [(x[rows], y[rows]) for rows in chosen]


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.data / 16.0).astype("float32"), data.target.astype("int32")


def digit_mlp(keras: Any, seed: int = 0, count: int = 200) -> Task:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((64,)) if hasattr(layers, "Input") else layers.InputLayer((64,)),
            layers.Dense(256, activation="relu"),
            layers.Dense(256, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )
    x, y = digits()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Task(model, loss, batches_of(x, y, 64, count, seed), keras.optimizers.Adam(1e-3))


def digit_cnn(keras: Any, seed: int = 0, count: int = 200) -> Task:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    stack = [keras.Input((8, 8, 1))]
    for filters in (16, 32, 32):
        stack += [
            layers.Conv2D(filters, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.Activation("relu"),
        ]
    stack += [layers.GlobalAveragePooling2D(), layers.Dense(10, dtype="float32")]
    x, y = digits()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    batches = batches_of(x.reshape(-1, 8, 8, 1), y, 32, count, seed)
    return Task(keras.Sequential(stack), loss, batches, keras.optimizers.Adam(2e-3))


def deep_tanh(keras: Any, seed: int = 0, count: int = 200) -> Task:
    keras.utils.set_random_seed(seed)
    initial = keras.initializers.Orthogonal(gain=0.9, seed=seed)
    stack = [keras.Input((64,))]
    stack += [keras.layers.Dense(64, activation="tanh", kernel_initializer=initial) for _ in range(12)]
    stack += [keras.layers.Dense(10, dtype="float32")]
    x, y = digits()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Task(keras.Sequential(stack), loss, batches_of(x, y, 64, count, seed), keras.optimizers.Adam(1e-3))


def regression(keras: Any, seed: int = 0, count: int = 200, *, tiny: bool = False) -> Task:
    """Targets near 1000, or of the order 1e-4."""
    keras.utils.set_random_seed(seed)
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(2000, 16)).astype("float32")
    signal = np.tanh(x @ draw.normal(size=(16, 4))).sum(axis=1, keepdims=True)
    target = (1e-4 * signal if tiny else 1000.0 + 120.0 * signal).astype("float32")
    stack = [keras.Input((16,))]
    activation = "tanh" if tiny else "relu"
    stack += [keras.layers.Dense(64, activation=activation) for _ in range(2)]
    last = keras.initializers.RandomNormal(stddev=1e-3, seed=seed) if tiny else "glorot_uniform"
    stack += [keras.layers.Dense(1, dtype="float32", kernel_initializer=last)]
    optimizer = keras.optimizers.Adam(1e-3, epsilon=1e-12) if tiny else keras.optimizers.Adam(2e-3)
    model = keras.Sequential(stack)
    return Task(model, keras.losses.MeanSquaredError(), batches_of(x, target, 64, count, seed), optimizer)


def tiny_regression(keras: Any, seed: int = 0, count: int = 200) -> Task:
    return regression(keras, seed, count, tiny=True)


def scaled_down(keras: Any, seed: int = 0, count: int = 200) -> Task:
    """A small network whose output is made a thousand times smaller, and its gradients with it. Adam does not mind."""
    keras.utils.set_random_seed(seed)
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(2000, 8)).astype("float32")
    target = (1e-3 * np.tanh(x @ draw.normal(size=(8, 2))).sum(axis=1, keepdims=True)).astype("float32")
    stack = [keras.Input((8,))]
    stack += [keras.layers.Dense(32, activation="tanh") for _ in range(2)]
    stack += [keras.layers.Dense(1), keras.layers.Rescaling(1e-3, dtype="float32")]
    optimizer = keras.optimizers.Adam(5e-3, epsilon=1e-20)
    return Task(
        keras.Sequential(stack), keras.losses.MeanSquaredError(), batches_of(x, target, 64, count, seed), optimizer
    )


def two_sizes(keras: Any, seed: int = 0, count: int = 200) -> Task:
    """One half of the network has gradients near 1000, the other near a thousandth of a millionth."""
    keras.utils.set_random_seed(seed)
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(500, 8)).astype("float32")
    given = keras.Input((8,))
    large = keras.layers.Dense(1)(keras.layers.Dense(16, activation="tanh")(given))
    small = keras.layers.Dense(1)(keras.layers.Dense(16, activation="tanh")(given))
    small = keras.layers.Rescaling(1e-4, dtype="float32")(small)
    model = keras.Model(given, keras.layers.Concatenate(dtype="float32")([large, small]))
    target = np.concatenate([1000.0 + x[:, :1], 1e-4 * x[:, 1:2]], axis=1).astype("float32")
    loss = keras.losses.MeanSquaredError()
    return Task(model, loss, batches_of(x, target, 32, count, seed), keras.optimizers.Adam(1e-3))


def segmentation(keras: Any, seed: int = 0, count: int = 80, size: int = 48) -> Task:
    """Digits scattered over a noisy picture; every pixel is to be labelled, and the loss is their mean."""
    keras.utils.set_random_seed(seed)
    draw = np.random.default_rng(seed)
    pictures, labels = digits()
    x = draw.normal(0.0, 0.3, size=(128, size, size, 1)).astype("float32")
    y = np.zeros((128, size, size), "int32")
    for picture in range(128):
        for _ in range(4):
            which, top, left = draw.integers(len(pictures)), draw.integers(size - 16), draw.integers(size - 16)
            shape = np.kron(pictures[which].reshape(8, 8), np.ones((2, 2), "float32"))
            x[picture, top : top + 16, left : left + 16, 0] += 2.0 * shape
            y[picture, top : top + 16, left : left + 16][shape > 0.3] = 1 + labels[which]
    layers = keras.layers
    given = keras.Input((size, size, 1))
    first = layers.Conv2D(8, 3, padding="same", activation="relu")(given)
    second = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.MaxPooling2D()(first))
    third = layers.Conv2D(32, 3, padding="same", activation="relu")(layers.MaxPooling2D()(second))
    up = layers.Conv2D(16, 3, padding="same", activation="relu")(
        layers.Concatenate()([layers.UpSampling2D()(third), second])
    )
    top = layers.Conv2D(8, 3, padding="same", activation="relu")(
        layers.Concatenate()([layers.UpSampling2D()(up), first])
    )
    model = keras.Model(given, layers.Conv2D(11, 1, dtype="float32")(top))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Task(model, loss, batches_of(x, y, 16, count, seed), keras.optimizers.Adam(3e-3))


TEXT_MODULES = ("argparse", "ast", "asyncio.base_events", "datetime", "inspect", "pathlib", "tarfile", "typing")


def standard_library_text() -> np.ndarray:
    """Give the source of some of Python's own modules as numbers of characters."""
    text = "\n".join(inspect.getsource(importlib.import_module(name)) for name in TEXT_MODULES)
    text = "".join(each for each in text if each in "\n" or 32 <= ord(each) < 127)
    codes = np.frombuffer(text.encode("ascii"), "uint8").astype("int32")
    return np.where(codes == 10, 0, codes - 31)


VOCABULARY = 96


def characters(keras: Any, seed: int = 0, count: int = 200, length: int = 32, width: int = 64, size: int = 32) -> Task:
    """A transformer of two layers that says the next character of Python's own source."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    given = keras.Input((length,), dtype="int32")
    places = given * 0 + keras.ops.arange(length, dtype="int32")
    hidden = layers.Embedding(VOCABULARY, width)(given) + layers.Embedding(length, width)(places)
    for _ in range(2):
        normal = layers.LayerNormalization()(hidden)
        hidden = hidden + layers.MultiHeadAttention(4, width // 4)(normal, normal, use_causal_mask=True)
        wide = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(hidden))
        hidden = hidden + layers.Dense(width)(wide)
    model = keras.Model(given, layers.Dense(VOCABULARY, dtype="float32")(layers.LayerNormalization()(hidden)))
    text = standard_library_text()
    draw = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        starts = draw.integers(0, len(text) - length - 1, size)
        rows = np.stack([text[start : start + length + 1] for start in starts])
        batches.append((rows[:, :-1], rows[:, 1:]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Task(model, loss, batches, keras.optimizers.Adam(3e-3))


TASKS: dict[str, Callable[..., Task]] = {
    "mlp": digit_mlp,
    "cnn": digit_cnn,
    "deep": deep_tanh,
    "reg": regression,
    "scaled_down": scaled_down,
    "two_sizes": two_sizes,
    "tinyreg": tiny_regression,
    "seg": segmentation,
    "lm": characters,
}
