"""`hwprobe check`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hwprobe.cli.waiting import waiting
from hwprobe.files import write_aside
from hwprobe.preflight import Check
from hwprobe.preflight import check as run_check
from hwprobe.render.formats import FORMATS
from hwprobe.requirements import ACCEPTED


@click.command()
@click.option(
    "--format", "format_", type=click.Choice(sorted(FORMATS)), default="text", show_default=True, help="Output format."
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file, whole or not at all.")
@click.option("--fast", is_flag=True, help="Leave out TensorFlow's own answer (and the start of its runtime).")
@click.option("--policy", metavar="NAME|FILE", help="Policy to decide by; see `hwprobe policy list`.")
@click.option("--require", multiple=True, metavar="EXPR", help=f"What the job needs: {ACCEPTED}. May be repeated.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Limit in seconds for each source that can hang.",
)
@click.option("--strict", is_flag=True, help="Let warnings fail the check too.")
@click.pass_context
def check(
    ctx: click.Context,
    format_: str,
    output: Path | None,
    fast: bool,
    policy: str | None,
    require: tuple[str, ...],
    timeout: float,
    strict: bool,
) -> None:
    """Look at this machine and this Python environment, and say what TensorFlow can use.

    Exit status: 0 ready, 1 not ready, 2 wrong usage or an input that cannot be read, 3 could not be determined.
    """
    with waiting() as on_wait:
        result = run_check(
            policy=policy, require=require, timeout_seconds=timeout, fast=fast, strict=strict, on_wait=on_wait
        )
    show(result, format_, output)
    ctx.exit(result.exit_status)


def show(result: Check, format_: str, output: Path | None) -> None:
    """Write a check in a format to a file or to standard output.

    Args:
        result: The check.
        format_: One of `FORMATS`.
        output: The file; None for standard output.

    Raises:
        InputError: The file cannot be written.
    """
    if output is not None:
        from hwprobe.render.headline import headline

        write_aside(output, FORMATS[format_](result))
        click.echo(headline(result), err=True)
    elif format_ == "text":
        from hwprobe.render.text import write_text

        write_text(result, sys.stdout)
    else:
        click.echo(FORMATS[format_](result), nl=False)
