"""Figures of tensors: largest value, zeros, non-finite elements, differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwprobe.model.facts import Values


def floating_tensors(structure: Any) -> list[Any]:
    """Collect the dense floating point tensors in nested arguments or outputs."""
    import keras
    import tensorflow as tf

    return [leaf for leaf in keras.tree.flatten(structure) if isinstance(leaf, tf.Tensor) and leaf.dtype.is_floating]


def values_of(tensors: Sequence[Any]) -> Values | None:
    """Measure tensors, taken together.

    Args:
        tensors: TensorFlow tensors, `IndexedSlices` (their values count) or NumPy arrays.

    Returns:
        None if there are none.
    """
    import numpy

    if not tensors:
        return None
    arrays = [_array(tensor) for tensor in tensors]
    finite = [array[numpy.isfinite(array)] for array in arrays]
    largest = max((float(numpy.max(numpy.abs(array))) for array in finite if array.size), default=None)
    return Values(
        dtype=" ".join(sorted({_dtype(tensor) for tensor in tensors})),
        elements=sum(array.size for array in arrays),
        largest=largest,
        non_finite=sum(array.size - kept.size for array, kept in zip(arrays, finite, strict=True)),
        zeros=sum(int(numpy.count_nonzero(array == 0.0)) for array in arrays),
    )


def relative_difference(tensors: Sequence[Any], references: Sequence[Any]) -> float | None:
    """Give |tensors - references| over |references|, over the elements that are finite in both.

    Returns:
        None where shapes differ, nothing is finite, or the reference is zero.
    """
    import numpy

    if len(tensors) != len(references):
        return None
    apart = size = 0.0
    for tensor, reference in zip(tensors, references, strict=True):
        left, right = _array(tensor), _array(reference)
        if left.shape != right.shape:
            return None
        both = numpy.isfinite(left) & numpy.isfinite(right)
        apart += float(numpy.sum(numpy.square(left[both] - right[both])))
        size += float(numpy.sum(numpy.square(right[both])))
    return float(numpy.sqrt(apart / size)) if size > 0.0 else None


def changed_integers(tensors: Sequence[Any], references: Sequence[Any], above: float) -> tuple[int, int]:
    """Count whole numbers that came out as other numbers.

    Args:
        tensors: Mixed values.
        references: Values of the float32 pass.
        above: A tensor counts only where one of its values is larger than this.

    Returns:
        Elements of the tensors that are all whole numbers, and how many of them changed.
    """
    import numpy

    whole = changed = 0
    for tensor, reference in zip(tensors, references, strict=False):
        left, right = _array(tensor), _array(reference)
        if left.shape != right.shape or not right.size or not numpy.all(numpy.isfinite(right)):
            continue
        if numpy.max(numpy.abs(right)) > above and numpy.array_equal(right, numpy.rint(right)):
            whole += right.size
            changed += int(numpy.count_nonzero(left != right))
    return whole, changed


def worst_gradient(named: Sequence[tuple[str, Any]]) -> str | None:
    """Name the gradient with the most non-finite elements; None where all are finite."""
    import numpy

    counts = {name: int(numpy.count_nonzero(~numpy.isfinite(_array(gradient)))) for name, gradient in named}
    worst = max(counts, key=lambda name: counts[name], default=None)
    return worst if worst is not None and counts[worst] else None


def _array(tensor: Any) -> Any:
    import numpy

    # The slices of a sparse gradient; a dense mask made of them would lose repeated rows.
    dense = tensor.values if hasattr(tensor, "dense_shape") else tensor
    return numpy.asarray(dense).astype("float64")


def _dtype(tensor: Any) -> str:
    return str(getattr(tensor.dtype, "name", tensor.dtype))
