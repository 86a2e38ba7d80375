"""Hazards in how the model is set up for training: policies, loss scaling, replicas, its own training step."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.model.facts import LayerFacts, ModelFacts, ProbeFacts
from hwprobe.model.judging import Answer, ModelCheck, problem
from hwprobe.rules.verdict import NotApplicable, Skipped

FUNCTIONAL_LOSS = Rule(
    id="HWP633",
    name="functional-loss-in-own-step",
    title="The model's own training step calls a loss function on 16-bit predictions",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="`train_step` or `compute_loss` is overridden, its code names one of Keras' loss functions (not a Loss "
        "object) and not float32, and the model computes in 16 bits.",
        matters="A loss object casts predictions to float32; a loss function computes in their dtype. "
        "mean_squared_error of 300 against 0 is inf in float16, the loss object gives the right 90000.",
        fix="Use the object (keras.losses.MeanSquaredError()), or cast the predictions to float32 first.",
        reference="Keras 3.15.1 source, losses/loss.py and losses/losses.py",
    ),
)
POLICY_HAS_NO_EFFECT = Rule(
    id="HWP646",
    name="policy-has-no-effect",
    title="A mixed policy is set and no layer of this model uses it",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The process' global dtype policy is a mixed one, and every layer with weights computes in float32.",
        matters="A layer takes its policy when it is made. A model that was built, or loaded, before the policy was "
        "set stays float32 and gains nothing; compile() adds no loss scaling to it.",
        fix="Set the policy first (hwprobe.auto_configure() in the first line), then build the model.",
        reference="https://www.tensorflow.org/guide/mixed_precision",
    ),
)
FLOAT16_WITHOUT_SCALING = Rule(
    id="HWP647",
    name="float16-without-scaling",
    title="Layers compute in float16 and nothing scales the loss",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The model has layers that compute in float16, it is compiled, and its optimizer is not a scaler.",
        matters="Small gradients become zero and the model learns less, without an error. compile() adds a scaler "
        "only where the model's own policy is mixed_float16: not for a model made under float32 whose layers have "
        "dtype='mixed_float16', not with auto_scale_loss=False, and not for a mixed_float16 model that was loaded "
        "while another global policy was set.",
        fix="compile(optimizer=hwprobe.wrap_optimizer(optimizer)), or set the global policy before building or loading "
        "the model.",
        reference="Keras 3.15.1 source, trainers/trainer.py",
    ),
)
SCALING_FOR_NOTHING = Rule(
    id="HWP648",
    name="scaling-for-nothing",
    title="The loss is scaled although no layer computes in float16",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="The optimizer is a loss scaler and no layer of the model computes in float16.",
        matters="It costs a test of every gradient in each step and gains nothing: bfloat16 and float32 have the range "
        "without it.",
        fix="Compile with the plain optimizer, or with auto_scale_loss=False.",
        reference="Keras 3.15.1 source, trainers/trainer.py",
    ),
)
STATIC_FACTOR = Rule(
    id="HWP649",
    name="static-factor-never-skips",
    title="loss_scale_factor writes infinities into the weights",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="The optimizer carries Keras 3's loss_scale_factor.",
        matters="It divides the gradients and looks for nothing: one overflow and the weights are lost. On a model "
        "with an Embedding apply() stops with a TypeError (Keras 3.15.1). And compile() with its default "
        "auto_scale_loss=True drops the factor under mixed_float16 without a word.",
        fix="optimizer = hwprobe.wrap_optimizer(optimizer, hwprobe.LossScaling.static(SCALE)): it skips and counts.",
        reference="Keras 3.15.1 source, optimizers/base_optimizer.py",
    ),
)
SCALER_AND_EMBEDDING = Rule(
    id="HWP650",
    name="scaler-overlooks-embedding",
    title="Keras 3's loss scaler overlooks infinities in an Embedding's gradient",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="The model computes in float16, has a trainable Embedding, and its scaler is Keras 3's own.",
        matters="The finite test makes a dense mask of the sparse gradient by overwriting rows, so of a token that "
        "occurs more than once in a batch only the last occurrence counts. An infinity in an earlier one is written "
        "into the weights: a character model was lost in three runs of three at its first overflow, and with a "
        "scaler that looks at the values in none.",
        fix="compile(optimizer=hwprobe.wrap_optimizer(optimizer)).",
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py (check_finite)",
    ),
)
SCALER_AND_REPLICAS = Rule(
    id="HWP651",
    name="scaler-asks-one-replica",
    title="Keras 3's loss scaler obeys the first replica alone",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="The model was made under a distribution strategy with several replicas, computes in float16, and its "
        "scaler is Keras 3's own.",
        matters="Each replica tests its own gradients and the verdict of the first one counts. If only another "
        "overflows, infinities are summed into the weights and the scale is not lowered.",
        fix="compile(optimizer=hwprobe.wrap_optimizer(optimizer)), or use mixed_bfloat16, which needs no scaling.",
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py; see also tensorflow/tensorflow#90686",
    ),
)
MISSING_SCALE_LOSS = Rule(
    id="HWP652",
    name="loss-is-not-scaled-in-own-step",
    title="The model's own training step does not scale the loss that its optimizer unscales",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="`train_step` is overridden, the optimizer is a loss scaler, and the step's code calls neither "
        "scale_loss nor get_scaled_loss nor the inherited step.",
        matters="The scaler divides the gradients by its scale all the same: updates are 32768 times too small, with "
        "no error.",
        fix="loss = self.optimizer.scale_loss(loss) before the gradients are taken.",
        reference="Keras 3.15.1 source, optimizers/loss_scale_optimizer.py",
    ),
)


def functional_loss(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP633."""
    if not model.own_methods:
        return NotApplicable(reason="the model trains with Keras' own step")
    if model.low_precision is None:
        return NotApplicable(reason="no layer computes in 16 bits")
    found = []
    for method, code in model.own_methods.items():
        used = sorted(set(code.names) & _LOSS_FUNCTIONS)
        if used and not code.mentions_float32:
            found.append(
                problem(
                    method,
                    f"{method} calls {', '.join(used)} on predictions that may be {model.low_precision}.",
                    "use the Loss object of that name, or cast the predictions to float32",
                    evidence={"functions": used},
                )
            )
    return found


_LOSS_FUNCTIONS = {
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "cosine_similarity",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "poisson",
    "sparse_categorical_crossentropy",
}


def policy_has_no_effect(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP646."""
    if not (model.global_dtype_policy or "").startswith("mixed_"):
        return NotApplicable(reason="the global dtype policy is not a mixed one")
    if model.assumed_dtype_policy is not None:
        return NotApplicable(reason="a dtype policy is assumed for this audit")
    everything = model.parameters()
    if not everything or model.parameters("float16", "bfloat16"):
        return []
    return [
        problem(
            "model",
            f"the global policy is {model.global_dtype_policy}, and 0 of the {everything} parameters of {model.name} "
            "compute in 16 bits: the model was made before the policy was set, or its layers name float32.",
            "set the policy (hwprobe.auto_configure()) before the model is built or loaded",
            evidence={"global_dtype_policy": model.global_dtype_policy, "parameters": everything},
        )
    ]


def float16_without_scaling(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP647."""
    layers = _float16(model)
    if not layers:
        return NotApplicable(reason="no layer computes in float16")
    if model.assumed_dtype_policy is not None:
        return NotApplicable(reason="a dtype policy is assumed for this audit")
    if model.optimizer is None:
        if model.dtype_policy == "mixed_float16":
            return Skipped(reason="the model is not compiled: which scaler it will have is not known")
        why = f"its own policy is {model.dtype_policy}, so compile() will add no loss scaling"
    elif model.optimizer.scaler == "none":
        why = f"it is compiled with plain {model.optimizer.class_name}"
    else:
        return []
    return [
        problem(
            "optimizer",
            f"{len(layers)} layers of {model.name} compute in float16 ({layers[0].name} is the first), and {why}.",
            "compile(optimizer=hwprobe.wrap_optimizer(optimizer, hwprobe.LossScaling.dynamic()))",
            evidence={"layers": len(layers), "model_dtype_policy": model.dtype_policy},
        )
    ]


def scaling_for_nothing(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP648."""
    if model.optimizer is None or model.optimizer.scaler == "none":
        return NotApplicable(reason="the optimizer scales nothing")
    if _float16(model):
        return []
    return [
        problem(
            "optimizer",
            f"{model.optimizer.class_name} is wrapped in a loss scaler, and no layer of {model.name} computes in "
            "float16.",
            "compile with the plain optimizer and auto_scale_loss=False",
            evidence={"scaler": model.optimizer.scaler},
        )
    ]


def static_factor(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP649."""
    if model.optimizer is None:
        return Skipped(reason="the model is not compiled")
    if model.optimizer.scaler != "factor":
        return NotApplicable(reason="the optimizer has no loss_scale_factor")
    embedding = next((layer.name for layer in model.layers if layer.class_name == "Embedding"), None)
    scale = model.optimizer.scale
    return [
        problem(
            "optimizer",
            f"{model.optimizer.class_name} has loss_scale_factor={scale:g}: it never skips a step"
            + (f", and it cannot divide the sparse gradient of {embedding}." if embedding else "."),
            f"compile(optimizer=hwprobe.wrap_optimizer(optimizer, hwprobe.LossScaling.static({scale:g})))",
            evidence={"loss_scale_factor": scale, "embedding": embedding},
            severity=Severity.ERROR if embedding else None,
        )
    ]


def scaler_and_embedding(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP650."""
    embeddings = [layer for layer in model.layers if layer.class_name == "Embedding" and layer.parameters]
    if not embeddings:
        return NotApplicable(reason="no Embedding layer with weights")
    unanswered = _needs_stock_scaler(model)
    if unanswered is not None:
        return unanswered
    return [
        problem(
            layer.name,
            f"the scaler is Keras 3's own, which overlooks an infinite gradient of {layer.name} wherever a token "
            "occurs twice in a batch, and writes it into the weights.",
            "compile(optimizer=hwprobe.wrap_optimizer(optimizer))",
            evidence={"scaler": "keras", "keras": model.keras_version, "vocabulary": layer.sizes.get("input_dim")},
        )
        for layer in embeddings
    ]


def scaler_and_replicas(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP651."""
    if model.replicas < 2:
        return NotApplicable(reason="the model has one replica")
    unanswered = _needs_stock_scaler(model)
    if unanswered is not None:
        return unanswered
    return [
        problem(
            "optimizer",
            f"{model.replicas} replicas share one scaler of Keras 3, which obeys the first replica alone.",
            "compile(optimizer=hwprobe.wrap_optimizer(optimizer))",
            evidence={"scaler": "keras", "replicas": model.replicas, "keras": model.keras_version},
        )
    ]


def missing_scale_loss(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP652."""
    step = model.own_methods.get("train_step")
    if step is None:
        return NotApplicable(reason="the model trains with Keras' own step")
    if model.optimizer is None:
        return Skipped(reason="the model is not compiled")
    if model.optimizer.scaler == "none":
        return NotApplicable(reason="the optimizer scales nothing")
    if set(step.names) & {"scale_loss", "get_scaled_loss", "super", "fit"}:
        return []
    return [
        problem(
            "train_step",
            "train_step never calls scale_loss, and the optimizer divides every gradient by its scale"
            + (f" ({model.optimizer.scale:g})." if model.optimizer.scale else "."),
            "loss = self.optimizer.scale_loss(loss)",
            evidence={"scaler": model.optimizer.scaler, "scale": model.optimizer.scale},
        )
    ]


def _float16(model: ModelFacts) -> list[LayerFacts]:
    return [layer for layer in model.layers if layer.compute_dtype == "float16"]


def _needs_stock_scaler(model: ModelFacts) -> Answer | None:
    if model.keras != "keras3":
        return NotApplicable(reason="the scaler of Keras 2 looks at the values and at all replicas")
    if not _float16(model):
        return NotApplicable(reason="no layer computes in float16")
    if model.optimizer is None:
        return Skipped(reason="the model is not compiled: which scaler it will have is not known")
    return None if model.optimizer.scaler == "keras" else []


TRAINING_CHECKS = (
    ModelCheck(FUNCTIONAL_LOSS, functional_loss),
    ModelCheck(POLICY_HAS_NO_EFFECT, policy_has_no_effect),
    ModelCheck(FLOAT16_WITHOUT_SCALING, float16_without_scaling),
    ModelCheck(SCALING_FOR_NOTHING, scaling_for_nothing),
    ModelCheck(STATIC_FACTOR, static_factor),
    ModelCheck(SCALER_AND_EMBEDDING, scaler_and_embedding),
    ModelCheck(SCALER_AND_REPLICAS, scaler_and_replicas),
    ModelCheck(MISSING_SCALE_LOSS, missing_scale_loss),
)
