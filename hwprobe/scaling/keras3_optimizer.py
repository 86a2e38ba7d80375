"""A loss-scale optimizer for Keras 3 that looks at every gradient value on every replica.

It is derived from Keras' own `keras.optimizers.LossScaleOptimizer`, so that `Model.compile` leaves it alone and
`scale_loss` works as everyone knows it. Keras 3.15.1's class (`keras/src/optimizers/loss_scale_optimizer.py`) has four
faults that this one does not have:

- it tests a sparse gradient through a dense copy in which the last row of a repeated token wins, so an infinity in an
  earlier row is written into the weights;
- with several replicas it obeys the verdict of the first one, reached on that replica's own gradients;
- its scale has no floor: 142 bad batches bring it to 0, and the next good batch divides 0 by 0;
- it has no fixed scale; an optimizer's own `loss_scale_factor` never skips a step, and `compile` drops it.

Keras is imported when the class is first needed, and TensorFlow only where it is Keras' backend.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hwprobe.configuration import DEFAULT_GROWTH_STEPS, DEFAULT_INITIAL_SCALE

if TYPE_CHECKING:
    from keras.optimizers import LossScaleOptimizer as _Base
else:
    _Base = object

PACKAGE = "hwprobe"
"""The package name under which Keras' serialisation knows the class."""

FLOOR = 2.0**-14
"""Smallest normal float16. A loss that still overflows at this scale overflows for a reason that no scale removes."""

CEILING = 2.0**24
"""Inverse of the smallest float16. Apex's scaler stops there too (NVIDIA/apex, apex/amp/scaler.py)."""

_lock = threading.Lock()
_class: type[Any] | None = None


def checked_class() -> type[Any]:
    """Give the optimizer class, building and registering it with Keras' serialisation on first use.

    Returns:
        `CheckedLossScaleOptimizer`, a subclass of `keras.optimizers.LossScaleOptimizer`.

    Raises:
        ImportError: Keras is not installed.
    """
    global _class
    with _lock:
        if _class is None:
            import keras

            bases = (_CheckedScaling, keras.optimizers.LossScaleOptimizer)
            body = {"__module__": __name__, "__doc__": _CheckedScaling.__doc__}
            built = type("CheckedLossScaleOptimizer", bases, body)
            _class = keras.saving.register_keras_serializable(package=PACKAGE)(built)
            # Pickle looks the class up under its name in this module.
            globals()["CheckedLossScaleOptimizer"] = _class
        return _class


def is_checked(optimizer: Any) -> bool:
    """Say whether an optimizer is one of ours; imports nothing."""
    return isinstance(optimizer, _CheckedScaling)


class _CheckedScaling(_Base):  # type: ignore[misc]
    """Wraps a Keras 3 optimizer; scales the loss, unscales the gradients, skips and counts the steps that overflow.

    Args:
        inner_optimizer: The optimizer that makes the updates; clipping, accumulation, EMA and decay are set on it.
        initial_scale: First scale of the dynamic mode; the scale of the fixed one.
        dynamic_growth_steps: Clean steps before the dynamic scale doubles.
        dynamic: Whether the scale follows the gradients. A fixed scale skips and counts as well.
        minimum_scale: Floor of the dynamic scale. Default: 2**-14, or the first scale if that is lower.
        maximum_scale: Ceiling of the dynamic scale. Default: 2**24, or the first scale if that is higher.
        name: Name of the optimizer.

    Attributes:
        dynamic_scale: Variable; the scale in force. It exists once the optimizer is built, as the other variables do.
        step_counter: Variable; clean steps since the scale last changed or a step was skipped.
        skipped_steps: Variable; steps that were not applied, in all.
        consecutive_skips: Variable; steps that were not applied, since the last one that was.
    """

    built: bool

    def __init__(
        self,
        inner_optimizer: Any,
        initial_scale: float = DEFAULT_INITIAL_SCALE,
        dynamic_growth_steps: int = DEFAULT_GROWTH_STEPS,
        dynamic: bool = True,
        minimum_scale: float | None = None,
        maximum_scale: float | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        scale = float(initial_scale)
        floor = min(FLOOR, scale) if minimum_scale is None else float(minimum_scale)
        ceiling = max(CEILING, scale) if maximum_scale is None else float(maximum_scale)
        if not 0.0 < floor <= scale <= ceiling < math.inf:
            raise ValueError(
                f"need 0 < minimum_scale <= initial_scale <= maximum_scale < inf, got {floor:g}, {scale:g}, {ceiling:g}"
            )
        if dynamic and dynamic_growth_steps < 1:
            raise ValueError(f"dynamic_growth_steps must be at least 1, got {dynamic_growth_steps}")
        super().__init__(inner_optimizer, scale, dynamic_growth_steps, name=name, **kwargs)
        # Keras up to 3.9 leaves it in place and divides twice.
        inner_optimizer.loss_scale_factor = None
        self.dynamic = bool(dynamic)
        self.minimum_scale = floor
        self.maximum_scale = ceiling

    def build(self, var_list: Sequence[Any]) -> None:
        """Create the variables of this optimizer and of the inner one."""
        if self.built:
            return
        super().build(var_list)
        self.skipped_steps = self.add_variable(shape=(), dtype="int", initializer="zeros", name="skipped_steps")
        self.consecutive_skips = self.add_variable(shape=(), dtype="int", initializer="zeros", name="consecutive_skips")

    @property
    def iterations(self) -> Any:
        """Steps that the inner optimizer made; a skipped step is none of them."""
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, own: Any) -> None:
        # Keras up to 3.5 sets a counter of the wrapper's own in its constructor, and never advances it.
        del own

    def scale_loss(self, loss: Any) -> Any:
        """Multiply the loss by the scale, in float32: a float16 loss of 3 would overflow at the first scale."""
        import keras

        if keras.backend.standardize_dtype(loss.dtype) in ("float16", "bfloat16"):
            loss = keras.ops.cast(loss, "float32")
        return keras.ops.multiply(loss, self.dynamic_scale if self.built else self.initial_scale)

    def check_finite(self, grads: Sequence[Any]) -> Any:
        """Say whether all values of these gradients are finite, those of repeated tokens included.

        Args:
            grads: Gradients of this replica, scaled; None entries are passed over.

        Returns:
            A scalar boolean tensor.
        """
        from keras import ops

        tests = [ops.all(ops.isfinite(_values(grad))) for grad in grads if grad is not None]
        return ops.all(ops.stack(tests)) if tests else ops.convert_to_tensor(True)

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Unscale the gradients and apply them, or skip the step on all replicas and count it.

        Args:
            grads: Gradients of the scaled loss.
            trainable_variables: The variables that they belong to; None for those that the optimizer was built with.
        """
        import keras

        grads = list(grads)
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self.build(list(trainable_variables or ()))
            self.built = True
        backend = keras.backend.backend()
        if backend == "tensorflow":
            self._apply_on_all_replicas(grads, trainable_variables)
        elif backend == "jax":
            self._apply_through_state(grads, trainable_variables)
        else:
            self._apply_if(self.check_finite(grads), grads, trainable_variables)

    def stateless_apply(
        self, optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Do what `apply` does on values instead of variables, as the JAX backend needs it.

        Args:
            optimizer_variables: Values of `self.variables`.
            grads: Gradients of the scaled loss.
            trainable_variables: Values of the variables that the optimizer was built with.

        Returns:
            The new values of the trainable variables and of the optimizer's variables.
        """
        from keras import ops

        if not self.built:
            raise ValueError("stateless_apply needs a built optimizer: call build(trainable_variables) first")
        own_count = len(self.variables) - len(self.inner_optimizer.variables)
        own, inner = list(optimizer_variables[:own_count]), list(optimizer_variables[own_count:])
        position = {id(variable): index for index, variable in enumerate(self.variables[:own_count])}
        places = [position[id(variable)] for variable in self._state()]
        scale, good_steps, skipped, consecutive = (own[place] for place in places)
        unscaled = self._unscale(grads, scale, None)

        def good() -> tuple[list[Any], list[Any], list[Any]]:
            weights, after = self.inner_optimizer.stateless_apply(inner, unscaled, list(trainable_variables))
            return weights, after, [*self._after_good_step(scale, good_steps), skipped, ops.zeros_like(consecutive)]

        def bad() -> tuple[list[Any], list[Any], list[Any]]:
            state = [self._after_bad_step(scale), ops.zeros_like(good_steps), skipped + 1, consecutive + 1]
            return list(trainable_variables), inner, state

        weights, inner, state = ops.cond(self.check_finite(grads), good, bad)
        for place, value in zip(places, state, strict=True):
            own[place] = value
        return weights, own + inner

    def get_config(self) -> dict[str, Any]:
        """Give what `from_config` needs to build an equal optimizer."""
        return {
            **super().get_config(),
            "dynamic": self.dynamic,
            "minimum_scale": self.minimum_scale,
            "maximum_scale": self.maximum_scale,
        }

    def _apply_on_all_replicas(self, grads: list[Any], trainable_variables: Sequence[Any] | None) -> None:
        import tensorflow as tf

        if tf.distribute.in_cross_replica_context():
            raise ValueError("apply() must be called in a replica context, inside strategy.run")
        bad = tf.cast(tf.logical_not(self.check_finite(grads)), tf.float32)
        # Inside XLA on several GPUs a strategy works without merge_call, and Keras' optimizers ask the same question.
        if tf.__internal__.distribute.strategy_supports_no_merge_call():
            self._apply_if(tf.equal(_sum_in_replica(bad), 0.0), grads, trainable_variables)
            return

        def across_replicas(strategy: Any, bad: Any, grads: Any, trainable_variables: Any) -> None:
            def on_each_replica() -> None:
                strategy.extended.call_for_each_replica(self._apply_unscaled, args=(grads, trainable_variables))

            finite = tf.equal(_sum_across_replicas(strategy, bad), 0.0)
            self._apply_if(finite, grads, trainable_variables, apply=on_each_replica)

        # A condition whose branch merges replicas must itself stand outside of them: the inner optimizer merges.
        tf.distribute.get_replica_context().merge_call(across_replicas, args=(bad, grads, trainable_variables))

    def _apply_through_state(self, grads: list[Any], trainable_variables: Sequence[Any] | None) -> None:
        weights = list(trainable_variables or self.inner_optimizer._trainable_variables)
        new_weights, new_state = self.stateless_apply(
            [variable.value for variable in self.variables], grads, [variable.value for variable in weights]
        )
        for variable, value in zip([*weights, *self.variables], [*new_weights, *new_state], strict=True):
            variable.assign(value)

    def _apply_if(
        self,
        finite: Any,
        grads: list[Any],
        trainable_variables: Sequence[Any] | None,
        apply: Callable[[], None] | None = None,
    ) -> None:
        from keras import ops

        def good() -> None:
            if apply is None:
                self._apply_unscaled(grads, trainable_variables)
            else:
                apply()
            scale, good_steps = self._after_good_step(self.dynamic_scale, self.step_counter)
            if self.dynamic:
                self.dynamic_scale.assign(scale)
            self.step_counter.assign(good_steps)
            self.consecutive_skips.assign(0)

        def bad() -> None:
            self.dynamic_scale.assign(self._after_bad_step(self.dynamic_scale))
            self.step_counter.assign(0)
            self.skipped_steps.assign_add(1)
            self.consecutive_skips.assign_add(1)

        ops.cond(finite, good, bad)

    def _apply_unscaled(self, grads: list[Any], trainable_variables: Sequence[Any] | None) -> None:
        unscaled = self._unscale(grads, self.dynamic_scale, trainable_variables)
        self.inner_optimizer.apply(unscaled, trainable_variables=trainable_variables)

    def _unscale(self, grads: Sequence[Any], scale: Any, trainable_variables: Sequence[Any] | None) -> list[Any]:
        variables = list(trainable_variables or self.inner_optimizer._trainable_variables)
        return [
            grad if grad is None or getattr(variable, "overwrite_with_gradient", False) else _divide(grad, scale)
            for grad, variable in zip(grads, variables, strict=True)
        ]

    def _state(self) -> list[Any]:
        return [self.dynamic_scale, self.step_counter, self.skipped_steps, self.consecutive_skips]

    def _after_good_step(self, scale: Any, good_steps: Any) -> tuple[Any, Any]:
        from keras import ops

        good_steps = ops.add(good_steps, 1)
        if not self.dynamic:
            return scale, good_steps
        grown = ops.greater_equal(good_steps, self.dynamic_growth_steps)
        raised = ops.minimum(ops.multiply(scale, 2.0), self.maximum_scale)
        return ops.where(grown, raised, scale), ops.where(grown, ops.zeros_like(good_steps), good_steps)

    def _after_bad_step(self, scale: Any) -> Any:
        from keras import ops

        return ops.maximum(ops.multiply(scale, 0.5), self.minimum_scale) if self.dynamic else scale


def _sum_in_replica(bad: Any) -> Any:
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    return bad if replica.num_replicas_in_sync == 1 else replica.all_reduce(tf.distribute.ReduceOp.SUM, bad)


def _sum_across_replicas(strategy: Any, bad: Any) -> Any:
    import tensorflow as tf

    local = strategy.experimental_local_results(bad)
    if len(local) == strategy.num_replicas_in_sync:
        return tf.add_n(local)
    # Other workers hold replicas too.
    return strategy.reduce(tf.distribute.ReduceOp.SUM, bad, axis=None)


def _values(grad: Any) -> Any:
    return grad.values if _is_sparse(grad) else grad


def _divide(grad: Any, scale: Any) -> Any:
    from keras import ops

    if _is_sparse(grad):
        return type(grad)(ops.divide(grad.values, scale), grad.indices, grad.dense_shape)
    return ops.divide(grad, scale)


def _is_sparse(grad: Any) -> bool:
    import keras

    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return isinstance(grad, tf.IndexedSlices)
