"""Following the graph of a functional or sequential model, in Keras 3, Keras 2 and tf_keras."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PASS_THROUGH = {"Reshape", "Flatten", "Permute", "Identity", "Cast", "Squeeze", "ExpandDims", "Dropout"}


@dataclass(frozen=True)
class Heads:
    """The `id`s of the layers and operations at the end of a graph.

    Attributes:
        outputs: Those whose result is the model's output.
        computing: Those that compute it: where an output only reshapes, casts or passes on, the one before it too.
    """

    outputs: frozenset[int]
    computing: frozenset[int]


def find_heads(model: Any) -> Heads | None:
    """Find what makes the model's outputs.

    Returns:
        None where the model has no graph (a subclassed model, or one that was never called).
    """
    try:
        outputs = model.outputs
    except (AttributeError, ValueError):
        return None
    if not outputs:
        return None
    producers = [operation for tensor in outputs if (operation := _producer(tensor)) is not None]
    outputs = {id(operation) for operation in producers}
    found: set[int] = set()
    waiting = list(producers)
    while waiting:
        operation = waiting.pop()
        if id(operation) in found:
            continue
        found.add(id(operation))
        inner = find_heads(operation) if type(operation).__name__ in ("Functional", "Sequential") else None
        if inner is not None:
            found |= inner.computing
            if id(operation) in outputs:
                # A model within the model casts nothing: what its own last layers give is what comes out.
                outputs = outputs - {id(operation)} | inner.outputs
        elif _passes_on(operation):
            waiting.extend(_parents(operation))
    return Heads(outputs=frozenset(outputs), computing=frozenset(found))


def ids_through(embedding: Any) -> tuple[str, ...]:
    """Name the layers that an Embedding's ids pass on their way from the input as floating point.

    An input that feeds the Embedding itself is none of them: Keras does not cast what an Embedding takes.

    Returns:
        Names from the input on; empty where the ids come straight from an input, or as integers.
    """
    if not any(_is_floating(tensor) for node in _nodes(embedding) for tensor in _tensors(node)):
        return ()
    names: list[str] = []
    waiting = list(_parents(embedding))
    while waiting:
        operation = waiting.pop(0)
        if type(operation).__name__ != "InputLayer" and operation.name not in names:
            names.append(str(operation.name))
            waiting.extend(_parents(operation))
    return tuple(reversed(names))


def _passes_on(operation: Any) -> bool:
    if type(operation).__name__ == "Activation":
        return getattr(operation.activation, "__name__", None) == "linear"
    return type(operation).__name__ in _PASS_THROUGH


def _producer(tensor: Any) -> Any:
    history = getattr(tensor, "_keras_history", None)
    return getattr(history, "operation", None) or getattr(history, "layer", None)


def _nodes(operation: Any) -> list[Any]:
    return list(getattr(operation, "_inbound_nodes", None) or ())


def _tensors(node: Any) -> list[Any]:
    tensors = getattr(node, "input_tensors", None)
    if tensors is None:
        return []
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _parents(operation: Any) -> Iterator[Any]:
    for node in _nodes(operation):
        for tensor in _tensors(node):
            parent = _producer(tensor)
            if parent is not None:
                yield parent


def _is_floating(tensor: Any) -> bool:
    dtype = getattr(tensor, "dtype", "")
    return "float" in str(getattr(dtype, "name", dtype))
