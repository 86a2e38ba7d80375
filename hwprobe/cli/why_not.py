"""`hwprobe why-not`: why a dtype policy is not chosen, and what would have to change."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hwprobe.cli.described import other_machine, other_machine_options
from hwprobe.cli.waiting import waiting
from hwprobe.configuration import DTYPE_POLICIES, DtypePolicy


@click.command("why-not")
@click.argument("dtype_policy", type=click.Choice(DTYPE_POLICIES))
@other_machine_options
@click.option("--policy", metavar="NAME|FILE", help="Policy to decide by; see `hwprobe policy list`.")
@click.option("--fast", is_flag=True, help="Leave out TensorFlow's own answer (and the start of its runtime).")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
def why_not(
    dtype_policy: DtypePolicy,
    from_: Path | None,
    target: str | None,
    tensorflow: str | None,
    policy: str | None,
    fast: bool,
    format_: str,
) -> None:
    """Say why DTYPE_POLICY is not chosen, device by device, and the least change that would allow it.

    Exit status: 0 whatever the answer is, 2 wrong usage or an input that cannot be read.
    """
    from hwprobe.policy_reader import read_policy
    from hwprobe.preflight import check
    from hwprobe.render.why_not import write_why_not
    from hwprobe.serialize import to_json
    from hwprobe.why_not import why_not as answer

    site = read_policy(policy)
    with waiting() as on_wait:
        result = check(policy=site, fast=fast, report=other_machine(from_, target, tensorflow), on_wait=on_wait)
    told = answer(result, site, dtype_policy)
    if format_ == "json":
        click.echo(to_json(told, indent=2))
    else:
        write_why_not(told, sys.stdout)
