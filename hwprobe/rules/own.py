"""HWP9xx: the limits of hwprobe itself."""

from __future__ import annotations

import datetime

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.tensorflow import release, releases
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict

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


TENSORFLOW_NEWER_THAN_TABLES = Rule(
    id="HWP902",
    name="tensorflow-newer-than-tables",
    title="TensorFlow is newer than hwprobe's tables",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether this TensorFlow's release is in hwprobe's table.",
        matters="What the table would say (cuDNN's minimum, known faults) is taken from the newest release that it "
        "has. The GPUs that it has code for are read from its own libraries, so that part holds.",
        fix="`pip install --upgrade tf-hwprobe`",
        reference="hwprobe/knowledge/tensorflow.toml",
    ),
)


def tensorflow_is_in_the_tables(case: Case) -> Verdict:
    """HWP902."""
    tensorflow = case.report.tensorflow
    if tensorflow is None or tensorflow.version is None:
        return NotApplicable(reason="no TensorFlow whose version is known")
    known = release(tensorflow.version)
    if known is None or known.known:
        return PASS
    origin = {"fatbin": "from its libraries", "build_info": "from its build_info.py"}
    return (
        Problem(
            subject="tensorflow",
            message=f"TensorFlow {tensorflow.version} is not in hwprobe's tables; {known.version} stands in for it, "
            f"and its architectures were read {origin.get(tensorflow.compute_capabilities_origin or '', 'nowhere')}",
            evidence={"version": tensorflow.version, "judged_as": known.version},
            fix=("pip install --upgrade tf-hwprobe",),
        ),
    )


TABLES_OLD = Rule(
    id="HWP903",
    name="tables-old",
    title="hwprobe's tables are older than a year",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="The newest date at which a row of hwprobe's tables was checked.",
        matters="New GPUs, drivers and TensorFlow releases come out every few months; an old table does not know them. "
        "A GPU or a TensorFlow that really is newer has findings of its own (HWP901, HWP902).",
        fix="`pip install --upgrade tf-hwprobe`",
        reference="the column `checked` of hwprobe/knowledge/*.toml",
    ),
)

_YEAR_DAYS = 365


def tables_are_recent(case: Case) -> Verdict:
    """HWP903."""
    newest = max(row.checked for row in releases())
    age = (datetime.date.fromisoformat(case.today) - newest).days
    if age <= _YEAR_DAYS:
        return PASS
    return (
        Problem(
            subject="hwprobe",
            message=f"hwprobe's tables were last checked on {newest.isoformat()}, {age} days ago",
            evidence={"checked": newest.isoformat(), "age_days": age},
            fix=("pip install --upgrade tf-hwprobe",),
        ),
    )


UNRELATED_HWPROBE = Rule(
    id="HWP904",
    name="unrelated-hwprobe",
    title="Another package named hwprobe is installed",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether the unrelated distribution `hwprobe` is installed beside tf-hwprobe.",
        matters="It installs a top-level module of the same name; files of the two lie over each other, and "
        "whichever was installed last is imported.",
        fix="`pip uninstall hwprobe`, then `pip install --force-reinstall tf-hwprobe`",
        reference="the distribution hwprobe 0.0.1b2 on the package index",
    ),
)


def no_other_hwprobe_is_installed(case: Case) -> Verdict:
    """HWP904."""
    unrelated = case.report.host.foreign_hwprobe
    if unrelated is None:
        return PASS
    return (
        Problem(
            subject="hwprobe",
            message=f"the unrelated distribution hwprobe {unrelated.version} is installed in this environment too",
            evidence={"version": unrelated.version},
            fix=("pip uninstall hwprobe", "pip install --force-reinstall tf-hwprobe"),
        ),
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

RULES: tuple[RuleCheck, ...] = (
    RuleCheck(DEVICE_NEWER_THAN_TABLES, every_device_is_in_the_tables),
    RuleCheck(TENSORFLOW_NEWER_THAN_TABLES, tensorflow_is_in_the_tables),
    RuleCheck(TABLES_OLD, tables_are_recent),
    RuleCheck(UNRELATED_HWPROBE, no_other_hwprobe_is_installed),
)
