"""How the rules about models are asked, and how their answers become outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hwprobe.findings import EvidenceValue, Finding, Outcome, Rule, Severity
from hwprobe.model.facts import ModelFacts, ProbeFacts
from hwprobe.rules.judge import with_primary
from hwprobe.rules.verdict import NotApplicable, Problem, Skipped

Answer = Sequence[Problem] | Skipped | NotApplicable
"""Problems, or why there is no answer. None at all is a pass."""


class ModelCheck(NamedTuple):
    """A rule about a model and the pure function that checks it.

    Attributes:
        rule: The rule.
        check: Asked with the static facts and those of the probe.
        needs_probe: Whether it looks at the passes: without any it is not asked, and finding nothing in a pass that
            stopped half-way is no answer.
    """

    rule: Rule
    check: Callable[[ModelFacts, ProbeFacts], Answer]
    needs_probe: bool = False


def problem(
    subject: str,
    message: str,
    *fix: str,
    evidence: dict[str, EvidenceValue],
    severity: Severity | None = None,
) -> Problem:
    """Write down one thing that a rule found.

    Args:
        subject: The layer's name, or a part of the model such as `optimizer`.
        message: What, where, by what evidence.
        fix: The least change that mends it, one step each.
        evidence: Names and values.
        severity: Where it differs from the rule's.
    """
    return Problem(subject=subject, message=message, evidence=evidence, fix=fix, severity=severity)


def judge(checks: Sequence[ModelCheck], model: ModelFacts, probe: ProbeFacts) -> tuple[Outcome, ...]:
    """Ask every rule; one that a failed rule explains (`Rule.after`) is skipped with that reason.

    Args:
        checks: Rules with their functions, in any order.
        model: Static facts.
        probe: What the probe saw.

    Returns:
        One outcome for each rule, in the order of ids.
    """
    ordered = sorted(checks, key=lambda entry: entry.rule.id)
    answers = {entry.rule.id: _ask(entry, model, probe) for entry in ordered}
    failed = {id_ for id_, outcome in answers.items() if outcome.status == "fail"}
    for entry in ordered:
        cause = next((id_ for id_ in entry.rule.after if id_ in failed), None)
        if cause is not None and answers[entry.rule.id].status in ("fail", "skip"):
            answers[entry.rule.id] = Outcome(id=entry.rule.id, status="skip", reason=f"explained by {cause}")
    return tuple(answers.values())


def findings_of(outcomes: Sequence[Outcome]) -> tuple[Finding, ...]:
    """Collect the findings of outcomes, worst first, in the order of ids among equals, the first marked primary."""
    found = [each for outcome in outcomes for each in outcome.findings]
    return with_primary(sorted(found, key=lambda each: (-each.severity.rank, each.id)))


def _ask(entry: ModelCheck, model: ModelFacts, probe: ProbeFacts) -> Outcome:
    id_ = entry.rule.id
    if entry.needs_probe and not probe.passes:
        return Outcome(id=id_, status="skip", reason=probe.why_not_probed)
    answer = entry.check(model, probe)
    if isinstance(answer, Skipped):
        return Outcome(id=id_, status="skip", reason=answer.reason)
    if isinstance(answer, NotApplicable):
        return Outcome(id=id_, status="not_applicable", reason=answer.reason)
    findings = tuple(_finding(entry.rule, each) for each in answer)
    if not findings and entry.needs_probe and (stopped := _stopped(probe)) is not None:
        return Outcome(id=id_, status="skip", reason=stopped)
    return Outcome(id=id_, status="fail" if findings else "pass", findings=findings)


def _stopped(probe: ProbeFacts) -> str | None:
    first = probe.passes[0]
    return None if first.error is None else f"the mixed pass stopped in {first.error_layer or 'the loss'}"


def _finding(rule: Rule, found: Problem) -> Finding:
    return Finding(
        id=rule.id,
        severity=found.severity or rule.severity,
        action=found.action or rule.action,
        subject=found.subject,
        title=rule.title,
        message=found.message,
        evidence=dict(found.evidence),
        fix=found.fix,
    )
