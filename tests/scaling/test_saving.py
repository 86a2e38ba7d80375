"""A training that is saved goes on with the scale and the counters that it had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwprobe.configuration import LossScaling
from hwprobe.scaling import register_optimizers, verify_model, wrap_optimizer

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")


BOTH = pytest.mark.parametrize("scaling", [LossScaling.dynamic(16.0), LossScaling.static(8.0)], ids=str)


def trained(scaling: LossScaling) -> Any:
    """A model after two good batches, one bad one, and a good one."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1, dtype="float32")])
    model.compile(wrap_optimizer(keras.optimizers.Adam(0.01), scaling), keras.losses.MeanSquaredError())
    for value in (1.0, 2.0, np.nan, 1.5):
        model.fit(np.full((4, 3), value), np.ones((4, 1)), verbose=0)
    return model


def state(optimizer: Any) -> list[Any]:
    return [np.asarray(variable).tolist() for variable in optimizer.variables]


@BOTH
@pytest.mark.parametrize("policy", ["mixed_float16", "float32"])
def test_a_keras_file_brings_the_scaler_back_under_any_policy(
    mixed_float16: None, scaling: LossScaling, policy: str, tmp_path: Path
) -> None:
    model = trained(scaling)
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy(policy)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    assert state(loaded.optimizer) == state(model.optimizer)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert int(loaded.optimizer.skipped_steps) == 1


@BOTH
def test_a_checkpoint_brings_scale_counters_and_moments_back(
    mixed_float16: None, scaling: LossScaling, tmp_path: Path
) -> None:
    model, other = trained(scaling), trained(scaling)
    other.fit(np.full((4, 3), np.nan), np.ones((4, 1)), verbose=0)
    place = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "checkpoint")
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(place).assert_consumed()
    assert state(other.optimizer) == state(model.optimizer)


@BOTH
def test_weights_alone_can_be_saved_and_loaded(mixed_float16: None, scaling: LossScaling, tmp_path: Path) -> None:
    model, other = trained(scaling), trained(scaling)
    other.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    assert all((left == right).all() for left, right in zip(model.get_weights(), other.get_weights(), strict=True))


def test_a_copy_made_from_the_configuration_is_equal() -> None:
    optimizer = wrap_optimizer(keras.optimizers.SGD(0.5, clipnorm=1.0), LossScaling.static(48.0))
    copy = type(optimizer).from_config(optimizer.get_config())
    assert copy.get_config() == optimizer.get_config()
    assert keras.optimizers.deserialize(keras.optimizers.serialize(optimizer)).get_config() == optimizer.get_config()


FRESH_PROCESS = """
import sys
import keras
try:
    keras.models.load_model(sys.argv[1])
except TypeError as error:
    print(error)
from hwprobe.scaling import register_optimizers
register_optimizers()
print(type(keras.models.load_model(sys.argv[1]).optimizer).__name__)
"""


def test_a_fresh_process_loads_the_scaler_once_it_is_registered(mixed_float16: None, tmp_path: Path) -> None:
    trained(LossScaling.dynamic()).save(tmp_path / "model.keras")
    result = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(tmp_path / "model.keras")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert "Could not locate class 'CheckedLossScaleOptimizer'" in result.stdout, result.stderr
    assert result.stdout.split()[-1] == "CheckedLossScaleOptimizer", result.stderr


def test_registering_initialises_nothing_and_names_what_load_model_takes() -> None:
    names = register_optimizers()
    assert names["hwprobe>CheckedLossScaleOptimizer"] is type(wrap_optimizer(keras.optimizers.SGD(), "dynamic"))


class TestLoadedWithoutItsScaler:
    def test_keras_drops_the_scaler_that_compile_added_and_verify_says_so(
        self, mixed_float16: None, tmp_path: Path
    ) -> None:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("adam", keras.losses.MeanSquaredError())
        model.save(tmp_path / "model.keras")
        keras.config.set_dtype_policy("float32")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert not isinstance(loaded.optimizer, keras.optimizers.LossScaleOptimizer)
        checked = verify_model(loaded)
        assert not checked
        assert checked.state is not None
        assert checked.state.scaler == "none"
        assert [each.id for each in checked.findings] == ["HWP647"]
        assert "wrap_optimizer" in " ".join(checked.findings[0].fix)

    def test_a_model_that_was_wrapped_comes_back_whole(self, mixed_float16: None, tmp_path: Path) -> None:
        trained(LossScaling.dynamic()).save(tmp_path / "model.keras")
        keras.config.set_dtype_policy("float32")
        assert verify_model(keras.models.load_model(tmp_path / "model.keras"))
