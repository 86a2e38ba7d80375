"""Train a small network on scikit-learn's digits in each loss-scaling mode, and compare.

    pip install "tf-hwprobe[tensorflow]" scikit-learn
    python examples/train_digits.py
    python examples/train_digits.py --mode static=128 --epochs 10

The digits are part of scikit-learn: nothing is downloaded. float16 works on a CPU too, only not faster.
"""

from __future__ import annotations

import argparse

import keras
import numpy as np
from sklearn.datasets import load_digits

from hwprobe.scaling import LossScaleGuard, calibrate_loss_scale, verify_model, wrap_optimizer

MODES = ("float32", "none", "dynamic", "static=128", "calibrated")


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Give training and test data: pictures of 64 numbers from 0 to 1, and which digit they show."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, y = (data.data[order] / 16.0).astype("float32"), data.target[order]
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def build() -> keras.Model:
    """Build the network under the dtype policy in force; its output layer stays in float32."""
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(10, dtype="float32"),
        ]
    )


def for_calibration() -> tuple[keras.Model, keras.losses.Loss, list[tuple[np.ndarray, np.ndarray]]]:
    """Give what `hwprobe calibrate train_digits:for_calibration` asks for."""
    (x, y), _ = digits()
    batches = [(x[start : start + 64], y[start : start + 64]) for start in range(0, 1408, 64)]
    return build(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), batches


def train(mode: str, epochs: int) -> tuple[float, int]:
    """Train in one mode.

    Args:
        mode: `float32`; or `none`, `dynamic`, `static=SCALE` or `calibrated` under mixed_float16.
        epochs: Passes over the training data.

    Returns:
        Accuracy on the test data, and the number of steps that were skipped.
    """
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("float32" if mode == "float32" else "mixed_float16")
    (x, y), test = digits()
    model, loss, batches = for_calibration()
    optimizer = keras.optimizers.Adam(1e-3)
    if mode == "calibrated":
        calibration = calibrate_loss_scale(model, loss, batches, optimizer=optimizer)
        print(calibration)
        optimizer = wrap_optimizer(optimizer, calibration)
    elif mode != "float32":
        optimizer = wrap_optimizer(optimizer, mode)
    # Without this, compile() would put Keras' own scaler around the optimizer of the mode `none`.
    model.compile(optimizer, loss, metrics=["accuracy"], auto_scale_loss=False)
    print(verify_model(model))
    guard = LossScaleGuard("stop")
    model.fit(x, y, batch_size=64, epochs=epochs, verbose=0, callbacks=[guard])
    return model.evaluate(*test, verbose=0)[1], guard.skipped_steps


def main() -> None:
    """Train in the modes that were asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", action="append", help=f"one of {', '.join(MODES)}; may be repeated; default: all")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    rows = [(mode, *train(mode, arguments.epochs)) for mode in arguments.mode or MODES]
    print(f"\n{'mode':<14}{'accuracy':>10}{'skipped steps':>16}")
    for mode, accuracy, skipped in rows:
        print(f"{mode:<14}{accuracy:>10.3f}{skipped:>16}")


if __name__ == "__main__":
    main()
