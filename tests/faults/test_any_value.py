"""Any facts at all, and any change to a document: a right answer or one clear refusal, and every round trip exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hwprobe.cluster.job import Job
from hwprobe.cluster.merge import merge
from hwprobe.cluster.nodeset import expand, fold
from hwprobe.cluster.plan import plan_to_json, read_plan
from hwprobe.cluster.record import NodeRecord, Wishes
from hwprobe.cluster.summary import plan_summary
from hwprobe.configuration import DTYPE_POLICIES, LossScaling, Memory
from hwprobe.errors import InputError
from hwprobe.knowledge.annotate import annotate
from hwprobe.policy import Policy
from hwprobe.policy_reader import read_policy
from hwprobe.preflight import Check, assess
from hwprobe.render.formats import FORMATS, write
from hwprobe.report import Report
from hwprobe.requirements import SUBJECTS, parse_requirements, unmet_requirements
from hwprobe.serialize import from_json, json_schema, to_json
from tests.cluster.records import a100, t4
from tests.faults.values import texts, values_of
from tests.policy.test_properties import policies
from tests.reports import A100, RTX_5090, T4, hidden, lost, report

DEFAULT = read_policy("default")
reports = values_of(Report)
T = TypeVar("T")


def unless_refused(read: Callable[[], T]) -> T | None:
    """What was read; None where it was refused in words."""
    try:
        return read()
    except InputError as error:
        return None if str(error) else pytest.fail("refused without a word")


@given(facts=reports)
def test_a_report_with_every_field_set_comes_back_from_json(facts: Report) -> None:
    text = to_json(facts)
    assert text.isascii()
    assert from_json(text, Report) == facts
    assert from_json(to_json(facts, indent=2), Report) == facts


@given(facts=reports)
@settings(max_examples=200)
def test_no_facts_break_the_judgement_or_a_format(facts: Report) -> None:
    result = assess(annotate(facts), DEFAULT)
    assert result.verdict in ("ready", "not_ready", "unknown")
    assert result.decision is not None
    if result.decision.dtype_policy != "float32":
        assert all(device.policies[result.decision.dtype_policy].usable for device in result.decision.usability)
    assert from_json(to_json(result), Check) == result
    for format_ in FORMATS:
        text = write(result, format_)
        assert all(character.isprintable() or character == "\n" for character in text), format_


@given(facts=reports, site=policies)
def test_no_facts_break_the_judgement_by_any_policy(facts: Report, site: Policy) -> None:
    result = assess(annotate(facts), site)
    assert result.fail_on == site.check.fail_on
    ignored = {status.id for status in result.rules if status.status == "ignored"}
    assert not ignored & {finding.id for finding in result.findings}


@given(facts=reports, subject=st.sampled_from(SUBJECTS), operator=st.sampled_from([">=", "==", "!=", "<"]))
def test_every_requirement_holds_or_says_why_on_any_facts(facts: Report, subject: str, operator: str) -> None:
    wanted = {
        "gpus": "2",
        "compute_capability": "8.0",
        "memory": "16GiB",
        "dtype_policy": "mixed_float16",
        "tensorflow": "2.16",
        "driver": "535.104.05",
    }
    if subject == "dtype_policy" and operator not in ("==", "!="):
        operator = "=="
    text = subject if subject == "tensor_cores" else f"{subject}{operator}{wanted[subject]}"
    known = annotate(facts)
    decision = assess(known, DEFAULT).decision
    assert decision is not None
    for unmet in unmet_requirements(parse_requirements([text]), known, decision):
        assert text in unmet.message


scalings = st.one_of(
    st.just(LossScaling.none()),
    st.builds(LossScaling.static, st.floats(2.0**-10, 2.0**30)),
    st.builds(LossScaling.dynamic, st.floats(2.0**-10, 2.0**30), st.integers(1, 10_000)),
)
wishes = st.builds(
    Wishes,
    prefer=st.permutations(DTYPE_POLICIES).map(tuple),
    cpu=st.sampled_from([("float32",), ("mixed_bfloat16", "float32")]),
    loss_scaling=st.fixed_dictionaries(dict.fromkeys(DTYPE_POLICIES, scalings)),
    tf32=st.booleans(),
    memory=st.builds(Memory, growth=st.booleans(), limit_mib=st.none() | st.integers(1, 10**6)),
    policy=texts,
)
records = values_of(NodeRecord, {Wishes: wishes})


@given(record=records)
def test_a_record_with_every_field_set_comes_back(record: NodeRecord) -> None:
    assert from_json(to_json(record), NodeRecord) == record


@given(job=values_of(Job), gathered=st.lists(records, max_size=4), expect=st.none() | st.integers(1, 5))
def test_any_records_of_a_job_make_a_plan_that_comes_back(
    job: Job, gathered: list[NodeRecord], expect: int | None
) -> None:
    plan = merge([replace(record, job=job) for record in gathered], expect=expect)
    assert read_plan(plan_to_json(plan)) == plan
    assert plan.agreed or plan.problems
    if plan.agreed and plan.dtype_policy is not None:
        assert all(getattr(record.policies, plan.dtype_policy).usable for record in gathered)
    assert all(character.isprintable() or character == "\n" for character in plan_summary(plan))


SOUND = assess(annotate(report(gpus=[A100, T4, lost(A100), RTX_5090, hidden(T4)])), DEFAULT)
DOCUMENTS: dict[str, tuple[str, Callable[[str], object]]] = {
    "check": (to_json(SOUND), lambda text: from_json(text, Check)),
    "report": (to_json(SOUND.report), lambda text: from_json(text, Report)),
    "record": (to_json(t4("n1")), lambda text: from_json(text, NodeRecord)),
    "other record": (to_json(a100("n2", task="task-1")), lambda text: from_json(text, NodeRecord)),
}
scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just([]) | st.just({})
)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with every key in it."""
    if isinstance(document, dict):
        inner = [place for value in document.values() for place in places(value)]
        return [(document, key) for key in document] + inner
    if isinstance(document, list):
        inner = [place for value in document for place in places(value)]
        return [(document, number) for number in range(len(document))] + inner
    return []


@pytest.mark.parametrize(("text", "read"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
@given(data=st.data())
def test_one_value_changed_anywhere_is_refused_or_read(
    text: str, read: Callable[[str], object], data: st.DataObject
) -> None:
    document = json.loads(text)
    container, key = data.draw(st.sampled_from(places(document)))
    container[key] = data.draw(scalars)
    value = unless_refused(lambda: read(json.dumps(document)))
    if value is None:
        return
    if isinstance(value, Report):
        assert assess(annotate(value), DEFAULT).decision is not None
    again = to_json(value)
    assert read(again) == value


@given(facts=reports)
@settings(max_examples=20)
def test_what_is_written_fits_the_schema_that_is_published(facts: Report) -> None:
    jsonschema.validate(json.loads(to_json(assess(annotate(facts), DEFAULT))), json_schema(Check))


@given(text=st.text(alphabet="abn019[]-,:./ \n{}*", max_size=30) | st.text(max_size=30))
def test_any_node_list_unfolds_or_is_refused_and_folds_back(text: str) -> None:
    names = unless_refused(lambda: expand(text))
    if names:
        assert len(set(names)) == len(names)
        assert set(expand(fold(names))) == set(names)


@pytest.mark.parametrize(
    "text", ["n[0-99999999]", "n[0-9999]" + "[0-9999]" * 3, "n[0-9]" * 12, "n[" + "0" * 60 + "-9]"]
)
def test_a_short_list_of_very_many_nodes_is_refused_at_once(text: str) -> None:
    with pytest.raises(InputError):
        expand(text)


@pytest.mark.parametrize(
    "text", ["gpus>=" + "9" * 5000, "memory>=" + "9" * 400 + "GiB", "tensorflow>=" + "9." * 3000 + "9", "driver>=1!2"]
)
def test_a_requirement_of_any_length_is_refused_or_compared(text: str) -> None:
    facts = annotate(report(gpus=[T4]))
    requirements = unless_refused(lambda: parse_requirements([text]))
    if requirements is not None:
        decision = assess(facts, DEFAULT).decision
        assert decision is not None
        assert len(unmet_requirements(requirements, facts, decision)) == 1
