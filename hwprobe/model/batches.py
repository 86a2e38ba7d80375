"""The batches that a model is probed with: the caller's own or a made-up one, then zeros and a fully masked one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hwprobe.errors import InputError
from hwprobe.model.facts import ModelFacts
from hwprobe.model.read import walk_layers

ROWS = 4
FREE_LENGTH = 32
"""Length that a made-up batch has along a dimension that the model leaves open."""


@dataclass(frozen=True)
class Batch:
    """Inputs and, for the first batch, targets.

    Attributes:
        kind: Where it comes from.
        x: What the model is called with.
        y: Targets; None without any.
        sample_weight: Weights of the rows; None without any.
    """

    kind: Literal["given", "made up", "zeros", "masked"]
    x: Any
    y: Any = None
    sample_weight: Any = None


def given_batch(batch: Any) -> Batch:
    """Take the caller's batch apart.

    Args:
        batch: Inputs, `(inputs,)`, `(inputs, targets)`, `(inputs, targets, sample_weight)`, or a `tf.data.Dataset`
            or other iterable of batches with an `element_spec`, whose first batch is taken.

    Raises:
        InputError: It is a tuple of another length, or a data set without any batch.
    """
    if hasattr(batch, "element_spec"):
        batch = next(iter(batch), None)
        if batch is None:
            raise InputError("the data set holds no batch")
    if not isinstance(batch, tuple):
        return Batch(kind="given", x=batch)
    if not 1 <= len(batch) <= 3:
        raise InputError(f"a batch is (inputs, targets, sample_weight) or a part of it, not {len(batch)} things")
    x, y, sample_weight = (*batch, None, None)[:3]
    return Batch(kind="given", x=x, y=y, sample_weight=sample_weight)


def made_up_batch(model: Any, facts: ModelFacts) -> Batch:
    """Draw a batch that fits the inputs of a graph model: normal numbers, ids inside the vocabulary, masks of ones.

    Raises:
        InputError: The model has no graph, or an input of a kind that cannot be drawn.
    """
    import keras
    import numpy

    if not facts.inputs:
        raise InputError("the model does not say what its inputs look like: give a batch")
    generator = numpy.random.default_rng(0)
    embeddings = [layer for layer in facts.layers if layer.class_name == "Embedding"]
    vocabulary = min((layer.sizes.get("input_dim", 2) for layer in embeddings), default=2)
    floats_are_ids = any(layer.ids_through for layer in embeddings)

    def draw(tensor: Any) -> Any:
        shape = (ROWS, *(FREE_LENGTH if size is None else size for size in tensor.shape[1:]))
        if _is_mask(_name(tensor), tensor.dtype):
            return numpy.ones(shape, tensor.dtype)
        if "int" in tensor.dtype or floats_are_ids:
            return generator.integers(0, vocabulary, shape).astype(tensor.dtype)
        if "float" not in tensor.dtype:
            raise InputError(f"input {_name(tensor)} takes {tensor.dtype}: give a batch")
        mean, deviation = _expected(tensor)
        return (mean + deviation * generator.standard_normal(shape)).astype("float32")

    return Batch(kind="made up", x=keras.tree.map_structure(draw, _input_structure(model)))


def zero_batch(batch: Batch) -> Batch:
    """Give the batch with every input zero."""
    import keras
    import numpy

    return Batch(kind="zeros", x=keras.tree.map_structure(numpy.zeros_like, batch.x))


def masked_batch(model: Any, facts: ModelFacts, batch: Batch) -> Batch | None:
    """Give the batch with every position masked, for a model that knows a mask; None for any other.

    A `Masking` layer sees its mask value everywhere, an Embedding with `mask_zero` id 0, an input that is a mask zeros.
    """
    import numpy

    value = next((layer.mask_value for _, layer in walk_layers(model) if type(layer).__name__ == "Masking"), None)
    masks_zero = any(getattr(layer, "mask_zero", False) for _, layer in walk_layers(model))
    mask_inputs = any(_is_mask(name, _dtype(leaf)) for name, leaf in _named_leaves(batch.x, facts))
    if value is None and not masks_zero and not mask_inputs:
        return None

    def masked(name: str, leaf: Any) -> Any:
        dtype = _dtype(leaf)
        if _is_mask(name, dtype) or ("int" in dtype and masks_zero):
            return numpy.zeros_like(leaf)
        return numpy.full_like(leaf, value) if value is not None and "float" in dtype else leaf

    return Batch(kind="masked", x=_map_named(batch.x, facts, masked))


def _input_structure(model: Any) -> Any:
    try:
        return model.input
    except AttributeError:
        # A Sequential model that was never called names its inputs only as a list.
        return model.inputs[0] if len(model.inputs) == 1 else model.inputs


def _is_mask(name: str, dtype: str) -> bool:
    return dtype == "bool" or "mask" in name.lower()


def _dtype(leaf: Any) -> str:
    dtype = getattr(leaf, "dtype", type(leaf).__name__)
    return str(getattr(dtype, "name", dtype))


def _name(tensor: Any) -> str:
    history = getattr(tensor, "_keras_history", None)
    return str(getattr(getattr(history, "operation", None), "name", tensor.name))


def _expected(tensor: Any) -> tuple[Any, Any]:
    """Mean and deviation that a Normalization layer right behind this input expects; 0 and 1 without one."""
    import numpy

    operation = getattr(getattr(tensor, "_keras_history", None), "operation", None)
    for node in getattr(operation, "_outbound_nodes", None) or ():
        layer = node.operation
        if type(layer).__name__ == "Normalization":
            mean = getattr(layer, "adapt_mean", None)
            mean = layer.input_mean if mean is None else mean
            variance = getattr(layer, "adapt_variance", None)
            variance = layer.input_variance if variance is None else variance
            return numpy.asarray(mean, "float64"), numpy.sqrt(numpy.asarray(variance, "float64"))
    return 0.0, 1.0


def _named_leaves(x: Any, facts: ModelFacts) -> Iterator[tuple[str, Any]]:
    if isinstance(x, dict):
        yield from ((str(name), leaf) for name, leaf in x.items())
        return
    leaves = list(x) if isinstance(x, (list, tuple)) else [x]
    names = [known.name for known in facts.inputs] if len(facts.inputs) == len(leaves) else [""] * len(leaves)
    yield from zip(names, leaves, strict=True)


def _map_named(x: Any, facts: ModelFacts, change: Callable[[str, Any], Any]) -> Any:
    changed = [change(name, leaf) for name, leaf in _named_leaves(x, facts)]
    if isinstance(x, dict):
        return dict(zip(x, changed, strict=True))
    return type(x)(changed) if isinstance(x, (list, tuple)) else changed[0]
