"""What a rule sees and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from hwprobe.configuration import DeviceUsability
from hwprobe.findings import Action, EvidenceValue, Rule, Severity
from hwprobe.policy import Policy
from hwprobe.report import Report
from hwprobe.source import Fact


class Case(Fact, frozen=True, kw_only=True):
    """Everything that a rule may look at. The machine is not among it.

    Attributes:
        report: The annotated facts.
        policy: The site's policy.
        usability: Which dtype policies each device that will compute can use.
        today: Date in ISO form, for rules about the age of tables.
    """

    report: Report
    policy: Policy
    usability: tuple[DeviceUsability, ...]
    today: str


class Problem(Fact, frozen=True, kw_only=True):
    """One thing that a rule found wrong.

    Attributes:
        subject: A device's UUID or a named part.
        message: What, on which device, by what evidence.
        evidence: Names and values behind the message.
        fix: What to do, one step a line.
        severity, action: In place of the rule's own.
    """

    subject: str
    message: str
    evidence: Mapping[str, EvidenceValue] = {}
    fix: tuple[str, ...] = ()
    severity: Severity | None = None
    action: Action | None = None


class Skipped(Fact, frozen=True, kw_only=True):
    """A fact that the rule needs could not be read."""

    reason: str


class NotApplicable(Fact, frozen=True, kw_only=True):
    """What the rule checks does not exist here."""

    reason: str


Verdict = tuple[Problem, ...] | Skipped | NotApplicable
"""Problems, or why there is no answer. An empty tuple is a pass."""

PASS: tuple[Problem, ...] = ()


class RuleCheck(msgspec.Struct, frozen=True):
    """A rule and the pure function that checks it."""

    rule: Rule
    check: Callable[[Case], Verdict]
