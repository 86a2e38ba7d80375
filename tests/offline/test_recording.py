"""A report as a file: all of it comes back, from this version and from older ones, and from no other file."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from hwprobe.errors import InputError
from hwprobe.offline.recording import SCHEMA, Capture, record, report_of_recording
from hwprobe.offline.redaction import Identity
from hwprobe.preflight import Check, check
from hwprobe.report import Report
from hwprobe.serialize import from_json, json_schema, to_builtins, to_json
from tests.offline.filled import filled
from tests.reports import A100, T4, report

NOBODY = Identity()


def written(facts: Report, **changes: Any) -> str:
    """The capture of a report as text, with some of its keys changed or, with None, left out."""
    data = {**to_builtins(record(facts, NOBODY)), **changes}
    return json.dumps({key: value for key, value in data.items() if value is not None})


def read(text: str) -> Report:
    return report_of_recording(text, origin="machine.json")


class TestWhole:
    def test_every_field_comes_back(self) -> None:
        facts = filled(Report)
        kept = record(facts, Identity(hosts=("text",)), include_identifiers=True)
        assert from_json(to_json(kept), Capture).report == facts

    def test_a_capture_has_the_form_that_its_schema_describes(self) -> None:
        kept = json.loads(to_json(record(report(gpus=[T4, A100]), NOBODY)))
        jsonschema.validate(kept, json_schema(Capture), cls=jsonschema.Draft202012Validator)

    def test_it_says_what_it_is(self) -> None:
        kept = record(report(gpus=[T4]), NOBODY)
        assert (kept.schema, kept.identifiers) == (SCHEMA, "removed")
        assert len(kept.recorded) == len("2026-11-30")

    def test_it_comes_from_a_file_then(self) -> None:
        assert read(written(report(gpus=[T4]))).origin == "machine.json"

    def test_the_same_findings_and_the_same_decision_come_out(self) -> None:
        facts = report(gpus=[T4, A100], environment={"CUDA_VISIBLE_DEVICES": "0,1,7"})
        kept = to_json(record(facts, NOBODY, include_identifiers=True))
        before, after = check(report=facts), check(report=read(kept))
        assert before.findings
        assert [finding.id for finding in after.findings] == [finding.id for finding in before.findings]
        assert (after.decision, after.verdict, after.rules) == (before.decision, before.verdict, before.rules)


class TestChecks:
    def test_what_check_writes_is_read_too(self) -> None:
        result = check(report=report(gpus=[T4, A100]))
        assert check(report=read(to_json(result))).decision == result.decision

    def test_a_check_that_could_not_look_says_so(self) -> None:
        refused = Check(hwprobe="0.1.0", verdict="unknown", error="policy.toml: no such file")
        with pytest.raises(InputError, match=r"no report in it; it says: policy\.toml: no such file"):
            read(to_json(refused))


OLDEST = """
{"schema": "hwprobe.capture/1", "hwprobe": "0.1.0", "recorded": "2026-11-30", "identifiers": "removed",
 "report": {
  "devices": [{"name": "Tesla T4", "visible": true, "compute_capability": "7.5", "pci_device_id": "1EB8"}],
  "driver": {"version": "535.104.05"}, "tensorflow": null, "keras": null,
  "host": {"system": "Linux", "machine": "x86_64", "python": "3.11.7"},
  "sources": {"nvml": {"status": "ok"}, "cuda": {"status": "ok"}, "tensorflow_build": {"status": "absent"},
              "tensorflow_runtime": {"status": "absent"}, "host": {"status": "ok"}}}}
"""
"""A capture of version 1 with the keys that every one has, and none that came later."""


class TestVersions:
    def test_a_capture_of_the_first_day_stays_readable(self) -> None:
        facts = read(OLDEST)
        assert [gpu.name for gpu in facts.devices] == ["Tesla T4"]
        assert "HWP201" in [finding.id for finding in check(report=facts).findings]

    def test_the_tables_of_today_judge_it(self) -> None:
        assert check(report=read(OLDEST)).report.devices[0].tensor_cores == ("float16",)  # type: ignore[union-attr]

    def test_keys_that_a_later_release_adds_are_passed_over(self) -> None:
        data = json.loads(OLDEST)
        data["weather"] = data["report"]["weather"] = data["report"]["devices"][0]["weather"] = {"sunny": True}
        assert read(json.dumps(data)) == read(OLDEST)

    @pytest.mark.parametrize("schema", ["hwprobe.capture/2", "hwprobe.check/12"])
    def test_a_newer_form_is_refused_with_the_way_out(self, schema: str) -> None:
        with pytest.raises(InputError, match=r"written by a newer hwprobe.*pip install --upgrade tf-hwprobe"):
            read(written(report(gpus=[T4]), schema=schema))


REFUSED = {
    "cut off": (written(report(gpus=[T4]))[:-30], "machine.json: "),
    "no schema": (written(report(gpus=[T4]), schema=None), "no key `schema`"),
    "a schema of another kind": (written(report(gpus=[T4]), schema="hwprobe.plan/1"), "its schema is 'hwprobe.plan/1'"),
    "a schema that is none": (written(report(gpus=[T4]), schema="x" * 200), "its schema is 'xxx"),
    "a schema that is no text": ('{"schema": 1}', "Expected `str | null`, got `int` - at `$.schema`"),
    "a list": ("[]", "machine.json: "),
    "no report": (written(report(gpus=[T4]), report=None), "missing required field `report`"),
    "a report that is none": (written(report(gpus=[T4]), report={}), "`$.report`"),
    "labels of a node": ('{"nvidia.com/gpu.product": "Tesla-T4"}', "give them with --target"),
    "a capability that is none": (
        written(report(gpus=[T4])).replace('"7.5"', '"seven"'),
        "not a compute capability: 'seven'",
    ),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_other_files_are_refused_with_the_key(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value).startswith("machine.json")
    assert says in str(caught.value)
