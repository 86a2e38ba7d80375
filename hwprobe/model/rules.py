"""The catalogue of rules about models: HWP630 to HWP699."""

from __future__ import annotations

from hwprobe.findings import Rule
from hwprobe.model.advice_rules import ADVICE_CHECKS
from hwprobe.model.boundary_rules import BOUNDARY_CHECKS
from hwprobe.model.forward_rules import FORWARD_CHECKS
from hwprobe.model.gradient_rules import GRADIENT_CHECKS
from hwprobe.model.judging import ModelCheck
from hwprobe.model.layer_rules import LAYER_CHECKS
from hwprobe.model.training_rules import TRAINING_CHECKS

CHECKS: tuple[ModelCheck, ...] = tuple(
    sorted(
        (*LAYER_CHECKS, *TRAINING_CHECKS, *ADVICE_CHECKS, *FORWARD_CHECKS, *BOUNDARY_CHECKS, *GRADIENT_CHECKS),
        key=lambda entry: entry.rule.id,
    )
)

RULES: tuple[Rule, ...] = tuple(entry.rule for entry in CHECKS)
