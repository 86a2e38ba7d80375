"""`hwprobe policy list | show | validate`."""

from __future__ import annotations

from pathlib import Path

import click

from hwprobe.policy import Policy
from hwprobe.policy_format import policy_to_toml
from hwprobe.policy_reader import SITE_FILE, VARIABLE, read_policy, shipped_policies

_ORIGINS = {
    "argument": "named on the command line",
    "environment": f"named by {VARIABLE}",
    "file": "the machine's own",
    "default": f"nobody named another one (by --policy, {VARIABLE} or {SITE_FILE})",
}


@click.group()
def policy() -> None:
    """Look at the policies that hwprobe ships, and check your own."""


@policy.command("list")
def list_() -> None:
    """List the policies that hwprobe ships."""
    width = max(map(len, shipped_policies()))
    for name in shipped_policies():
        click.echo(f"{name:{width}}  {read_policy(name).description}")


@policy.command()
@click.argument("name", metavar="[NAME|FILE]", required=False)
def show(name: str | None) -> None:
    """Print a policy as a file, with what it extends merged in; without a name the one that counts here."""
    shown = read_policy(name)
    click.echo(f"# {shown.label}: {_ORIGINS[shown.origin]}")
    click.echo(policy_to_toml(shown), nl=False)


@policy.command()
@click.argument("file", type=click.Path(path_type=Path))
def validate(file: Path) -> None:
    """Check a policy file and report every mistake in it."""
    read = read_policy(file)
    for id_ in _ids_without_a_rule(read):
        click.echo(f"warning: {read.label}: no rule of this hwprobe has an id that begins with {id_}", err=True)
    click.echo(f"{read.label}: valid ({read.schema})")


def _ids_without_a_rule(read: Policy) -> list[str]:
    from hwprobe.cli.every_rule import every_rule

    named = dict.fromkeys([*read.check.select, *read.check.ignore, *read.check.severity])
    return [id_ for id_ in named if not any(rule.id.startswith(id_) for rule in every_rule())]
