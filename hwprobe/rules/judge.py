"""Run the catalogue over a case: every rule answers, and one root cause gives one primary finding."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hwprobe.findings import Finding, Outcome, Rule, Severity
from hwprobe.policy import CheckWish
from hwprobe.rules.verdict import Case, NotApplicable, Problem, RuleCheck, Skipped


def judge(case: Case, catalogue: Sequence[RuleCheck]) -> tuple[Outcome, ...]:
    """Ask every rule, in the catalogue's order.

    A rule whose `after` names a rule that failed with an error is skipped: its cause is known already.

    Args:
        case: The facts and wishes.
        catalogue: Rules in the order in which causes precede effects.

    Returns:
        One outcome a rule, in the same order.
    """
    failed: set[str] = set()
    outcomes = []
    for entry in catalogue:
        outcome = _ask(case, entry, failed)
        if any(finding.severity is Severity.ERROR for finding in outcome.findings):
            failed.add(entry.rule.id)
        outcomes.append(outcome)
    return tuple(outcomes)


def _ask(case: Case, entry: RuleCheck, failed: set[str]) -> Outcome:
    rule = entry.rule
    cause = next((id_ for id_ in rule.after if id_ in failed), None)
    if cause is not None:
        return Outcome(id=rule.id, status="skip", reason=f"explained by {cause}")
    verdict = entry.check(case)
    if isinstance(verdict, Skipped):
        return Outcome(id=rule.id, status="skip", reason=verdict.reason)
    if isinstance(verdict, NotApplicable):
        return Outcome(id=rule.id, status="not_applicable", reason=verdict.reason)
    if not verdict:
        return Outcome(id=rule.id, status="pass")
    findings = tuple(_finding(rule, problem, case) for problem in verdict)
    return Outcome(id=rule.id, status="fail", findings=findings)


def _finding(rule: Rule, problem: Problem, case: Case) -> Finding:
    severity = case.policy.check.severity_of(rule.id) or problem.severity or rule.severity
    return Finding(
        id=rule.id,
        severity=severity,
        action=problem.action or rule.action,
        subject=problem.subject,
        title=rule.title,
        message=problem.message,
        evidence=dict(problem.evidence),
        fix=problem.fix,
    )


def leave_aside(outcomes: Sequence[Outcome], wish: CheckWish) -> tuple[Outcome, ...]:
    """Switch off the rules that the policy or the command line does not want. Those are `ignored`, never `pass`.

    Args:
        outcomes: Of all rules: switching one off must not uncover what it explains away.
        wish: The selection.
    """
    return tuple(
        outcome
        if wish.selects(outcome.id)
        else Outcome(id=outcome.id, status="ignored", reason="left out by the policy or the command line")
        for outcome in outcomes
    )


def with_primary(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Mark the first of the worst findings as the primary one, unless none is worse than information."""
    worst = max((finding.severity.rank for finding in findings), default=0)
    if worst == Severity.INFO.rank:
        return tuple(findings)
    first = next(index for index, finding in enumerate(findings) if finding.severity.rank == worst)
    return tuple(msgspec.structs.replace(finding, primary=index == first) for index, finding in enumerate(findings))


def as_causes(findings: Sequence[Finding], catalogue: Sequence[RuleCheck]) -> tuple[Finding, ...]:
    """Count as errors what explains why a GPU is not there. For where somebody requires more than there is."""
    hiding = {entry.rule.id for entry in catalogue if entry.rule.hides_gpus}
    return tuple(
        msgspec.structs.replace(finding, severity=Severity.ERROR) if finding.id in hiding else finding
        for finding in findings
    )
