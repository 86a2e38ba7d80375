"""One training run of one variant, step by step, with everything about each step recorded."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from hwprobe.comparison.facts import Run
from hwprobe.comparison.tasks import Task
from hwprobe.comparison.variants import Variant
from hwprobe.configuration import LossScaling

WARM_UP_STEPS = 3
"""Steps left out of the times: TensorFlow traces and picks kernels in them."""

LOST_SKIPS = 0.5
"""A run that leaves out more than this share of its steps counts as lost."""


class Trainer:
    """Trains a task in one variant from one start.

    The step that is timed computes, scales and applies, and nothing else; whether its gradients are finite, and how
    many are zero, is counted afterwards outside of the time.

    Args:
        task: What to train.
        variant: In which precision.
        loss_scaling: The variant's, or what calibration found.
        seed: Which start.
        weights: To begin with; None keeps what the task's initializers drew for this seed.
    """

    def __init__(
        self, task: Task, variant: Variant, loss_scaling: LossScaling, seed: int, weights: list[Any] | None
    ) -> None:
        import keras
        import tensorflow as tf

        from hwprobe.scaling.wrap import wrap_optimizer

        self.variant = variant
        self.seed = seed
        self._task = task
        keras.utils.set_random_seed(seed)
        self.model = build_under(task.build, variant.dtype_policy)
        if not self.model.built:
            self.model(next(task.batches(seed))[0])
        if weights is not None:
            self.model.set_weights(weights)
        self.optimizer = wrap_optimizer(task.optimizer(), loss_scaling)
        self.optimizer.build(self.model.trainable_variables)
        self._loss = loss_function(task.loss)
        self._scales = loss_scaling.mode != "none"
        self._step = tf.function(self._train)
        self._look = tf.function(_figures)
        self._seconds: list[float] = []
        self._losses: list[float | None] = []
        self._scale_history: list[float] = []
        self._bad_steps: list[int] = []
        self._zero_shares: list[float] = []

    def step(self, batch: tuple[Any, Any]) -> None:
        """Make one step."""
        import tensorflow as tf

        x, y = (tf.nest.map_structure(tf.convert_to_tensor, part) for part in batch)
        started = time.perf_counter()
        loss, gradients = self._step(x, y)
        value = float(loss)
        _finish_device_work()
        self._seconds.append(time.perf_counter() - started)
        finite, zeros, elements = self._look(gradients)
        number = len(self._losses)
        self._losses.append(value if math.isfinite(value) else None)
        if bool(finite):
            self._zero_shares.append(float(zeros) / max(1.0, float(elements)))
        else:
            self._bad_steps.append(number)
        if self._scales:
            self._scale_history.append(float(self.optimizer.dynamic_scale.numpy()))

    def step_memory(self, batch: tuple[Any, Any], device: str) -> int | None:
        """Make one step and give the device memory that it took above what was resident; None if nobody tells."""
        import tensorflow as tf

        return memory_of(lambda: self.step(batch), tf.config.experimental, device)

    def result(self) -> Run:
        """Evaluate the model and give the run as it stands."""
        import numpy

        steps = len(self._losses)
        skipped = int(self.optimizer.skipped_steps.numpy()) if self._scales else None
        broken = any(not numpy.all(numpy.isfinite(numpy.asarray(weight))) for weight in self.model.trainable_variables)
        reason = _lost_because(broken, self._losses, skipped, steps)
        metric = self._task.evaluate(self.model) if steps else math.nan
        timed = self._seconds[WARM_UP_STEPS:]
        return Run(
            seed=self.seed,
            steps=steps,
            metric=metric if math.isfinite(metric) else None,
            lost_because=reason,
            skipped_steps=skipped,
            non_finite_steps=len(self._bad_steps),
            first_bad_step=self._bad_steps[0] if self._bad_steps else None,
            zero_share=statistics.fmean(self._zero_shares) if self._zero_shares else None,
            seconds=statistics.quantiles(timed, n=5, method="inclusive")[0] if len(timed) >= 2 else None,
            losses=tuple(self._losses),
            scales=tuple(self._scale_history),
        )

    def _train(self, x: Any, y: Any) -> Any:
        import tensorflow as tf

        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._loss(y, self.model(x, training=True))
            for added in self.model.losses:
                loss += tf.cast(added, loss.dtype)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        self.optimizer.apply(gradients, variables)
        # The values of a sparse gradient: what is counted is what was computed.
        return loss, [getattr(gradient, "values", gradient) for gradient in gradients if gradient is not None]


def build_under(build: Callable[[], Any], dtype_policy: str) -> Any:
    """Call a function while a global dtype policy is in force, and put the former one back."""
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype_policy)
    try:
        return build()
    finally:
        keras.config.set_dtype_policy(before)


def loss_function(loss: Any) -> Callable[[Any, Any], Any]:
    """Give a loss as a function of targets and predictions that computes in float32."""
    import keras

    found = keras.losses.get(loss)
    if isinstance(found, keras.losses.Loss):
        return found  # type: ignore[no-any-return]
    return _InFloat32(found)


class _InFloat32:
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def __call__(self, targets: Any, predictions: Any) -> Any:
        import keras

        return keras.ops.mean(self._function(targets, keras.ops.cast(predictions, "float32")))


def memory_of(action: Callable[[], None], memory: Any, device: str) -> int | None:
    """Give the memory that an action takes on a device above what is resident.

    Args:
        action: What to do.
        memory: `tf.config.experimental`, which has `get_memory_info` and `reset_memory_stats`.
        device: `GPU:0`.

    Returns:
        None where the device keeps no record, as a CPU.
    """
    try:
        memory.reset_memory_stats(device)
        resident = int(memory.get_memory_info(device)["current"])
    except (ValueError, AttributeError):
        # "Allocator stats not available": a CPU, a plug-in, or cuda_malloc_async.
        action()
        return None
    action()
    return int(memory.get_memory_info(device)["peak"]) - resident


def _finish_device_work() -> None:
    import tensorflow as tf

    tf.test.experimental.sync_devices()


def _figures(gradients: Any) -> Any:
    import tensorflow as tf

    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
    zeros = tf.add_n([tf.math.count_nonzero(tf.equal(gradient, 0)) for gradient in gradients])
    return finite, zeros, tf.add_n([tf.size(gradient, tf.int64) for gradient in gradients])


def _lost_because(broken: bool, losses: list[float | None], skipped: int | None, steps: int) -> str | None:
    if broken:
        return "weights are not finite"
    if losses and losses[-1] is None:
        return "the loss is not finite"
    if skipped is not None and steps and skipped > LOST_SKIPS * steps:
        return f"{skipped} of {steps} steps were skipped"
    return None
