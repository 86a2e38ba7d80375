"""What the probe shows at the edges of a model: its data, the dtype that layers hand on, errors, broken weights."""

from __future__ import annotations

from hwprobe.findings import Action, Rule, Severity
from hwprobe.model.facts import LayerProbe, ModelFacts, ProbeFacts
from hwprobe.model.formats import FLOAT16, FORMATS
from hwprobe.model.judging import Answer, ModelCheck, problem
from hwprobe.model.seen import ON_ONE_BATCH, explain, first_pass, where_it_begins
from hwprobe.rules.verdict import NotApplicable, Skipped

NON_FINITE_IN_FLOAT32 = Rule(
    id="HWP661",
    name="non-finite-in-float32",
    title="A layer's output is infinite or NaN in float32 already",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP674",),
    explanation=explain(
        ON_ONE_BATCH + "The first layer that is not finite in the float32 pass.",
        "This is no matter of precision: the model or its weights are broken, and no dtype policy mends it.",
        "Look at the layer that is named, and at the weights (a run that was lost leaves NaN in them).",
    ),
)
LEAVES_16_BITS = Rule(
    id="HWP668",
    name="layer-leaves-16-bits",
    title="A layer's output is wider than the dtype that it computes in",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=explain(
        ON_ONE_BATCH + "Layers that compute in 16 bits and give float32.",
        "A float32 constant or NumPy array in the layer's code promotes the result: from there on the model computes "
        "in float32 without a word, and gains nothing.",
        "Make the constant with dtype=self.compute_dtype, or a weight with self.add_weight (Keras casts those).",
        "Keras 3.15.1 source, layers/layer.py (autocast)",
    ),
)
CALL_FAILS = Rule(
    id="HWP669",
    name="call-fails-in-16-bits",
    title="The model stops with an error in 16 bits",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=explain(
        ON_ONE_BATCH + "The mixed pass raised an exception and the float32 pass did not.",
        "As a rule a float32 tensor or tf.Variable in a custom layer meets a float16 input, or a 16-bit penalty meets "
        "a float32 loss: TensorFlow does not mix dtypes.",
        "Cast to self.compute_dtype (or use self.add_weight, which Keras casts).",
        "https://www.tensorflow.org/guide/mixed_precision",
    ),
)
NON_FINITE_DATA = Rule(
    id="HWP674",
    name="non-finite-data",
    title="The batch itself holds infinities or NaN",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=explain(
        "The floating point inputs of the batch, before any cast.",
        "Every step on such data is skipped and halves the scale. Keras 3 has no floor under it: after 142 such steps "
        "the scale is 0 and the next clean batch writes NaN into the weights.",
        "Clean the data (numpy.nan_to_num, or drop the rows).",
        "Keras 3.15.1 source, optimizers/loss_scale_optimizer.py",
    ),
)
DATA_BEYOND_FLOAT16 = Rule(
    id="HWP675",
    name="data-beyond-float16",
    title="The batch holds values that become infinite in float16",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP637",),
    explanation=explain(
        "The inputs of layers that compute in float16, after Keras' cast: infinite there and finite in the batch.",
        "Keras casts a model's inputs to the compute dtype of its first layer. Values beyond 65504 become infinite.",
        'Scale the data before it enters the model, or normalise in a layer with dtype="float32".',
    ),
)


def non_finite_in_float32(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP661."""
    return [
        problem(
            layer.name,
            f"{layer.name} ({layer.class_name}) gives {layer.reference.non_finite} of {layer.reference.elements} "
            "values infinite or NaN in float32: this is not about precision.",
            f"look at {layer.name} and its weights",
            evidence={"class": layer.class_name, "non_finite": layer.reference.non_finite},
        )
        for layer in list(where_it_begins(first_pass(probe), mixed_only=False))[:1]
    ]


def leaves_16_bits(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP668."""
    return [
        problem(
            layer.name,
            f"{layer.name} ({layer.class_name}) computes in {layer.compute_dtype} and gives "
            f"{layer.output.dtype}: a constant in it is float32.",
            "make the constant with dtype=self.compute_dtype",
            evidence={"compute_dtype": layer.compute_dtype, "output_dtype": layer.output.dtype},
        )
        for layer in first_pass(probe).layers
        if layer.compute_dtype in FORMATS and layer.output.dtype == "float32" and _went_in_narrow(layer)
    ][:1]


def _went_in_narrow(layer: LayerProbe) -> bool:
    return layer.inputs is not None and layer.inputs.dtype == layer.compute_dtype


def call_fails(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP669."""
    batch = next((each for each in probe.passes if each.error is not None), None)
    if batch is None or batch.error is None:
        return []
    where = batch.error_layer or "the loss"
    text = " ".join(batch.error.split())
    return [
        problem(
            where,
            f"{where} stops in 16 bits and not in float32: {text[:300]}{'...' if len(text) > 300 else ''}",
            "cast to self.compute_dtype what its code makes in float32",
            evidence={"error": text, "batch": batch.batch},
        )
    ]


def non_finite_data(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP674."""
    data = first_pass(probe).data
    if data is None:
        return NotApplicable(reason="the batch holds no floating point data")
    if not data.non_finite:
        return []
    return [
        problem(
            "data",
            f"{data.non_finite} of {data.elements} values of the batch are infinite or NaN.",
            "clean the data: numpy.nan_to_num, or drop those rows",
            evidence={"non_finite": data.non_finite, "elements": data.elements},
        )
    ]


def data_beyond_float16(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP675."""
    batch = first_pass(probe)
    if batch.data is None:
        return NotApplicable(reason="the batch holds no floating point data")
    largest = batch.data.largest or 0.0
    entering = batch.layers[0] if batch.layers else None
    if largest <= FLOAT16.largest or entering is None or entering.inputs is None:
        return []
    if not entering.inputs.non_finite or entering.inputs.dtype != "float16":
        return []
    return [
        problem(
            entering.name,
            f"the batch reaches {largest:g}, and {entering.name} casts it to float16, which ends at 65504.",
            'scale the data first, or normalise it in a layer with dtype="float32"',
            evidence={"largest": largest, "non_finite_after_cast": entering.inputs.non_finite},
        )
    ]


OUTPUT_RESOLUTION = Rule(
    id="HWP632",
    name="output-resolution",
    title="The targets lie closer together than the output's 16 bits resolve",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=explain(
        "An output in 16 bits, and the regression targets of the batch: spacing of the format at the largest target "
        "against a hundredth of their standard deviation.",
        "The model cannot say what the targets ask for. Rounding targets of 1000 +- 242 to bfloat16 costs a mean "
        "error of 1.5, to float16 of 0.2, before any training.",
        'Give the last layer dtype="float32", and scale the targets.',
        "nagadomi/nunif#437",
    ),
)


def output_resolution(model: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP632."""
    outputs = [layer for layer in model.layers if layer.output and layer.compute_dtype in FORMATS]
    if not outputs:
        return NotApplicable(reason="no output is known to be in 16 bits")
    known = probe.targets
    if known is None:
        if probe.loss == "compiled":
            return NotApplicable(reason="the targets are not floating point")
        return Skipped(reason="no targets were given")
    found = []
    for layer in outputs:
        format_ = FORMATS[layer.compute_dtype]
        spacing = format_.spacing(known.largest)
        if spacing > known.deviation / 100.0 > 0.0 or known.largest > format_.largest:
            found.append(
                problem(
                    layer.name,
                    f"the targets reach {known.largest:g} with a deviation of {known.deviation:g}, and "
                    f"{layer.compute_dtype} moves in steps of {spacing:g} there.",
                    f'give {layer.name} dtype="float32"',
                    evidence={"largest": known.largest, "deviation": known.deviation, "spacing": spacing},
                )
            )
    return found


BOUNDARY_CHECKS = (
    ModelCheck(OUTPUT_RESOLUTION, output_resolution),
    ModelCheck(NON_FINITE_IN_FLOAT32, non_finite_in_float32, needs_probe=True),
    ModelCheck(LEAVES_16_BITS, leaves_16_bits, needs_probe=True),
    ModelCheck(CALL_FAILS, call_fails, needs_probe=True),
    ModelCheck(NON_FINITE_DATA, non_finite_data, needs_probe=True),
    ModelCheck(DATA_BEYOND_FLOAT16, data_beyond_float16, needs_probe=True),
)
