"""`hwprobe rules` and `hwprobe explain`."""

from __future__ import annotations

import sys

import click

from hwprobe.cli.waiting import waiting
from hwprobe.errors import InputError
from hwprobe.findings import Rule
from hwprobe.rules.catalogue import RULES


@click.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--policy", metavar="NAME|FILE", help="Policy to decide by, where no ID is given.")
@click.option("--fast", is_flag=True, help="Leave out TensorFlow's own answer, where no ID is given.")
def explain(id_: str | None, policy: str | None, fast: bool) -> None:
    """Explain a rule, or the decision on this machine where no ID is given."""
    if id_ is not None:
        click.echo(rule_page(_rule(id_.upper())), nl=False)
        return
    from hwprobe.preflight import check
    from hwprobe.render.explanation import write_explanation

    with waiting() as on_wait:
        result = check(policy=policy, fast=fast, on_wait=on_wait)
    write_explanation(result, sys.stdout)


@click.command()
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(format_: str) -> None:
    """List every rule that a check can report."""
    if format_ == "json":
        from hwprobe.serialize import to_json

        click.echo(to_json(RULES, indent=2))
        return
    for rule in RULES:
        click.echo(f"{rule.id}  {rule.severity.value:7}  {rule.action.value:5}  {rule.title}")


def rule_page(rule: Rule) -> str:
    """The page of a rule as text.

    Args:
        rule: The rule.
    """
    page = rule.explanation
    lines = [
        f"{rule.id} {rule.name}: {rule.title}",
        f"severity {rule.severity.value}; to act: {rule.action.value}",
        "",
        f"What it checks: {page.checks}",
        f"Why it matters: {page.matters}",
        f"How to fix it: {page.fix}",
        f"Reference: {page.reference}",
    ]
    if rule.after:
        lines.append(f"Skipped when one of these is the cause: {', '.join(rule.after)}")
    return "\n".join(lines) + "\n"


def _rule(id_: str) -> Rule:
    for rule in RULES:
        if id_ in (rule.id, rule.name.upper()):
            return rule
    near = [rule.id for rule in RULES if rule.id.startswith(id_[:4])]
    raise InputError(f"there is no rule {id_}: " + (f"near it are {', '.join(near)}" if near else "see hwprobe rules"))
