"""Borrowing a Keras 3 model for a while: other dtype policies, recorded calls, and everything as it was afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from hwprobe.model.read import walk_layers

_RANDOM_SETTINGS = ("rate", "dropout", "recurrent_dropout", "stddev")


def operations(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers and the bare graph operations (`x + 1`, `keras.ops.exp(x)`) of a model, with their names.

    The cells inside of recurrent layers are left out: they run once a time step.
    """
    cells: list[str] = []
    containers = [("", model)]
    for name, layer in walk_layers(model):
        if any(name.startswith(f"{cell}/") for cell in cells):
            continue
        if hasattr(layer, "cell"):
            cells.append(name)
        if type(layer).__name__ == "InputLayer":
            continue
        yield name, layer
        containers.append((f"{name}/", layer))
    for prefix, container in containers:
        for operation in getattr(container, "operations", None) or ():
            if not hasattr(operation, "dtype_policy"):
                yield f"{prefix}{operation.name}", operation


@contextlib.contextmanager
def borrowed(model: Any) -> Iterator[None]:
    """Let the caller change attributes of a model and of everything in it, and put each of them back.

    Values of Keras' variables are protected by the caller with `keras.StatelessScope`. This puts back what that
    scope does not know: attributes (dtype policies, cached tensors, counters), the lists, sets and dictionaries
    among them, and plain `tf.Variable`s and random generators of custom layers.
    """
    import tensorflow as tf

    owners = [model, *(layer for _, layer in walk_layers(model)), *(operation for _, operation in operations(model))]
    owners.extend(
        part for name in ("_compile_loss", "_compile_metrics") if (part := getattr(model, name, None)) is not None
    )
    owners.extend(getattr(model, "metrics", ()))
    saved = {id(owner): (owner, dict(vars(owner))) for owner in owners}
    containers = [
        (value, _plain(value))
        for _, attributes in saved.values()
        for value in attributes.values()
        if isinstance(value, (list, set, dict))
    ]
    variables = [(variable, tf.identity(variable)) for variable in _plain_variables(saved, tf)]
    try:
        yield
    finally:
        for owner, attributes in saved.values():
            vars(owner).clear()
            vars(owner).update(attributes)
        for container, contents in containers:
            _refill(container, contents)
        for variable, value in variables:
            variable.assign(value)


def _plain_variables(saved: dict[int, tuple[Any, dict[str, Any]]], tf: Any) -> Iterator[Any]:
    for _, attributes in saved.values():
        for value in attributes.values():
            for part in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(part, tf.Variable):
                    yield part
                elif isinstance(part, tf.random.Generator):
                    yield part.state


def _plain(container: Any) -> Any:
    # Not copy.copy: Keras' tracked lists and dictionaries would register their contents with the layer again.
    return next(base(container) for base in (list, set, dict) if isinstance(container, base))


def _refill(container: Any, contents: Any) -> None:
    # The base classes' own methods: Keras' tracked lists would register what is put into them once more.
    if isinstance(container, list) and list(container) != list(contents):
        list.__setitem__(container, slice(None), list(contents))
    elif isinstance(container, set) and set(container) != set(contents):
        set.clear(container)
        set.update(container, contents)
    elif isinstance(container, dict) and container.keys() != contents.keys():
        dict.clear(container)
        dict.update(container, contents)


PolicyOf = Callable[[str, str], str]
"""Name of a policy and its compute dtype to the name of the policy to use instead."""


def set_policies(model: Any, policy_of: PolicyOf) -> None:
    """Give every layer the dtype policy that `policy_of` names for its present one. To be undone by `borrowed`."""
    import keras

    for layer in (model, *(layer for _, layer in walk_layers(model))):
        name = policy_of(layer.dtype_policy.name, layer.compute_dtype)
        if name != layer.dtype_policy.name:
            object.__setattr__(layer, "_dtype_policy", keras.dtype_policies.get(name))
            if type(layer).__name__ == "Normalization" and layer.built:
                # It keeps its mean and variance cast to the compute dtype.
                layer.finalize_state()


def silence_noise(model: Any) -> None:
    """Switch dropout and noise off, so that two passes in training mode can be compared. To be undone by `borrowed`."""
    for _, layer in walk_layers(model):
        if hasattr(layer, "seed_generator") or hasattr(layer, "recurrent_dropout"):
            for name in _RANDOM_SETTINGS:
                if isinstance(vars(layer).get(name), float):
                    object.__setattr__(layer, name, 0.0)


def record_calls(model: Any, before: Callable[[str], None], after: Callable[[str, Any, Any, Any], None]) -> None:
    """Have `before(name)` and `after(name, operation, inputs, outputs)` called around each call in the model.

    To be undone by `borrowed`. `after` is left out for a call that ends with an exception.
    """
    for name, operation in operations(model):
        object.__setattr__(operation, "call", _recorded(name, operation, before, after))


def _recorded(
    name: str, operation: Any, before: Callable[[str], None], after: Callable[[str, Any, Any, Any], None]
) -> Callable[..., Any]:
    original = operation.call

    def call(*args: Any, **kwargs: Any) -> Any:
        before(name)
        outputs = original(*args, **kwargs)
        after(name, operation, (args, kwargs), outputs)
        return outputs

    return call
