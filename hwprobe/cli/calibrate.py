"""`hwprobe calibrate`: find the fixed loss scale that fits a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hwprobe.errors import InputError

if TYPE_CHECKING:
    from hwprobe.scaling.calibration import Calibration


@click.command()
@click.argument("factory", metavar="MODULE:FUNCTION")
@click.option("--steps", default=60, show_default=True, type=click.IntRange(min=2), help="float32 steps to look at.")
@click.option("--format", "format_", default="text", type=click.Choice(["text", "json"]), help="Form of the output.")
@click.option("--save", "save", type=click.Path(dir_okay=False, path_type=Path), help="Write the result as JSON.")
@click.option("--plot", "plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the gradients (PNG, SVG).")
def calibrate(factory: str, steps: int, format_: str, save: Path | None, plot: Path | None) -> None:
    """Find the fixed loss scale that fits a model, or say that none does, or that none is needed.

    MODULE:FUNCTION names a function without arguments that returns a Keras model, its loss, and its data as an iterable
    of batches (x, y). It is called under mixed_float16, and more than once if its model cannot be copied. Nothing of
    it is changed or saved.
    """
    from hwprobe.serialize import to_json

    result = _calibrate(factory, steps)
    # Before the files: a place that cannot be written must not cost the minutes that this took.
    click.echo(to_json(result, indent=2) if format_ == "json" else str(result))
    if save is not None:
        result.save(save)
    if plot is not None:
        result.plot(plot)


def _calibrate(factory: str, steps: int) -> Calibration:
    from hwprobe.model.target import call_factory, load_factory
    from hwprobe.model.users_code import running_users_code
    from hwprobe.scaling.calibrate import calibrate_loss_scale
    from hwprobe.scaling.twins import NotRebuildableError

    function = load_factory(factory)
    model, loss, data = _parts(lambda: call_factory(function, factory), factory)
    with running_users_code(factory), _progress() as advance:
        try:
            return calibrate_loss_scale(model, loss, data, steps, progress=advance)
        except NotRebuildableError:
            return calibrate_loss_scale(lambda: function()[0], loss, data, steps, progress=advance)


def _parts(make: Callable[[], Any], factory: str) -> tuple[Any, Any, Any]:
    """Call the factory as training would be set up, so that layers of its own precision stay what they are."""
    from hwprobe.scaling.keras_family import loaded_families
    from hwprobe.scaling.twins import global_policy

    with ExitStack() as policies:
        for family in loaded_families():
            policies.enter_context(global_policy(family, "mixed_float16"))
        parts = make()
    if not isinstance(parts, (tuple, list)) or len(parts) != 3:
        many = f" of {len(parts)}" if isinstance(parts, (tuple, list)) else ""
        raise InputError(
            f"{factory!r}: expected it to return (model, loss, data), got {type(parts).__qualname__}{many}"
        )
    return parts[0], parts[1], parts[2]


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training copies of the model", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
