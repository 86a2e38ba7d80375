"""The form of a case: facts of a public report in our own small numbers, and what hwprobe has to say about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from hwprobe.findings import Severity
from hwprobe.policy import Policy
from hwprobe.preflight import Check, assess
from hwprobe.render.formats import write
from hwprobe.render.nagios import nagios_status
from hwprobe.report import Report
from hwprobe.requirements import parse_requirements
from tests.schema import valid

OK, WARN, FAIL = 0, 1, 2
"""How it ends: nothing that matters, a warning, not ready. The numbers are those of a monitoring plug-in."""

EXIT_STATUS = {OK: 0, WARN: 0, FAIL: 1}
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


class Case(NamedTuple):
    """One public report.

    Attributes:
        what: The situation, in a few words.
        source: The thread.
        facts: What hwprobe would read there.
        ends: `OK`, `WARN` or `FAIL`.
        finds: Findings that there must be, with their severity; the first one is the primary cause unless it is
            information.
        dtype_policy: The decision; its loss scaling follows, dynamic with mixed_float16 and else none.
        says: Words in messages, fixes or evidence.
        never: Ids, beginnings of ids, or words that must not come up.
        require: A requirement that makes it a failure, with the same primary cause.
        policy: The site's policy.
    """

    what: str
    source: str
    facts: Report
    ends: int
    finds: Mapping[str, Severity]
    dtype_policy: str = "float32"
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    require: str | None = None
    policy: Policy | None = None


Cases = Mapping[str, Sequence[Case]]
"""Number of the case to its situations."""


def cases(table: Cases) -> pytest.MarkDecorator:
    """Parametrize a test with every situation of a table, named by the number of its case."""
    return pytest.mark.parametrize(
        "case",
        [pytest.param(case, id=f"{id_} {case.what}") for id_, rows in table.items() for case in rows],
    )


def judged(case: Case, require: str | None = None) -> Check:
    """What hwprobe says to the facts of a case."""
    requirements = parse_requirements([require]) if require else ()
    return assess(case.facts, case.policy or Policy(), requirements=requirements)


def text_of(check: Check) -> str:
    """All that the findings tell a person."""
    return "\n".join(
        part for finding in check.findings for part in (finding.id, finding.title, finding.message, *finding.fix)
    )


def hold(case: Case) -> None:
    """Assert everything that a case says."""
    check = judged(case)
    valid(write(check, "json"))
    found = {finding.id: finding.severity for finding in check.findings}
    for id_, severity in case.finds.items():
        assert found.get(id_) == severity, (id_, found)
    worst = next((id_ for id_, severity in case.finds.items() if severity is not INFO), None)
    if worst is not None:
        assert check.primary is not None
        assert check.primary.id == worst
    assert check.decision is not None
    scaling = "dynamic" if case.dtype_policy == "mixed_float16" else "none"
    assert (check.decision.dtype_policy, check.decision.loss_scaling.mode) == (case.dtype_policy, scaling)
    assert (nagios_status(check), check.exit_status) == (case.ends, EXIT_STATUS[case.ends]), found
    text = text_of(check)
    for words in case.says:
        assert words in text
    for words in case.never:
        assert words not in text
    if case.require is not None:
        _hold_required(case, worst)


def _hold_required(case: Case, worst: str | None) -> None:
    """With the requirement it is a failure, and the cause is the same."""
    check = judged(case, case.require)
    assert check.exit_status == 1
    assert check.primary is not None
    assert check.primary.id == (worst or "HWP950")
    assert check.primary.severity is ERROR
