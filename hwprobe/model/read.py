"""Reading a Keras model, of Keras 3, Keras 2 or tf_keras, without calling it.

Everything is read through attributes that all three share, so no Keras is imported here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from hwprobe.errors import InputError
from hwprobe.model.code import own_functions, read_code
from hwprobe.model.facts import (
    InputStatistics,
    KerasKind,
    LayerFacts,
    LossFacts,
    ModelFacts,
    ModelInput,
    OptimizerFacts,
    Recurrent,
)
from hwprobe.model.formats import COMPUTE_DTYPES
from hwprobe.model.graph import Heads, find_heads, ids_through

KERAS_PACKAGES = ("keras", "tf_keras", "tensorflow")
_SIZES = ("units", "filters", "key_dim", "value_dim", "num_heads", "input_dim", "output_dim")
_CROSS_ENTROPIES = ("crossentropy", "CategoricalFocal", "BinaryFocal")


def read_model(model: Any, assumed_dtype_policy: str | None = None) -> ModelFacts:
    """Read what the model is made of.

    Args:
        model: A model of Keras 3, Keras 2 or tf_keras.
        assumed_dtype_policy: Policy to assume for every layer whose policy is float32; None reads them as they are.

    Raises:
        InputError: It is not a Keras model.
    """
    kind = keras_kind(model)
    heads = find_heads(model)
    layers = tuple(
        _layer(layer, name, heads=heads, assumed=assumed_dtype_policy)
        for name, layer in walk_layers(model)
        if type(layer).__name__ != "InputLayer"
    )
    return ModelFacts(
        name=str(model.name),
        class_name=type(model).__name__,
        keras=kind,
        keras_version=_keras_version(model),
        built=bool(getattr(model, "built", True)),
        dtype_policy=effective_policy(_policy_name(model), assumed_dtype_policy),
        global_dtype_policy=_global_policy(model),
        assumed_dtype_policy=assumed_dtype_policy,
        layers=layers,
        inputs=_inputs(model),
        heads_known=heads is not None,
        optimizer=_optimizer(getattr(model, "optimizer", None)),
        losses=tuple(_loss(loss) for loss in _leaves(getattr(model, "loss", None))),
        replicas=_replicas(model),
        own_methods={
            function.__name__: read_code([function])
            for function in own_functions(model, outside=KERAS_PACKAGES)
            if function.__name__ in ("train_step", "compute_loss")
        },
    )


def keras_kind(model: Any) -> KerasKind:
    """Tell which Keras a model belongs to.

    Raises:
        InputError: It is not a Keras model.
    """
    packages = {class_.__module__.partition(".")[0] for class_ in type(model).__mro__}
    if not (callable(getattr(model, "compile", None)) and hasattr(model, "_flatten_layers")):
        raise InputError(f"a Keras model is needed, not a {type(model).__name__}")
    if hasattr(model, "stateless_call"):
        return "keras3"
    return "tf_keras" if "tf_keras" in packages else "keras2"


def walk_layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield every layer inside a model with its path of names, depth first, each once."""
    seen: set[int] = set()

    def below(parent: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for layer in parent._flatten_layers(include_self=False, recursive=False):
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            name = f"{prefix}{layer.name}"
            yield name, layer
            yield from below(layer, f"{name}/")

    yield from below(model, "")


def effective_policy(name: str, assumed: str | None) -> str:
    """Give the policy to judge: the assumed one for a layer built under float32, else its own."""
    return assumed if assumed is not None and name == "float32" else name


def _layer(layer: Any, name: str, *, heads: Heads | None, assumed: str | None) -> LayerFacts:
    own_policy = _policy_name(layer)
    policy = effective_policy(own_policy, assumed)
    replaced = policy != own_policy
    class_name = type(layer).__name__
    custom = type(layer).__module__.partition(".")[0] not in KERAS_PACKAGES
    functions = own_functions(layer, outside=KERAS_PACKAGES)
    if class_name == "Lambda":
        functions.append(layer.function)
    return LayerFacts(
        name=name,
        class_name=class_name,
        custom=custom,
        dtype_policy=policy,
        compute_dtype=COMPUTE_DTYPES.get(policy, str(layer.compute_dtype)),
        variable_dtype=policy if replaced and not policy.startswith("mixed_") else str(layer.dtype or "float32"),
        autocast=bool(getattr(layer, "autocast", getattr(layer, "_autocast", True))),
        parameters=_own_parameters(layer),
        activation=_activation(layer),
        head=heads is not None and id(layer) in heads.computing,
        output=heads is not None and id(layer) in heads.outputs,
        sizes={size: int(getattr(layer, size)) for size in _SIZES if _is_integer(getattr(layer, size, None))},
        settings=_settings(layer),
        activity_regularizer=_class_or_none(getattr(layer, "activity_regularizer", None)),
        code=read_code(functions) if functions else None,
        statistics=_statistics(layer) if class_name == "Normalization" else None,
        recurrent=_recurrent(layer) if class_name in ("LSTM", "GRU", "SimpleRNN") else None,
        ids_through=ids_through(layer) if class_name == "Embedding" else (),
    )


def _policy_name(layer: Any) -> str:
    policy = getattr(layer, "dtype_policy", None) or getattr(layer, "_dtype_policy", None)
    return str(getattr(policy, "name", policy))


def _own_parameters(layer: Any) -> int:
    weights: list[Any] = []
    for attribute in ("_trainable_variables", "_non_trainable_variables", "_trainable_weights"):
        weights.extend(getattr(layer, attribute, None) or ())
    if not hasattr(layer, "_non_trainable_variables"):
        weights.extend(getattr(layer, "_non_trainable_weights", None) or ())
    return sum(math.prod(weight.shape) for weight in {id(weight): weight for weight in weights}.values())


def _activation(layer: Any) -> str | None:
    if type(layer).__name__ == "Softmax":
        return "softmax"
    activation = getattr(layer, "activation", None)
    if activation is None:
        return None
    return str(getattr(activation, "__name__", None) or getattr(activation, "name", type(activation).__name__))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _settings(layer: Any) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in sorted(vars(layer).items())
        if isinstance(value, float) and not name.startswith("_") and math.isfinite(value)
    }


def _class_or_none(value: object) -> str | None:
    return None if value is None else type(value).__name__


def _statistics(layer: Any) -> InputStatistics | None:
    mean, variance = (_numbers(layer, name) for name in ("mean", "variance"))
    if not mean or len(mean) != len(variance):
        return None
    deviations = [math.sqrt(value) for value in variance]
    ratios = [abs(m) / d for m, d in zip(mean, deviations, strict=True) if d > 0.0]
    return InputStatistics(
        mean_over_deviation=max(ratios, default=0.0),
        reach=max(abs(m) + d for m, d in zip(mean, deviations, strict=True)),
    )


def _numbers(layer: Any, name: str) -> list[float]:
    """Read `adapt_mean` or `input_mean`: `mean` itself is already cast to the compute dtype."""
    import numpy

    value = getattr(layer, f"adapt_{name}", None)
    if value is None:
        value = getattr(layer, f"input_{name}", None)
    return [] if value is None else numpy.asarray(value, dtype="float64").ravel().tolist()


def _recurrent(layer: Any) -> Recurrent:
    return Recurrent(time_steps=_time_steps(layer), not_fused_because=tuple(_not_fused_because(layer)))


def _time_steps(layer: Any) -> int | None:
    shapes: list[Any] = []
    built_for = getattr(layer, "_build_shapes_dict", None)
    if built_for:
        shapes.extend(built_for.values())
    for node in getattr(layer, "_inbound_nodes", None) or ():
        tensors = getattr(node, "input_tensors", None)
        tensors = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        shapes.extend(getattr(tensor, "shape", None) for tensor in tensors)
    steps = [shape[1] for shape in shapes if shape is not None and len(shape) == 3 and shape[1] is not None]
    return int(steps[0]) if steps else None


def _not_fused_because(layer: Any) -> Iterator[str]:
    if type(layer).__name__ == "SimpleRNN":
        return
    # Conditions of keras.layers.LSTM and GRU for the cuDNN kernel (Keras 3.15.1, layers/rnn/lstm.py and gru.py).
    if _activation(layer) != "tanh":
        yield f"activation={_activation(layer)} (needs tanh)"
    gate = layer.recurrent_activation
    if getattr(gate, "__name__", None) != "sigmoid":
        yield f"recurrent_activation={getattr(gate, '__name__', gate)} (needs sigmoid)"
    if layer.recurrent_dropout:
        yield f"recurrent_dropout={layer.recurrent_dropout:g} (needs 0)"
    if layer.unroll:
        yield "unroll=True (needs False)"
    if not layer.use_bias:
        yield "use_bias=False (needs True)"
    if type(layer).__name__ == "GRU" and not getattr(layer, "reset_after", True):
        yield "reset_after=False (needs True)"


def _inputs(model: Any) -> tuple[ModelInput, ...]:
    try:
        tensors = model.inputs
    except (AttributeError, ValueError):
        # A Sequential model that was never called refuses to name its inputs.
        return ()
    return tuple(
        ModelInput(
            name=str(tensor.name).partition(":")[0],
            dtype=str(getattr(tensor.dtype, "name", tensor.dtype)),
            shape=tuple(None if size is None else int(size) for size in tensor.shape),
        )
        for tensor in tensors or ()
    )


def _optimizer(optimizer: Any) -> OptimizerFacts | None:
    if optimizer is None or isinstance(optimizer, str):
        return None
    classes = {class_.__name__ for class_ in type(optimizer).__mro__}
    factor = getattr(optimizer, "loss_scale_factor", None)
    if not classes & {"LossScaleOptimizer", "LossScaleOptimizerV3", "BaseLossScaleOptimizer"}:
        return OptimizerFacts(
            class_name=type(optimizer).__name__,
            scaler="none" if factor is None else "factor",
            scale=None if factor is None else float(factor),
            dynamic=None if factor is None else False,
        )
    return OptimizerFacts(
        class_name=type(optimizer.inner_optimizer).__name__,
        scaler="hwprobe" if type(optimizer).__module__.partition(".")[0] == "hwprobe" else "keras",
        scale=_scale(optimizer),
        dynamic=bool(getattr(optimizer, "dynamic", True)),
    )


def _scale(optimizer: Any) -> float | None:
    # Keras 2 answers `loss_scale` always; Keras 3 has `dynamic_scale` once built and `initial_scale` before.
    for name in ("loss_scale", "dynamic_scale", "initial_scale"):
        value = getattr(optimizer, name, None)
        if value is not None and not callable(value):
            value = value.numpy() if hasattr(value, "numpy") else value
            return float(value)
    return None


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    elif value is not None:
        yield value


def _loss(loss: Any) -> LossFacts:
    if isinstance(loss, str):
        return LossFacts(name=loss, takes="probabilities" if _is_cross_entropy(loss) else "other")
    from_keras = str(getattr(loss, "__module__", "")).partition(".")[0] in KERAS_PACKAGES
    name = str(getattr(loss, "__name__", type(loss).__name__))
    if not from_keras:
        return LossFacts(name=name)
    if not _is_cross_entropy(name):
        return LossFacts(name=name, takes="other")
    # The losses keep the argument in their configuration; a bare function has Keras' default, False.
    configuration = loss.get_config() if hasattr(loss, "get_config") else {}
    return LossFacts(name=name, takes="logits" if configuration.get("from_logits") else "probabilities")


def _is_cross_entropy(name: str) -> bool:
    lowered = name.replace("_", "").lower()
    return any(word.lower() in lowered for word in _CROSS_ENTROPIES)


def _replicas(model: Any) -> int:
    if "tensorflow" not in sys.modules:
        return 1
    strategy = getattr(model, "distribute_strategy", None)
    return int(getattr(strategy, "num_replicas_in_sync", 1))


def _keras_package(model: Any) -> Any:
    for class_ in type(model).__mro__:
        top = class_.__module__.partition(".")[0]
        if top in ("keras", "tf_keras"):
            return sys.modules.get(top)
    return None


def _keras_version(model: Any) -> str | None:
    version = getattr(_keras_package(model), "__version__", None)
    return None if version is None else str(version)


def _global_policy(model: Any) -> str | None:
    package = _keras_package(model)
    for module in (getattr(package, "mixed_precision", None), getattr(package, "config", None)):
        for reader in ("global_policy", "dtype_policy"):
            if hasattr(module, reader):
                return str(getattr(module, reader)().name)
    return None
