"""How a model is set up for training: policies, scalers, loading, replicas, its own step."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwprobe.findings import Finding, Severity

Found = Callable[..., dict[str, list[Finding]]]


def _embedding_model(keras: Any) -> Any:
    return keras.Sequential(
        [keras.Input((4,), dtype="int32"), keras.layers.Embedding(32, 8, name="tokens"), keras.layers.Flatten()]
    )


def _dense_model(keras: Any, dtype: str | None = None) -> Any:
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, dtype=dtype), keras.layers.Dense(8, dtype=dtype)])


def test_a_model_built_before_the_policy_was_set_is_told_so(keras: Any, found: Found) -> None:
    keras.config.set_dtype_policy("float32")
    early = _dense_model(keras)
    keras.config.set_dtype_policy("mixed_float16")
    assert "HWP646" in found(early)
    assert "HWP646" not in found(_dense_model(keras))


def test_a_model_of_float32_with_float16_layers_gets_no_scaling(keras: Any, found: Found) -> None:
    keras.config.set_dtype_policy("float32")
    model = _dense_model(keras, dtype="mixed_float16")
    assert "compile() will add no loss scaling" in found(model)["HWP647"][0].message
    model.compile("adam", "mse")
    assert "plain Adam" in found(model)["HWP647"][0].message


def test_a_compiled_mixed_model_has_its_scaling(keras: Any, found: Found) -> None:
    model = _dense_model(keras)
    model.compile("adam", "mse")
    assert "HWP647" not in found(model)


def test_a_mixed_model_loaded_under_float32_has_lost_its_scaling(keras: Any, found: Found, tmp_path: Path) -> None:
    model = _dense_model(keras)
    model.compile("adam", "mse")
    model.fit(np.ones((8, 8)), np.ones((8, 8)), verbose=0)
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy("float32")
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert "HWP647" in found(loaded)


def test_bfloat16_needs_no_scaling(keras: Any, found: Found) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = _dense_model(keras)
    model.compile("adam", "mse")
    assert not {"HWP647", "HWP648"} & found(model).keys()


def test_scaling_without_float16_is_for_nothing(keras: Any, found: Found) -> None:
    model = _dense_model(keras, dtype="float32")
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), "mse")
    assert "HWP648" in found(model)


def test_a_static_factor_never_skips(keras: Any, found: Found) -> None:
    model = _dense_model(keras)
    model.compile(keras.optimizers.Adam(loss_scale_factor=128.0), "mse", auto_scale_loss=False)
    assert found(model)["HWP649"][0].severity is Severity.WARNING


def test_a_static_factor_and_an_embedding_are_an_error(keras: Any, found: Found) -> None:
    model = _embedding_model(keras)
    model.compile(keras.optimizers.Adam(loss_scale_factor=128.0), "mse", auto_scale_loss=False)
    assert found(model)["HWP649"][0].severity is Severity.ERROR


def test_the_stock_scaler_overlooks_an_embedding(keras: Any, found: Found) -> None:
    model = _embedding_model(keras)
    model.compile("adam", "mse")
    assert found(model)["HWP650"][0].subject == "tokens"


def test_the_scaler_of_hwprobe_does_not(keras: Any, found: Found) -> None:
    from hwprobe.configuration import LossScaling
    from hwprobe.scaling.wrap import wrap_optimizer

    model = _embedding_model(keras)
    model.compile(wrap_optimizer(keras.optimizers.Adam(), LossScaling.dynamic()), "mse")
    assert not {"HWP647", "HWP650"} & found(model).keys()


def test_an_uncompiled_model_is_not_judged_by_its_scaler(keras: Any) -> None:
    from hwprobe.model.audit import audit

    outcomes = {outcome.id: outcome for outcome in audit(_embedding_model(keras)).outcomes}
    assert outcomes["HWP650"].status == "skip"
    assert outcomes["HWP650"].reason is not None
    assert "not compiled" in outcomes["HWP650"].reason


def _own_step(keras: Any, scales: bool) -> Any:
    class Own(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> dict[str, Any]:
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
                loss = self.optimizer.scale_loss(loss) if scales else loss
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            return {"loss": loss}

    class Forgetful(Own):
        def train_step(self, data: Any) -> dict[str, Any]:
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            return {"loss": loss}

    inputs = keras.Input((8,))
    model = (Own if scales else Forgetful)(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    return model


def test_an_own_step_that_forgets_to_scale_is_found(keras: Any, found: Found) -> None:
    assert "HWP652" in found(_own_step(keras, scales=False))
    assert "HWP652" not in found(_own_step(keras, scales=True))


def test_weights_in_float16_are_an_error(keras: Any, found: Found) -> None:
    keras.config.set_dtype_policy("float16")
    assert "weights in 2 layers are kept in float16" in found(_dense_model(keras))["HWP641"][0].message
    keras.config.set_dtype_policy("mixed_float16")
    assert "HWP641" not in found(_dense_model(keras))


REPLICAS = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras
from hwprobe.model.audit import audit
keras.config.set_dtype_policy("mixed_float16")
for devices in (["CPU:0", "CPU:1"], ["CPU:0"]):
    with tf.distribute.MirroredStrategy(devices).scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)])
        model.compile("adam", "mse")
    result = audit(model)
    print(len(devices), result.probe.status, "HWP651" in {finding.id for finding in result.findings})
"""


def test_the_stock_scaler_under_several_replicas_is_an_error(keras: Any) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", REPLICAS],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert answer.stdout.splitlines() == ["2 ok True", "1 ok False"]
