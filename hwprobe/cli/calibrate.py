"""`hwprobe calibrate`: find the fixed loss scale that fits a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
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

    result = _calibrate(_load(factory), factory, steps)
    # Before the files: a place that cannot be written must not cost the minutes that this took.
    click.echo(to_json(result, indent=2) if format_ == "json" else str(result))
    if save is not None:
        result.save(save)
    if plot is not None:
        result.plot(plot)


def _calibrate(function: Callable[[], Any], factory: str, steps: int) -> Calibration:
    from hwprobe.scaling.calibrate import calibrate_loss_scale
    from hwprobe.scaling.twins import NotRebuildableError

    model, loss, data = _parts(function, factory)
    with _progress() as advance:
        try:
            return calibrate_loss_scale(model, loss, data, steps, progress=advance)
        except NotRebuildableError:
            return calibrate_loss_scale(lambda: function()[0], loss, data, steps, progress=advance)


def _parts(function: Callable[[], Any], factory: str) -> tuple[Any, Any, Any]:
    """Call the factory as training would be set up, so that layers of its own precision stay what they are."""
    from hwprobe.scaling.keras_family import loaded_families
    from hwprobe.scaling.twins import global_policy

    with ExitStack() as policies:
        for family in loaded_families():
            policies.enter_context(global_policy(family, "mixed_float16"))
        parts = function()
    if not isinstance(parts, (tuple, list)) or len(parts) != 3:
        many = f" of {len(parts)}" if isinstance(parts, (tuple, list)) else ""
        raise InputError(
            f"{factory!r}: expected it to return (model, loss, data), got {type(parts).__qualname__}{many}"
        )
    return parts[0], parts[1], parts[2]


def _load(factory: str) -> Callable[[], Any]:
    module_name, _, name = factory.partition(":")
    if not module_name or not name:
        raise InputError(f"{factory!r}: expected MODULE:FUNCTION, for instance train:calibration")
    # A console script does not search the folder that it is called in; `python -m` does.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path takes text
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InputError(f"{factory!r}: there is no module {error.name}, here or installed") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{factory!r}: {module_name} has no function {name}")
    result: Callable[[], Any] = function
    return result


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
