"""Run in a process of its own: cases on two virtual CPU devices. Prints one JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def on_replicas(values: list[list[float]]) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group])
    )


def keras3(kind: str, bad_replica: int) -> dict[str, Any]:
    """One step with one bad replica, then a good one: weights of each replica, scale, counters."""
    import keras

    from hwprobe.scaling import wrap_optimizer

    with strategy.scope():
        weight = keras.Variable([1.0, 1.0])
        inner = keras.optimizers.SGD(1.0)
        optimizer = keras.optimizers.LossScaleOptimizer(inner) if kind == "stock" else wrap_optimizer(inner, kind)
        optimizer.build([weight])

    @tf.function  # type: ignore[untyped-decorator]
    def step(gradients: Any) -> None:
        strategy.run(lambda each: optimizer.apply([optimizer.scale_loss(each)], [weight]), args=(gradients,))

    bad = [[0.25, 0.25], [0.25, 0.25]]
    bad[bad_replica] = [float("inf"), 0.25]
    step(on_replicas(bad))
    step(on_replicas([[0.125, 0.25], [0.375, 0.5]]))
    weights = [value.numpy().tolist() for value in strategy.experimental_local_results(weight.value)]
    counters = [getattr(optimizer, name, None) for name in ("skipped_steps", "consecutive_skips")]
    return {
        "weights": weights,
        "scale": float(optimizer.dynamic_scale.numpy()),
        "counters": [None if each is None else int(each.numpy()) for each in counters],
    }


def keras3_fit(kind: str) -> dict[str, Any]:
    """Train with an Embedding on both replicas; the first batch is bad in the second half only."""
    import keras

    from hwprobe.scaling import wrap_optimizer

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("mixed_float16")
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,), dtype="int32"),
                keras.layers.Embedding(8, 4),
                keras.layers.Flatten(),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01)
        model.compile(optimizer if kind == "stock" else wrap_optimizer(optimizer, kind), "mse")
    x = np.zeros((16 * 20, 4), "int32")
    y = np.ones((16 * 20, 1), "float32")
    y[8:16] = np.inf
    model.fit(x, y, batch_size=16, verbose=0, shuffle=False)
    weights = [np.isfinite(each).all() for each in model.get_weights()]
    keras.config.set_dtype_policy("float32")
    return {"finite": bool(all(weights)), "prediction": float(model(x[:1])[0, 0])}


SETTINGS: dict[str, dict[str, Any]] = {
    "clipping": {"global_clipnorm": 0.5},
    "averaging": {"use_ema": True},
    "accumulation": {"gradient_accumulation_steps": 2},
    "overwriting by the average": {"use_ema": True, "ema_overwrite_frequency": 2},
}


def keras3_settings(wrap: bool, settings: dict[str, Any]) -> Any:
    """The weights after four good steps in float32 of an optimizer with these settings, or the error."""
    import keras

    from hwprobe.scaling import wrap_optimizer

    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.25, **settings)
        model.compile(wrap_optimizer(optimizer, "dynamic") if wrap else optimizer, "mse")
    x = np.linspace(-1.0, 1.0, 32, dtype="float32").reshape(8, 4)
    try:
        model.fit(x, x[:, :1] + 1.0, batch_size=4, epochs=2, verbose=0, shuffle=False)
    except RuntimeError as error:
        return "merge_call" if "merge_call" in str(error) else str(error)
    return np.concatenate([each.ravel() for each in model.get_weights()]).tolist()


def main() -> None:
    cases = {
        f"{kind}, bad replica {bad}": keras3(kind, bad) for kind in ("dynamic", "static=64", "stock") for bad in (0, 1)
    }
    cases |= {f"fit, {kind}": keras3_fit(kind) for kind in ("dynamic", "stock")}
    cases |= {
        f"{name}, {'wrapped' if wrap else 'plain'}": keras3_settings(wrap, settings)
        for name, settings in SETTINGS.items()
        for wrap in (False, True)
    }
    json.dump(cases, sys.stdout)


main()
