"""`--select`, `--ignore`, `--fail-on` and `--strict`, in a policy file and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwprobe.cli import main
from hwprobe.policy import Policy
from hwprobe.preflight import assess
from hwprobe.report import Report
from hwprobe.serialize import to_json
from tests.reports import A100, T4, lost, report
from tests.schema import valid

WARNINGS = report(gpus=[T4], environment={"TF_FORCE_GPU_ALLOW_GROWTH": "1", "TF_GPU_ALLOCATOR": "default"})
"""HWP502, a warning."""
DRAINS = report(gpus=[lost(A100), T4])
"""HWP120, an error that is a reason to drain."""
USERS_MISTAKE = report(gpus=[T4], tensorflow=None)
"""HWP201, an error for whoever runs the script."""


@pytest.fixture(autouse=True)
def no_site_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWPROBE_POLICY", raising=False)


@pytest.fixture
def answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `hwprobe check` on recorded facts and gives exit status and answer."""

    def run(facts: Report, *options: str) -> tuple[int, dict[str, Any]]:
        record = tmp_path / "record.json"
        record.write_text(to_json(assess(facts, Policy())))
        status = main(["check", "--from", str(record), "--format", "json", *options])
        return status, valid(capsys.readouterr().out)

    return run


def ids(answer: dict[str, Any]) -> list[str]:
    return [finding["id"] for finding in answer["findings"]]


def statuses(answer: dict[str, Any], status: str) -> set[str]:
    return {rule["id"] for rule in answer["rules"] if rule["status"] == status}


ON_THE_COMMAND_LINE = [
    ("nothing is chosen", WARNINGS, [], 0, ["HWP502"]),
    ("a whole id is left out", WARNINGS, ["--ignore", "HWP502"], 0, []),
    ("a family is left out", WARNINGS, ["--ignore", "HWP5"], 0, []),
    ("two in one text", WARNINGS, ["--ignore", "HWP1, HWP50"], 0, []),
    ("two options", WARNINGS, ["--ignore", "HWP1", "--ignore", "HWP50"], 0, []),
    ("another family is left out", WARNINGS, ["--ignore", "HWP3"], 0, ["HWP502"]),
    ("a family is chosen", WARNINGS, ["--select", "HWP5"], 0, ["HWP502"]),
    ("another family is chosen", WARNINGS, ["--select", "HWP1"], 0, []),
    ("the longer of two beginnings counts", WARNINGS, ["--ignore", "HWP5", "--select", "HWP502"], 0, ["HWP502"]),
    ("everything is left out", DRAINS, ["--ignore", "HWP"], 0, []),
    ("warnings fail it", WARNINGS, ["--strict"], 1, ["HWP502"]),
    ("warnings fail it, by name", WARNINGS, ["--fail-on", "warning"], 1, ["HWP502"]),
    ("what is left out fails nothing", WARNINGS, ["--strict", "--ignore", "HWP502"], 0, []),
    ("an explicit floor goes before --strict", WARNINGS, ["--strict", "--fail-on", "error"], 0, ["HWP502"]),
    ("an error fails it", DRAINS, [], 1, ["HWP120"]),
    ("and drains", DRAINS, ["--fail-on", "drain"], 1, ["HWP120"]),
    ("a user's mistake drains nothing", USERS_MISTAKE, ["--fail-on", "drain"], 0, ["HWP201"]),
    ("nothing ever fails it", DRAINS, ["--fail-on", "never"], 0, ["HWP120"]),
    ("information fails it", DRAINS, ["--fail-on", "info", "--ignore", "HWP120"], 0, []),
]


@pytest.mark.parametrize(
    ("facts", "options", "status", "found"),
    [row[1:] for row in ON_THE_COMMAND_LINE],
    ids=[row[0] for row in ON_THE_COMMAND_LINE],
)
def test_on_the_command_line(answer: Any, facts: Report, options: list[str], status: int, found: list[str]) -> None:
    ended, said = answer(facts, *options)
    assert (ended, ids(said)) == (status, found)
    assert said["verdict"] == ("not_ready" if status else "ready")


def test_what_is_left_out_is_ignored_and_not_passed(answer: Any) -> None:
    _, said = answer(WARNINGS, "--ignore", "HWP5")
    assert {id_ for id_ in statuses(said, "ignored") if id_[:4] == "HWP5"} == statuses(said, "ignored")
    assert "HWP502" in statuses(said, "ignored")


def test_an_effect_stays_explained_when_its_cause_is_left_out(answer: Any) -> None:
    facts = report(gpus=[lost(A100), T4])
    _, said = answer(facts, "--ignore", "HWP120")
    assert "HWP403" not in ids(said)
    assert "HWP121" in statuses(said, "skip")


def test_a_requirement_cannot_be_left_out(answer: Any) -> None:
    status, said = answer(WARNINGS, "--require", "gpus>=2", "--ignore", "HWP")
    assert (status, ids(said)) == (1, ["HWP950"])


IN_A_POLICY = [
    ("a family is left out", '[check]\nignore = ["HWP5"]', WARNINGS, [], 0, []),
    ("only one is run", '[check]\nselect = ["HWP502"]', WARNINGS, [], 0, ["HWP502"]),
    ("warnings fail it", '[check]\nfail_on = "warning"', WARNINGS, [], 1, ["HWP502"]),
    ("the command line goes before", '[check]\nfail_on = "warning"', WARNINGS, ["--fail-on", "error"], 0, ["HWP502"]),
    ("a wish of --strict does not lower it", '[check]\nfail_on = "drain"', WARNINGS, ["--strict"], 0, ["HWP502"]),
    ("the command line leaves out more", '[check]\nignore = ["HWP1"]', WARNINGS, ["--ignore", "HWP5"], 0, []),
    ("the command line chooses others", '[check]\nselect = ["HWP1"]', WARNINGS, ["--select", "HWP5"], 0, ["HWP502"]),
    ("a warning becomes an error", '[check.severity]\nHWP502 = "error"', WARNINGS, [], 1, ["HWP502"]),
    ("a family becomes information", '[check.severity]\nHWP1 = "info"', DRAINS, [], 0, ["HWP120"]),
]


@pytest.mark.parametrize(
    ("text", "facts", "options", "status", "found"),
    [row[1:] for row in IN_A_POLICY],
    ids=[row[0] for row in IN_A_POLICY],
)
def test_in_a_policy(
    answer: Any, tmp_path: Path, text: str, facts: Report, options: list[str], status: int, found: list[str]
) -> None:
    site = tmp_path / "site.toml"
    site.write_text(f'schema = "hwprobe.policy/1"\n{text}\n')
    ended, said = answer(facts, "--policy", str(site), *options)
    assert (ended, ids(said)) == (status, found)


@pytest.mark.parametrize("text", ["HW2", "hwp2", "HWP2x", "HWP2004", "2", ""])
def test_what_is_no_id_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--fast", "--ignore", text, "--format", "json"]) == 2
    said = valid(capsys.readouterr().out)
    assert "expected an id such as HWP211 or a prefix" in said["error"]


def test_a_severity_that_a_site_chose_is_in_every_format(answer: Any, tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text('schema = "hwprobe.policy/1"\n[check.severity]\nHWP502 = "info"\n')
    _, said = answer(WARNINGS, "--policy", str(site))
    assert [finding["severity"] for finding in said["findings"]] == ["info"]
    assert not any(finding["primary"] for finding in said["findings"])
    assert json.dumps(said["findings"]).count("HWP502") == 1
