"""`hwprobe check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from hwprobe.cli.described import other_machine, other_machine_options
from hwprobe.cli.waiting import waiting
from hwprobe.files import write_aside
from hwprobe.policy import FAIL_ON, CheckWish, FailOn
from hwprobe.preflight import Check
from hwprobe.preflight import check as run_check
from hwprobe.render.formats import FORMATS, exit_status, write
from hwprobe.requirements import ACCEPTED


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose among the rules."""
    options = (
        click.option("--select", multiple=True, metavar="IDS", help="Rules to run: ids or prefixes, such as HWP2."),
        click.option("--ignore", multiple=True, metavar="IDS", help="Rules to leave out: ids or prefixes."),
        click.option("--fail-on", type=click.Choice(FAIL_ON), help="Lowest severity that fails the check."),
        click.option("--strict", is_flag=True, help="Let warnings fail the check too."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Output format."
)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file, whole or not at all.")
@click.option("--fast", is_flag=True, help="Leave out TensorFlow's own answer (and the start of its runtime).")
@other_machine_options
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
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write this node's record to a folder that all nodes share, for `hwprobe plan`.",
)
@click.option("--verify", is_flag=True, help="Measure each device for three seconds: kernels missing, wrong, slow.")
@selection_options
@click.pass_context
def check(
    ctx: click.Context,
    format_: str,
    output: Path | None,
    fast: bool,
    from_: Path | None,
    target: str | None,
    tensorflow: str | None,
    policy: str | None,
    require: tuple[str, ...],
    timeout: float,
    record: Path | None,
    verify: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: FailOn | None,
    strict: bool,
) -> None:
    """Look at this machine and this Python environment, and say what TensorFlow can use.

    With --from or --target the same is said of another machine, which need not be here.

    Exit status: 0 ready, 1 not ready, 2 wrong usage or an input that cannot be read, 3 could not be determined.
    """
    report = other_machine(from_, target, tensorflow)
    if report is not None and record is not None:
        raise click.UsageError("--record is for the node that it runs on, and goes with neither --from nor --target")
    if verify and (report is not None or fast):
        raise click.UsageError("--verify measures this machine with TensorFlow: not with --from, --target or --fast")
    with waiting() as on_wait:
        result = run_check(
            policy=policy,
            require=require,
            timeout_seconds=timeout,
            fast=fast,
            strict=strict,
            wish=wish_from(select, ignore, fail_on),
            report=report,
            on_wait=on_wait,
        )
        if verify:
            from hwprobe.bench.verifying import verify_devices

            result = verify_devices(result, timeout_seconds=timeout, on_wait=on_wait)
    if record is not None:
        from hwprobe.cluster.recording import record_check
        from hwprobe.policy_reader import read_policy

        record_check(result, read_policy(policy), record, os.environ)
    show(result, format_, output)
    ctx.exit(exit_status(result, format_))


def wish_from(
    select: tuple[str, ...], ignore: tuple[str, ...], fail_on: FailOn | None
) -> Callable[[CheckWish], CheckWish]:
    """Make the change that the selection options mean to a policy's own selection.

    Args:
        select: Ids or prefixes, each text may hold several with commas; they replace the policy's.
        ignore: Likewise; they are added to the policy's.
        fail_on: In place of the policy's.

    Raises:
        click.BadParameter: An id has another form.
    """
    selected, ignored = _ids(select, "--select"), _ids(ignore, "--ignore")

    def change(wish: CheckWish) -> CheckWish:
        return msgspec.structs.replace(
            wish,
            select=selected or wish.select,
            ignore=(*wish.ignore, *ignored),
            fail_on=fail_on or wish.fail_on,
        )

    return change


def _ids(texts: tuple[str, ...], option: str) -> tuple[str, ...]:
    ids = tuple(part.strip() for text in texts for part in text.split(","))
    for id_ in ids:
        if not is_rule_id(id_):
            raise click.BadParameter(
                f"{id_!r} is no rule: expected an id such as HWP211 or a prefix", param_hint=option
            )
    return ids


def is_rule_id(text: str) -> bool:
    """Whether a text is a rule's id or the beginning of one."""
    return text.startswith("HWP") and len(text) <= len("HWP000") and (text == "HWP" or text[3:].isdigit())


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

        write_aside(output, write(result, format_))
        click.echo(headline(result), err=True)
    elif format_ == "text":
        from hwprobe.render.text import write_text

        write_text(result, sys.stdout)
    else:
        click.echo(write(result, format_), nl=False)
