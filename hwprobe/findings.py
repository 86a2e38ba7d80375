"""What a rule is, what it answers, and what it found."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Literal

from hwprobe.source import Fact


class Severity(str, enum.Enum):
    """How bad a finding is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Position from harmless (0) to bad (2)."""
        return ("info", "warning", "error").index(self.value)


class Action(str, enum.Enum):
    """Who has to act on a finding."""

    NONE = "none"
    USER = "user"
    """Whoever runs the script: another package, variable or request."""
    ADMIN = "admin"
    """Whoever runs the machine: driver, container runtime, permissions."""
    DRAIN = "drain"
    """The node is unfit for any job until somebody looks at it."""
    RETRY = "retry"
    """It may pass by itself."""


class Explanation(Fact, frozen=True, kw_only=True):
    """The page behind a rule, as `hwprobe explain ID` prints it."""

    checks: str
    matters: str
    fix: str
    reference: str


class Rule(Fact, frozen=True, kw_only=True):
    """One entry of the catalogue.

    Attributes:
        id: `HWP` and three digits, never reused.
        name: A few words with hyphens, for people who search.
        title: One short line: what is wrong when it fires.
        severity: Of its findings, unless the rule has a reason to lower it or the policy says otherwise.
        action: Who has to act.
        explanation: The page behind it.
        after: Ids of rules whose failure explains this one away: then it is skipped with that reason.
        hides_gpus: Whether it explains why a GPU is not there; where a requirement is not met, it then counts as an
            error.
    """

    id: str
    name: str
    title: str
    severity: Severity
    action: Action
    explanation: Explanation
    after: tuple[str, ...] = ()
    hides_gpus: bool = False


EvidenceValue = str | int | float | bool | None | list[str]


class Finding(Fact, frozen=True, kw_only=True):
    """Something that a rule found.

    Attributes:
        id: Of the rule.
        severity: How bad.
        action: Who has to act.
        primary: Whether it is the one first cause of the verdict.
        subject: A device's UUID, or a named part such as `driver`, `tensorflow`, `memory`.
        title: One short line.
        message: What, on which device, by what evidence.
        evidence: Names and values, so that the message could be written again.
        fix: What to do, one step a line; commands are written so that they can be typed.
    """

    id: str
    severity: Severity
    action: Action
    primary: bool = False
    subject: str
    title: str
    message: str
    evidence: dict[str, EvidenceValue] = {}
    fix: tuple[str, ...] = ()


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Order findings for a reader: the first cause, then by severity, causes before effects.

    Args:
        findings: In the catalogue's order.
    """
    return sorted(findings, key=lambda finding: (not finding.primary, -finding.severity.rank))


class Outcome(Fact, frozen=True, kw_only=True):
    """What one rule answered.

    Attributes:
        id: Of the rule.
        status: `pass`; `fail` with findings; `skip` where a fact is missing or an earlier failure explains it;
            `not_applicable` where the thing that it checks does not exist here; `ignored` where policy or command
            line switched it off.
        reason: Why it is neither pass nor fail.
        findings: What it found, when it fails.
    """

    id: str
    status: Literal["pass", "fail", "skip", "not_applicable", "ignored"]
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
