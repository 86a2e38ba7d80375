"""`hwprobe compare`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from hwprobe.cli.places import expect_places
from hwprobe.comparison.facts import Comparison
from hwprobe.comparison.variants import DEFAULT_VARIANTS, parse_variants
from hwprobe.files import write_aside

EXIT_INTERRUPTED = 130


@click.command()
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option("--variants", default=",".join(DEFAULT_VARIANTS), show_default=True, help="What to train, with commas.")
@click.option(
    "--task",
    "task_names",
    multiple=True,
    metavar="NAME",
    help="A built-in task instead of all: digits_mlp, digits_cnn, text, regression_large, regression_tiny.",
)
@click.option("--seeds", type=click.IntRange(1, 20), default=3, show_default=True, help="Starts for each variant.")
@click.option("--steps", type=click.IntRange(min=1), help="Steps for each run; the default is the task's own.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=1800.0,
    show_default=True,
    metavar="S",
    help="Stop after this many seconds and show what was measured.",
)
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file, whole or not at all.")
@click.option("--html", type=click.Path(path_type=Path), help="Also write one self-contained page with the curves.")
@click.pass_context
def compare(
    ctx: click.Context,
    target: str | None,
    variants: str,
    task_names: tuple[str, ...],
    seeds: int,
    steps: int | None,
    time_limit: float,
    format_: str,
    output: Path | None,
    html: Path | None,
) -> None:
    """Train the same model in each precision variant, side by side, and show where they differ.

    A factory is a function without arguments that returns (model, loss, data), with data an iterable of batches
    (inputs, targets). Without one, five built-in tasks are trained. Ctrl-C ends early and shows what was measured.

    A variant is POLICY or POLICY:SCALING, for instance mixed_float16:static=2^10; static=auto calibrates first.

    Exit status: 0 measured, 2 wrong usage, 130 interrupted.
    """
    if target is not None and task_names:
        raise click.UsageError("name a factory or --task, not both")
    wanted = parse_variants(variants)
    expect_places(output, html)
    from hwprobe.comparison.factory import factory_task
    from hwprobe.comparison.running import compare_tasks
    from hwprobe.comparison.tasks import BUILTIN_TASKS, builtin_task
    from hwprobe.model.users_code import running_users_code
    from hwprobe.quiet import start_quietly

    start_quietly()
    # What the built-in tasks raise is hwprobe's own mistake, and is shown whole.
    with nullcontext() if target is None else running_users_code(target), _progress() as progress:
        if target is not None:
            tasks = [factory_task(target)]
        else:
            tasks = [builtin_task(name) for name in task_names or BUILTIN_TASKS]
        result = compare_tasks(
            tasks, wanted, seeds=seeds, steps=steps, time_limit_seconds=time_limit, progress=progress
        )
    _show(result, format_, output, html)
    ctx.exit(EXIT_INTERRUPTED if result.stopped == "interrupted" else 0)


def _show(result: Comparison, format_: str, output: Path | None, html: Path | None) -> None:
    from hwprobe.comparison.page import render_page
    from hwprobe.comparison.text import write_comparison

    if format_ == "text" and output is None:
        write_comparison(result, sys.stdout)
    else:
        _write(result, format_, output)
    if html is not None:
        write_aside(html, render_page(result))
        click.echo(f"wrote {html}", err=True)


def _write(result: Comparison, format_: str, output: Path | None) -> None:
    from hwprobe.comparison.text import write_comparison
    from hwprobe.serialize import to_json

    if format_ == "json":
        text = to_json(result, indent=2) + "\n"
    else:
        import io

        stream = io.StringIO()
        write_comparison(result, stream)
        text = stream.getvalue()
    if output is None:
        click.echo(text, nl=False)
    else:
        write_aside(output, text)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Give a function that moves a bar for each thing that is being done; None where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    bars: dict[str, TaskID] = {}
    with Progress(console=Console(stderr=True), transient=True) as shown:

        def move(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = shown.add_task(what, total=total)
            shown.update(bars[what], completed=done)

        yield move
