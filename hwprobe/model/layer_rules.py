"""Hazards that a layer's type and configuration show without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.model.facts import LayerFacts, ModelFacts, ProbeFacts
from hwprobe.model.formats import FLOAT16, FORMATS
from hwprobe.model.judging import Answer, ModelCheck, problem
from hwprobe.rules.verdict import NotApplicable, Problem, Skipped

GUARDED_NORMALIZATIONS = ("LayerNormalization", "BatchNormalization", "GroupNormalization", "RMSNormalization")
"""They compute in float32 inside, whatever their policy: their epsilons are safe (Keras 3.15.1 source)."""

SOFTMAX_IN_FLOAT16 = Rule(
    id="HWP630",
    name="softmax-in-float16",
    title="The output's softmax or sigmoid is computed in float16",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The layer that makes the model's output has a softmax or sigmoid activation, computes in float16, and "
        "the loss takes probabilities.",
        matters="The gradient of a cross-entropy is 1/p. It is cast to float16 and becomes infinite once the "
        "probability of the true class falls below scale / (65504 x batch). With a static scale of 2^15 three of "
        "three runs on scikit-learn's digits were lost with a float16 softmax and none with a float32 one; a dynamic "
        "scale falls instead. From a logit gap of 17 on the loss is stuck and the gradient is 0.",
        fix='Give that layer dtype="float32", or end in logits and use from_logits=True with a float32 output.',
        reference="https://www.tensorflow.org/guide/mixed_precision",
    ),
)
OUTPUT_IN_16_BITS = Rule(
    id="HWP631",
    name="output-in-16-bits",
    title="The model's output is not float32",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="A layer that makes an output of the model computes in float16 or bfloat16.",
        matters="Predictions are rounded to 11 significant bits (float16) or 8 (bfloat16): near 1000 a float16 output "
        "moves in steps of 0.5, a bfloat16 one in steps of 4. Metrics and functional losses then compute in 16 bits "
        "too.",
        fix='Give the last layer dtype="float32".',
        reference="https://www.tensorflow.org/guide/mixed_precision",
    ),
)
MASK_BEYOND_FLOAT16 = Rule(
    id="HWP634",
    name="mask-beyond-float16",
    title="A layer's code holds a number that float16 turns into infinity",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The code or a setting of a custom layer that computes in float16 holds a number beyond 65504, and "
        "nothing in that code names float32.",
        matters="-1e9, the usual additive mask, is -inf in float16. (1 - mask) * -1e9 is then 0 * -inf = NaN where "
        "the mask is 1, and a softmax over a row of -inf is NaN.",
        fix="Use -3e4 (as Keras' own Softmax layer does in float16), or compute the masked softmax in float32.",
        reference="keras-team/keras#17571",
    ),
)
EPSILON_BELOW_FLOAT16 = Rule(
    id="HWP635",
    name="epsilon-below-float16",
    title="A layer's epsilon is zero in float16",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The code or a setting of a custom layer that computes in float16 holds a positive number of 2^-25 "
        "(3e-8) or less, and nothing in that code names float32. Keras' own normalisation layers compute in float32 "
        "inside and are left out.",
        matters="1e-8 is 0 in float16: x / (norm + 1e-8) is NaN for a zero row and log(0 + 1e-8) is -inf.",
        fix="Use 1e-4 or more, or do that step in float32.",
        reference="keras-team/keras#11832",
    ),
)
UNIT_NORMALIZATION = Rule(
    id="HWP636",
    name="unit-normalization-in-float16",
    title="UnitNormalization computes its norm in float16",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="A UnitNormalization layer computes in float16.",
        matters="Its squares are summed in float16 and its epsilon is 1e-12: a zero row gives NaN, a row with values "
        "above 256 overflows and comes out as zeros.",
        fix='Give it dtype="float32".',
        reference="Keras 3.15.1 source, layers/normalization/unit_normalization.py",
    ),
)
RAW_DATA_IN_16_BITS = Rule(
    id="HWP637",
    name="normalization-of-raw-data-in-16-bits",
    title="Raw data is cast to 16 bits before it is normalised",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="A Normalization layer computes in 16 bits and its data lies far from zero: |mean| / deviation above "
        "what the format resolves (2^11 for float16, 2^8 for bfloat16), or values beyond 65504 in float16.",
        matters="Keras casts the input first and subtracts the mean afterwards. Values of 10000 to 10003 come out as "
        "four equal zeros in float16, values above 65504 as NaN, without a word.",
        fix='Give the Normalization layer dtype="float32".',
        reference="Keras 3.15.1 source, layers/preprocessing/normalization.py",
    ),
)
IDS_AS_FLOATS = Rule(
    id="HWP638",
    name="ids-through-16-bit-layers",
    title="Ids pass a 16-bit layer on their way to an Embedding",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="The ids of an Embedding go through another layer as floating point numbers, and its vocabulary is "
        "larger than the integers that the 16-bit format holds exactly (2048 in float16, 256 in bfloat16).",
        matters="2049 becomes 2048: the wrong row is read and trained, with no error. An input that feeds the "
        "Embedding directly is safe, since an Embedding does not cast its ids.",
        fix='Feed integers: Input(..., dtype="int32").',
        reference="Keras 3.15.1 source, layers/core/embedding.py",
    ),
)
ACTIVITY_REGULARIZER = Rule(
    id="HWP639",
    name="activity-regularizer-in-16-bits",
    title="An activity regulariser sums in 16 bits",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="A layer that computes in 16 bits has an activity regulariser.",
        matters="The penalty is computed and summed in the layer's dtype: 64 x 64 outputs of 32 give inf in float16 "
        "(the true value is 655.36). Beside a compiled loss, fit() of Keras 3.15.1 stops with a TypeError, since it "
        "cannot add a 16-bit penalty to a float32 loss. Kernel and bias regularisers are safe: weights are float32.",
        fix='Give that layer dtype="float32".',
        reference="Keras 3.15.1 source, layers/layer.py and trainers/trainer.py",
    ),
)
LONG_RECURRENCE = Rule(
    id="HWP640",
    name="long-recurrence-in-16-bits",
    title="A recurrent layer carries its state through a long sequence in 16 bits",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="An LSTM, GRU or SimpleRNN computes in 16 bits over at least 2048 (float16) or 256 (bfloat16) steps.",
        matters="The state is added to in 16 bits at each step and stops growing where the step is smaller than the "
        "format's spacing: an LSTM with open gates ended at 2048 after 4000 steps in float16 (float32: 3869).",
        fix='Give the layer dtype="float32", or shorten the sequence.',
        reference="IEEE 754-2019, binary16",
    ),
)
WEIGHTS_IN_16_BITS = Rule(
    id="HWP641",
    name="weights-in-16-bits",
    title="Weights themselves are kept in 16 bits",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="A layer with weights has a 16-bit variable dtype: a pure float16 or bfloat16 policy, not a mixed one.",
        matters="Updates below the weight's spacing vanish, and in float16 Adam's epsilon of 1e-7 is a subnormal. On "
        "scikit-learn's digits pure 16-bit training ended 9 to 11 points below float32, mixed training at its level.",
        fix='Use the mixed policy: dtype="mixed_float16" or "mixed_bfloat16".',
        reference="keras-team/keras#11832",
    ),
)


def softmax_in_float16(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP630."""
    if not model.heads_known:
        return Skipped(reason="the model has no graph that says which layers make its output")
    takes = {loss.takes for loss in model.losses}
    if takes and not takes & {"probabilities", None}:
        return NotApplicable(reason="the loss does not take probabilities")
    return [
        problem(
            layer.name,
            f"{layer.name} ends in a {layer.activation} that is computed in float16"
            + (", and the loss takes its probabilities." if "probabilities" in takes else "."),
            f'give {layer.name} dtype="float32"',
            evidence={"activation": layer.activation, "compute_dtype": layer.compute_dtype},
        )
        for layer in _computing_in(model.layers, "float16")
        if layer.head and layer.activation in ("softmax", "sigmoid")
    ]


def output_in_16_bits(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP631."""
    if not model.heads_known:
        return Skipped(reason="the model has no graph that says which layers make its output")
    found = []
    for layer in _computing_in([layer for layer in model.layers if layer.output], *FORMATS):
        step = FORMATS[layer.compute_dtype].spacing(1000.0)
        found.append(
            problem(
                layer.name,
                f"{layer.name} gives the model's output in {layer.compute_dtype}: near 1000 it moves in steps of "
                f"{step:g}.",
                f'give {layer.name} dtype="float32"',
                evidence={"compute_dtype": layer.compute_dtype, "spacing_near_1000": step},
            )
        )
    return found


def mask_beyond_float16(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP634."""
    return _suspicious_numbers(
        model, lambda value: abs(value) > FLOAT16.largest, "infinite", "use -3e4 instead of -1e9"
    )


def epsilon_below_float16(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP635."""
    return _suspicious_numbers(model, lambda value: 0.0 < value <= FLOAT16.rounds_to_zero, "0", "use 1e-4 or more")


def unit_normalization(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP636."""
    layers = [layer for layer in model.layers if layer.class_name == "UnitNormalization"]
    if not layers:
        return NotApplicable(reason="no UnitNormalization layer")
    return [
        problem(
            layer.name,
            f"{layer.name} (UnitNormalization) computes in float16: a zero row gives NaN, large rows give zeros.",
            f'give {layer.name} dtype="float32"',
            evidence={"compute_dtype": layer.compute_dtype},
        )
        for layer in _computing_in(layers, "float16")
    ]


def raw_data_in_16_bits(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP637."""
    layers = [layer for layer in model.layers if layer.class_name == "Normalization"]
    if not layers:
        return NotApplicable(reason="no Normalization layer")
    found: list[Problem] = []
    for layer in _computing_in(layers, *FORMATS):
        known, format_ = layer.statistics, FORMATS[layer.compute_dtype]
        if known is None:
            continue
        beyond = known.reach > format_.largest
        if not beyond and known.mean_over_deviation <= format_.integers_to:
            continue
        found.append(
            problem(
                layer.name,
                f"{layer.name} casts its input to {layer.compute_dtype} before it subtracts the mean: "
                + (
                    f"its data reaches {known.reach:g}, beyond {format_.largest:g}."
                    if beyond
                    else f"its mean is {known.mean_over_deviation:g} deviations away from zero, and the format "
                    f"resolves {format_.integers_to}."
                ),
                f'give {layer.name} dtype="float32"',
                evidence={"mean_over_deviation": known.mean_over_deviation, "reach": known.reach},
                severity=Severity.ERROR if beyond else None,
            )
        )
    return found


def ids_as_floats(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP638."""
    embeddings = [layer for layer in model.layers if layer.class_name == "Embedding"]
    if not embeddings:
        return NotApplicable(reason="no Embedding layer")
    compute = {layer.name.rpartition("/")[2]: layer.compute_dtype for layer in model.layers}
    found = []
    for layer in embeddings:
        narrow = [name for name in layer.ids_through if compute.get(name) in FORMATS]
        vocabulary = layer.sizes.get("input_dim", 0)
        if not narrow or vocabulary - 1 <= FORMATS[compute[narrow[0]]].integers_to:
            continue
        dtype = compute[narrow[0]]
        found.append(
            problem(
                layer.name,
                f"the ids of {layer.name} (vocabulary {vocabulary}) pass {', '.join(narrow)} as {dtype}, which holds "
                f"integers exactly only up to {FORMATS[dtype].integers_to}.",
                'feed integers: Input(..., dtype="int32")',
                evidence={"vocabulary": vocabulary, "through": narrow, "exact_up_to": FORMATS[dtype].integers_to},
            )
        )
    return found


def activity_regularizer(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP639."""
    layers = [layer for layer in model.layers if layer.activity_regularizer is not None]
    if not layers:
        return NotApplicable(reason="no layer has an activity regulariser")
    return [
        problem(
            layer.name,
            f"{layer.name} sums its activity penalty ({layer.activity_regularizer}) in {layer.compute_dtype}.",
            f'give {layer.name} dtype="float32"',
            evidence={"activity_regularizer": layer.activity_regularizer, "compute_dtype": layer.compute_dtype},
        )
        for layer in _computing_in(layers, *FORMATS)
    ]


def long_recurrence(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP640."""
    layers = [layer for layer in model.layers if layer.recurrent is not None]
    if not layers:
        return NotApplicable(reason="no recurrent layer")
    if all(layer.recurrent is not None and layer.recurrent.time_steps is None for layer in layers):
        return Skipped(reason="the length of the sequences is not fixed in the model")
    found = []
    for layer in _computing_in(layers, *FORMATS):
        steps = layer.recurrent.time_steps if layer.recurrent is not None else None
        limit = FORMATS[layer.compute_dtype].integers_to
        if steps is not None and steps >= limit:
            found.append(
                problem(
                    layer.name,
                    f"{layer.name} carries its state in {layer.compute_dtype} over {steps} steps; a sum of ones stops "
                    f"growing at {limit}.",
                    f'give {layer.name} dtype="float32"',
                    evidence={"time_steps": steps, "compute_dtype": layer.compute_dtype},
                )
            )
    return found


def weights_in_16_bits(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP641."""
    layers = [layer for layer in model.layers if layer.variable_dtype in FORMATS and layer.parameters]
    if not layers:
        return []
    weights = sum(layer.parameters for layer in layers)
    dtype = layers[0].variable_dtype
    return [
        problem(
            "model",
            f"{weights} weights in {len(layers)} layers are kept in {dtype} ({layers[0].name} is the first).",
            f'use dtype="mixed_{dtype}" instead of "{dtype}"',
            evidence={"layers": [layer.name for layer in layers], "weights": weights, "variable_dtype": dtype},
        )
    ]


def _computing_in(layers: Iterable[LayerFacts], *dtypes: str) -> list[LayerFacts]:
    return [layer for layer in layers if layer.compute_dtype in dtypes]


def _suspicious_numbers(model: ModelFacts, suspicious: Callable[[float], bool], becomes: str, fix: str) -> Answer:
    layers = [layer for layer in model.layers if layer.code is not None]
    if not layers:
        return NotApplicable(reason="no layer with code of its own")
    found = []
    for layer in _computing_in(layers, "float16"):
        code = layer.code
        if code is None or code.mentions_float32 or layer.class_name in GUARDED_NORMALIZATIONS:
            continue
        seen = [f"{number.value:g} ({number.where})" for number in code.numbers if suspicious(number.value)]
        seen += [f"{name}={value:g}" for name, value in layer.settings.items() if suspicious(value)]
        if seen:
            found.append(
                problem(
                    layer.name,
                    f"{layer.name} ({layer.class_name}) computes in float16, where {', '.join(seen)} is {becomes}.",
                    f"{fix}, or do that step in float32",
                    evidence={"numbers": seen, "compute_dtype": layer.compute_dtype},
                )
            )
    return found


LAYER_CHECKS = (
    ModelCheck(SOFTMAX_IN_FLOAT16, softmax_in_float16),
    ModelCheck(OUTPUT_IN_16_BITS, output_in_16_bits),
    ModelCheck(MASK_BEYOND_FLOAT16, mask_beyond_float16),
    ModelCheck(EPSILON_BELOW_FLOAT16, epsilon_below_float16),
    ModelCheck(UNIT_NORMALIZATION, unit_normalization),
    ModelCheck(RAW_DATA_IN_16_BITS, raw_data_in_16_bits),
    ModelCheck(IDS_AS_FLOATS, ids_as_floats),
    ModelCheck(ACTIVITY_REGULARIZER, activity_regularizer),
    ModelCheck(LONG_RECURRENCE, long_recurrence),
    ModelCheck(WEIGHTS_IN_16_BITS, weights_in_16_bits),
)
