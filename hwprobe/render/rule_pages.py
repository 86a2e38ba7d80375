"""Rules as pages: one for a terminal, all of them as a Markdown document."""

from __future__ import annotations

from collections.abc import Sequence

from hwprobe.findings import Action, Rule, Severity

FAMILIES = {
    "HWP1": "Driver and devices",
    "HWP2": "TensorFlow build and libraries",
    "HWP3": "Visibility, containers, schedulers",
    "HWP4": "Precision",
    "HWP5": "Memory",
    "HWP6": "Loss scaling and models",
    "HWP7": "Several nodes",
    "HWP9": "hwprobe itself",
}
"""Beginning of the ids of a family, and what it is about."""

_WHO = {
    Action.NONE: "nobody has to act",
    Action.USER: "for whoever runs the script",
    Action.ADMIN: "for whoever runs the machine",
    Action.DRAIN: "the node is unfit for any job until somebody looks at it",
    Action.RETRY: "it may pass by itself",
}

_HEAD = """\
# Rules

<!-- Written by `python -m hwprobe rules --format markdown`. A test compares; change the rules in the code. -->

Every finding of hwprobe has the id of a rule. An id keeps its meaning for ever and is never used again.
`hwprobe explain HWP208` prints the entry of a rule, `hwprobe rules` lists all of them.

Severity and action are those that a rule starts from. A finding may have others, where the entry says so: a fault of a
GPU that this process does not use is information. A policy file can change a severity, and `--select`, `--ignore` and
`--fail-on` choose what counts; they take ids or the beginnings of ids.

One root cause gives one primary finding. A rule whose cause is known already is skipped, with the reason, and skipped
is not passed.
"""


def rule_page(rule: Rule) -> str:
    """Write the page of a rule for a terminal.

    Args:
        rule: The rule.
    """
    page = rule.explanation
    lines = [
        f"{rule.id} {rule.name}: {rule.title}",
        f"severity {rule.severity.value}; to act: {rule.action.value} ({_WHO[rule.action]})",
        "",
        f"What it checks: {page.checks}",
        f"Why it matters: {page.matters}",
        f"How to fix it: {page.fix}",
        f"Reference: {page.reference}",
        *_notes(rule),
    ]
    return "\n".join(lines) + "\n"


def _notes(rule: Rule) -> list[str]:
    notes = []
    if rule.after:
        notes.append(f"Skipped where one of these is an error and the cause: {', '.join(rule.after)}")
    if rule.hides_gpus and rule.severity is not Severity.ERROR:
        notes.append("An error where more GPUs are required than there are (--require gpus>=N).")
    return notes


def rules_document(rules: Sequence[Rule]) -> str:
    """Write all rules as one Markdown document, by family and id.

    Args:
        rules: The rules, in any order.
    """
    ordered = sorted(rules, key=lambda rule: rule.id)
    parts = [_HEAD]
    for beginning, title in FAMILIES.items():
        family = [rule for rule in ordered if rule.id.startswith(beginning)]
        if family:
            parts.append(f"## {title}\n\n{_table(family)}")
            parts += [_entry(rule) for rule in family]
    return "\n".join(parts)


def _table(rules: Sequence[Rule]) -> str:
    lines = ["| id | severity | to act | what is wrong |", "|---|---|---|---|"]
    lines += [
        f"| [{rule.id}](#{anchor(rule)}) | {rule.severity.value} | {rule.action.value} | {rule.title} |"
        for rule in rules
    ]
    return "\n".join(lines) + "\n"


def _entry(rule: Rule) -> str:
    page = rule.explanation
    paragraphs = [
        f"### {_heading(rule)}",
        f"{rule.title}. Severity {rule.severity.value}; {_WHO[rule.action]}.",
        f"**Checks.** {page.checks}",
        f"**Matters.** {page.matters}",
        f"**Fix.** {page.fix}",
        *_notes(rule),
        f"Reference: {page.reference}",
    ]
    return "\n\n".join(paragraphs) + "\n"


def _heading(rule: Rule) -> str:
    return f"{rule.id} {rule.name}"


def anchor(rule: Rule) -> str:
    """The anchor that a heading gets: lower case, hyphens for spaces.

    Args:
        rule: The rule.
    """
    return _heading(rule).lower().replace(" ", "-")
