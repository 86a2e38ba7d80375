"""Hazards that show when the model is run forwards: infinities, lost digits, values that became zero."""

from __future__ import annotations

from hwprobe.findings import Action, EvidenceValue, Rule, Severity
from hwprobe.model.facts import BatchPass, LayerProbe, ModelFacts, ProbeFacts
from hwprobe.model.formats import FLOAT16, FORMATS
from hwprobe.model.judging import Answer, ModelCheck, problem
from hwprobe.model.seen import ON_ONE_BATCH, explain, first_pass, pass_on, where_it_begins
from hwprobe.rules.verdict import NotApplicable, Problem, Skipped

HEADROOM = 8.0
"""A layer whose largest float32 value comes within this factor of 65504 is reported: training moves it."""

DIFFERENCE = {"float16": 0.02, "bfloat16": 0.1}
AMPLIFICATION = 8.0
"""Digits count as lost in a layer where its output is off by more than DIFFERENCE and by more than this many times
the difference of its inputs (or the format's own rounding)."""

ZEROS = 0.1
"""Additional share of exact zeros, against float32, that is reported."""

_REDUCTIONS = {"sum", "reduce_sum", "mean", "reduce_mean", "cumsum", "var", "std", "reduce_variance", "reduce_std"}
_POWERS = {"exp", "square", "pow", "norm", "softplus", "log", "einsum", "matmul", "rsqrt", "logsumexp"}


NON_FINITE_FORWARD = Rule(
    id="HWP660",
    name="non-finite-forward",
    title="A layer's output is infinite or NaN in 16 bits and finite in float32",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP674", "HWP675", "HWP661"),
    explanation=explain(
        ON_ONE_BATCH + "The first layer whose inputs are finite and whose output is not.",
        "The forward pass overflows: sums, squares, norms, exp or large products beyond 65504. Loss scaling cannot "
        "help, it makes the backward pass larger still.",
        'Give that layer dtype="float32", or do the step that its code names in float32. bfloat16 has the range.',
    ),
)
NEAR_OVERFLOW = Rule(
    id="HWP662",
    name="near-overflow",
    title="A layer's values come close to the largest float16",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP674", "HWP675", "HWP660", "HWP661"),
    explanation=explain(
        ON_ONE_BATCH + "Layers that compute in float16 whose largest float32 value is beyond 65504 / 8.",
        "Three more doublings and the forward pass is infinite. Training moves activations by more than that.",
        'Give that layer dtype="float32", normalise before it, or use mixed_bfloat16.',
    ),
)
NON_FINITE_ON_ZEROS = Rule(
    id="HWP663",
    name="non-finite-on-zeros",
    title="A batch of zeros gives infinity or NaN in 16 bits",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP660", "HWP661", "HWP637"),
    explanation=explain(
        "A float32 and a mixed pass on a batch of zeros. The first layer that is not finite in the mixed one alone.",
        "An epsilon that is zero in 16 bits, a logarithm or a norm of zero: padding, blank images and dead units bring "
        "it about sooner or later.",
        'Use an epsilon of 1e-4 or more, or give that layer dtype="float32".',
    ),
)
NON_FINITE_WHEN_MASKED = Rule(
    id="HWP664",
    name="non-finite-when-masked",
    title="A fully masked batch gives infinity or NaN in 16 bits",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP660", "HWP661"),
    explanation=explain(
        "A float32 and a mixed pass on a batch in which every position is masked.",
        "An additive mask of -1e9 is -inf in float16, and a softmax over nothing but -inf is NaN. One sequence that is "
        "all padding is enough.",
        "Use -3e4 for the mask, or compute the masked softmax in float32.",
        "keras-team/keras#17571",
    ),
)
PRECISION_LOST = Rule(
    id="HWP665",
    name="digits-lost",
    title="A layer loses digits in 16 bits",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP660", "HWP661", "HWP669", "HWP637"),
    explanation=explain(
        ON_ONE_BATCH + "Layers whose mixed output differs from float32 by more than 2% (bfloat16: 10%) and by far "
        "more than their inputs differ.",
        "Long sums in 16 bits (cumsum of 4096 ones ends at 2048), differences of large numbers, variances.",
        'Give that layer dtype="float32", or sum in float32.',
    ),
)
INTEGERS_CHANGED = Rule(
    id="HWP666",
    name="integers-changed",
    title="Whole numbers (ids, positions) come out as other numbers in 16 bits",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP638", "HWP660", "HWP661"),
    explanation=explain(
        ON_ONE_BATCH + "Layers whose float32 output is whole numbers throughout, one beyond 2048 (bfloat16: 256).",
        "float16 holds integers exactly only up to 2048: of 4096 positions 3073 are distinct. What is looked up with "
        "them is the wrong thing, without an error.",
        'Keep ids and positions in an integer dtype, or give that layer dtype="float32".',
    ),
)
VALUES_BECOME_ZERO = Rule(
    id="HWP667",
    name="values-become-zero",
    title="A layer's values become zero in 16 bits",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP660", "HWP661", "HWP636", "HWP637"),
    explanation=explain(
        ON_ONE_BATCH + "Layers whose mixed output has at least 10 points more exact zeros than the float32 one.",
        "Values below 3e-8 do not exist in float16: softplus(-20), squares of small numbers, products of "
        "probabilities. Their gradient is gone too.",
        'Give that layer dtype="float32", or work with logarithms.',
    ),
)


def _evidence(layer: LayerProbe) -> dict[str, EvidenceValue]:
    return {
        "class": layer.class_name,
        "dtype": layer.output.dtype,
        "non_finite": layer.output.non_finite,
        "elements": layer.output.elements,
        "largest_float32": layer.reference.largest,
        "largest_input": None if layer.inputs is None else layer.inputs.largest,
    }


def _named_operations(model: ModelFacts, name: str) -> str:
    """What a custom layer's code mentions that commonly overflows, for a message."""
    layer = next((each for each in model.layers if each.name == name), None)
    used = sorted(set(layer.code.names) & (_REDUCTIONS | _POWERS)) if layer is not None and layer.code else []
    return f" Its code uses {', '.join(used)}." if used else ""


def _non_finite(model: ModelFacts, batch: BatchPass, when: str) -> list[Problem]:
    return [
        problem(
            layer.name,
            f"{layer.name} ({layer.class_name}) gives {layer.output.non_finite} of {layer.output.elements} values "
            f"infinite or NaN in {layer.output.dtype} {when}"
            + (
                f"; in float32 its largest value is {layer.reference.largest:g}."
                if layer.reference.largest is not None
                else "."
            )
            + _named_operations(model, layer.name),
            f'give {layer.name} dtype="float32", or do the step that overflows in float32',
            evidence=_evidence(layer),
        )
        for layer in where_it_begins(batch, mixed_only=True)
    ][:1]


def non_finite_forward(model: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP660."""
    return _non_finite(model, first_pass(probe), f"on the {first_pass(probe).batch} batch")


def near_overflow(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP662."""
    if (probe.dtype_policy or "") == "mixed_bfloat16":
        return NotApplicable(reason="bfloat16 has float32's range")
    limit = FLOAT16.largest / HEADROOM
    high = [
        layer
        for layer in first_pass(probe).layers
        if layer.output.dtype == "float16" and not layer.output.non_finite and (layer.reference.largest or 0.0) > limit
    ]
    if not high:
        return []
    worst = max(high, key=lambda layer: layer.reference.largest or 0.0)
    return [
        problem(
            worst.name,
            f"{worst.name} ({worst.class_name}) reaches {worst.reference.largest:g}; float16 ends at 65504"
            + (f" ({len(high)} layers pass {limit:g})." if len(high) > 1 else "."),
            f'give {worst.name} dtype="float32", or use mixed_bfloat16',
            evidence={**_evidence(worst), "layers": [layer.name for layer in high]},
        )
    ]


def non_finite_on_zeros(model: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP663."""
    batch = pass_on(probe, "zeros")
    if batch is None:
        return Skipped(reason="no pass on zeros was made")
    return _incomplete(batch) or _non_finite(model, batch, "on a batch of zeros")


def non_finite_when_masked(model: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP664."""
    batch = pass_on(probe, "masked")
    if batch is None:
        return NotApplicable(reason="the model knows no mask")
    return _incomplete(batch) or _non_finite(model, batch, "on a fully masked batch")


def _incomplete(batch: BatchPass) -> Skipped | None:
    error = batch.reference_error or batch.error
    return None if error is None else Skipped(reason=f"the pass on the {batch.batch} batch stopped: {error[:200]}")


def precision_lost(model: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP665."""
    found = []
    for layer in first_pass(probe).layers:
        format_ = FORMATS.get(layer.output.dtype)
        if format_ is None or layer.output_difference is None or layer.output.non_finite:
            continue
        expected = AMPLIFICATION * max(layer.input_difference or 0.0, format_.epsilon / 2)
        if layer.output_difference > max(DIFFERENCE[format_.name], expected):
            found.append(
                problem(
                    layer.name,
                    f"{layer.name} ({layer.class_name}) differs from float32 by {layer.output_difference:.1%} in "
                    f"{format_.name}; its inputs differ by {layer.input_difference or 0.0:.2%}."
                    + _named_operations(model, layer.name),
                    f'give {layer.name} dtype="float32", or do its sums in float32',
                    evidence={**_evidence(layer), "difference": layer.output_difference},
                )
            )
    return [each for each in found if not any(other.subject.startswith(f"{each.subject}/") for other in found)]


def integers_changed(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP666."""
    return [
        problem(
            layer.name,
            f"{layer.name} ({layer.class_name}) changes {layer.integers_changed} of {layer.integers} whole numbers in "
            f"{layer.output.dtype}.",
            f'keep them in an integer dtype, or give {layer.name} dtype="float32"',
            evidence={"changed": layer.integers_changed, "integers": layer.integers, "dtype": layer.output.dtype},
        )
        for layer in [each for each in first_pass(probe).layers if each.integers_changed][:1]
    ]


def values_become_zero(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP667."""
    for layer in first_pass(probe).layers:
        more = layer.output.share_of_zeros - layer.reference.share_of_zeros
        before = 0.0
        if layer.inputs is not None and layer.inputs_reference is not None:
            before = layer.inputs.share_of_zeros - layer.inputs_reference.share_of_zeros
        if more >= ZEROS and more - before >= ZEROS and layer.output.dtype in FORMATS:
            return [
                problem(
                    layer.name,
                    f"{layer.name} ({layer.class_name}) has {layer.output.share_of_zeros:.0%} exact zeros in "
                    f"{layer.output.dtype} and {layer.reference.share_of_zeros:.0%} in float32.",
                    f'give {layer.name} dtype="float32"',
                    evidence={
                        "zeros": layer.output.share_of_zeros,
                        "zeros_float32": layer.reference.share_of_zeros,
                        "dtype": layer.output.dtype,
                    },
                )
            ]
    return []


FORWARD_CHECKS = (
    ModelCheck(NON_FINITE_FORWARD, non_finite_forward, needs_probe=True),
    ModelCheck(NEAR_OVERFLOW, near_overflow, needs_probe=True),
    ModelCheck(NON_FINITE_ON_ZEROS, non_finite_on_zeros, needs_probe=True),
    ModelCheck(NON_FINITE_WHEN_MASKED, non_finite_when_masked, needs_probe=True),
    ModelCheck(PRECISION_LOST, precision_lost, needs_probe=True),
    ModelCheck(INTEGERS_CHANGED, integers_changed, needs_probe=True),
    ModelCheck(VALUES_BECOME_ZERO, values_become_zero, needs_probe=True),
)
