"""A transformer that reads Python's own source: the model that Keras 3's scaler loses at its first overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hwprobe.configuration import LossScaling
from hwprobe.scaling import wrap_optimizer
from tests.scaling.tasks import characters

keras = pytest.importorskip("keras")

STEPS = 220
"""With growth every 10 steps the scale passes 2**20, where this model overflows, after about 60."""


def train(optimizer_of: Callable[[Any], Any], steps: int = STEPS) -> tuple[float, Any]:
    """Train, and give the share of right next characters on text that was not trained on, and the model."""
    task = characters(keras, count=steps + 20, width=32, size=16)
    task.model.compile(optimizer_of(task.optimizer), task.loss, auto_scale_loss=False)
    x, y = (np.concatenate(part) for part in zip(*task.batches, strict=True))
    seen = 16 * steps
    task.model.fit(x[:seen], y[:seen], batch_size=16, shuffle=False, verbose=0)
    predicted = task.model.predict(x[seen:], batch_size=64, verbose=0).argmax(axis=-1)
    return float((predicted == y[seen:]).mean()), task.model


@pytest.fixture(scope="module")
def float32_accuracy() -> float:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    accuracy, _ = train(lambda optimizer: optimizer)
    keras.config.set_dtype_policy(before)
    return accuracy


def test_ours_trains_to_the_accuracy_of_float32_and_counts_its_skips(
    float32_accuracy: float, mixed_float16: None
) -> None:
    scaling = LossScaling.dynamic(growth_steps=10)
    accuracy, model = train(lambda optimizer: wrap_optimizer(optimizer, scaling))
    assert int(model.optimizer.skipped_steps) >= 2
    assert int(model.optimizer.iterations) + int(model.optimizer.skipped_steps) == STEPS
    assert accuracy == pytest.approx(float32_accuracy, abs=0.03)
    assert accuracy > 0.25


def test_keras_own_scaler_loses_it(mixed_float16: None) -> None:
    _, model = train(
        lambda optimizer: keras.optimizers.LossScaleOptimizer(optimizer, dynamic_growth_steps=10), steps=150
    )
    assert not all(np.isfinite(weight).all() for weight in model.get_weights())
