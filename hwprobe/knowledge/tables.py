"""Reads the TOML tables of this package into frozen rows.

Each module that owns a table keeps its rows for the life of the process; a file with several tables is parsed once.
"""

from __future__ import annotations

import datetime
import functools
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from hwprobe.errors import HwprobeError, InputError
from hwprobe.serialize import from_builtins
from hwprobe.source import Fact

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent
"""Where the tables stand, installed or editable."""

Text = Annotated[str, msgspec.Meta(min_length=1)]


class Row(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a table.

    Attributes:
        source: Where the row can be read again: a document, an issue, a package file.
        checked: The day on which somebody compared the row with its source.
    """

    source: Text
    checked: datetime.date


R = TypeVar("R", bound=Row)


def read(file: str, table: str, type_: type[R]) -> tuple[R, ...]:
    """Read one array of tables of one file.

    Args:
        file: Name of a file of this package: `drivers.toml`.
        table: Key of the array inside it: `toolkit`.
        type_: What a row becomes.

    Returns:
        The rows, in the order of the file.

    Raises:
        HwprobeError: The file cannot be read, or a row does not have the type's form; the message names file, row, key.
    """
    rows = _document(file).get(table)
    if not isinstance(rows, list):
        raise HwprobeError(f"{FOLDER / file}: expected an array of tables [[{table}]]; this installation is damaged")
    return tuple(_row(f"{FOLDER / file}: [[{table}]] row {number}", row, type_) for number, row in enumerate(rows, 1))


def read_legend(file: str, table: str) -> dict[str, str]:
    """Read a table of short keys and the texts that they stand for.

    Args:
        file: Name of a file of this package.
        table: Key of the table inside it.

    Raises:
        HwprobeError: The file cannot be read, or the table is not one of texts.
    """
    where = f"{FOLDER / file}: [{table}]"
    try:
        return from_builtins(_document(file).get(table), dict[str, str], where=where)
    except InputError as error:
        raise HwprobeError(str(error)) from error


def _row(where: str, row: Any, type_: type[R]) -> R:
    try:
        return from_builtins(row, type_, where=where)
    except InputError as error:
        raise HwprobeError(str(error)) from error


@functools.cache
def _document(file: str) -> dict[str, Any]:
    path = FOLDER / file
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HwprobeError(f"{path}: {error}") from error
    return document
