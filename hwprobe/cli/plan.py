"""`hwprobe plan`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import click

from hwprobe.configuration import DTYPE_POLICIES, DtypePolicy
from hwprobe.errors import InputError
from hwprobe.files import write_aside

EXIT_AGREED, EXIT_NOT_AGREED, EXIT_UNREADABLE = 0, 1, 2


@click.command()
@click.argument("records", nargs=-1, required=True)
@click.option(
    "--expect", metavar="NODES|N", help="Nodes of the job, as Slurm or ClusterShell write them (n[01-16]), or how many."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the plan to this file, whole or not at all. Without it the plan goes to standard output.",
)
@click.option("--prefer", metavar="POLICY,...", help="Dtype policies, best first, in place of what the nodes prefer.")
@click.option("--policy", metavar="NAME|FILE", help="Policy to take preference, loss scaling, TF32 and memory from.")
@click.pass_context
def plan(
    ctx: click.Context,
    records: tuple[str, ...],
    expect: str | None,
    output: Path | None,
    prefer: str | None,
    policy: str | None,
) -> None:
    """Make one plan of the records that `hwprobe check --record DIR` wrote on every node.

    RECORDS are folders, record files, or NDJSON files with one record on each line; `-` is standard input. A plan is
    written in every case; where the job must not start, it says why.

    Exit status: 0 agreed, 1 not agreed, 2 wrong usage or a record that cannot be read.
    """
    from hwprobe.cluster.job import current_job
    from hwprobe.cluster.merge import merge
    from hwprobe.cluster.plan import plan_to_json
    from hwprobe.cluster.record import Wishes, wishes_of
    from hwprobe.cluster.record_files import read_records
    from hwprobe.cluster.summary import plan_summary

    wishes: Wishes | None = None
    if policy is not None:
        from hwprobe.decide import Request
        from hwprobe.policy_reader import read_policy

        wishes = wishes_of(read_policy(policy), Request())
    made = merge(
        read_records(records),
        expect=expect,
        prefer=None if prefer is None else _preference(prefer),
        wishes=wishes,
        job=current_job(os.environ),
    )
    text, summary = plan_to_json(made), plan_summary(made)
    if output is not None:
        write_aside(output, text)
        click.echo(summary)
    else:
        click.echo(text, nl=False)
        click.echo(summary, err=True)
    ctx.exit(EXIT_UNREADABLE if made.unreadable else EXIT_AGREED if made.agreed else EXIT_NOT_AGREED)


def _preference(text: str) -> tuple[DtypePolicy, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in DTYPE_POLICIES:
            raise InputError(f"--prefer: {name!r} is not known: expected some of {', '.join(DTYPE_POLICIES)}")
    return cast("tuple[DtypePolicy, ...]", names)
