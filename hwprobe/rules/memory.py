"""HWP5xx: how TensorFlow will take GPU memory."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict
from hwprobe.usability import devices_that_compute

GROWTH_OVERRIDDEN = Rule(
    id="HWP501",
    name="growth-overridden",
    title="The environment overrides memory growth",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether TF_FORCE_GPU_ALLOW_GROWTH contradicts the memory growth that the policy asks for.",
        matters="The variable wins over tf.config in both directions, while tf.config goes on to report what was set "
        "through it. TensorFlow then takes nearly all memory at the first tensor, or does not when it should.",
        fix="`unset TF_FORCE_GPU_ALLOW_GROWTH`, or set it to what the policy says.",
        reference="tensorflow/core/common_runtime/gpu/gpu_device.cc; first allocation measured with TensorFlow 2.21",
    ),
)


def environment_agrees_with_growth(case: Case) -> Verdict:
    """HWP501."""
    value = case.report.host.environment.get("TF_FORCE_GPU_ALLOW_GROWTH")
    if value is None:
        return PASS
    if not devices_that_compute(case.report):
        return NotApplicable(reason="no GPU will compute here")
    wanted = case.policy.memory.growth
    # TensorFlow accepts these two spellings only; anything else is HWP502's subject.
    if {"true": True, "false": False}.get(value, wanted) is wanted:
        return PASS
    return (
        Problem(
            subject="memory",
            message=f"TF_FORCE_GPU_ALLOW_GROWTH={value} overrides memory growth {'on' if wanted else 'off'}, "
            f"which policy {case.policy.label} asks for",
            evidence={"TF_FORCE_GPU_ALLOW_GROWTH": value, "growth": wanted},
            fix=("unset TF_FORCE_GPU_ALLOW_GROWTH",),
        ),
    )


RULES: tuple[RuleCheck, ...] = (RuleCheck(GROWTH_OVERRIDDEN, environment_agrees_with_growth),)
