"""Laws over the catalogue of rules about models, and the rules on small built facts."""

from typing import Any

import msgspec
import pytest

from hwprobe.findings import Finding, Rule, Severity
from hwprobe.model.facts import LayerFacts, ModelFacts, OptimizerFacts, ProbeFacts
from hwprobe.model.judging import findings_of, judge
from hwprobe.model.rules import CHECKS, RULES

NOT_PROBED = ProbeFacts(status="skipped", reason="nobody asked")
LAYER = LayerFacts(
    name="dense", class_name="Dense", dtype_policy="mixed_float16", compute_dtype="float16", variable_dtype="float32"
)


def _model(*layers: LayerFacts, **facts: Any) -> ModelFacts:
    return ModelFacts(
        **{
            "name": "model",
            "class_name": "Functional",
            "keras": "keras3",
            "dtype_policy": "mixed_float16",
            "layers": layers or (LAYER,),
            **facts,
        }
    )


def _found(model: ModelFacts, probe: ProbeFacts = NOT_PROBED) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings_of(judge(CHECKS, model, probe))}


def test_ids_are_in_the_range_and_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids)) == len({rule.name for rule in RULES})
    assert all("HWP630" <= id_ <= "HWP699" for id_ in ids)
    assert ids == sorted(ids)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_explains_itself(rule: Rule) -> None:
    assert all(len(text) > 10 for text in msgspec.structs.astuple(rule.explanation))
    assert not rule.title.endswith(".")
    assert len(rule.title) <= 90


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_explained_away_only_by_rules_that_exist(rule: Rule) -> None:
    assert set(rule.after) <= {other.id for other in RULES} - {rule.id}


def test_what_was_not_probed_is_skipped_and_never_passed() -> None:
    outcomes = {outcome.id: outcome for outcome in judge(CHECKS, _model(), NOT_PROBED)}
    for id_ in ("HWP660", "HWP663", "HWP665", "HWP669", "HWP670", "HWP674"):
        assert outcomes[id_].status == "skip"
        assert outcomes[id_].reason == "not probed: nobody asked"


def test_a_stock_scaler_under_replicas_is_an_error_in_keras_3_alone() -> None:
    optimizer = OptimizerFacts(class_name="Adam", scaler="keras", scale=32768.0, dynamic=True)
    assert _found(_model(optimizer=optimizer, replicas=2))["HWP651"].severity is Severity.ERROR
    assert "HWP651" not in _found(_model(optimizer=optimizer, replicas=2, keras="tf_keras"))
    assert "HWP651" not in _found(_model(optimizer=optimizer, replicas=1))


def test_the_first_of_the_worst_findings_is_the_primary_one() -> None:
    head = msgspec.structs.replace(LAYER, name="head", output=True, head=True, activation="softmax")
    optimizer = OptimizerFacts(class_name="Adam", scaler="keras", scale=32768.0, dynamic=True)
    found = _found(_model(LAYER, head, heads_known=True, optimizer=optimizer, replicas=4))
    assert [id_ for id_, finding in found.items() if finding.primary] == ["HWP651"]
    assert next(iter(found)) == "HWP651"


def test_a_model_that_computes_in_float32_has_nothing_to_be_told() -> None:
    plain = msgspec.structs.replace(LAYER, dtype_policy="float32", compute_dtype="float32", parameters=8)
    assert _found(_model(plain, dtype_policy="float32")) == {}


def test_a_bfloat16_model_is_not_warned_of_float16s_range() -> None:
    layer = msgspec.structs.replace(
        LAYER,
        class_name="UnitNormalization",
        dtype_policy="mixed_bfloat16",
        compute_dtype="bfloat16",
        settings={"epsilon": 1e-12},
    )
    assert _found(_model(layer, dtype_policy="mixed_bfloat16")) == {}
