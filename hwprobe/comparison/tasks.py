"""The tasks that a comparison trains: five built in, and the user's own.

The built-in ones need no download. The two regressions are made so that a wrong static scale fails on one of them:
targets near 1000 give gradients beyond 2^10, targets near 1e-4 gradients below 2^-10.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwprobe.errors import InputError

Batches = Iterator[tuple[Any, Any]]


@dataclass(frozen=True)
class Task:
    """Something to train.

    Attributes:
        name: For the command line.
        title: What it is, in a line.
        metric: Name of the metric.
        higher_is_better: Which way it counts.
        steps: Steps where the user names none.
        build: Makes the model, under the dtype policy in force.
        loss: What `keras.losses.get` takes, or a loss.
        optimizer: Makes a fresh optimizer.
        batches: Gives batches without end, by seed.
        evaluate: Gives the metric of a trained model.
    """

    name: str
    title: str
    metric: str
    higher_is_better: bool
    steps: int
    build: Callable[[], Any]
    loss: Any
    optimizer: Callable[[], Any]
    batches: Callable[[int], Batches]
    evaluate: Callable[[Any], float]


def builtin_task(name: str) -> Task:
    """Make a built-in task.

    Raises:
        InputError: There is none of that name, or what it needs is not installed.
    """
    maker = _MAKERS.get(name)
    if maker is None:
        raise InputError(f"there is no task {name!r}: expected {', '.join(BUILTIN_TASKS)}")
    return maker()


def _digits() -> tuple[Any, Any]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(
            "the digits tasks need scikit-learn, whose package holds the data: pip install 'tf-hwprobe[compare]', "
            "or choose others with --task"
        ) from error
    digits = load_digits()
    return (digits.data / 16.0).astype("float32"), digits.target.astype("int32")


def _digits_mlp() -> Task:
    import keras

    x, y = _digits()

    def build() -> Any:
        return keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(256, activation="relu"),
                keras.layers.Dense(256, activation="relu"),
                keras.layers.Dense(10, dtype="float32"),
            ]
        )

    return _classification("digits_mlp", "scikit-learn's digits, dense 64-256-256-10", x, y, build, 64, 1e-3, 300)


def _digits_cnn() -> Task:
    import keras

    x, y = _digits()

    def build() -> Any:
        model = keras.Sequential([keras.Input((8, 8, 1))])
        for filters in (16, 32, 32):
            model.add(keras.layers.Conv2D(filters, 3, padding="same", use_bias=False))
            model.add(keras.layers.BatchNormalization(momentum=0.9))
            model.add(keras.layers.Activation("relu"))
        model.add(keras.layers.GlobalAveragePooling2D())
        model.add(keras.layers.Dense(10, dtype="float32"))
        return model

    images = x.reshape(-1, 8, 8, 1)
    return _classification("digits_cnn", "scikit-learn's digits, three convolutions", images, y, build, 32, 2e-3, 200)


def _classification(
    name: str, title: str, x: Any, y: Any, build: Callable[[], Any], batch: int, rate: float, steps: int
) -> Task:
    import keras
    import numpy

    held_out = len(x) // 5

    def accuracy(model: Any) -> float:
        predicted = numpy.asarray(model(x[:held_out], training=False)).argmax(axis=-1)
        return float((predicted == y[:held_out]).mean())

    return Task(
        name=name,
        title=title,
        metric="accuracy",
        higher_is_better=True,
        steps=steps,
        build=build,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: keras.optimizers.Adam(rate),
        batches=lambda seed: _shuffled(x[held_out:], y[held_out:], batch, seed),
        evaluate=accuracy,
    )


_TEXT_MODULES = ("argparse", "ast", "contextlib", "dataclasses", "difflib", "functools", "inspect", "textwrap")
_LENGTH = 32


def _text() -> Task:
    import keras
    import numpy

    ids, vocabulary = _standard_library_text()
    held_out = len(ids) // 10
    starts = numpy.arange(0, held_out - _LENGTH - 1, _LENGTH)[:256]
    tests = numpy.stack([ids[start : start + _LENGTH + 1] for start in starts])

    def batches(seed: int) -> Batches:
        generator = numpy.random.default_rng(seed)
        while True:
            begin = generator.integers(held_out, len(ids) - _LENGTH - 1, 32)
            rows = numpy.stack([ids[start : start + _LENGTH + 1] for start in begin])
            yield rows[:, :-1], rows[:, 1:]

    def accuracy(model: Any) -> float:
        predicted = numpy.asarray(model(tests[:, :-1], training=False)).argmax(axis=-1)
        return float((predicted == tests[:, 1:]).mean())

    return Task(
        name="text",
        title="next character in the Python standard library, two transformer layers of width 64",
        metric="accuracy",
        higher_is_better=True,
        steps=200,
        build=lambda: _character_model(vocabulary),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: keras.optimizers.Adam(3e-3),
        batches=batches,
        evaluate=accuracy,
    )


def _standard_library_text() -> tuple[Any, int]:
    import numpy

    folder = Path(sysconfig.get_paths()["stdlib"])
    try:
        text = "".join((folder / f"{module}.py").read_text(encoding="utf-8") for module in _TEXT_MODULES)
    except OSError as error:
        raise InputError(
            f"the task text reads the sources of Python's standard library, and they are not there: {error}"
        ) from error
    characters = sorted(set(text))
    number = {character: index for index, character in enumerate(characters)}
    return numpy.array([number[character] for character in text], "int32"), len(characters)


def _character_model(vocabulary: int) -> Any:
    import keras

    ids = keras.Input((_LENGTH,), dtype="int32")
    hidden = keras.layers.Embedding(vocabulary, 64)(ids) + keras.layers.Embedding(_LENGTH, 64)(
        keras.ops.broadcast_to(keras.ops.arange(_LENGTH), (1, _LENGTH))
    )
    for _ in range(2):
        normal = keras.layers.LayerNormalization()(hidden)
        hidden = hidden + keras.layers.MultiHeadAttention(4, 16)(normal, normal, use_causal_mask=True)
        normal = keras.layers.LayerNormalization()(hidden)
        hidden = hidden + keras.layers.Dense(64)(keras.layers.Dense(128, activation="gelu")(normal))
    hidden = keras.layers.LayerNormalization()(hidden)
    return keras.Model(ids, keras.layers.Dense(vocabulary, dtype="float32")(hidden))


def _regression(
    name: str, title: str, *, scale: float, offset: float, unit: float, rate: float, epsilon: float
) -> Task:
    import keras
    import numpy

    generator = numpy.random.default_rng(11)
    x = generator.normal(size=(4096, 16)).astype("float32")
    curve = numpy.sin(x[:, 0] * 2.0) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * x[:, 3]
    y = (offset + scale * curve / curve.std()).astype("float32")[:, None]
    spread = float(numpy.abs(y[:1024] - y[1024:].mean()).mean())

    def build() -> Any:
        return keras.Sequential(
            [
                keras.Input((16,)),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(1, dtype="float32"),
                keras.layers.Rescaling(unit, dtype="float32"),
            ]
        )

    def error(model: Any) -> float:
        return float(numpy.abs(numpy.asarray(model(x[:1024], training=False)) - y[:1024]).mean()) / spread

    return Task(
        name=name,
        title=title,
        metric="relative error",
        higher_is_better=False,
        steps=600,
        build=build,
        loss=keras.losses.MeanSquaredError(),
        optimizer=lambda: keras.optimizers.Adam(rate, epsilon=epsilon),
        batches=lambda seed: _shuffled(x[1024:], y[1024:], 64, seed),
        evaluate=error,
    )


def _shuffled(x: Any, y: Any, size: int, seed: int) -> Batches:
    import numpy

    generator = numpy.random.default_rng(seed)
    while True:
        order = generator.permutation(len(x))
        for start in range(0, len(x) - size + 1, size):
            rows = order[start : start + size]
            yield x[rows], y[rows]


_MAKERS: dict[str, Callable[[], Task]] = {
    "digits_mlp": _digits_mlp,
    "digits_cnn": _digits_cnn,
    "text": _text,
    "regression_large": lambda: _regression(
        "regression_large",
        "regression on targets of 1000 +- 240, mean squared error",
        scale=240.0,
        offset=1000.0,
        unit=1.0,
        rate=1e-2,
        epsilon=1e-7,
    ),
    "regression_tiny": lambda: _regression(
        "regression_tiny",
        "regression on targets of the order 1e-4, mean squared error",
        scale=1e-4,
        offset=0.0,
        unit=1e-4,
        rate=2e-3,
        epsilon=1e-12,
    ),
}
BUILTIN_TASKS = tuple(_MAKERS)
