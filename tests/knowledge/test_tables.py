"""Reading a table: whole and typed, or refused with the file, the row and the key."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hwprobe.errors import HwprobeError
from hwprobe.knowledge import tables
from hwprobe.knowledge.tables import Row, Text, read, read_legend


class Colour(Row, frozen=True, kw_only=True):
    name: Text
    shade: float = 0.0


Table = Callable[[str], tuple[str, str, type[Colour]]]

GOOD = '[[colour]]\nname = "red"\nshade = 0.5\nsource = "a book"\nchecked = 2026-11-30\n'


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    tables._document.cache_clear()

    def write(content: str) -> tuple[str, str, type[Colour]]:
        (tmp_path / "colours.toml").write_text(content, encoding="utf-8")
        return "colours.toml", "colour", Colour

    yield write
    tables._document.cache_clear()


def test_a_row_becomes_its_type_with_source_and_date(table: Table) -> None:
    (row,) = read(*table(GOOD))

    assert row == Colour(name="red", shade=0.5, source="a book", checked=datetime.date(2026, 11, 30))


def test_rows_are_frozen(table: Table) -> None:
    (row,) = read(*table(GOOD))

    with pytest.raises(AttributeError):
        row.name = "blue"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("what", "content", "named"),
    [
        ("an unknown key", GOOD + 'tint = "warm"\n', ["colours.toml", "row 1", "tint"]),
        ("a wrong type", GOOD.replace("0.5", '"half"'), ["colours.toml", "row 1", "shade"]),
        ("no source", GOOD.replace('source = "a book"\n', ""), ["colours.toml", "row 1", "source"]),
        ("an empty source", GOOD.replace("a book", ""), ["colours.toml", "row 1", "source"]),
        ("no date", GOOD.replace("checked = 2026-11-30\n", ""), ["colours.toml", "row 1", "checked"]),
        ("a date that is no date", GOOD.replace("2026-11-30", '"yesterday"'), ["colours.toml", "row 1", "checked"]),
        ("a fault in the second row", GOOD + GOOD.replace("name", "nome"), ["colours.toml", "row 2", "nome"]),
        ("no such table", GOOD.replace("colour", "color"), ["colours.toml", "[[colour]]"]),
        ("a table that is no array", '[colour]\nname = "red"\n', ["colours.toml", "[[colour]]"]),
        ("a row that is no table", 'colour = ["red"]\n', ["colours.toml", "row 1"]),
        ("no TOML", "[[colour\n", ["colours.toml"]),
    ],
)
def test_a_damaged_table_is_refused_by_name(table: Table, what: str, content: str, named: list[str]) -> None:
    with pytest.raises(HwprobeError) as caught:
        read(*table(content))

    assert [word for word in named if word not in str(caught.value)] == [], what


def test_a_legend_is_a_table_of_texts(table: Table) -> None:
    file, _, _ = table(GOOD + '[words]\nwarm = "like fire"\n[sizes]\nlarge = 3\n')

    assert read_legend(file, "words") == {"warm": "like fire"}
    for broken in ("sizes", "colour", "nothing"):
        with pytest.raises(HwprobeError, match=rf"colours\.toml.*\[{broken}\]"):
            read_legend(file, broken)


def test_a_missing_file_is_refused_by_name(table: Table) -> None:
    table(GOOD)

    with pytest.raises(HwprobeError, match=r"paints\.toml"):
        read("paints.toml", "colour", Colour)


def test_bytes_that_are_no_text_are_refused_by_name(table: Table, tmp_path: Path) -> None:
    arguments = table(GOOD)
    (tmp_path / "colours.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(HwprobeError, match=r"colours\.toml"):
        read(*arguments)


def test_a_file_is_parsed_once(table: Table, tmp_path: Path) -> None:
    arguments = table(GOOD)
    first = read(*arguments)
    (tmp_path / "colours.toml").unlink()

    assert read(*arguments) == first
