"""The audit as a whole: healthy models, forms of batches, other Kerases, what is refused, JSON."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hwprobe.errors import InputError
from hwprobe.findings import Severity
from hwprobe.model.audit import audit
from hwprobe.model.facts import Audit
from hwprobe.serialize import from_json, to_json


def _dense(keras: Any, **head: Any) -> Any:
    return keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3, dtype="float32", **head)]
    )


def _transformer(keras: Any) -> Any:
    ids = keras.Input((16,), dtype="int32", name="ids")
    hidden = keras.layers.Embedding(64, 32, mask_zero=True)(ids)
    attended = keras.layers.MultiHeadAttention(4, 8)(hidden, hidden, use_causal_mask=True)
    hidden = keras.layers.LayerNormalization(epsilon=1e-6)(hidden + keras.layers.Dropout(0.1)(attended))
    hidden = keras.layers.Dense(64, activation="gelu")(hidden)
    hidden = keras.layers.Dense(32)(hidden)
    return keras.Model(ids, keras.layers.Dense(64, dtype="float32")(hidden))


def _convolutions(keras: Any) -> Any:
    images = keras.Input((None, None, 8))
    hidden = images
    for filters in (16, 32):
        hidden = keras.layers.Conv2D(filters, 3, strides=2, use_bias=False)(hidden)
        hidden = keras.layers.BatchNormalization()(hidden)
        hidden = keras.layers.Activation("relu")(hidden)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(images, keras.layers.Dense(10, dtype="float32", activation="softmax")(hidden))


def _recurrent(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input((12, 8)),
            keras.layers.Masking(0.0),
            keras.layers.Bidirectional(keras.layers.LSTM(16, dropout=0.2)),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )


@pytest.mark.parametrize("build", [_dense, _transformer, _convolutions, _recurrent])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_healthy_model_gets_no_finding(keras: Any, build: Callable[[Any], Any], policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    result = audit(build(keras))
    assert result.probe.status == "ok", result.probe.reason
    assert [(finding.id, finding.message) for finding in result.findings] == []
    assert result.verdict == "clean"


def test_a_float32_model_is_judged_as_it_is_and_looked_ahead_on_request(keras: Any) -> None:
    keras.config.set_dtype_policy("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(3, activation="softmax")])
    assert audit(model).verdict == "clean"
    ahead = audit(model, dtype_policy="mixed_float16")
    assert "HWP630" in {finding.id for finding in ahead.findings}
    assert ahead.model.low_precision == "float16"
    assert ahead.probe.status == "ok"


def test_looking_ahead_finds_a_call_that_fails_in_16_bits(keras: Any) -> None:
    import tensorflow as tf

    class Shifted(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs + tf.constant(1.0)

    keras.config.set_dtype_policy("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), Shifted(name="shifted")])
    finding = next(each for each in audit(model, dtype_policy="mixed_float16").findings if each.id == "HWP669")
    assert finding.subject == "shifted"
    assert finding.primary


def test_one_cause_is_named_and_what_follows_is_not(keras: Any) -> None:
    model = keras.Sequential(
        [
            keras.Input((1024,)),
            keras.layers.Dense(8, kernel_initializer="ones", name="first"),
            keras.layers.Dense(8, name="second"),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    result = audit(model, np.full((4, 1024), 100.0, "float32"))
    errors = [finding for finding in result.findings if finding.severity is Severity.ERROR]
    assert [(finding.id, finding.subject, finding.primary) for finding in errors] == [("HWP660", "first", True)]
    explained = [outcome.reason for outcome in result.outcomes if outcome.id == "HWP670"]
    assert explained == ["explained by HWP660"]


def test_a_layer_inside_another_is_named_with_its_path(keras: Any) -> None:
    inner = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(4, kernel_initializer="ones", name="deep")])
    outer = keras.Sequential([keras.Input((1024,)), inner, keras.layers.Dense(1, dtype="float32")])
    findings = audit(outer, np.full((4, 1024), 100.0, "float32")).findings
    assert {finding.subject for finding in findings if finding.id == "HWP660"} == {f"{inner.name}/deep"}


@pytest.mark.parametrize("wrapped", [1, 2])
@pytest.mark.parametrize(("head", "subjects"), [("float16", 1), ("float32", 0)])
def test_the_output_of_a_model_inside_a_model_is_that_of_its_own_last_layer(
    keras: Any, wrapped: int, head: str, subjects: int
) -> None:
    last = keras.layers.Dense(8, dtype="float32" if head == "float32" else "mixed_float16", name="last")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), last])
    path = "last"
    for _ in range(wrapped):
        path = f"{model.name}/{path}"
        inputs = keras.Input((8,))
        model = keras.Model(inputs, model(inputs))
    findings = audit(model).findings
    assert [finding.subject for finding in findings if finding.id == "HWP631"] == [path] * subjects


def test_broken_weights_are_not_blamed_on_precision(keras: Any) -> None:
    model = _dense(keras)
    model.layers[0].kernel.assign(np.full((8, 16), np.nan))
    assert "HWP661" in {finding.id for finding in audit(model).findings}
    assert "HWP660" not in {finding.id for finding in audit(model).findings}


def test_a_gradient_that_overflows_without_scale_is_found(keras: Any) -> None:
    class Steep(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return keras.ops.sqrt(keras.ops.relu(inputs) + 6e-8) * 1000.0

    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(8, kernel_initializer="zeros"), Steep(), keras.layers.Dense(1)]
    )
    ids = {finding.id for finding in audit(model, np.ones((4, 8), "float32")).findings}
    assert ids & {"HWP670", "HWP676"}


def test_a_scale_that_overflows_is_information_when_it_moves_and_an_error_when_it_does_not(keras: Any) -> None:
    model = _dense(keras)
    x, y = np.ones((16, 8), "float32"), np.full((16, 3), 1000.0, "float32")
    model.compile("sgd", "mse")
    moving = next(each for each in audit(model, (x, y)).findings if each.id == "HWP676")
    assert moving.severity is Severity.INFO
    model.compile(keras.optimizers.SGD(loss_scale_factor=2.0**15), "mse", auto_scale_loss=False)
    fixed = next(each for each in audit(model, (x, y)).findings if each.id == "HWP676")
    assert fixed.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("form", "loss"),
    [
        (lambda tf, x, y: x, "made up"),
        (lambda tf, x, y: (x,), "made up"),
        (lambda tf, x, y: (x, y), "compiled"),
        (lambda tf, x, y: (x, y, np.ones(len(x), "float32")), "compiled"),
        (lambda tf, x, y: tf.data.Dataset.from_tensor_slices((x, y)).batch(4), "compiled"),
    ],
    ids=["inputs", "tuple of inputs", "with targets", "with weights", "data set"],
)
def test_every_form_of_a_batch_is_taken(keras: Any, form: Callable[[Any, Any, Any], Any], loss: str) -> None:
    import tensorflow as tf

    model = _dense(keras)
    model.compile("adam", "mse", metrics=["mae"])
    batch = form(tf, np.ones((8, 8), "float32"), np.ones((8, 3), "float32"))
    result = audit(model, batch)
    assert result.probe.status == "ok"
    assert result.probe.passes[0].batch == "given"
    assert result.probe.loss == loss


def test_inputs_by_name_and_by_position_are_made_up(keras: Any) -> None:
    left, right = keras.Input((4,), name="left"), keras.Input((4,), dtype="int32", name="right")
    joined = keras.layers.Concatenate()([left, keras.layers.Flatten()(keras.layers.Embedding(9, 2)(right))])
    outputs = keras.layers.Dense(1, dtype="float32")(joined)
    for inputs in ([left, right], {"left": left, "right": right}):
        assert audit(keras.Model(inputs, outputs)).probe.status == "ok"


def test_a_subclassed_model_needs_a_batch_and_is_probed_with_one(keras: Any) -> None:
    class Small(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.head = keras.layers.Dense(8), keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.head(self.hidden(inputs))

    model = Small()
    unbuilt = audit(model)
    assert unbuilt.probe.reason is not None
    assert "not built" in unbuilt.probe.reason
    model(np.ones((2, 8), "float32"))
    without = audit(model)
    assert without.verdict == "unknown"
    assert without.probe.reason is not None
    assert "give a batch" in without.probe.reason
    assert audit(model, np.ones((2, 8), "float32")).probe.status == "ok"


def test_a_batch_that_does_not_fit_is_no_pass(keras: Any) -> None:
    result = audit(_dense(keras), np.ones((4, 7), "float32"))
    assert result.probe.status == "failed"
    assert result.probe.reason is not None
    assert "the float32 pass stopped in" in result.probe.reason
    assert result.verdict == "unknown"
    assert {outcome.status for outcome in result.outcomes if outcome.id >= "HWP660"} == {"skip"}


def test_what_a_pass_that_stopped_did_not_reach_has_not_passed(keras: Any) -> None:
    import tensorflow as tf

    class Shifted(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs + tf.constant(1.0)

    keras.config.set_dtype_policy("float32")
    model = keras.Sequential([keras.Input((8,)), Shifted(name="shifted"), keras.layers.Dense(8)])
    outcomes = {outcome.id: outcome for outcome in audit(model, dtype_policy="mixed_float16").outcomes}
    assert outcomes["HWP669"].status == "fail"
    assert outcomes["HWP662"].status == "skip"
    assert outcomes["HWP662"].reason == "the mixed pass stopped in shifted"


def test_a_map_of_policies_is_taken_apart(keras: Any) -> None:
    policies = keras.dtype_policies.DTypePolicyMap(default_policy=keras.config.dtype_policy())
    model = keras.Sequential(
        [keras.Input((1024,)), keras.layers.Dense(4, kernel_initializer="ones", dtype=policies, name="wide")]
    )
    finding = next(each for each in audit(model, np.full((2, 1024), 100.0, "float32")).findings if each.id == "HWP660")
    assert finding.subject == "wide"


def test_a_model_of_tf_keras_is_read_and_not_run(keras: Any) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = tf_keras.Sequential(
            [tf_keras.layers.Dense(8, input_shape=(4,)), tf_keras.layers.Dense(3, activation="softmax")]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    result = audit(model)
    assert result.model.keras == "tf_keras"
    assert result.probe.status == "skipped"
    assert result.probe.reason is not None
    assert "tf_keras" in result.probe.reason
    assert {"HWP630", "HWP631"} <= {finding.id for finding in result.findings}
    assert result.model.optimizer is not None
    assert result.model.optimizer.scaler == "keras"


def test_the_stock_scaler_of_tf_keras_is_not_accused_of_keras_3s_faults(keras: Any) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    layer = {"dtype": tf_keras.mixed_precision.Policy("mixed_float16")}
    model = tf_keras.Sequential([tf_keras.layers.Embedding(10, 4, input_length=2, **layer)])
    model.compile(tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.Adam()), "mse")
    assert "HWP650" not in {finding.id for finding in audit(model).findings}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda keras: (42,), "a Keras model is needed, not a int"),
        (lambda keras: (_dense(keras), (1, 2, 3, 4)), "not 4 things"),
        (lambda keras: (_dense(keras), ()), "not 0 things"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_sentence(
    keras: Any, arguments: Callable[[Any], tuple[Any, ...]], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        audit(*arguments(keras))


def test_an_unknown_policy_is_refused(keras: Any) -> None:
    with pytest.raises(InputError, match="mixed_bfloat16"):
        audit(_dense(keras), dtype_policy="float8")


def test_an_empty_data_set_is_refused(keras: Any) -> None:
    import tensorflow as tf

    with pytest.raises(InputError, match="no batch"):
        audit(_dense(keras), tf.data.Dataset.from_tensor_slices(np.ones((0, 8), "float32")).batch(4))


def test_an_audit_survives_json(keras: Any) -> None:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(3, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    result = audit(model, (np.full((4, 8), 1e5, "float32"), np.arange(4) % 3))
    assert from_json(to_json(result), Audit) == result
