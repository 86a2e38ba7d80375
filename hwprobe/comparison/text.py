"""A comparison for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from hwprobe.comparison.facts import Comparison, TaskResult
from hwprobe.comparison.figures import about, headings, power_of_two, rows
from hwprobe.render.printable import printable
from hwprobe.render.terminal import console_on

if TYPE_CHECKING:
    from rich.console import Console


def write_comparison(comparison: Comparison, stream: TextIO) -> None:
    """Write a comparison as text, in colour on a terminal."""
    print_comparison(comparison, console_on(stream))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a comparison on a console of rich's."""
    console.print(about(comparison), style="bold", soft_wrap=True)
    if not comparison.tasks:
        console.print("nothing was measured", soft_wrap=True)
    for task in comparison.tasks:
        _task(task, console)


def _task(task: TaskResult, console: Console) -> None:
    from rich import box
    from rich.table import Table

    console.print()
    better = "higher is better" if task.higher_is_better else "lower is better"
    console.print(
        f"{printable(task.task)}: {printable(task.title)}; {task.steps} steps; {better}", style="bold", soft_wrap=True
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings(task)):
        table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold", no_wrap=number < 2)
    for cells in rows(task):
        table.add_row(*cells)
    console.print(table)
    for sentence in task.verdict:
        console.print(f"- {printable(sentence)}", soft_wrap=True)
    for variant in task.variants:
        scaling = variant.loss_scaling
        if variant.note and scaling is not None and scaling.initial_scale is not None:
            found = power_of_two(scaling.initial_scale)
            console.print(f"- {printable(variant.variant)} found {found}: {printable(variant.note)}", soft_wrap=True)
