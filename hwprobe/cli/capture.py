"""`hwprobe capture`: this machine's report as one file, for a bug report or for later."""

from __future__ import annotations

from pathlib import Path

import click

from hwprobe.cli.waiting import waiting


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file.")
@click.option(
    "--include-identifiers", is_flag=True, help="Keep host name, user name, home folder and whole UUIDs as they are."
)
@click.option("--fast", is_flag=True, help="Leave out TensorFlow's own answer (and the start of its runtime).")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Limit in seconds for each source that can hang.",
)
def capture(output: Path | None, include_identifiers: bool, fast: bool, timeout: float) -> None:
    """Write down what hwprobe reads of this machine, so that it can be judged elsewhere (`check --from FILE`).

    Host name, user name, home folder and the tails of UUIDs are taken out. Without -o it goes to standard output.
    """
    from hwprobe.files import write_aside
    from hwprobe.offline.recording import record
    from hwprobe.offline.redaction import own_identity
    from hwprobe.probe.collect import collect
    from hwprobe.serialize import to_json

    with waiting() as on_wait:
        report = collect(timeout_seconds=timeout, runtime=not fast, on_wait=on_wait)
    text = to_json(record(report, own_identity(), include_identifiers=include_identifiers), indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    write_aside(output, text)
    told = "with" if include_identifiers else "without"
    click.echo(f"wrote {output}, {told} host name, user name, home folder and whole UUIDs", err=True)
    click.echo(f"to judge it on any machine: hwprobe check --from {output}", err=True)
