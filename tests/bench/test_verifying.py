"""`hwprobe check --verify` and `hwprobe decide --measured`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hwprobe.bench import verifying
from hwprobe.bench.facts import Bench
from hwprobe.bench.verifying import verify_devices
from hwprobe.cli import main
from hwprobe.policy import Policy
from hwprobe.preflight import Check, assess
from hwprobe.probe.child import Answer
from hwprobe.serialize import to_builtins, to_json
from hwprobe.source import SourceStatus
from tests.bench.benches import bench
from tests.reports import A100, T4, report


def answering(*benches: Bench | str) -> Callable[..., Answer]:
    """In place of the children: a bench each, or the reason why there is none."""
    waiting = list(benches)

    def ask(_reader: str, _request: Mapping[str, object], *, timeout_seconds: float) -> Answer:
        answer = waiting.pop(0)
        if isinstance(answer, str):
            return Answer(status=SourceStatus.TIMEOUT, reason=answer, seconds=timeout_seconds)
        return Answer(status=SourceStatus.OK, data=to_builtins(answer), seconds=1.0)

    return ask


def verified(monkeypatch: pytest.MonkeyPatch, gpus: list[Any], *benches: Bench | str) -> Check:
    monkeypatch.setattr(verifying, "ask", answering(*benches))
    return verify_devices(assess(report(gpus=gpus), Policy()), timeout_seconds=30.0)


def statuses(check: Check) -> dict[str, str]:
    return {rule.id: rule.status for rule in check.rules if rule.id.startswith("HWP45")}


def test_devices_that_compute_well_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    check = verified(monkeypatch, [T4], bench(device="GPU:0", float16=4.0))
    assert (check.verdict, set(statuses(check).values())) == ("ready", {"pass"})


def test_a_missing_kernel_makes_the_check_not_ready_and_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    check = verified(monkeypatch, [A100], bench(device="GPU:0", without="bfloat16"))
    assert (check.verdict, check.exit_status, statuses(check)["HWP450"]) == ("not_ready", 1, "fail")
    assert check.primary is not None
    assert (check.primary.id, check.primary.subject) == ("HWP450", check.report.devices[0].uuid)  # type: ignore[union-attr]


def test_a_slower_policy_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    check = verified(monkeypatch, [T4], bench(device="GPU:0", float16=0.3))
    assert (check.verdict, statuses(check)["HWP452"]) == ("ready", "fail")


def test_a_device_that_could_not_be_measured_is_skipped_and_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    check = verified(monkeypatch, [T4, T4], bench(device="GPU:0", float16=4.0), "no answer in 150 s")
    assert set(statuses(check).values()) == {"skip"}
    assert all("GPU:1: timeout: no answer" in (rule.reason or "") for rule in check.rules if rule.id == "HWP450")


def test_check_verify_measures_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--verify", "--format", "json"]) in (0, 1)
    rules = {rule["id"]: rule["status"] for rule in json.loads(capsys.readouterr().out)["rules"]}
    assert rules["HWP451"] == "pass"


@pytest.mark.parametrize("options", [["--fast"], ["--target", "T4"]])
def test_verify_needs_this_machines_tensorflow(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--verify", *options]) == 2
    assert "--verify measures this machine" in capsys.readouterr().err


class TestDecide:
    def test_it_says_what_to_set_and_nothing_else(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["decide", "--target", "T4"]) == 0
        assert capsys.readouterr().out == "mixed_float16 with dynamic loss scaling: Tesla T4 (7.5)\n"

    def test_a_measurement_goes_before_the_table_and_the_difference_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = tmp_path / "bench.json"
        place.write_text(to_json(bench(device="GPU:0", description="Tesla T4", uuid=None, float16=0.4, bfloat16=0.3)))
        assert main(["decide", "--target", "T4", "--measured", str(place)]) == 0
        first, reason, table = capsys.readouterr().out.splitlines()
        assert first.startswith("float32")
        assert reason.startswith("measured: float32")
        assert table == "the table says mixed_float16 with dynamic loss scaling: Tesla T4 (7.5)"

    @pytest.mark.parametrize(("text", "says"), [("{", "bench.json"), ('{"schema": "hwprobe.bench/1"}', "bench.json")])
    def test_a_file_that_is_no_measurement_is_status_2(
        self, text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = tmp_path / "bench.json"
        place.write_text(text)
        assert main(["decide", "--target", "T4", "--measured", str(place)]) == 2
        assert says in capsys.readouterr().err
