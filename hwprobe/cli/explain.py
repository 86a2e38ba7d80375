"""`hwprobe rules` and `hwprobe explain`."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click

from hwprobe.cli.described import other_machine, other_machine_options
from hwprobe.cli.every_rule import every_rule
from hwprobe.cli.waiting import waiting
from hwprobe.errors import InputError
from hwprobe.findings import Rule


@click.command()
@click.argument("id_", metavar="[ID]", required=False)
@other_machine_options
@click.option("--policy", metavar="NAME|FILE", help="Policy to decide by, where no ID is given.")
@click.option("--fast", is_flag=True, help="Leave out TensorFlow's own answer, where no ID is given.")
def explain(
    id_: str | None, from_: Path | None, target: str | None, tensorflow: str | None, policy: str | None, fast: bool
) -> None:
    """Explain a rule by its ID or name; without one, the decision on this machine, or on one that is named.

    The decision: each device, which dtype policies are usable on it and why not, and what would change that.
    """
    if id_ is not None:
        from hwprobe.render.rule_pages import rule_page

        click.echo(rule_page(_rule(id_)), nl=False)
        return
    from hwprobe.policy_reader import read_policy
    from hwprobe.preflight import check
    from hwprobe.render.explanation import write_explanation

    site = read_policy(policy)
    with waiting() as on_wait:
        result = check(policy=policy, fast=fast, report=other_machine(from_, target, tensorflow), on_wait=on_wait)
    write_explanation(result, site, sys.stdout)


@click.command()
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="markdown is the page docs/rules.md.",
)
def rules(format_: str) -> None:
    """List every rule: id, severity, who has to act, what is wrong."""
    listed = every_rule()
    if format_ == "json":
        from hwprobe.serialize import to_json

        click.echo(to_json(listed, indent=2))
    elif format_ == "markdown":
        from hwprobe.render.rule_pages import rules_document

        click.echo(rules_document(listed), nl=False)
    else:
        for rule in listed:
            click.echo(f"{rule.id}  {rule.severity.value:7}  {rule.action.value:5}  {rule.title}")


def _rule(text: str) -> Rule:
    listed = every_rule()
    for rule in listed:
        if text.upper() == rule.id or text.lower() == rule.name:
            return rule
    near = [rule.id for rule in listed if len(text) >= len("HWP2") and rule.id.startswith(text.upper()[:4])]
    near = near or difflib.get_close_matches(text.lower(), [rule.name for rule in listed])
    raise InputError(
        f"there is no rule {text.upper()}: " + (f"near it are {', '.join(near)}" if near else "see hwprobe rules")
    )
