"""A fixed loss scale for Keras 2 and tf_keras that skips the steps that overflow, and counts them.

Keras 2's dynamic scaling is right as it is: it tests the values of sparse gradients, sums the gradients of all replicas
before the test, and its scale has a floor of 1. Its fixed scaling (`dynamic=False`) never skips: one infinite gradient
is written into the weights. So a fixed scale is made from the dynamic optimizer here: its own test decides about every
step, and the scale that it hands out (`loss_scale`) stays what it was.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from hwprobe.scaling.keras3_optimizer import PACKAGE
from hwprobe.scaling.keras_family import KerasFamily

if TYPE_CHECKING:
    from tf_keras.mixed_precision import LossScaleOptimizer as _Base
else:
    _Base = object

_NEVER = 2**62
"""Growth steps that no training reaches: the hidden dynamic scale only ever falls, and is used by nobody."""

_lock = threading.Lock()
_classes: dict[type[Any], type[Any]] = {}


def fixed_class(family: KerasFamily, *, legacy: bool) -> type[Any]:
    """Give the class of fixed-scale optimizers, building and registering it with Keras' serialisation on first use.

    Args:
        family: Keras 2 or tf_keras.
        legacy: Whether it is to wrap an optimizer of `optimizers.legacy`; Keras 2 has one class for each kind.

    Returns:
        A subclass of the class that `mixed_precision.LossScaleOptimizer` makes for such an optimizer.
    """
    keras = family.module
    # The public class is the common parent of two others, one for each kind; making an instance to see which one it
    # chooses would create variables, and so initialise TensorFlow.
    bases = keras.mixed_precision.LossScaleOptimizer.__subclasses__()
    base = next(kind for kind in bases if issubclass(kind, keras.optimizers.legacy.Optimizer) is legacy)
    with _lock:
        if base not in _classes:
            name = "LegacyFixedLossScaleOptimizer" if legacy else "FixedLossScaleOptimizer"
            body = {"__module__": __name__, "__doc__": _FixedScaling.__doc__}
            built = type(name, (_FixedScaling, base), body)
            _classes[base] = keras.utils.register_keras_serializable(package=PACKAGE)(built)
        return _classes[base]


def is_fixed(optimizer: Any) -> bool:
    """Say whether an optimizer is one of ours; imports nothing."""
    return isinstance(optimizer, _FixedScaling)


class _FixedScaling(_Base):  # type: ignore[misc]
    """Wraps a Keras 2 optimizer; scales by a fixed number, skips and counts the steps that overflow.

    Args:
        inner_optimizer: The optimizer that makes the updates.
        initial_scale: The scale.

    Attributes:
        skipped_steps: Variable; steps that were not applied, in all.
        consecutive_skips: Variable; steps that were not applied, since the last one that was.
    """

    def __init__(self, inner_optimizer: Any, initial_scale: float) -> None:
        super().__init__(inner_optimizer, initial_scale=float(initial_scale), dynamic_growth_steps=_NEVER)
        self.skipped_steps = _counter("skipped_steps")
        self.consecutive_skips = _counter("consecutive_skips")
        self._track_trackable(self.skipped_steps, "skipped_steps")
        self._track_trackable(self.consecutive_skips, "consecutive_skips")

    @property
    def dynamic(self) -> bool:
        """False, for everyone who asks."""
        return False

    @property
    def loss_scale(self) -> Any:
        """The scale, as a float32 tensor."""
        import tensorflow as tf

        return tf.constant(self.initial_scale, tf.float32)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply unscaled gradients, or skip the step on all replicas and count it.

        Args:
            grads_and_vars: Pairs of an unscaled gradient and its variable.
            args: As Keras 2 takes them.
            kwargs: As Keras 2 takes them.
        """
        import tensorflow as tf

        result = super().apply_gradients(grads_and_vars, *args, **kwargs)
        # The parent counts clean steps from 1, and sets the counter to 0 at a skip.
        skipped = tf.cast(tf.equal(self.dynamic_counter, 0), tf.int64)
        self.skipped_steps.assign_add(skipped)
        self.consecutive_skips.assign((self.consecutive_skips + 1) * skipped)
        return result

    def get_config(self) -> dict[str, Any]:
        """Give what `from_config` needs to build an equal optimizer."""
        config = super().get_config()
        return {"inner_optimizer": config["inner_optimizer"], "initial_scale": self.initial_scale}


def _counter(name: str) -> Any:
    import tensorflow as tf

    return tf.Variable(
        0, dtype=tf.int64, trainable=False, name=name, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
    )
