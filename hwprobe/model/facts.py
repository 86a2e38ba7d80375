"""What was read from a Keras model and seen in its probe, as frozen types. No opinion: rules judge later."""

from __future__ import annotations

from typing import Literal

from hwprobe.findings import Finding, Outcome
from hwprobe.source import Fact

AuditVerdict = Literal["clean", "hazards", "unknown"]
KerasKind = Literal["keras3", "keras2", "tf_keras"]


class CodeNumber(Fact, frozen=True, kw_only=True):
    """A number written in a layer's own code.

    Attributes:
        value: The number.
        where: Function and line: `call, line 12 of model.py`.
    """

    value: float
    where: str


class Code(Fact, frozen=True, kw_only=True):
    """What the compiled code of a custom layer, a Lambda or an overridden method mentions.

    Attributes:
        numbers: Numbers in it whose size matters in 16 bits: beyond 65504, or positive below 1e-4.
        names: Attributes and functions that it mentions, for instance `exp` or `reduce_sum`.
        mentions_float32: Whether it names float32, which is how code protects itself.
    """

    numbers: tuple[CodeNumber, ...] = ()
    names: tuple[str, ...] = ()
    mentions_float32: bool = False


class Recurrent(Fact, frozen=True, kw_only=True):
    """A recurrent layer.

    Attributes:
        time_steps: Length of the sequences that it was built for; None if variable or unknown.
        not_fused_because: Settings that keep cuDNN's fused kernel away; empty where none does.
    """

    time_steps: int | None = None
    not_fused_because: tuple[str, ...] = ()


class InputStatistics(Fact, frozen=True, kw_only=True):
    """Mean and deviation that a `Normalization` layer subtracts and divides by, at their worst feature.

    Attributes:
        mean_over_deviation: Largest |mean| / standard deviation.
        reach: Largest |mean| plus one standard deviation.
    """

    mean_over_deviation: float
    reach: float


class LayerFacts(Fact, frozen=True, kw_only=True):
    """One layer of the model.

    Attributes:
        name: Path of names inside the model: `encoder/dense_1`.
        class_name: Its class.
        custom: Whether the class comes from outside of Keras.
        dtype_policy: Name of its policy (the assumed one where the caller assumes one).
        compute_dtype: What it computes in.
        variable_dtype: What its weights are kept in.
        autocast: Whether Keras casts its inputs to the compute dtype.
        parameters: Elements of its own weights, without those of layers inside it.
        activation: Name of its activation function.
        output: Whether its result is an output of the model.
        head: Whether it computes an output: `output`, or followed only by layers that reshape, cast or pass on.
        sizes: Units, filters, vocabulary and the like, by Keras' argument name.
        settings: Its other numeric settings, by attribute name (for instance `epsilon`).
        activity_regularizer: Class name of its activity regulariser.
        code: What its own code mentions; None for Keras' layers.
        statistics: Of a `Normalization` layer that knows its data.
        recurrent: Of LSTM, GRU and SimpleRNN.
        ids_through: For an Embedding in a graph: layers that its ids pass as floating point on their way.
    """

    name: str
    class_name: str
    custom: bool = False
    dtype_policy: str
    compute_dtype: str
    variable_dtype: str
    autocast: bool = True
    parameters: int = 0
    activation: str | None = None
    output: bool = False
    head: bool = False
    sizes: dict[str, int] = {}
    settings: dict[str, float] = {}
    activity_regularizer: str | None = None
    code: Code | None = None
    statistics: InputStatistics | None = None
    recurrent: Recurrent | None = None
    ids_through: tuple[str, ...] = ()


class OptimizerFacts(Fact, frozen=True, kw_only=True):
    """The optimizer that the model was compiled with.

    Attributes:
        class_name: Of the optimizer itself, inside any scaler.
        scaler: `none`, `keras` (Keras' own LossScaleOptimizer), `hwprobe` (the one of `hwprobe.wrap_optimizer`), or
            `factor` (`loss_scale_factor` on the optimizer, which Keras 3 applies without looking for infinities).
        scale: Scale in force, or the first one where the scaler is not built yet; None without scaling.
        dynamic: Whether the scale moves; None without scaling.
    """

    class_name: str
    scaler: Literal["none", "keras", "hwprobe", "factor"] = "none"
    scale: float | None = None
    dynamic: bool | None = None


class LossFacts(Fact, frozen=True, kw_only=True):
    """One loss that the model was compiled with.

    Attributes:
        name: Class or function name.
        takes: `logits` or `probabilities` for Keras' cross-entropies; `other` for its other losses; None if unknown.
    """

    name: str
    takes: Literal["logits", "probabilities", "other"] | None = None


class ModelInput(Fact, frozen=True, kw_only=True):
    """One input of a graph model.

    Attributes:
        name: Its name.
        dtype: What it expects.
        shape: With None for a free dimension.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class ModelFacts(Fact, frozen=True, kw_only=True):
    """A Keras model as it stands.

    Attributes:
        name: The model's name.
        class_name: Its class.
        keras: Which Keras it belongs to.
        keras_version: Version of that Keras; None where it does not tell.
        built: Whether its weights exist.
        dtype_policy: The model object's own policy, which decides about loss scaling in `compile`.
        global_dtype_policy: The process' policy now.
        assumed_dtype_policy: Policy that the caller asked to assume for layers built under float32; None normally.
        layers: All layers, depth first, those inside other layers too.
        inputs: Of a graph model; empty for others.
        heads_known: Whether the graph says which layers make the output.
        optimizer: None while it is not compiled.
        losses: Of `compile`; empty if it has none.
        replicas: Replicas of the distribution strategy that it was made under.
        own_methods: `train_step` and `compute_loss` where the model overrides them, with what their code mentions.
    """

    name: str
    class_name: str
    keras: KerasKind
    keras_version: str | None = None
    built: bool = True
    dtype_policy: str
    global_dtype_policy: str | None = None
    assumed_dtype_policy: str | None = None
    layers: tuple[LayerFacts, ...] = ()
    inputs: tuple[ModelInput, ...] = ()
    heads_known: bool = False
    optimizer: OptimizerFacts | None = None
    losses: tuple[LossFacts, ...] = ()
    replicas: int = 1
    own_methods: dict[str, Code] = {}

    def parameters(self, *compute_dtypes: str) -> int:
        """Parameters of the layers that compute in one of these dtypes; of all layers where none is named."""
        return sum(
            layer.parameters for layer in self.layers if not compute_dtypes or layer.compute_dtype in compute_dtypes
        )

    @property
    def low_precision(self) -> str | None:
        """The 16-bit dtype that most parameters compute in; None where no layer computes in 16 bits."""
        found = [layer.compute_dtype for layer in self.layers if layer.compute_dtype in ("float16", "bfloat16")]
        return max(sorted(set(found)), key=lambda name: (self.parameters(name), found.count(name))) if found else None


class Values(Fact, frozen=True, kw_only=True):
    """Figures of one tensor (or of several, taken together).

    Attributes:
        dtype: As computed.
        elements: How many.
        largest: Largest finite magnitude; None where nothing is finite or nothing is there.
        non_finite: How many are infinite or NaN.
        zeros: How many are exactly zero.
    """

    dtype: str
    elements: int
    largest: float | None
    non_finite: int
    zeros: int

    @property
    def share_of_zeros(self) -> float:
        """Zeros over elements; 0 for an empty tensor."""
        return self.zeros / self.elements if self.elements else 0.0


class LayerProbe(Fact, frozen=True, kw_only=True):
    """One layer, seen in the float32 pass and in the mixed pass on the same batch.

    Attributes:
        name: The layer's (or the graph operation's) name, as in `LayerFacts.name`.
        class_name: Its class.
        compute_dtype: What it computes in when mixed; None for an operation without a dtype policy.
        inputs_reference, inputs: Its floating point inputs in the float32 pass and when mixed, after Keras' own
            cast; None without any.
        reference: Its outputs in the float32 pass.
        output: Its outputs when mixed.
        input_difference, output_difference: |mixed - float32| over |float32| (Euclidean norms, finite elements).
        integers: Elements of the float32 output that are whole numbers, if all are and one is large; else 0.
        integers_changed: How many of those came out different when mixed.
    """

    name: str
    class_name: str
    compute_dtype: str | None
    inputs_reference: Values | None
    inputs: Values | None
    reference: Values
    output: Values
    input_difference: float | None
    output_difference: float | None
    integers: int = 0
    integers_changed: int = 0


class LossTerm(Fact, frozen=True, kw_only=True):
    """One term of the loss.

    Attributes:
        name: `compute_loss` or `add_loss 1`.
        dtype: What it came out in when mixed.
        value: Mixed value; None if not finite.
        reference: Value of the float32 pass; None if not finite.
    """

    name: str
    dtype: str
    value: float | None
    reference: float | None


class MetricProbe(Fact, frozen=True, kw_only=True):
    """One compiled metric on this batch alone; a value that is not finite is None."""

    name: str
    value: float | None
    reference: float | None


class Gradients(Fact, frozen=True, kw_only=True):
    """Gradients of the trainable weights in one backward pass.

    Attributes:
        scale: What the loss was multiplied by.
        reference: Of the float32 pass (without scale).
        mixed: Of the mixed pass, as they come out, still scaled.
        worst: Name of the weight with the most non-finite elements; None where all are finite.
    """

    scale: float
    reference: Values
    mixed: Values
    worst: str | None = None


class BatchPass(Fact, frozen=True, kw_only=True):
    """One batch through the model, in float32 and mixed.

    Attributes:
        batch: `given`, `made up`, `zeros` or `masked`.
        data: The batch's own floating point values, before any cast.
        layers: In the order in which they finished.
        error: Why the mixed pass stopped with an exception although the float32 pass did not.
        error_layer: The innermost layer that was running then.
        reference_error: Why the float32 pass stopped.
    """

    batch: Literal["given", "made up", "zeros", "masked"]
    data: Values | None = None
    layers: tuple[LayerProbe, ...] = ()
    error: str | None = None
    error_layer: str | None = None
    reference_error: str | None = None


class Targets(Fact, frozen=True, kw_only=True):
    """The regression targets of the batch: their size, and how far apart they lie."""

    largest: float
    deviation: float


class ProbeFacts(Fact, frozen=True, kw_only=True):
    """What the probe saw.

    Attributes:
        status: `ok`, `skipped` or `failed`.
        reason: Why it is not `ok`.
        dtype_policy: The mixed policy that was tried.
        passes: One for each batch.
        loss: `compiled` (the model's own, on the batch's targets) or `made up` (mean square of the outputs).
        loss_terms: Of the first batch.
        metrics: Of the first batch, where it has targets.
        gradients: At the scale in force, then, where those are not finite, at scale 1.
        targets: Floating point targets of the batch.
    """

    status: Literal["ok", "skipped", "failed"]
    reason: str | None = None
    dtype_policy: str | None = None
    passes: tuple[BatchPass, ...] = ()
    loss: Literal["compiled", "made up"] | None = None
    loss_terms: tuple[LossTerm, ...] = ()
    metrics: tuple[MetricProbe, ...] = ()
    gradients: tuple[Gradients, ...] = ()
    targets: Targets | None = None

    @property
    def why_not_probed(self) -> str:
        """What a rule says that would have needed a pass."""
        return f"not probed: {self.reason or 'no pass was made'}"


class Audit(Fact, frozen=True, kw_only=True):
    """The answer of `hwprobe.audit`.

    Attributes:
        schema: `hwprobe.audit/1`.
        hwprobe: Version of hwprobe.
        verdict: `hazards` where something at warning or above was found, else `clean`; `unknown` where nothing was
            found and the probe did not run.
        findings: Worst first.
        outcomes: What every rule answered, in the order of ids.
        model: The static facts.
        probe: What the probe saw.
    """

    schema: Literal["hwprobe.audit/1"] = "hwprobe.audit/1"
    hwprobe: str
    verdict: AuditVerdict
    findings: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...]
    model: ModelFacts
    probe: ProbeFacts
