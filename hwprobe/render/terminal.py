"""Lines and one kind of table for a terminal, a file or a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

LOG_WIDTH = 120
"""Columns of a file or pipe, which have no width of their own."""

SHORT = 10
"""Characters of a word that would only be harder to read in two pieces."""


def console_on(stream: TextIO, *, color: bool | None = None, width: int | None = None) -> Console:
    """Make a console of rich's that changes nothing in a text.

    Args:
        stream: A terminal, a file or a pipe.
        color: Whether to colour; None colours on a terminal, unless `NO_COLOR` (no-color.org) or `TERM=dumb` is set.
        width: Columns of a file or pipe; None for the usual number. A terminal has its own.
    """
    from rich.console import Console

    return Console(
        file=stream,
        width=None if stream.isatty() else width or LOG_WIDTH,
        no_color=None if color is None else not color,
        force_terminal=color,
        highlight=False,
        markup=False,
        emoji=False,
    )


class Page:
    """Where to write, how wide it is, and whether with colour.

    Args:
        stream: A terminal, a file or a pipe.
        color: Whether to colour; None colours on a terminal, unless `NO_COLOR` (no-color.org) or `TERM=dumb` is set.
    """

    def __init__(self, stream: TextIO, color: bool | None = None) -> None:
        self._console = console_on(stream, color=color)

    def say(self, text: str = "", style: str | None = None) -> None:
        """Write one line, however long: a command that is to be copied must not be cut by us.

        Args:
            text: Without control characters.
            style: In the words of rich.
        """
        self._console.print(text, style=style, soft_wrap=True)

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: int = 0) -> None:
        """Write a table. Where it is too wide, cells are folded, short words last.

        Args:
            titles: Heads of the columns.
            rows: Cells, without control characters.
            right: How many columns, from the left, hold numbers and stand to the right.
        """
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column, title in enumerate(titles):
            short = all(" " not in cell and len(cell) <= SHORT for cell in (title, *(row[column] for row in rows)))
            table.add_column(title, justify="right" if column < right else "left", overflow="fold", no_wrap=short)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
