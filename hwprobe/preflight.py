"""The corridor from end to end: probe, judge, decide. `hwprobe.check()` and the command are thin coats over it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from hwprobe.configuration import Decision
from hwprobe.decide import Request, decide
from hwprobe.errors import RequirementError, UnsupportedError
from hwprobe.findings import Action, Finding, Outcome
from hwprobe.knowledge.annotate import annotate
from hwprobe.policy import CheckWish, FailOn, Policy
from hwprobe.policy_reader import read_policy
from hwprobe.report import Report
from hwprobe.requirements import Requirement, parse_requirements, unmet_requirements, usable_gpus
from hwprobe.rules.catalogue import CATALOGUE
from hwprobe.rules.cuda import CUDA_NO_DEVICE
from hwprobe.rules.judge import as_causes, judge, leave_aside, with_primary
from hwprobe.rules.own import REQUIREMENT_NOT_MET
from hwprobe.rules.verdict import Case
from hwprobe.source import Fact, SourceStatus
from hwprobe.usability import usability

SCHEMA: Literal["hwprobe.check/1"] = "hwprobe.check/1"

VerdictName = Literal["ready", "not_ready", "unknown"]

EXIT_STATUS: dict[VerdictName, int] = {"ready": 0, "not_ready": 1, "unknown": 3}
"""Exit status of the command for each verdict; 2 is wrong usage or an input that cannot be read."""


class RuleStatus(Fact, frozen=True, kw_only=True):
    """How one rule ended, without its findings."""

    id: str
    status: Literal["pass", "fail", "skip", "not_applicable", "ignored"]
    reason: str | None = None


class Check(Fact, frozen=True, kw_only=True):
    """The whole answer about one machine.

    Attributes:
        schema: Version of this form.
        hwprobe: Version of hwprobe that made it.
        verdict: `ready`, `not_ready`, or `unknown` where nothing could tell which GPUs there are.
        decision: What to set; None where an input was wrong.
        findings: What is wrong, causes before effects; at most one is primary.
        report: The facts; None where an input was wrong.
        rules: How every rule ended: skipped is not passed.
        fail_on: Lowest severity that fails the check, as the policy or the command line said.
        error: What was wrong with the input, where nothing could be checked at all.
    """

    schema: Literal["hwprobe.check/1"] = SCHEMA
    hwprobe: str
    verdict: VerdictName
    decision: Decision | None = None
    findings: tuple[Finding, ...] = ()
    report: Report | None = None
    rules: tuple[RuleStatus, ...] = ()
    fail_on: FailOn = "error"
    error: str | None = None

    @property
    def exit_status(self) -> int:
        """What `hwprobe check` exits with."""
        return 2 if self.error is not None else EXIT_STATUS[self.verdict]

    @property
    def primary(self) -> Finding | None:
        """The one first cause, where something is wrong."""
        return next((finding for finding in self.findings if finding.primary), None)

    def fails(self, finding: Finding) -> bool:
        """Whether a finding makes this check not ready."""
        unmet = finding.id == REQUIREMENT_NOT_MET.id
        return unmet or CheckWish(fail_on=self.fail_on).fails(finding.severity, finding.action)


def check(
    *,
    policy: str | Path | Policy | None = None,
    require: Sequence[str] = (),
    dtype_policy: str | None = None,
    timeout_seconds: float = 30.0,
    fast: bool = False,
    strict: bool = False,
    wish: Callable[[CheckWish], CheckWish] | None = None,
    report: Report | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Check:
    """Look at this machine, judge what was found, and decide.

    Args:
        policy: Name or path of a policy, or a policy; None searches as the documentation of policies says.
        require: Requirements such as `gpus>=2`.
        dtype_policy: A dtype policy to insist on; where it cannot be met the check is not ready.
        timeout_seconds: Limit for every source that can hang, in seconds.
        fast: Leave TensorFlow's own answer out, and with it the start of its runtime.
        strict: Count warnings as errors.
        wish: Changes the policy's selection of rules (`--select`, `--ignore`, `--fail-on`).
        report: A recorded report to judge in place of this machine.
        on_wait: Told which source takes long, at most once a source.

    Returns:
        The check. Findings are not raised.

    Raises:
        InputError: A policy or requirement cannot be read.
    """
    site = read_policy(policy)
    site = msgspec.structs.replace(site, check=_wish(site.check, strict, wish))
    requirements = parse_requirements(require)
    facts = annotate(report if report is not None else _collect(timeout_seconds, fast, on_wait))
    return assess(facts, site, requirements=requirements, request=_request(dtype_policy))


def assess(
    report: Report, policy: Policy, *, requirements: Sequence[Requirement] = (), request: Request | None = None
) -> Check:
    """Judge and decide on facts that are at hand. Pure.

    Args:
        report: An annotated report.
        policy: The site's policy.
        requirements: What the caller requires.
        request: What the caller asks for.
    """
    from hwprobe.version import VERSION

    case = Case(
        report=report,
        policy=policy,
        usability=usability(report, policy),
        today=today(),
    )
    outcomes = leave_aside(judge(case, CATALOGUE), policy.check)
    found = tuple(finding for outcome in outcomes for finding in outcome.findings)
    decision, refusal = _decide(report, policy, request or Request())
    unmet = (*refusal, *_unmet(requirements, report, decision))
    marked = with_primary((*_with_causes(found, unmet, report), *unmet))
    return Check(
        hwprobe=VERSION,
        verdict=_verdict(marked, policy.check, report),
        decision=decision,
        findings=marked,
        report=report,
        rules=tuple(_status(outcome) for outcome in outcomes),
        fail_on=policy.check.fail_on,
    )


def today() -> str:
    """The date, as this machine's clock has it, in ISO form."""
    return datetime.date.today().isoformat()


def with_more(check: Check, findings: Sequence[Finding], rules: Sequence[RuleStatus]) -> Check:
    """Add what was found by other means than the catalogue, and reach the verdict again.

    Args:
        check: A check with a report.
        findings: Further findings, which stand after the check's own.
        rules: How their rules ended.
    """
    assert check.report is not None
    everything = [msgspec.structs.replace(finding, primary=False) for finding in (*check.findings, *findings)]
    marked = with_primary(everything)
    return msgspec.structs.replace(
        check,
        findings=marked,
        rules=(*check.rules, *rules),
        verdict=_verdict(marked, CheckWish(fail_on=check.fail_on), check.report),
    )


def require(*requirements: str, policy: str | Path | Policy | None = None, timeout_seconds: float = 30.0) -> Check:
    """Raise unless this machine meets every requirement.

    Args:
        requirements: For instance `"gpus>=1"`, `"memory>=40GiB"`.
        policy: As for `check`.
        timeout_seconds: As for `check`.

    Returns:
        The check, where all requirements hold.

    Raises:
        RequirementError: One does not hold; the text is the one that `hwprobe check` shows, with the primary cause.
        InputError: A requirement or policy cannot be read.
    """
    result = check(policy=policy, require=requirements, timeout_seconds=timeout_seconds)
    raise_unmet(result)
    return result


def raise_unmet(result: Check) -> None:
    """Raise where a check holds a requirement that is not met.

    Raises:
        RequirementError: With the requirement, the primary cause and what helps.
    """
    unmet = [finding for finding in result.findings if finding.id == REQUIREMENT_NOT_MET.id]
    if not unmet:
        return
    lines = [finding.message for finding in unmet]
    cause = result.primary
    if cause is not None and cause.id != REQUIREMENT_NOT_MET.id:
        lines += [f"cause: {cause.message} [{cause.id}]", *(f"  {step}" for step in cause.fix)]
    raise RequirementError("\n".join(lines))


def _collect(timeout_seconds: float, fast: bool, on_wait: Callable[[str], None] | None) -> Report:
    from hwprobe.probe.collect import collect

    return collect(timeout_seconds=timeout_seconds, runtime=not fast, on_wait=on_wait)


def _wish(wish: CheckWish, strict: bool, change: Callable[[CheckWish], CheckWish] | None) -> CheckWish:
    if strict and wish.fail_on == "error":
        wish = msgspec.structs.replace(wish, fail_on="warning")
    return change(wish) if change is not None else wish


def _request(dtype_policy: str | None) -> Request:
    return Request() if dtype_policy is None else msgspec.convert({"dtype_policy": dtype_policy}, Request)


def _decide(report: Report, policy: Policy, request: Request) -> tuple[Decision, list[Finding]]:
    try:
        return decide(report, policy, request), []
    except UnsupportedError as error:
        fallback = msgspec.structs.replace(request, allow_fallback=True)
        return decide(report, policy, fallback), [
            _requirement_finding(str(error), "dtype_policy", request.dtype_policy)
        ]


def _unmet(requirements: Sequence[Requirement], report: Report, decision: Decision) -> list[Finding]:
    return [
        _requirement_finding(unmet.message, unmet.requirement.subject, unmet.requirement.text, unmet.found)
        for unmet in unmet_requirements(requirements, report, decision)
    ]


def _with_causes(found: tuple[Finding, ...], unmet: Sequence[Finding], report: Report) -> tuple[Finding, ...]:
    """Count as errors what keeps GPUs away, where GPUs are what is missing."""
    lacking = any(finding.subject == "gpus" for finding in unmet) or (bool(unmet) and not usable_gpus(report))
    return as_causes(found, CATALOGUE) if lacking else found


def _requirement_finding(message: str, subject: str, wanted: str | None, found: str | None = None) -> Finding:
    rule = REQUIREMENT_NOT_MET
    return Finding(
        id=rule.id,
        severity=rule.severity,
        action=Action.ADMIN if subject == "driver" else rule.action,
        subject=subject,
        title=rule.title,
        message=message,
        evidence={"required": wanted, "found": found},
        fix=("hwprobe explain   # each device, what it can use and why not, and what would change that",),
    )


def _verdict(findings: Sequence[Finding], wish: CheckWish, report: Report) -> VerdictName:
    if any(finding.id == REQUIREMENT_NOT_MET.id for finding in findings):
        return "not_ready"
    if any(wish.fails(finding.severity, finding.action) for finding in findings):
        return "not_ready"
    return "ready" if _could_tell(report) else "unknown"


def _could_tell(report: Report) -> bool:
    """Whether something said which GPUs this process has: TensorFlow, CUDA, the absence of a driver, a description."""
    sources = report.sources
    counted = sources.cuda.status in (SourceStatus.OK, SourceStatus.ABSENT) or sources.cuda.code == CUDA_NO_DEVICE
    if sources.tensorflow_runtime.status is SourceStatus.OK or counted:
        return True
    described = sources.cuda.status is SourceStatus.SKIPPED
    return described and bool(report.devices) and all(gpu.visible is not None for gpu in report.devices)


def _status(outcome: Outcome) -> RuleStatus:
    return RuleStatus(id=outcome.id, status=outcome.status, reason=outcome.reason)
