"""Advice about speed: nothing here is wrong, and only a measurement tells what it costs."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.model.facts import LayerFacts, ModelFacts, ProbeFacts
from hwprobe.model.formats import FORMATS
from hwprobe.model.judging import Answer, ModelCheck, problem
from hwprobe.rules.verdict import NotApplicable

FLOAT32_ISLANDS = Rule(
    id="HWP642",
    name="float32-islands",
    title="Layers inside a 16-bit model compute in float32",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Some layers compute in 16 bits, and others that have weights and do not make the output compute in "
        "float32 or switch autocasting off.",
        matters="Each such layer casts to float32 and the next one casts back. It may be meant: a layer that needs the "
        "range or the digits belongs in float32.",
        fix="Nothing, if it is meant. Else leave the layer's dtype out so that it follows the policy.",
        reference="https://www.tensorflow.org/guide/mixed_precision",
    ),
)
SIZES_NOT_MULTIPLE_OF_8 = Rule(
    id="HWP643",
    name="sizes-not-multiple-of-8",
    title="Units, channels or a vocabulary are not multiples of 8",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Units, filters, embedding width and vocabulary of layers that compute in 16 bits. The layer that makes "
        "the output is left out: its size is the task's.",
        matters="Tensor Cores work on blocks of 8 16-bit values (64 on A100). cuBLAS before 11 and cuDNN before 7.6.3 "
        "did not use them for other sizes at all; since then other sizes are only less efficient.",
        fix="Round the size up, if nothing else depends on it, and measure: hwprobe compare.",
        reference="NVIDIA Deep Learning Performance guide, Matrix Multiplication Background, section 2.2",
    ),
)
RNN_NOT_FUSED = Rule(
    id="HWP644",
    name="rnn-not-fused",
    title="A recurrent layer cannot use cuDNN's fused kernel",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Settings of LSTM and GRU against cuDNN's conditions: activation tanh, recurrent_activation sigmoid, "
        "recurrent_dropout 0, unroll False, use_bias True, and for GRU reset_after True.",
        matters="Without the fused kernel each time step is a handful of small kernels, in every dtype.",
        fix="Go back to Keras' default for the setting that is named, where the model allows it.",
        reference="https://keras.io/api/layers/recurrent_layers/lstm/",
    ),
)
DEPTHWISE_IN_FLOAT16 = Rule(
    id="HWP645",
    name="depthwise-in-float16",
    title="Depthwise convolutions compute in float16",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="DepthwiseConv and SeparableConv layers that compute in float16.",
        matters="They do not use Tensor Cores, and on some boards of capability 7.5 with the cuDNN of their time they "
        "ran 10 to 20 times slower in float16 than in float32. Other boards show nothing of the kind.",
        fix="Measure before believing either: hwprobe compare on this model.",
        reference="tensorflow/tensorflow#48127",
    ),
)


def float32_islands(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP642."""
    if model.low_precision is None:
        return NotApplicable(reason="no layer computes in 16 bits")
    islands = [
        layer
        for layer in model.layers
        if layer.parameters and not layer.head and (layer.compute_dtype == "float32" or _opted_out(layer))
    ]
    if not islands:
        return []
    share = sum(layer.parameters for layer in islands) / model.parameters()
    return [
        problem(
            islands[0].name,
            f"{len(islands)} layers with {share:.0%} of the parameters stay in float32 inside a {model.low_precision} "
            f"model: {', '.join(layer.name for layer in islands[:5])}{', ...' if len(islands) > 5 else ''}.",
            "leave their dtype out, if they need neither the range nor the digits of float32",
            evidence={"layers": [layer.name for layer in islands], "share_of_parameters": round(share, 4)},
        )
    ]


def _opted_out(layer: LayerFacts) -> bool:
    # Keras' own layers without autocast (Embedding, the normalisations) still give what their policy says.
    return layer.custom and not layer.autocast


def sizes_not_multiple_of_8(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP643."""
    if model.low_precision is None:
        return NotApplicable(reason="no layer computes in 16 bits")
    odd = {
        f"{layer.name}.{size}": value
        for layer in model.layers
        for size, value in layer.sizes.items()
        if layer.compute_dtype in FORMATS and not layer.head and size != "num_heads" and value % 8
    }
    if not odd:
        return []
    shown = [f"{name}={value} (next: {-(-value // 8) * 8})" for name, value in odd.items()]
    return [
        problem(
            next(iter(odd)).rpartition(".")[0],
            f"{', '.join(shown[:6])}{', ...' if len(shown) > 6 else ''}: Tensor Cores prefer multiples of 8.",
            "round up, if nothing else depends on the size, and measure with hwprobe compare",
            evidence=dict(odd),
        )
    ]


def rnn_not_fused(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP644."""
    layers = [layer for layer in model.layers if layer.class_name in ("LSTM", "GRU")]
    if not layers:
        return NotApplicable(reason="no LSTM or GRU layer")
    return [
        problem(
            layer.name,
            f"{layer.name} ({layer.class_name}) cannot use cuDNN's fused kernel: "
            f"{'; '.join(layer.recurrent.not_fused_because)}.",
            "go back to the default, where the model allows it",
            evidence={"because": list(layer.recurrent.not_fused_because)},
        )
        for layer in layers
        if layer.recurrent is not None and layer.recurrent.not_fused_because
    ]


def depthwise_in_float16(model: ModelFacts, _: ProbeFacts) -> Answer:
    """HWP645."""
    layers = [layer for layer in model.layers if layer.class_name.startswith(("Depthwise", "Separable"))]
    if not layers:
        return NotApplicable(reason="no depthwise convolution")
    narrow = [layer for layer in layers if layer.compute_dtype == "float16"]
    if not narrow:
        return []
    return [
        problem(
            narrow[0].name,
            f"{len(narrow)} depthwise convolutions compute in float16 ({narrow[0].name} is the first).",
            "time both precisions on your GPU: hwprobe compare",
            evidence={"layers": [layer.name for layer in narrow]},
        )
    ]


ADVICE_CHECKS = (
    ModelCheck(FLOAT32_ISLANDS, float32_islands),
    ModelCheck(SIZES_NOT_MULTIPLE_OF_8, sizes_not_multiple_of_8),
    ModelCheck(RNN_NOT_FUSED, rnn_not_fused),
    ModelCheck(DEPTHWISE_IN_FLOAT16, depthwise_in_float16),
)
