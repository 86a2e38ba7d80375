"""`hwprobe decide`."""

from __future__ import annotations

from pathlib import Path

import click

from hwprobe.bench.facts import Bench
from hwprobe.cli.described import other_machine, other_machine_options
from hwprobe.cli.waiting import waiting
from hwprobe.errors import InputError
from hwprobe.serialize import from_json, to_json

LARGEST_FILE_BYTES = 16 * 2**20


@click.command()
@click.option(
    "--measured",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take the measured best in place of the table's: a file of `hwprobe bench --output`. One for each device.",
)
@other_machine_options
@click.option("--policy", metavar="NAME|FILE", help="Policy to decide by; see `hwprobe policy list`.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def decide(
    measured: tuple[Path, ...],
    from_: Path | None,
    target: str | None,
    tensorflow: str | None,
    policy: str | None,
    format_: str,
) -> None:
    """Say what to set on this machine, and nothing else.

    With --measured a dtype policy that was measured to be more than 5% faster goes before the table's choice, and the
    answer says where the two differ.

    Exit status: 0 decided, 2 wrong usage or an input that cannot be read.
    """
    from hwprobe.bench.measured import apply_measurement
    from hwprobe.preflight import check
    from hwprobe.render.headline import decision_line

    benches = [_read_bench(path) for path in measured]
    report = other_machine(from_, target, tensorflow)
    with waiting() as on_wait:
        decision = check(policy=policy, report=report, on_wait=on_wait).decision
    assert decision is not None
    if not benches:
        click.echo(to_json(decision, indent=2) if format_ == "json" else decision_line(decision))
        return
    result = apply_measurement(decision, benches)
    if format_ == "json":
        click.echo(to_json(result, indent=2))
        return
    click.echo(decision_line(result.decision))
    click.echo(result.reason)
    if result.differs:
        click.echo(f"the table says {decision_line(decision)}")


def _read_bench(path: Path) -> Bench:
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(f"{path}: too large for a measurement ({LARGEST_FILE_BYTES // 2**20} MiB at most)")
        return from_json(path.read_bytes(), Bench, where=str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
