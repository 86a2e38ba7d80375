"""What verify says about models that are set up right, and about each way in which they are not."""

from __future__ import annotations

from typing import Any

import pytest

from hwprobe.configuration import LossScaling
from hwprobe.errors import InputError
from hwprobe.findings import Rule, Severity
from hwprobe.scaling import ModelScaling, set_in_force, verify_model, wrap_optimizer
from hwprobe.scaling.rules import RULES

keras = pytest.importorskip("keras")


def model_of(optimizer: Any = None, *layers: Any, **compile_arguments: Any) -> Any:
    model = keras.Sequential(
        [keras.Input((8,)), *(layers or [keras.layers.Dense(64)]), keras.layers.Dense(1, dtype="float32")]
    )
    if optimizer is not None:
        model.compile(optimizer, "mse", **compile_arguments)
    return model


def ids(checked: ModelScaling) -> list[str]:
    return [each.id for each in checked.findings]


class TestRight:
    def test_a_wrapped_optimizer_under_mixed_float16(self, mixed_float16: None) -> None:
        set_in_force(LossScaling.dynamic())
        checked = verify_model(model_of(wrap_optimizer(keras.optimizers.Adam())))
        assert checked
        assert ids(checked) == []
        assert checked.state is not None
        assert checked.state.scaler == "hwprobe"
        assert "dynamic loss scaling by hwprobe's scaler" in str(checked)

    def test_bfloat16_without_scaling(self, float32: None) -> None:
        keras.config.set_dtype_policy("mixed_bfloat16")
        set_in_force(LossScaling.none())
        checked = verify_model(model_of(wrap_optimizer(keras.optimizers.Adam())))
        assert checked
        assert checked.low_precision_share > 0.8
        assert "no loss scaling" in str(checked)

    def test_a_float32_model_whose_process_decided_for_scaling_has_nothing_to_scale(self, float32: None) -> None:
        set_in_force(LossScaling.dynamic())
        assert verify_model(model_of(keras.optimizers.Adam()))

    @pytest.mark.parametrize(
        ("wish", "arguments"), [(None, {"auto_scale_loss": False}), ("static=1", {})], ids=["without", "a scale of 1"]
    )
    def test_float16_without_scaling_where_that_was_decided(
        self, mixed_float16: None, wish: str | None, arguments: dict[str, Any]
    ) -> None:
        set_in_force(LossScaling.none())
        assert ids(verify_model(model_of(wrap_optimizer(keras.optimizers.Adam(), wish), **arguments))) == []

    def test_a_model_that_is_not_compiled_yet(self, mixed_float16: None) -> None:
        checked = verify_model(model_of())
        assert checked.state is None
        assert "not compiled" in str(checked)


class TestScaler:
    def test_the_one_that_compile_adds_is_reported(self, mixed_float16: None) -> None:
        checked = verify_model(model_of(keras.optimizers.Adam()))
        assert ids(checked) == ["HWP605"]
        assert checked.state is not None
        assert checked.state.scaler == "keras"
        assert "wrap_optimizer" in checked.findings[0].fix[0]

    def test_with_an_embedding_it_is_an_error(self, mixed_float16: None) -> None:
        layers = [keras.layers.Embedding(64, 4), keras.layers.Flatten()]
        checked = verify_model(model_of(keras.optimizers.Adam(), *layers))
        assert ids(checked) == ["HWP650", "HWP605"]
        assert checked.findings[0].severity is Severity.ERROR

    def test_a_fixed_scale_that_was_decided_and_dropped_by_compile(self, mixed_float16: None) -> None:
        set_in_force(LossScaling.static(128.0))
        checked = verify_model(model_of(keras.optimizers.Adam(loss_scale_factor=128.0)))
        assert ids(checked) == ["HWP601", "HWP605"]
        assert "static loss scaling at 128 was decided" in checked.findings[0].message

    def test_the_one_that_compile_adds_although_none_was_decided(self, mixed_float16: None) -> None:
        set_in_force(LossScaling.none())
        (found,) = verify_model(model_of(wrap_optimizer(keras.optimizers.Adam()))).findings
        assert (found.id, found.fix) == ("HWP601", ("compile(..., auto_scale_loss=False)",))

    def test_a_float16_model_in_a_process_that_decided_for_bfloat16(self, mixed_float16: None) -> None:
        """Its scaler is due; only that it is Keras' own is wrong, and what mends that is another call than usual."""
        model = model_of(None)
        keras.config.set_dtype_policy("mixed_bfloat16")
        set_in_force(LossScaling.none())
        model.compile(keras.optimizers.Adam(), "mse")
        (found,) = verify_model(model).findings
        assert (found.id, found.fix[0]) == ("HWP605", "compile(optimizer=hwprobe.wrap_optimizer(optimizer, 'dynamic'))")
        model.compile(wrap_optimizer(keras.optimizers.Adam(), "dynamic"), "mse")
        assert verify_model(model)

    def test_a_factor_that_never_skips(self, mixed_float16: None) -> None:
        checked = verify_model(model_of(keras.optimizers.Adam(loss_scale_factor=128.0), auto_scale_loss=False))
        assert ids(checked) == ["HWP649"]
        assert checked.state is not None
        assert checked.state.scaler == "loss_scale_factor"

    def test_two_scalers_around_each_other(self, mixed_float16: None) -> None:
        twice = keras.optimizers.LossScaleOptimizer(wrap_optimizer(keras.optimizers.Adam()))
        checked = verify_model(model_of(twice))
        assert "HWP602" in ids(checked)
        assert checked.state is not None
        assert checked.state.nested

    def test_float16_layers_in_a_model_made_under_float32(self, float32: None) -> None:
        checked = verify_model(model_of(keras.optimizers.Adam(), keras.layers.Dense(64, dtype="mixed_float16")))
        assert ids(checked) == ["HWP647"]

    def test_scaling_for_a_model_that_has_no_float16(self, float32: None) -> None:
        checked = verify_model(model_of(wrap_optimizer(keras.optimizers.Adam(), "dynamic")))
        assert ids(checked) == ["HWP648"]
        assert checked, "information is no fault"


class TestPolicy:
    def test_a_model_built_before_the_policy_was_set(self, float32: None) -> None:
        model = model_of()
        keras.config.set_dtype_policy("mixed_float16")
        model.compile(keras.optimizers.Adam(), "mse")
        checked = verify_model(model)
        assert ids(checked) == ["HWP646"]
        assert checked.low_precision_share == 0.0
        assert "0% of the parameters compute in 16 bits" in str(checked)

    def test_a_model_of_which_most_was_built_before(self, float32: None) -> None:
        old = [keras.layers.Dense(64), keras.layers.Dense(64)]
        keras.config.set_dtype_policy("mixed_float16")
        checked = verify_model(model_of(None, *old, keras.layers.Dense(8)))
        assert ids(checked) == ["HWP603"]

    def test_a_small_float32_head_is_as_it_should_be(self, mixed_float16: None) -> None:
        assert ids(verify_model(model_of())) == []


class TestReplicas:
    @pytest.mark.parametrize(("jit", "expected"), [(True, ["HWP604"]), (False, [])])
    def test_xla_with_scaling_on_several_replicas_is_foreseen(
        self, mixed_float16: None, monkeypatch: pytest.MonkeyPatch, jit: bool, expected: list[str]
    ) -> None:
        model = model_of(wrap_optimizer(keras.optimizers.Adam()), jit_compile=jit)
        monkeypatch.setattr(type(model), "distribute_strategy", type("TwoGpus", (), {"num_replicas_in_sync": 2})())
        assert ids(verify_model(model)) == expected


@pytest.mark.parametrize("thing", [None, 5, "model.keras"])
def test_what_is_no_model_is_refused(thing: Any) -> None:
    with pytest.raises(InputError, match="expected a model"):
        verify_model(thing)


class TestCatalogue:
    def test_ids_are_unique_in_order_and_in_this_family(self) -> None:
        numbers = [int(each.id.removeprefix("HWP")) for each in RULES]
        assert numbers == sorted(set(numbers))
        assert all(601 <= each <= 629 for each in numbers)

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
    def test_every_rule_explains_itself(self, rule: Rule) -> None:
        explanation = rule.explanation
        assert all((explanation.checks, explanation.matters, explanation.fix, explanation.reference))
        assert not rule.title.endswith(".")
