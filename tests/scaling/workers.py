"""Run twice, as two workers of one job: one step with the second worker bad, then a good one. Prints JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import tensorflow as tf

from hwprobe.scaling import wrap_optimizer


def main(worker: str, kind: str, *ports: str) -> None:
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": int(worker)}})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    import keras

    with strategy.scope():
        weight = keras.Variable([1.0, 1.0])
        optimizer = wrap_optimizer(keras.optimizers.SGD(1.0), kind)
        optimizer.build([weight])

    @tf.function  # type: ignore[untyped-decorator]
    def step(gradients: Any) -> None:
        strategy.run(lambda each: optimizer.apply([optimizer.scale_loss(each)], [weight]), args=(gradients,))

    for values in ([[0.25, 0.25], [float("inf"), 0.25]], [[0.125, 0.25], [0.375, 0.5]]):
        step(
            strategy.experimental_distribute_values_from_function(
                lambda context, values=values: tf.constant(values[context.replica_id_in_sync_group])
            )
        )
    print(json.dumps({"weights": weight.numpy().tolist(), "skipped": int(optimizer.skipped_steps.numpy())}))


main(*sys.argv[1:])
