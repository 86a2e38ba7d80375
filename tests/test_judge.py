"""Running the catalogue: one root cause gives one primary finding, and skipped is not passed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.policy import CheckWish, Policy
from hwprobe.preflight import assess
from hwprobe.rules.judge import judge, leave_aside, with_primary
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from tests.reports import A100, T4, case, cpu_only, lost, report, source


def rule(id_: str, severity: Severity = Severity.ERROR, after: tuple[str, ...] = ()) -> Rule:
    page = Explanation(checks="a", matters="b", fix="c", reference="d")
    return Rule(
        id=id_, name="a-rule", title="A title", severity=severity, action=Action.USER, explanation=page, after=after
    )


def answers(verdict: Verdict) -> Callable[[Case], Verdict]:
    def check(_case: Case) -> Verdict:
        return verdict

    return check


FAILS: Verdict = (Problem(subject="driver", message="it is broken"),)


def outcomes(*entries: tuple[Rule, Verdict], policy: Policy | None = None) -> list[tuple[str, str]]:
    catalogue = [RuleCheck(one, answers(verdict)) for one, verdict in entries]
    return [(outcome.id, outcome.status) for outcome in judge(case(cpu_only(), policy), catalogue)]


def test_every_answer_is_its_own_outcome() -> None:
    assert outcomes(
        (rule("HWP101"), FAILS),
        (rule("HWP102"), PASS),
        (rule("HWP103"), Skipped(reason="not read")),
        (rule("HWP104"), NotApplicable(reason="not here")),
    ) == [("HWP101", "fail"), ("HWP102", "pass"), ("HWP103", "skip"), ("HWP104", "not_applicable")]


def test_an_effect_is_skipped_when_its_cause_is_known() -> None:
    effect = rule("HWP102", after=("HWP101",))
    assert outcomes((rule("HWP101"), FAILS), (effect, FAILS))[1] == ("HWP102", "skip")
    assert outcomes((rule("HWP101"), PASS), (effect, FAILS))[1] == ("HWP102", "fail")


def test_a_warning_explains_nothing_away() -> None:
    cause = rule("HWP101", Severity.WARNING)
    assert outcomes((cause, FAILS), (rule("HWP102", after=("HWP101",)), FAILS))[1] == ("HWP102", "fail")


def test_a_rule_that_is_switched_off_is_ignored_and_still_explains_its_effects() -> None:
    catalogue = [
        RuleCheck(rule("HWP101"), answers(FAILS)),
        RuleCheck(rule("HWP102", after=("HWP101",)), answers(FAILS)),
    ]
    result = leave_aside(judge(case(cpu_only()), catalogue), CheckWish(ignore=("HWP101",)))
    assert [(one.id, one.status) for one in result] == [("HWP101", "ignored"), ("HWP102", "skip")]


def test_a_site_may_change_a_severity() -> None:
    site = Policy(check=CheckWish(severity={"HWP1": Severity.INFO}))
    (outcome,) = judge(case(cpu_only(), site), [RuleCheck(rule("HWP101"), answers(FAILS))])
    assert outcome.findings[0].severity is Severity.INFO


def test_the_first_of_the_worst_is_primary_and_information_never_is() -> None:
    facts = assess(report(gpus=[lost(A100), T4], sources={"cuda": source("failed", "x", code=802)}), Policy())
    assert [finding.id for finding in facts.findings if finding.primary] == [facts.findings[0].id]
    mild = with_primary([one for one in facts.findings if one.severity is Severity.INFO])
    assert not any(finding.primary for finding in mild)


@pytest.mark.parametrize(
    ("fail_on", "verdict"), [("error", "not_ready"), ("drain", "not_ready"), ("never", "ready"), ("info", "not_ready")]
)
def test_what_fails_the_check_is_the_sites_choice(fail_on: str, verdict: str) -> None:
    facts = report(gpus=[A100, lost(A100)])
    site = Policy(check=CheckWish(fail_on=fail_on))  # type: ignore[arg-type]
    assert assess(facts, site).verdict == verdict


def test_a_users_mistake_never_drains() -> None:
    site = Policy(check=CheckWish(fail_on="drain"))
    assert assess(report(gpus=[A100], tensorflow=None), site).verdict == "ready"


@pytest.mark.parametrize(
    ("sources", "verdict"),
    [
        ({"cuda": source("timeout"), "tensorflow_runtime": source("skipped")}, "unknown"),
        ({"cuda": source("timeout")}, "ready"),
        ({"tensorflow_runtime": source("skipped")}, "ready"),
    ],
)
def test_nobody_could_tell_is_unknown(sources: dict[str, object], verdict: str) -> None:
    site = Policy(check=CheckWish(fail_on="never"))
    assert assess(report(gpus=[A100], sources=sources), site).verdict == verdict  # type: ignore[arg-type]
