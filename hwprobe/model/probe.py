"""Comparing a model's float32 pass with its mixed pass, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hwprobe.errors import InputError
from hwprobe.model.batches import Batch, given_batch, made_up_batch, masked_batch, zero_batch
from hwprobe.model.facts import BatchPass, LayerProbe, ModelFacts, ProbeFacts, Targets
from hwprobe.model.formats import FORMATS
from hwprobe.model.measure import changed_integers, relative_difference, values_of
from hwprobe.model.passes import (
    Call,
    Pass,
    gradient_facts,
    has_own_loss,
    loss_facts,
    metric_facts,
    run_pass,
)
from hwprobe.model.read import effective_policy

DEFAULT_SCALE = 2.0**15
"""Scale of the float16 backward pass where the model has no scaler yet: the first one of Keras' dynamic scaling."""


def probe_model(model: Any, facts: ModelFacts, batch: Any = None) -> ProbeFacts:
    """Run the model in float32 and mixed on the same batches and compare layer by layer.

    Args:
        model: The model; its weights, state and attributes are the same afterwards.
        facts: What `read_model` read from it.
        batch: Inputs, or inputs and targets; None to make some up from the shapes of a graph model's inputs.
    """
    low = facts.low_precision
    reason = _not_probed_because(facts)
    if reason is not None or low is None:
        return ProbeFacts(status="skipped", reason=reason)
    try:
        first = made_up_batch(model, facts) if batch is None else given_batch(batch)
    except InputError as error:
        if batch is not None:
            raise
        return ProbeFacts(status="skipped", reason=str(error))
    scale = _scale(facts, low)

    def mixed_policy(name: str, _: str) -> str:
        return effective_policy(name, facts.assumed_dtype_policy)

    def float32_policy(name: str, compute_dtype: str) -> str:
        # Not for a quantised policy such as int8_from_mixed_bfloat16: its layer holds integers.
        return "float32" if compute_dtype in FORMATS and "_from_" not in name else name

    reference = run_pass(model, first, float32_policy, scales=(1.0,))
    mixed = run_pass(model, first, mixed_policy, scales=(scale,) if scale == 1.0 else (scale, 1.0))
    if reference.error is not None:
        return ProbeFacts(
            status="failed",
            reason=f"the float32 pass stopped in {reference.error_layer or 'the model'}: {reference.error}",
        )
    masked = masked_batch(model, facts, first)
    passes = [_compare(first, reference, mixed, low)]
    passes.extend(
        _compare(other, run_pass(model, other, float32_policy), run_pass(model, other, mixed_policy), low)
        for other in (zero_batch(first), masked)
        if other is not None
    )
    gradients = [gradient_facts(reference, mixed, each) for each in mixed.gradients]
    return ProbeFacts(
        status="ok",
        dtype_policy=f"mixed_{low}",
        passes=tuple(passes),
        loss="compiled" if has_own_loss(model, first) else "made up",
        loss_terms=loss_facts(reference, mixed),
        metrics=metric_facts(reference, mixed),
        gradients=tuple(each for each in gradients if each is not None),
        targets=_targets(first),
    )


def _not_probed_because(facts: ModelFacts) -> str | None:
    if facts.keras != "keras3":
        return f"the probe needs Keras 3: the dtype policy of a {facts.keras} layer cannot be changed after it was made"
    import keras

    if keras.backend.backend() != "tensorflow":
        return f"the probe needs Keras' TensorFlow backend, and this process uses {keras.backend.backend()}"
    if getattr(getattr(keras.layers.Layer, "dtype_policy", None), "fset", None) is None:
        # Keras 3.0 to 3.2 keep the policy in another attribute (keras/src/layers/layer.py).
        return f"the probe needs Keras 3.3 or newer, and this is {facts.keras_version}"
    if not facts.built:
        return "the model is not built yet: call it once on a batch, then audit it"
    if facts.low_precision is None:
        return "no layer computes in 16 bits"
    return None


def _scale(facts: ModelFacts, low: str) -> float:
    if facts.optimizer is not None and facts.assumed_dtype_policy is None:
        return facts.optimizer.scale or 1.0
    return DEFAULT_SCALE if low == "float16" else 1.0


def _compare(batch: Batch, reference: Pass, mixed: Pass, low: str) -> BatchPass:
    waiting: dict[str, list[Call]] = {}
    for call in reference.calls:
        waiting.setdefault(call.name, []).append(call)
    layers: dict[str, LayerProbe] = {}
    for call in mixed.calls:
        same = waiting.get(call.name)
        if not same:
            continue
        seen = _layer(call, same.pop(0), low)
        if seen is not None and (call.name not in layers or _worse(seen, layers[call.name])):
            layers[call.name] = seen
    return BatchPass(
        batch=batch.kind,
        data=values_of(_floating_arrays(batch.x)),
        layers=tuple(layers.values()),
        error=mixed.error if reference.error is None else None,
        error_layer=mixed.error_layer,
        reference_error=reference.error,
    )


def _layer(mixed: Call, reference: Call, low: str) -> LayerProbe | None:
    output, wanted = values_of(mixed.outputs), values_of(reference.outputs)
    if output is None or wanted is None:
        return None
    integers, changed = changed_integers(mixed.outputs, reference.outputs, FORMATS[low].integers_to)
    return LayerProbe(
        name=mixed.name,
        class_name=mixed.class_name,
        compute_dtype=mixed.compute_dtype,
        inputs_reference=values_of(reference.inputs),
        inputs=values_of(mixed.inputs),
        reference=wanted,
        output=output,
        input_difference=relative_difference(mixed.inputs, reference.inputs),
        output_difference=relative_difference(mixed.outputs, reference.outputs),
        integers=integers,
        integers_changed=changed,
    )


def _worse(one: LayerProbe, other: LayerProbe) -> bool:
    """Whether a later call of a shared layer shows more than the one that is kept."""
    severity: Callable[[LayerProbe], tuple[float, ...]] = lambda seen: (  # noqa: E731
        seen.output.non_finite,
        seen.integers_changed,
        seen.output_difference or 0.0,
        seen.reference.largest or 0.0,
    )
    return severity(one) > severity(other)


def _floating_arrays(structure: Any) -> list[Any]:
    import keras
    import numpy

    return [
        leaf if hasattr(leaf, "dtype") else numpy.asarray(leaf)
        for leaf in keras.tree.flatten(structure)
        if "float" in str(getattr(leaf, "dtype", type(leaf).__name__))
    ]


def _targets(batch: Batch) -> Targets | None:
    import numpy

    arrays = [numpy.asarray(array, dtype="float64").ravel() for array in _floating_arrays(batch.y)]
    known = numpy.concatenate(arrays) if arrays else numpy.zeros(0)
    known = known[numpy.isfinite(known)]
    if not known.size:
        return None
    return Targets(largest=float(numpy.max(numpy.abs(known))), deviation=float(numpy.std(known)))
