"""The catalogue: every rule in the order in which causes precede effects."""

from __future__ import annotations

from hwprobe.findings import Rule
from hwprobe.rules import (
    build,
    devices,
    driver,
    health,
    libraries,
    memory,
    own,
    package,
    precision,
    start,
    surroundings,
    visibility,
)
from hwprobe.rules.own import REQUIREMENT_NOT_MET
from hwprobe.rules.verdict import RuleCheck

CATALOGUE: tuple[RuleCheck, ...] = (
    *driver.RULES,
    *devices.RULES,
    *health.RULES,
    *visibility.RULES,
    *surroundings.RULES,
    *start.RULES,
    *package.RULES,
    *libraries.RULES,
    *build.RULES,
    *precision.RULES,
    *memory.RULES,
    *own.RULES,
)

RULES: tuple[Rule, ...] = (*(entry.rule for entry in CATALOGUE), REQUIREMENT_NOT_MET)
"""The rules that a check can report."""
