"""Each hazard with a model that has it, and beside it the nearest model that does not."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from hwprobe.findings import Finding
from tests.model import hazardous

Found = Callable[..., dict[str, list[Finding]]]


class Hazard(NamedTuple):
    """A hazard: what it is, the finding, a model that has it, and one that is safe; each with its batch."""

    what: str
    id: str
    firing: Callable[[Any], tuple[Any, Any]]
    quiet: Callable[[Any], tuple[Any, Any]]


HAZARDS = [
    Hazard("a float16 softmax feeds a cross-entropy", "HWP630", hazardous.softmax_head, hazardous.float32_softmax_head),
    Hazard(
        "a float16 softmax is cast to float32 behind itself",
        "HWP630",
        hazardous.softmax_then_cast,
        hazardous.float16_logits,
    ),
    Hazard("the output is float16", "HWP631", hazardous.float16_logits, hazardous.float32_softmax_head),
    Hazard(
        "targets near 1000 and a float16 output",
        "HWP632",
        lambda keras: hazardous.regression(keras, scale=10.0),
        lambda keras: hazardous.regression(keras, head_dtype="float32", scale=10.0),
    ),
    Hazard(
        "a functional loss in an own step", "HWP633", hazardous.own_step_with_function, hazardous.own_step_with_object
    ),
    Hazard("a functional loss overflows", "HWP672", hazardous.own_step_with_function, hazardous.compiled_with_function),
    Hazard("an additive mask of -1e9 in the code", "HWP634", hazardous.additive_mask, hazardous.half_additive_mask),
    Hazard("an additive mask of -1e9 in a setting", "HWP634", hazardous.mask_as_setting, hazardous.mask_in_float32),
    Hazard("(1 - mask) * -1e9 where the mask is 1", "HWP660", hazardous.additive_mask, hazardous.half_additive_mask),
    Hazard("a fully masked row of -inf", "HWP664", hazardous.custom_softmax_masked, hazardous.softmax_layer_masked),
    Hazard(
        "a fully masked row in Keras' attention",
        "HWP664",
        hazardous.custom_softmax_masked,
        hazardous.attention_fully_masked,
    ),
    Hazard("an epsilon of 1e-8 in the code", "HWP635", hazardous.small_epsilon, hazardous.large_epsilon),
    Hazard("an epsilon of 1e-8 in a setting", "HWP635", hazardous.epsilon_as_setting, hazardous.guarded_normalizations),
    Hazard("zero divided by zero", "HWP663", hazardous.small_epsilon, hazardous.large_epsilon),
    Hazard("zeros into normalisation", "HWP663", hazardous.unit_normalization, hazardous.guarded_normalizations),
    Hazard(
        "UnitNormalization in float16", "HWP636", hazardous.unit_normalization, hazardous.unit_normalization_float32
    ),
    Hazard(
        "raw data far from zero",
        "HWP637",
        lambda keras: hazardous.raw_data(keras, 10000.0, 1.0),
        lambda keras: hazardous.raw_data(keras, 10000.0, 1.0, dtype="float32"),
    ),
    Hazard(
        "raw data beyond float16",
        "HWP637",
        lambda keras: hazardous.raw_data(keras, 7e5, 1e5),
        lambda keras: hazardous.raw_data(keras, 10.0, 5.0),
    ),
    Hazard(
        "float ids through a Reshape",
        "HWP638",
        lambda keras: hazardous.ids(keras, through_reshape=True),
        lambda keras: hazardous.ids(keras, through_reshape=False),
    ),
    Hazard(
        "float ids beyond 2048",
        "HWP638",
        lambda keras: hazardous.ids(keras, through_reshape=True),
        lambda keras: hazardous.ids(keras, through_reshape=True, vocabulary=2000),
    ),
    Hazard(
        "integer ids",
        "HWP638",
        lambda keras: hazardous.ids(keras, through_reshape=True),
        lambda keras: hazardous.ids(keras, through_reshape=True, dtype="int32"),
    ),
    Hazard(
        "positions counted in float16",
        "HWP666",
        lambda keras: hazardous.positions(keras, None),
        lambda keras: hazardous.positions(keras, "float32"),
    ),
    Hazard(
        "a sum over 70000 elements",
        "HWP660",
        lambda keras: hazardous.reduction(keras, lambda x: keras.ops.sum(x, axis=-1, keepdims=True)),
        lambda keras: hazardous.reduction(keras, lambda x: keras.ops.mean(x, axis=-1, keepdims=True)),
    ),
    Hazard(
        "a cumulative sum stops at 2048",
        "HWP665",
        hazardous.cumulative_sum,
        lambda keras: hazardous.reduction(keras, lambda x: keras.ops.mean(x, axis=-1, keepdims=True)),
    ),
    Hazard(
        "a variance of 90000",
        "HWP660",
        lambda keras: hazardous.variance(keras, in_float32=False),
        lambda keras: hazardous.variance(keras, in_float32=True),
    ),
    Hazard(
        "a dense layer beyond 65504",
        "HWP660",
        lambda keras: hazardous.dense_of_ones(keras, 1024, 100.0),
        lambda keras: hazardous.dense_of_ones(keras, 16, 1.0),
    ),
    Hazard(
        "a dense layer close to 65504",
        "HWP662",
        lambda keras: hazardous.dense_of_ones(keras, 1024, 20.0),
        lambda keras: hazardous.dense_of_ones(keras, 1024, 1.0),
    ),
    Hazard(
        "40000 + 40000", "HWP660", lambda keras: hazardous.add(keras, 40000.0), lambda keras: hazardous.add(keras, 4.0)
    ),
    Hazard(
        "log(1 + exp(12))",
        "HWP660",
        lambda keras: hazardous.exponential(keras, 12.0),
        lambda keras: hazardous.exponential(keras, 3.0),
    ),
    Hazard(
        "exp(12) as a bare operation of the graph",
        "HWP660",
        lambda keras: hazardous.graph_exponential(keras, 12.0),
        lambda keras: hazardous.graph_exponential(keras, 3.0),
    ),
    Hazard(
        "softplus(-20)",
        "HWP667",
        lambda keras: hazardous.softplus(keras, -20.0),
        lambda keras: hazardous.softplus(keras, -2.0),
    ),
    Hazard(
        "an activity regulariser",
        "HWP639",
        lambda keras: hazardous.activity(keras, activity_regularizer="l2"),
        lambda keras: hazardous.activity(keras, kernel_regularizer="l2"),
    ),
    Hazard(
        "an activity regulariser beside a compiled loss",
        "HWP669",
        lambda keras: hazardous.activity(keras, activity_regularizer="l2"),
        lambda keras: hazardous.activity(keras, activity_regularizer="l2", dtype="float32"),
    ),
    Hazard(
        "add_loss in float16",
        "HWP672",
        lambda keras: hazardous.added_loss(keras, cast=False),
        lambda keras: hazardous.added_loss(keras, cast=True),
    ),
    Hazard(
        "a float32 array of NumPy",
        "HWP668",
        lambda keras: (
            hazardous.one_layer(keras, hazardous.custom(keras, lambda x: keras.ops.multiply(x, np.ones(8, "float32")))),
            hazardous.ones(hazardous.ROWS, 8),
        ),
        hazardous.weight,
    ),
    Hazard(
        "a float32 layer in the middle",
        "HWP642",
        lambda keras: hazardous.islands(keras, "float32"),
        lambda keras: hazardous.islands(keras, None),
    ),
    Hazard(
        "4000 recurrent steps",
        "HWP640",
        lambda keras: hazardous.recurrent(keras, 4000),
        lambda keras: hazardous.recurrent(keras, 100),
    ),
    Hazard(
        "an LSTM that cuDNN cannot fuse",
        "HWP644",
        lambda keras: hazardous.recurrent(keras, 2, activation="relu"),
        lambda keras: hazardous.recurrent(keras, 2),
    ),
    Hazard(
        "a metric that wraps a function",
        "HWP673",
        lambda keras: hazardous.metric(keras, "mse"),
        lambda keras: hazardous.metric(keras, "mse", head_dtype="float32"),
    ),
    Hazard(
        "NaN in the data",
        "HWP674",
        lambda keras: hazardous.data(keras, np.nan),
        lambda keras: hazardous.data(keras, 2.0),
    ),
    Hazard(
        "data beyond float16",
        "HWP675",
        lambda keras: hazardous.data(keras, 1e5),
        lambda keras: hazardous.data(keras, 100.0),
    ),
    Hazard("units of 30", "HWP643", lambda keras: hazardous.sizes(keras, 30), lambda keras: hazardous.sizes(keras, 32)),
    Hazard(
        "a depthwise convolution",
        "HWP645",
        lambda keras: hazardous.one_layer_model(keras, keras.layers.DepthwiseConv2D(3)),
        lambda keras: hazardous.one_layer_model(keras, keras.layers.Conv2D(8, 3)),
    ),
    Hazard(
        "gradients that vanish without scaling",
        "HWP671",
        lambda keras: hazardous.tiny_errors(keras, keras.optimizers.SGD()),
        lambda keras: hazardous.tiny_errors(keras, keras.optimizers.SGD(loss_scale_factor=2.0**24)),
    ),
]


@pytest.mark.parametrize("hazard", HAZARDS, ids=[f"{each.id}: {each.what}" for each in HAZARDS])
def test_a_model_with_the_hazard_gets_the_finding(keras: Any, found: Found, hazard: Hazard) -> None:
    model, batch = hazard.firing(keras)
    assert hazard.id in found(model, batch)


@pytest.mark.parametrize("hazard", HAZARDS, ids=[f"{each.id}: {each.what}" for each in HAZARDS])
def test_a_model_without_the_hazard_does_not(keras: Any, found: Found, hazard: Hazard) -> None:
    model, batch = hazard.quiet(keras)
    assert hazard.id not in found(model, batch)
