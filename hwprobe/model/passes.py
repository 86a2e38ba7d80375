"""One forward (and backward) pass of a Keras 3 model on TensorFlow with everything in it recorded."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hwprobe.model.batches import Batch
from hwprobe.model.facts import Gradients, LossTerm, MetricProbe, Values
from hwprobe.model.measure import floating_tensors, values_of, worst_gradient
from hwprobe.model.untouched import PolicyOf, borrowed, record_calls, set_policies, silence_noise
from hwprobe.model.users_code import one_line


@dataclass
class Call:
    """One call of one layer: its name, and its floating point inputs and outputs."""

    name: str
    class_name: str
    compute_dtype: str | None
    inputs: list[Any]
    outputs: list[Any]


@dataclass
class Pass:
    """What one pass left behind.

    Attributes:
        calls: In the order in which they finished.
        error: Text of the exception that ended it; None if it reached its end.
        error_layer: Innermost layer that was running then.
        loss_terms: Name, dtype and value of each.
        metrics: Name and value.
        gradients: Weight name and gradient, as they come out for each scale.
    """

    calls: list[Call] = field(default_factory=list)
    error: str | None = None
    error_layer: str | None = None
    loss_terms: list[tuple[str, str, float]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    gradients: dict[float, list[tuple[str, Any]]] = field(default_factory=dict)


def model_errors() -> tuple[type[Exception], ...]:
    """Give the exceptions that a model's own code raises when a dtype or a value does not suit it."""
    import tensorflow as tf

    return (
        tf.errors.OpError,
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    )


def run_pass(model: Any, batch: Batch, policy_of: PolicyOf, scales: tuple[float, ...] = ()) -> Pass:
    """Run the model once and leave it as it was.

    Args:
        model: A built Keras 3 model on TensorFlow.
        batch: What to call it with.
        policy_of: Dtype policy to use for each that its layers have.
        scales: Loss scales to compute gradients at; none for a forward pass alone.
    """
    import keras
    import tensorflow as tf

    result = Pass()
    running: list[str] = []

    def after(name: str, operation: Any, inputs: Any, outputs: Any) -> None:
        running.pop()
        result.calls.append(
            Call(
                name=name,
                class_name=type(operation).__name__,
                compute_dtype=getattr(operation, "compute_dtype", None),
                inputs=floating_tensors(inputs),
                outputs=floating_tensors(outputs),
            )
        )

    with borrowed(model), _functions_run_eagerly():
        set_policies(model, policy_of)
        silence_noise(model)
        record_calls(model, running.append, after)
        with keras.StatelessScope(collect_losses=True), tf.GradientTape(persistent=True) as tape:
            try:
                _through(model, batch, result, scales, tape)
            except model_errors() as error:
                result.error = f"{type(error).__name__}: {one_line(error)}"
                result.error_layer = running[-1] if running else None
    return result


def _through(model: Any, batch: Batch, result: Pass, scales: tuple[float, ...], tape: Any) -> None:
    import tensorflow as tf

    outputs = _call(model, batch.x)
    if not scales:
        return
    loss = _loss(model, batch, outputs, result)
    if batch.y is not None and getattr(model, "_compile_metrics", None) is not None:
        result.metrics = _metrics(model, batch, outputs)
    loss = tf.cast(loss, tf.float32)
    weights = model.trainable_variables
    with tape.stop_recording():
        for scale in scales:
            gradients = tape.gradient(loss, weights, output_gradients=tf.constant(scale, tf.float32))
            result.gradients[scale] = [
                (weight.path, gradient)
                for weight, gradient in zip(weights, gradients, strict=True)
                if gradient is not None
            ]


def _call(model: Any, x: Any) -> Any:
    takes_training = "training" in inspect.signature(model.call).parameters
    return model(x, training=True) if takes_training else model(x)


def has_own_loss(model: Any, batch: Batch) -> bool:
    """Whether the model's compiled loss can be computed on this batch."""
    return batch.y is not None and bool(getattr(model, "compiled", False)) and getattr(model, "loss", None) is not None


def _loss(model: Any, batch: Batch, outputs: Any, result: Pass) -> Any:
    import tensorflow as tf

    added = list(model.losses)
    for number, term in enumerate(added, start=1):
        result.loss_terms.append((f"added loss {number}", term.dtype.name, float(term)))
    if has_own_loss(model, batch):
        arguments = {"x": batch.x, "y": batch.y, "y_pred": outputs, "sample_weight": batch.sample_weight}
        if "training" in inspect.signature(model.compute_loss).parameters:
            arguments["training"] = True
        loss = model.compute_loss(**arguments)
        result.loss_terms.insert(0, ("compute_loss", loss.dtype.name, float(loss)))
        return loss
    squares = [tf.reduce_mean(tf.square(tf.cast(output, tf.float32))) for output in floating_tensors(outputs)]
    return tf.add_n([*squares, *(tf.cast(term, tf.float32) for term in added)])


def _metrics(model: Any, batch: Batch, outputs: Any) -> dict[str, float]:
    compiled = model._compile_metrics
    for metric in compiled.metrics:
        metric.reset_state()
    compiled.update_state(batch.y, outputs)
    return {str(name): float(value) for name, value in compiled.result().items()}


@contextlib.contextmanager
def _functions_run_eagerly() -> Iterator[None]:
    """Keep `tf.function`s of custom layers from caching a trace that was made under another dtype policy."""
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def gradient_facts(reference: Pass, mixed: Pass, scale: float) -> Gradients | None:
    """Compare the gradients of two passes; None where either has none."""
    own, wanted = mixed.gradients.get(scale), reference.gradients.get(1.0)
    if not own or not wanted:
        return None
    mixed_values, reference_values = (values_of([gradient for _, gradient in side]) for side in (own, wanted))
    assert isinstance(mixed_values, Values)
    assert isinstance(reference_values, Values)
    return Gradients(scale=scale, reference=reference_values, mixed=mixed_values, worst=worst_gradient(own))


def loss_facts(reference: Pass, mixed: Pass) -> tuple[LossTerm, ...]:
    """Join the loss terms of two passes by name."""
    wanted = {name: value for name, _, value in reference.loss_terms}
    return tuple(
        LossTerm(name=name, dtype=dtype, value=_finite(value), reference=_finite(wanted.get(name)))
        for name, dtype, value in mixed.loss_terms
    )


def metric_facts(reference: Pass, mixed: Pass) -> tuple[MetricProbe, ...]:
    """Join the metrics of two passes by name."""
    return tuple(
        MetricProbe(name=name, value=_finite(value), reference=_finite(reference.metrics.get(name)))
        for name, value in mixed.metrics.items()
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None
