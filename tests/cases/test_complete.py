"""No case is lost: each is a test named by its number, a test of another folder, or listed with its reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cases import (
    test_drivers_and_generations,
    test_packages_and_libraries,
    test_precision_and_memory,
    test_sick_and_unusual_gpus,
    test_which_gpus,
)
from tests.toml import read_toml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLES = (
    test_packages_and_libraries.TABLE,
    test_drivers_and_generations.TABLE,
    test_which_gpus.TABLE,
    test_sick_and_unusual_gpus.TABLE,
    test_precision_and_memory.TABLE,
)


def read(name: str) -> dict[str, Any]:
    return read_toml(HERE / name)


IDS: list[str] = read("ids.toml")["ids"]
NOT_TESTABLE: dict[str, str] = read("ids.toml")["not_testable"]
ELSEWHERE: dict[str, list[str]] = read("elsewhere.toml")


def names_of_tests(path: Path) -> set[str]:
    """Names of the test functions of a file, those in classes among them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def numbers_here() -> set[str]:
    """Numbers in the tables and in the names of the tests of this folder."""
    named = {
        f"C{number}"
        for path in HERE.glob("test_*.py")
        for name in names_of_tests(path)
        for number in re.findall(r"(?<=_c)\d{3}(?=_)", name)
    }
    return named | {id_ for table in TABLES for id_ in table}


def test_every_case_is_a_test_or_has_a_reason() -> None:
    covered = numbers_here() | set(ELSEWHERE) | set(NOT_TESTABLE)
    assert sorted(covered) == sorted(IDS)
    assert len(IDS) == len(set(IDS)) == 101


def test_a_reason_is_given_only_where_there_is_no_test() -> None:
    assert set(NOT_TESTABLE).isdisjoint(numbers_here() | set(ELSEWHERE))
    assert all(len(reason) > 20 for reason in NOT_TESTABLE.values())


@pytest.mark.parametrize("id_", ELSEWHERE)
def test_the_test_of_another_folder_is_there(id_: str) -> None:
    for place in ELSEWHERE[id_]:
        file, _, name = place.partition("::")
        assert name in names_of_tests(ROOT / file), place


def test_no_number_stands_in_two_tables() -> None:
    numbers = [id_ for table in TABLES for id_ in table]
    assert len(numbers) == len(set(numbers))


def test_every_situation_names_its_thread() -> None:
    for table in TABLES:
        for rows in table.values():
            assert all(case.source for case in rows)
