"""The catalogue as a whole: no rule without its tests, no id that changes its meaning, causes before effects."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from hwprobe.cli.every_rule import every_rule
from hwprobe.findings import Rule, Severity
from hwprobe.render.rule_pages import FAMILIES
from hwprobe.rules.catalogue import CATALOGUE, RULES
from tests.rules import (
    test_cuda,
    test_devices,
    test_driver,
    test_kernels,
    test_libraries,
    test_memory,
    test_own,
    test_package,
    test_precision,
    test_visibility,
)
from tests.rules.table import Table, is_command, outcomes_in
from tests.toml import read_toml

ROOT = Path(__file__).parents[2]
TABLES: tuple[Table, ...] = (
    *(test_driver.TABLE, test_cuda.TABLE, test_devices.TABLE, test_visibility.TABLE, test_package.TABLE),
    *(test_libraries.TABLE, test_kernels.TABLE, test_precision.TABLE, test_memory.TABLE, test_own.TABLE),
)
ROWS = [kind for table in TABLES for kind in outcomes_in(table)]
IDS = [entry.rule.id for entry in CATALOGUE]
ALWAYS_ANSWER = {"HWP903", "HWP904"}
"""About hwprobe itself, which is always here."""

every = pytest.mark.parametrize("rule", every_rule(), ids=lambda rule: rule.id)


def frozen() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("frozen_ids.toml"))


@pytest.mark.parametrize("id_", IDS)
def test_every_rule_is_tested_where_it_fires_where_it_passes_and_where_it_cannot_tell(id_: str) -> None:
    kinds = {kind for rule, kind in ROWS if rule == id_}
    assert {"fires", "pass"} <= kinds
    assert kinds & {"skip", "not_applicable"} or id_ in ALWAYS_ANSWER


def test_no_table_is_about_a_rule_that_is_gone() -> None:
    assert {id_ for id_, _ in ROWS} <= set(IDS)


def test_every_id_stands_for_one_rule() -> None:
    listed = every_rule()
    assert len({rule.id for rule in listed}) == len({rule.name for rule in listed}) == len(listed)


def test_no_rule_of_the_code_is_left_out_of_the_list() -> None:
    written = set()
    for path in (ROOT / "hwprobe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Rule":
                written |= {key.value.value for key in node.keywords if key.arg == "id"}  # type: ignore[attr-defined]
    assert written == {rule.id for rule in every_rule()}


def test_an_id_never_vanishes_and_never_changes_its_meaning() -> None:
    now = {rule.id: {"title": rule.title, "severity": rule.severity.value} for rule in every_rule()}
    then = frozen()
    assert {id_: now.get(id_) for id_ in then} == then
    assert set(now) <= set(then), "give the new ids a line in frozen_ids.toml"


def test_causes_stand_before_their_effects() -> None:
    for position, entry in enumerate(CATALOGUE):
        assert set(entry.rule.after) <= set(IDS[:position]), entry.rule.id


def test_only_what_can_be_an_error_explains_an_effect() -> None:
    """A warning explains nothing away, so a rule that never gives an error would stand in `after` for nothing."""
    raised = {"HWP205", "HWP207", "HWP306"}
    named = {id_ for entry in CATALOGUE for id_ in entry.rule.after}
    severity = {entry.rule.id: entry.rule.severity for entry in CATALOGUE}
    assert {id_ for id_ in named if severity[id_] is not Severity.ERROR} <= raised


@every
def test_an_id_is_in_the_hundred_of_its_family(rule: Rule) -> None:
    assert rule.id[:4] in FAMILIES
    assert rule.id.removeprefix("HWP").isdigit()
    assert len(rule.id) == len("HWP000")


@every
def test_a_page_is_whole(rule: Rule) -> None:
    page = rule.explanation
    for text in (page.checks, page.matters, page.fix, page.reference):
        assert len(text) >= 8
        assert "  " not in text
        assert text == text.strip()
    for sentence in (page.checks, page.matters):
        assert sentence.endswith(".")
    assert rule.name == rule.name.lower().replace(" ", "-")
    assert not rule.title.endswith(".")
    assert len(rule.title) <= 90


@every
def test_no_page_sends_anybody_to_the_unrelated_package(rule: Rule) -> None:
    assert "pip install hwprobe" not in str(rule)
    assert "pip install --upgrade hwprobe" not in str(rule)


def test_a_rule_lies_in_the_list_of_checks_once_and_the_requirement_last() -> None:
    assert [rule.id for rule in RULES] == [*IDS, "HWP950"]


@pytest.mark.parametrize(
    ("step", "typed"),
    [
        ("pip install x", True),
        ("or unset X", True),
        ("/envs/tf/bin/python -m ipykernel install", True),
        ("update the driver", False),
    ],
)
def test_a_command_is_told_from_advice(step: str, typed: bool) -> None:
    assert is_command(step) is typed
