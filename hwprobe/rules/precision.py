"""HWP4xx: what the hardware means for 16-bit precision."""

from __future__ import annotations

from hwprobe.configuration import DTYPE_POLICIES, DeviceUsability
from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict

LIMITED_BY_WEAKEST = Rule(
    id="HWP403",
    name="limited-by-weakest",
    title="One GPU limits the precision of all",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether some of the visible GPUs could use a dtype policy that others cannot.",
        matters="A script has one global dtype policy. It must be usable on every GPU that computes, so the weakest "
        "one decides for all.",
        fix="Hide the weaker GPU with CUDA_VISIBLE_DEVICES and the UUIDs of the others, or train on it alone in a "
        "process of its own.",
        reference="NVIDIA/nvidia-container-toolkit#1227 (A10 and T4 in one node)",
    ),
)


def no_gpu_limits_the_others(case: Case) -> Verdict:
    """HWP403."""
    if len(case.usability) < 2:
        return NotApplicable(reason="fewer than two GPUs will compute")
    prefer = [name for name in case.policy.precision.prefer if name in DTYPE_POLICIES]
    for name in prefer:
        able = [device for device in case.usability if device.policies[name].usable is True]
        if len(able) == len(case.usability):
            return PASS
        if able:
            return (_limit(name, able, case),)
    return PASS


def _limit(name: str, able: list[DeviceUsability], case: Case) -> Problem:
    unable = [device for device in case.usability if device not in able]
    names = ", ".join(dict.fromkeys(device.label for device in unable))
    mixed = all(device.policies["mixed_float16"].usable is True for device in case.usability)
    return Problem(
        subject=unable[0].subject,
        message=f"{len(able)} of {len(case.usability)} visible GPUs could use {name}; {names} cannot: "
        f"{unable[0].policies[name].reason}",
        evidence={"policy": name, "able": [device.subject for device in able]},
        fix=(f"export CUDA_VISIBLE_DEVICES={','.join(device.subject for device in able)}   # hides {names}",),
        severity=None if mixed else Severity.WARNING,
    )


RULES: tuple[RuleCheck, ...] = (RuleCheck(LIMITED_BY_WEAKEST, no_gpu_limits_the_others),)
