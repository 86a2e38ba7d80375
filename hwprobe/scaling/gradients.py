"""Training steps on a twin that look at every gradient: of the weights, and of the output of every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hwprobe.errors import InputError
from hwprobe.scaling.keras_family import KerasFamily
from hwprobe.scaling.reading import is_loss_scale_optimizer
from hwprobe.scaling.twins import Outputs
from hwprobe.source import Fact

LOWEST, HIGHEST = -60, 24
"""Exponents of the histogram's first and last bin; what lies outside is counted in them."""

BINS = HIGHEST - LOWEST + 1


class StepGradients(Fact, frozen=True, kw_only=True):
    """The gradients of one step, unscaled sizes not restored: as they were held.

    Attributes:
        loss: Unscaled loss.
        finite: Whether all gradients of the weights were.
        names: What each row belongs to: `weight PATH` or `output of LAYER`.
        histograms: Per row, how many non-zero elements have which exponent (`floor(log2 |g|)`), from `LOWEST` on.
        largest: Per row, the largest magnitude; 0 where all are zero.
        zeros: Per row, elements that are exactly zero.
    """

    loss: float
    finite: bool
    names: tuple[str, ...]
    histograms: tuple[tuple[int, ...], ...]
    largest: tuple[float, ...]
    zeros: tuple[int, ...]

    @property
    def zero_share(self) -> float:
        """Exact zeros over all elements."""
        nonzero = sum(sum(row) for row in self.histograms)
        return sum(self.zeros) / max(1, nonzero + sum(self.zeros))


class Trainer:
    """Trains a twin by hand and looks at the gradients of each step.

    Args:
        twin: A copy of the user's model; it is trained.
        family: The Keras that it belongs to.
        loss: Name of a Keras loss, a Keras loss object, or a function of targets and predictions.
        optimizer: A fresh optimizer without scaling.
        scale: What the loss is multiplied by. A step with a non-finite gradient is left out.
    """

    def __init__(self, twin: Any, family: KerasFamily, loss: Any, optimizer: Any, scale: float = 1.0) -> None:
        import tensorflow as tf

        self._twin, self._loss, self._optimizer, self._scale = twin, _loss_function(loss, family), optimizer, scale
        self._outputs = Outputs(twin)
        self._names: tuple[str, ...] = ()
        self._variables = list(twin.trainable_variables)
        if family.generation == 3 or hasattr(optimizer, "build"):
            optimizer.build(self._variables)
        self._compiled = tf.function(self._step, reduce_retracing=True)

    def step(self, batch: tuple[Any, ...]) -> StepGradients:
        """Make one step.

        Args:
            batch: Inputs, targets and, where there are any, sample weights.

        Returns:
            What the gradients looked like. With a scale they are the scaled ones, as float16 held them.
        """
        loss, finite, histograms, largest, zeros = (value.numpy() for value in self._compiled(*_as_tensors(batch)))
        return StepGradients(
            loss=float(loss),
            finite=bool(finite),
            names=self._names,
            histograms=tuple(tuple(int(count) for count in row) for row in histograms),
            largest=tuple(float(value) for value in largest),
            zeros=tuple(int(count) for count in zeros),
        )

    def _step(self, x: Any, y: Any, sample_weight: Any = None) -> Any:
        import tensorflow as tf

        self._outputs.seen.clear()
        with tf.GradientTape() as tape:
            loss = self._loss(y, self._twin(x, training=True), sample_weight)
            for term in self._twin.losses:
                loss += tf.cast(term, tf.float32)
            scaled = loss * self._scale
        named = self._reachable()
        gradients = tape.gradient(scaled, [*self._variables, *(tensor for _, tensor in named)])
        of_weights, of_outputs = gradients[: len(self._variables)], gradients[len(self._variables) :]
        rows = [(f"weight {_path(v)}", g) for v, g in zip(self._variables, of_weights, strict=True) if g is not None]
        rows += [(f"output of {n}", g) for (n, _), g in zip(named, of_outputs, strict=True) if g is not None]
        self._names = tuple(name for name, _ in rows)
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(_values(g))) for g in of_weights if g is not None])
        tf.cond(finite, lambda: self._apply(of_weights), lambda: None)
        figures = [_figures(_values(gradient)) for _, gradient in rows]
        return loss, finite, *(tf.stack(column) for column in zip(*figures, strict=True))

    def _apply(self, gradients: list[Any]) -> None:
        pairs = [
            (_scaled_down(gradient, self._scale), variable)
            for gradient, variable in zip(gradients, self._variables, strict=True)
            if gradient is not None
        ]
        self._optimizer.apply_gradients(pairs)

    def _reachable(self) -> list[tuple[str, Any]]:
        """Leave out tensors of loop bodies, which the gradient cannot be asked for, and repeated ones."""
        import tensorflow as tf

        graph = tf.compat.v1.get_default_graph()
        found = {id(tensor): (name, tensor) for name, tensor in self._outputs.seen if tensor.graph is graph}
        return list(found.values())


class Batches:
    """Hands out batches, from the start again when they run out.

    Args:
        data: An iterable of batches (x, y) or (x, y, sample_weight), for instance a `tf.data.Dataset`. A generator is
            remembered as far as it was used.

    Raises:
        InputError: It is no iterable.
    """

    def __init__(self, data: Any) -> None:
        try:
            self._once = iter(data) is data
        except TypeError as error:
            raise InputError(f"data: expected an iterable of batches (x, y), got {type(data).__qualname__}") from error
        self._data, self._kept = data, []  # type: ignore[var-annotated]

    def take(self, count: int) -> Iterator[tuple[Any, ...]]:
        """Yield this many batches, from the first on.

        Raises:
            InputError: There is no batch, or a batch has another form.
        """
        given = 0
        while given < count:
            before = given
            for batch in self._source():
                yield _expect_batch(batch)
                given += 1
                if given == count:
                    return
            if given == before:
                raise InputError("data: there is no batch in it")

    def _source(self) -> Iterator[Any]:
        if not self._once:
            yield from self._data
            return
        yield from list(self._kept)
        for batch in self._data:
            self._kept.append(batch)
            yield batch


def fresh_optimizer(optimizer: Any, family: KerasFamily) -> Any:
    """Give a new optimizer with the settings of this one, without its scaler.

    Args:
        optimizer: An optimizer; None for Adam.
        family: The Keras that it belongs to.
    """
    if optimizer is None:
        return family.module.optimizers.Adam()
    while is_loss_scale_optimizer(optimizer, family):
        optimizer = optimizer.inner_optimizer
    fresh = type(optimizer).from_config(optimizer.get_config())
    if hasattr(fresh, "loss_scale_factor"):
        fresh.loss_scale_factor = None
    return fresh


def underflow_share(model: Any, family: KerasFamily, loss: Any, scale: float, batch: tuple[Any, ...]) -> float | None:
    """Measure which share of the weights' gradients is 0 at a scale and not at a larger one.

    Args:
        model: A model on TensorFlow; only a forward and two backward passes are run, in inference mode.
        family: The Keras that it belongs to.
        loss: Keras loss, its name, or a function of targets and predictions.
        scale: The scale in force.
        batch: Inputs and targets.

    Returns:
        The share, or None where no larger scale is free of overflow.
    """
    import tensorflow as tf

    x, y, *_ = _as_tensors(batch)
    variables = list(model.trainable_variables)
    function = _loss_function(loss, family)
    with tf.GradientTape(persistent=True) as tape:
        value = function(y, model(x), None)
    at_scale = _magnitudes(tape.gradient(value, variables, output_gradients=tf.constant(scale, tf.float32)))
    for bits in (10, 7, 4):
        larger = tf.constant(scale * 2.0**bits, tf.float32)
        reference = _magnitudes(tape.gradient(value, variables, output_gradients=larger))
        if all(bool(tf.reduce_all(tf.math.is_finite(part))) for part in reference):
            lost = sum(int(tf.math.count_nonzero((a == 0) & (b > 0))) for a, b in zip(at_scale, reference, strict=True))
            return lost / max(1, sum(int(tf.size(part)) for part in reference))
    return None


def _loss_function(loss: Any, family: KerasFamily) -> Callable[[Any, Any, Any], Any]:
    import tensorflow as tf

    expected = f"loss: expected a Keras loss or a function of targets and predictions, got {loss!r}"
    try:
        function = family.module.losses.get(loss)
    except (TypeError, ValueError) as error:
        raise InputError(expected) from error
    if function is None:
        raise InputError(expected)
    is_object = isinstance(function, family.module.losses.Loss)

    def compute(y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
        if is_object:
            return tf.cast(function(y_true, y_pred, sample_weight=sample_weight), tf.float32)
        # `compile` casts predictions to float32 before it calls a plain function.
        value = function(y_true, tf.nest.map_structure(lambda part: tf.cast(part, tf.float32), y_pred))
        weight = 1.0 if sample_weight is None else tf.cast(sample_weight, tf.float32)
        return tf.reduce_mean(tf.cast(value, tf.float32) * weight)

    return compute


def _figures(gradient: Any) -> tuple[Any, Any, Any]:
    """Give the histogram of exponents, the largest magnitude and the number of zeros."""
    import tensorflow as tf

    size = tf.abs(tf.cast(tf.reshape(gradient, [-1]), tf.float32))
    nonzero = tf.boolean_mask(size, size != 0.0)
    # The exponent as float32 stores it; a logarithm misses it at powers of two.
    exponent = tf.bitwise.right_shift(tf.bitcast(nonzero, tf.int32), 23) - 127
    histogram = tf.math.bincount(
        tf.clip_by_value(exponent, LOWEST, HIGHEST) - LOWEST, minlength=BINS, maxlength=BINS, dtype=tf.int32
    )
    return histogram, tf.reduce_max(size), tf.size(size) - tf.size(nonzero)


def _values(gradient: Any) -> Any:
    import tensorflow as tf

    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _magnitudes(gradients: list[Any]) -> list[Any]:
    import tensorflow as tf

    return [tf.abs(_values(gradient)) for gradient in gradients if gradient is not None]


def _scaled_down(gradient: Any, scale: float) -> Any:
    import tensorflow as tf

    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / scale, gradient.indices, gradient.dense_shape)
    return gradient / scale


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name)).partition(":")[0]


def _as_tensors(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    import tensorflow as tf

    return tuple(None if part is None else tf.nest.map_structure(tf.convert_to_tensor, part) for part in batch)


def _expect_batch(batch: Any) -> tuple[Any, ...]:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise InputError(f"data: a batch is (x, y) or (x, y, sample_weight), got {type(batch).__qualname__}")
    return tuple(batch)
