"""Laws over every row of every table of the package."""

from __future__ import annotations

import datetime

import pytest

from hwprobe.knowledge import tables
from hwprobe.knowledge.architectures import architectures
from hwprobe.knowledge.drivers import compatibilities, toolkits
from hwprobe.knowledge.exceptions import exceptional_chips, exceptional_names
from hwprobe.knowledge.gpus import boards
from hwprobe.knowledge.tensorflow import brings, library_packages, library_sets, releases
from hwprobe.knowledge.versions import cuda_release
from tests.toml import read_toml

TABLES = {
    ("architectures.toml", "architecture"): architectures,
    ("exceptions.toml", "chip"): exceptional_chips,
    ("exceptions.toml", "name"): exceptional_names,
    ("tensorflow.toml", "release"): releases,
    ("libraries.toml", "set"): library_sets,
    ("libraries.toml", "package"): library_packages,
    ("drivers.toml", "toolkit"): toolkits,
    ("drivers.toml", "compatibility"): compatibilities,
    ("gpus.toml", "board"): boards,
}

EVERY_ROW = [(name, row) for (_, name), rows in TABLES.items() for row in rows()]


def test_every_table_of_every_file_is_read_by_something() -> None:
    found = {
        (path.name, key)
        for path in tables.FOLDER.glob("*.toml")
        for key, value in read_toml(path).items()
        if isinstance(value, list)
    }

    assert found == set(TABLES)


def test_every_row_names_a_source_and_a_day_that_has_been() -> None:
    for name, row in EVERY_ROW:
        assert row.source.strip(), (name, row)
        assert datetime.date(2026, 1, 1) <= row.checked <= datetime.date.today() + datetime.timedelta(days=1), (
            name,
            row,
        )


def test_no_row_sets_what_only_a_lookup_may_set() -> None:
    for path in tables.FOLDER.glob("*.toml"):
        assert "\nknown" not in path.read_text(encoding="utf-8"), path.name


def test_no_row_stands_twice() -> None:
    for (file, name), rows in TABLES.items():
        for number, row in enumerate(rows()):
            assert row not in rows()[:number], (file, name, row)


def test_capabilities_ascend() -> None:
    capabilities = [row.capability for row in architectures()]

    assert capabilities == sorted(set(capabilities))


def test_tensor_core_dtypes_never_vanish_with_a_newer_capability() -> None:
    for older, newer in zip(architectures(), architectures()[1:], strict=False):
        assert newer.tensor_core_dtypes[: len(older.tensor_core_dtypes)] == older.tensor_core_dtypes


def test_an_architecture_keeps_its_name_and_never_comes_back() -> None:
    names = [row.name for row in architectures()]
    changes = [name for number, name in enumerate(names) if number == 0 or names[number - 1] != name]

    assert len(changes) == len(set(changes))
    assert changes == [
        "Kepler",
        "Maxwell",
        "Pascal",
        "Volta",
        "Turing",
        "Ampere",
        "Ada Lovelace",
        "Hopper",
        "Blackwell",
    ]


def test_toolkits_of_an_architecture_parse_and_do_not_end_before_they_begin() -> None:
    for row in architectures():
        first, last = (None if text is None else cuda_release(text) for text in (row.first_toolkit, row.last_toolkit))
        assert first is None or last is None or first <= last
        if row.first_driver_branch is not None and row.last_driver_branch is not None:
            assert row.first_driver_branch <= row.last_driver_branch


def test_a_ptx_that_fails_says_where_it_was_seen_and_is_older_than_the_gpu() -> None:
    for row in architectures():
        assert (row.oldest_working_ptx is None) == (row.ptx_source is None)
        assert row.oldest_working_ptx is None or row.oldest_working_ptx <= row.capability


@pytest.mark.parametrize("architecture", sorted({row.name for row in architectures()}))
def test_every_architecture_has_a_board_in_the_catalogue(architecture: str) -> None:
    assert any(board.architecture.name == architecture for board in boards())


def test_every_library_of_a_set_comes_with_one_package() -> None:
    packages = [f"nvidia-{name}-cu12" for name in dict.fromkeys(row.package for row in library_packages())]
    for row in library_sets():
        if row.system == "Linux":
            for soname in (*row.libraries, row.cudnn.format(major=row.cudnn_major)):
                assert len([package for package in packages if brings(package, soname)]) == 1, soname
