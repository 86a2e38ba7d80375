"""`hwprobe audit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hwprobe.configuration import DTYPE_POLICIES
from hwprobe.files import write_aside
from hwprobe.findings import Severity
from hwprobe.model.facts import Audit

EXIT_HAZARDS = 1
EXIT_UNKNOWN = 3


@click.command()
@click.argument("target", metavar="FILE.keras|MODULE:FACTORY")
@click.option(
    "--dtype-policy",
    type=click.Choice(DTYPE_POLICIES),
    help="Judge layers that were built under float32 as if they had this policy.",
)
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file, whole or not at all.")
@click.option("--layers", is_flag=True, help="Also list every layer as the probe saw it (text).")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="Severity from which on the exit status is 1.",
)
@click.pass_context
def audit(
    ctx: click.Context,
    target: str,
    dtype_policy: str | None,
    format_: str,
    output: Path | None,
    layers: bool,
    fail_on: str,
) -> None:
    """Look at a Keras model for what goes wrong in float16 or bfloat16.

    A file is loaded with its safe mode on: code in it is refused. A factory is a function without arguments that
    returns the model, (model, batch) or (model, loss, data); with a batch (inputs, targets) the model's loss and
    metrics are judged too.

    Exit status: 0 nothing at or above --fail-on, 1 hazards, 2 wrong usage or a model that cannot be loaded, 3 nothing
    found in a model that could not be probed.
    """
    result = _audit(target, dtype_policy)
    _show(result, format_, output, layers=layers)
    worst = max((finding.severity.rank for finding in result.findings), default=-1)
    if worst >= Severity(fail_on).rank:
        ctx.exit(EXIT_HAZARDS)
    ctx.exit(EXIT_UNKNOWN if result.verdict == "unknown" else 0)


def _audit(target: str, dtype_policy: str | None) -> Audit:
    from hwprobe.model.audit import audit as audit_model
    from hwprobe.model.target import FORMS, build_on, call_factory, is_file, load_factory, load_file
    from hwprobe.quiet import start_quietly

    start_quietly()
    if is_file(target):
        return audit_model(load_file(Path(target)), dtype_policy=dtype_policy)
    model, batch = _model_and_batch(call_factory(load_factory(target, FORMS), target), target)
    build_on(model, batch, target)
    return audit_model(model, batch, dtype_policy=dtype_policy)


def _model_and_batch(made: Any, target: str) -> tuple[Any, Any]:
    from hwprobe.model.target import first_batch

    if not isinstance(made, tuple):
        return made, None
    if len(made) == 2:
        return made
    if len(made) == 3:
        model, _, data = made
        return model, first_batch(data, target)
    raise click.UsageError(f"the factory returned {len(made)} things: expected model, (model, batch) or three")


def _show(result: Audit, format_: str, output: Path | None, *, layers: bool) -> None:
    from hwprobe.model.text import headline, write_audit
    from hwprobe.serialize import to_json

    if format_ == "json":
        text = to_json(result, indent=2) + "\n"
        if output is None:
            click.echo(text, nl=False)
            return
    elif output is None:
        write_audit(result, sys.stdout, layers=layers)
        return
    else:
        import io

        stream = io.StringIO()
        write_audit(result, stream, layers=layers)
        text = stream.getvalue()
    write_aside(output, text)
    click.echo(headline(result), err=True)
