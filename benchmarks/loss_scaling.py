"""What hwprobe's loss scaler costs over Keras 3's own: whole training steps, interleaved in one process.

    python benchmarks/loss_scaling.py
    python benchmarks/loss_scaling.py --rounds 400 --json times.json

Each round runs one step of each variant in a random order, so a machine that gets slower or faster does it to all of
them alike. Printed are the 20th percentile of each variant in milliseconds, its ratio to Keras' own scaler, and the
median of the ratios within the rounds. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from hwprobe.scaling import wrap_optimizer

VARIANTS: dict[str, Callable[[Any], Any]] = {
    "keras dynamic": keras.optimizers.LossScaleOptimizer,
    "hwprobe dynamic": lambda optimizer: wrap_optimizer(optimizer, "dynamic"),
    "hwprobe static": lambda optimizer: wrap_optimizer(optimizer, "static=1024"),
    "no scaling": lambda optimizer: optimizer,
}
STOCK = "keras dynamic"


def dense(units: int, layers: int) -> tuple[Any, Any, Any]:
    model = keras.Sequential(
        [keras.Input((64,)), *(keras.layers.Dense(units, activation="relu") for _ in range(layers))]
    )
    model.add(keras.layers.Dense(10, dtype="float32"))
    draw = np.random.default_rng(0)
    return model, tf.constant(draw.normal(size=(64, 64)), tf.float32), tf.constant(draw.integers(0, 10, 64))


def convolutions() -> tuple[Any, Any, Any]:
    stack: list[Any] = [keras.Input((32, 32, 3))]
    for filters in (16, 32, 32):
        stack += [keras.layers.Conv2D(filters, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D()]
    stack += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, dtype="float32")]
    draw = np.random.default_rng(0)
    x = tf.constant(draw.normal(size=(32, 32, 32, 3)), tf.float32)
    return keras.Sequential(stack), x, tf.constant(draw.integers(0, 10, 32))


def transformer(width: int = 64, length: int = 32) -> tuple[Any, Any, Any]:
    given = keras.Input((length,), dtype="int32")
    hidden = keras.layers.Embedding(96, width)(given)
    for _ in range(2):
        normal = keras.layers.LayerNormalization()(hidden)
        hidden = hidden + keras.layers.MultiHeadAttention(4, width // 4)(normal, normal, use_causal_mask=True)
        wide = keras.layers.Dense(4 * width, activation="gelu")(keras.layers.LayerNormalization()(hidden))
        hidden = hidden + keras.layers.Dense(width)(wide)
    model = keras.Model(given, keras.layers.Dense(96, dtype="float32")(hidden))
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, 96, (16, length + 1))
    return model, tf.constant(tokens[:, :-1], tf.int32), tf.constant(tokens[:, 1:])


MODELS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "dense 64-256-256-10, batch 64": lambda: dense(256, 2),
    "dense 4 x 1024, batch 64": lambda: dense(1024, 4),
    "convolutions 32x32x3, batch 32": convolutions,
    "transformer d=64, 2 layers, batch 16x32": transformer,
}


def make_step(build: Callable[[], tuple[Any, Any, Any]], wrap: Callable[[Any], Any]) -> Callable[[], Any]:
    keras.utils.set_random_seed(0)
    model, x, y = build()
    optimizer = wrap(keras.optimizers.Adam())
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    compiled: Callable[[], Any] = tf.function(step)
    for _ in range(5):
        compiled().numpy()
    return compiled


def measure(build: Callable[[], tuple[Any, Any, Any]], rounds: int) -> dict[str, list[float]]:
    steps = {name: make_step(build, wrap) for name, wrap in VARIANTS.items()}
    order = np.random.default_rng(0)
    milliseconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name in order.permutation(list(steps)):
            start = time.perf_counter()
            steps[name]().numpy()
            milliseconds[name].append(1e3 * (time.perf_counter() - start))
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write the figures of every model to this file")
    arguments = parser.parse_args()
    keras.config.set_dtype_policy("mixed_float16")
    results: dict[str, dict[str, object]] = {}
    for model, build in MODELS.items():
        times = measure(build, arguments.rounds)
        stock = np.array(times[STOCK])
        print(f"\n{model}\n  {'':<18}{'ms, 20th percentile':>20}{'ratio':>9}{'median of ratios':>19}")
        results[model] = {}
        for name, values in times.items():
            percentile = float(np.percentile(values, 20))
            ratio = percentile / float(np.percentile(stock, 20))
            within = float(np.median(np.array(values) / stock))
            results[model][name] = {"ms": percentile, "ratio": ratio, "median_of_ratios": within}
            print(f"  {name:<18}{percentile:>20.2f}{ratio:>9.3f}{within:>19.3f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
