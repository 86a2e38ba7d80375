"""Copies of a model to try things on: the same layers and weights, in another precision. The model is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from hwprobe.errors import InputError
from hwprobe.scaling.keras_family import KerasFamily

Precision = Literal["float32", "mixed_float16"]
_LOW_PRECISION = ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16")
_POLICY_CLASSES = ("Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy")


class NotRebuildableError(InputError):
    """A model cannot be built anew from its configuration."""


def copy_model(model: Any, family: KerasFamily, precision: Precision | None, x: Any) -> Any:
    """Build a model like this one from its configuration, with its weights where it has any.

    Args:
        model: A model of any Keras.
        family: The Keras that it belongs to.
        x: Input batch, for a copy that has no weights before it is called.
        precision: `float32` for all layers; `mixed_float16` for those that are in 16 bits or, in a model that is all
            float32, for all but the output layers; None to keep every layer as it is.

    Raises:
        NotRebuildableError: The model has no usable configuration, as most subclassed models have not.
    """
    keras = family.module
    layers = {type(layer).__name__: type(layer) for layer in all_layers(model)}
    try:
        configuration = _with_precision(model.get_config(), precision, _kept_layers(model))
        with keras.utils.custom_object_scope(layers), global_policy(family, precision):
            twin = type(model).from_config(configuration)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise NotRebuildableError(
            f"model {model.name!r} ({type(model).__qualname__}) cannot be rebuilt from its configuration: pass a "
            "function without arguments that builds it instead"
        ) from error
    if not twin.built or not twin.weights:
        twin(x)
    if model.built and model.weights:
        twin.set_weights(model.get_weights())
    return twin


@contextmanager
def global_policy(family: KerasFamily, name: str | None) -> Iterator[None]:
    """Set the global dtype policy of a Keras for a while; None leaves it as it is."""
    mixed_precision = family.module.mixed_precision
    before = mixed_precision.global_policy()
    if name is not None:
        mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        mixed_precision.set_global_policy(before)


def all_layers(model: Any) -> list[Any]:
    """Give the model and every layer inside it, depth first."""
    return list(model._flatten_layers())


def is_low_precision(layer: Any) -> bool:
    """Say whether a layer computes in 16 bits."""
    return str(layer.compute_dtype) in ("float16", "bfloat16")


class Outputs:
    """Collects the floating point output of every layer of a twin, call by call.

    Args:
        twin: A copy of a model; its layers' `call` is replaced.
    """

    def __init__(self, twin: Any) -> None:
        self.seen: list[tuple[str, Any]] = []
        for layer in _single_layers(twin):
            object.__setattr__(layer, "call", self._recorded(layer.name, layer.call))

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        import functools

        import tensorflow as tf

        @functools.wraps(call)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            for tensor in tf.nest.flatten(outputs):
                if tf.is_tensor(tensor) and tensor.dtype.is_floating:
                    self.seen.append((name, tensor))
            return outputs

        return recorded


def first_non_finite_layer(model: Any, family: KerasFamily, x: Any) -> str | None:
    """Name the first layer whose output is not finite, on a copy of the model.

    Args:
        model: A built model on TensorFlow.
        family: The Keras that it belongs to.
        x: Input batch.

    Returns:
        None where all outputs are finite, or the model cannot be copied.
    """
    import tensorflow as tf

    try:
        twin = copy_model(model, family, None, x)
        outputs = Outputs(twin)
        twin(x, training=True)
    except NotRebuildableError:
        return None
    return next((name for name, tensor in outputs.seen if not bool(tf.reduce_all(tf.math.is_finite(tensor)))), None)


def _single_layers(container: Any) -> Iterator[Any]:
    """Yield the layers of models and of the user's own layers, down to Keras' own, which are not opened.

    Inside MultiHeadAttention there are gradients that float32's rounding makes out of exact zeros, where one place
    attends to one other; they are no reason to choose a scale by.
    """
    for layer in container._flatten_layers(include_self=False, recursive=False):
        own = type(layer).__module__.partition(".")[0] not in ("keras", "tf_keras")
        if hasattr(layer, "layers") or own:
            yield from _single_layers(layer)
        if not hasattr(layer, "layers"):
            yield layer


def _kept_layers(model: Any) -> frozenset[str]:
    """Name the layers that stay float32 when a float32 model becomes a mixed one: those that give its outputs."""
    if any(map(is_low_precision, all_layers(model))):
        return frozenset()
    try:
        outputs = {id(tensor) for tensor in _flat(model.outputs)}
    except (AttributeError, ValueError):
        # A Sequential model that was never called refuses to name them.
        outputs = set()
    giving = [layer for layer in model.layers if {id(each) for each in _flat(getattr(layer, "output", None))} & outputs]
    return frozenset(layer.name for layer in giving or model.layers[-1:])


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _flat(part)]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in _flat(part)]
    return [] if value is None else [value]


def _with_precision(part: Any, precision: Precision | None, kept: frozenset[str]) -> Any:
    if precision is None:
        return part
    if isinstance(part, (list, tuple)):
        return type(part)(_with_precision(each, precision, kept) for each in part)
    if not isinstance(part, dict):
        return part
    if part.get("class_name") in ("InputLayer", "__keras_tensor__", "__tensor__"):
        # Their dtypes are those of data, not policies.
        return part
    inner = part.get("config")
    if isinstance(inner, dict) and inner.get("name") in kept:
        return part
    return {
        key: _policy(value, precision, bool(kept)) if key == "dtype" else _with_precision(value, precision, kept)
        for key, value in part.items()
    }


def _policy(value: Any, precision: Precision, all_float32: bool) -> Any:
    if isinstance(value, dict) and value.get("class_name") in _POLICY_CLASSES:
        return {**value, "config": {"name": _policy(value["config"]["name"], precision, all_float32)}}
    if value in _LOW_PRECISION or (value == "float32" and all_float32 and precision == "mixed_float16"):
        return precision
    return value
