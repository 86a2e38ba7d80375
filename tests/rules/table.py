"""The form of a row, and what is asserted about each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from hwprobe.findings import Action, Finding, Outcome, Severity
from hwprobe.policy import Policy
from hwprobe.report import Report
from hwprobe.rules.catalogue import CATALOGUE
from hwprobe.rules.judge import judge
from tests.dates import TODAY
from tests.reports import case

COMMANDS = (
    *("apptainer ", "cat ", "docker ", "export ", "hwprobe ", "ls ", "lspci ", "nvidia-smi", "pip ", "podman "),
    *("python ", "sudo ", "systemctl ", "unset ", "wsl ", "CUDA_VISIBLE_DEVICES=", "TF_CPP_MIN_LOG_LEVEL=", "#SBATCH "),
    *("import ", "keras.", "model.", "tf.", "hwprobe.", "in the pod: "),
)
"""How a step that can be typed, or pasted into a script or a manifest, begins."""

STATUSES = ("pass", "skip", "not_applicable")


class Fires(NamedTuple):
    """What a rule has to say.

    Attributes:
        severity, action, subject: Of the finding.
        says: Words that the message must hold.
        fix: Words that its steps must hold.
        times: Findings of this rule; all are of this severity and action, the first one of this subject.
    """

    severity: Severity
    action: Action
    subject: str
    says: tuple[str, ...]
    fix: tuple[str, ...] = ()
    times: int = 1


class Row(NamedTuple):
    """Facts, and what the rule makes of them: a finding, or `pass`, `skip`, `not_applicable`."""

    what: str
    facts: Report
    expect: Fires | str
    policy: Policy | None = None
    today: str = TODAY


Table = Mapping[str, Sequence[Row]]
"""Rule id to its rows."""


def rows(table: Table) -> pytest.MarkDecorator:
    """Parametrize a test with every row of a table."""
    return pytest.mark.parametrize(
        ("id_", "row"),
        [pytest.param(id_, row, id=f"{id_} {row.what}") for id_, rows in table.items() for row in rows],
    )


def outcome_of(id_: str, row: Row) -> Outcome:
    """What the rule answers among all others, so that an earlier one could explain it away."""
    outcomes = judge(case(row.facts, row.policy, today=row.today), CATALOGUE)
    return next(outcome for outcome in outcomes if outcome.id == id_)


def check(id_: str, row: Row) -> None:
    """Assert what a row says."""
    outcome = outcome_of(id_, row)
    if isinstance(row.expect, str):
        assert row.expect in STATUSES
        assert outcome.status == row.expect, (outcome.reason, outcome.findings)
        assert (outcome.reason is None) == (row.expect == "pass")
        return
    assert outcome.status == "fail", outcome.reason
    assert len(outcome.findings) == row.expect.times, outcome.findings
    for finding in outcome.findings:
        assert (finding.severity, finding.action) == (row.expect.severity, row.expect.action)
        check_form(finding)
    first = outcome.findings[0]
    assert first.subject == row.expect.subject
    for words in row.expect.says:
        assert words in first.message
    for words in row.expect.fix:
        assert words in "\n".join(first.fix)


def check_form(finding: Finding) -> None:
    """What holds for every finding: one line, evidence behind it, and a command where the user has to act."""
    texts = (finding.title, finding.message, *finding.fix)
    assert all(text and "\n" not in text and text == text.strip() for text in texts)
    assert "None" not in finding.message
    assert finding.evidence
    if finding.action is not Action.NONE:
        assert finding.fix
    if finding.action is Action.USER:
        assert any(is_command(step) for step in finding.fix), finding.fix


def is_command(step: str) -> bool:
    """Whether a step can be typed or pasted as it is."""
    return step.removeprefix("or ").startswith(COMMANDS) or "/bin/python -m " in step


def outcomes_in(table: Table) -> Iterator[tuple[str, str]]:
    """Rule id and kind of every row: `fires`, or the status."""
    for id_, rows_ in table.items():
        for row in rows_:
            yield id_, row.expect if isinstance(row.expect, str) else "fires"
