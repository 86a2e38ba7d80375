"""The options by which a command takes another machine in place of this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hwprobe.report import Report


def other_machine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--from`, `--target` and `--tensorflow`."""
    options = (
        click.option(
            "--from",
            "from_",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Judge a recorded machine: a file of `hwprobe capture`, of `check --format json`, or nvidia-smi's "
            "XML or csv.",
        ),
        click.option(
            "--target",
            metavar="TEXT|FILE",
            help="Judge a machine in words ('2 x Tesla T4, driver 535.104.05, tensorflow 2.17'), or the labels of a "
            "Kubernetes node as JSON.",
        ),
        click.option("--tensorflow", metavar="VERSION", help="TensorFlow to judge by, with --from or --target: 2.17."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def other_machine(from_: Path | None, target: str | None, tensorflow: str | None) -> Report | None:
    """Make the report of the machine that the options name.

    Args:
        from_: Value of `--from`.
        target: Value of `--target`.
        tensorflow: Value of `--tensorflow`.

    Returns:
        The report; None where this machine is meant.

    Raises:
        click.UsageError: Options contradict each other.
        InputError: The file or the text cannot be used.
    """
    if from_ is not None and target is not None:
        raise click.UsageError("--from and --target each name a machine: give one of them")
    if from_ is None and target is None:
        if tensorflow is not None:
            raise click.UsageError("--tensorflow goes with --from or --target; this machine has its own")
        return None
    from hwprobe.offline.reading import read_file, read_target

    if from_ is not None:
        return read_file(from_, tensorflow=tensorflow)
    assert target is not None
    return read_target(target, tensorflow=tensorflow)
