"""HWP9xx: the limits of hwprobe itself."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.verdict import Case, NotApplicable, Problem, RuleCheck, Verdict

DEVICE_NEWER_THAN_TABLES = Rule(
    id="HWP901",
    name="device-newer-than-tables",
    title="A GPU is newer than hwprobe's tables",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether every GPU's compute capability is in hwprobe's table of architectures.",
        matters="A GPU that the table does not know is judged as the nearest older architecture, which may be too "
        "careful.",
        fix="`pip install --upgrade tf-hwprobe`; if that does not help, report the GPU with `hwprobe capture`.",
        reference="hwprobe/knowledge/architectures.toml",
    ),
)


def every_device_is_in_the_tables(case: Case) -> Verdict:
    """HWP901."""
    gpus = [gpu for gpu in case.report.devices if gpu.kind == "nvidia" and gpu.compute_capability is not None]
    if not gpus:
        return NotApplicable(reason="no NVIDIA GPU with a known compute capability")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label} is not in hwprobe's tables; it is judged as {gpu.architecture or 'unknown'}",
            evidence={"compute_capability": str(gpu.compute_capability), "judged_as": gpu.architecture},
            fix=("pip install --upgrade tf-hwprobe",),
        )
        for gpu in gpus
        if not gpu.architecture_known
    )


REQUIREMENT_NOT_MET = Rule(
    id="HWP950",
    name="requirement-not-met",
    title="A requirement is not met",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="What the caller requires (`--require`, `require=`, a dtype policy asked for by name).",
        matters="The job was said to need it; starting anyway wastes its time.",
        fix="Ask the scheduler for what the job needs, or ask for less. Another finding may name the cause.",
        reference="hwprobe check --help",
    ),
)
"""Asked after the decision, since a requirement may be about it."""

RULES: tuple[RuleCheck, ...] = (RuleCheck(DEVICE_NEWER_THAN_TABLES, every_device_is_in_the_tables),)
