"""Lines and one kind of table for a terminal, a file or a pipe.

`rich` would do it too, and take as long to import and to lay out a table of eight GPUs as the whole rest of a check.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import TextIO

STYLES = {"bold": "1", "bold red": "1;31", "red": "31", "yellow": "33", "cyan": "36"}
"""Names to the numbers of ECMA-48, "Select Graphic Rendition"."""

LOG_WIDTH = 120
"""Columns of a file or pipe, which have no width of their own."""

GAP = "   "
NARROWEST = 8
"""Columns that a cell keeps, however narrow the terminal is."""


class Page:
    """Where to write, how wide it is, and whether with colour.

    Args:
        stream: A terminal, a file or a pipe.
        color: Whether to colour; None colours on a terminal, unless `NO_COLOR` (no-color.org) or `TERM=dumb` is set.
    """

    def __init__(self, stream: TextIO, color: bool | None = None) -> None:
        terminal = stream.isatty()
        self._stream = stream
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._color = terminal and not plain if color is None else color
        self.width = _columns(stream) if terminal else LOG_WIDTH

    def say(self, text: str = "", style: str | None = None) -> None:
        """Write one line, however long: a command that is to be copied must not be cut by us.

        Args:
            text: Without control characters.
            style: One of `STYLES`.
        """
        if style is not None and self._color:
            text = f"\x1b[{STYLES[style]}m{text}\x1b[0m"
        self._stream.write(f"{text}\n")

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: int = 0) -> None:
        """Write a table. Where it is too wide, the widest columns are narrowed and their cells folded.

        Args:
            titles: Heads of the columns.
            rows: Cells, without control characters.
            right: How many columns, from the left, hold numbers and stand to the right.
        """
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        room = self.width - len(GAP) * (len(widths) - 1)
        while sum(widths) > room and max(widths) > NARROWEST:
            widths[widths.index(max(widths))] -= 1
        self._row(titles, widths, right, "bold")
        self.say(self._rule() * (sum(widths) + len(GAP) * (len(widths) - 1)))
        for row in rows:
            self._row(row, widths, right)

    def _row(self, cells: Sequence[str], widths: Sequence[int], right: int, style: str | None = None) -> None:
        folded = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, folded))):
            parts = [lines[number] if number < len(lines) else "" for lines in folded]
            padded = [
                part.rjust(width) if column < right else part.ljust(width)
                for column, (part, width) in enumerate(zip(parts, widths, strict=True))
            ]
            self.say(GAP.join(padded).rstrip(), style)

    def _rule(self) -> str:
        try:
            "\u2500".encode(getattr(self._stream, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            return "-"
        return "\u2500"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or LOG_WIDTH
    except (OSError, ValueError):
        return LOG_WIDTH
