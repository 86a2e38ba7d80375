"""The benchmarks' own arithmetic, and the page that they write; none of them is run here."""

from __future__ import annotations

import pytest

from benchmarks import regret
from benchmarks.__main__ import PAGE, benchmarks, main, on_page, replaced
from benchmarks.measure import Cost, spread
from benchmarks.speed import CONFIGURE, REFERENCE, Goal, Measured

PAGE_OF_TWO = "a\n<!-- begin one -->\nold\n<!-- end one -->\nb\n<!-- begin two -->\nstays\n<!-- end two -->\nc\n"


def cost(wall: float, cpu: float, output: str = "") -> Cost:
    return Cost(wall_seconds=wall, cpu_seconds=cpu, peak_mebibytes=30, output=output)


def test_a_result_replaces_its_own_part_of_the_page() -> None:
    page = replaced(PAGE_OF_TWO, "one", "new\n")
    assert page == PAGE_OF_TWO.replace("\nold\n", "\n\nnew\n\n")
    assert replaced(page, "one", "new\n") == page


def test_the_page_has_a_beginning_and_an_end_for_each_result() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert on_page() == ["parts", "regret", "speed"]
    for name in on_page():
        assert page.count(f"<!-- begin {name} -->") == page.count(f"<!-- end {name} -->") == 1
    for name in benchmarks():
        assert f"`{name}`" in page


def test_a_benchmark_that_is_none_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as left:
        main(["no-such-benchmark"])
    assert left.value.code == 2


def test_ratios_are_taken_within_a_round() -> None:
    added = "noise\n[4.0, 2.0, 0.04, 0.03]\n"
    costs = {"own": [cost(1, 1), cost(4, 2)], REFERENCE: [cost(10, 5), cost(20, 4)], CONFIGURE: [cost(5, 5, added)]}
    measured = Measured((), costs)
    assert measured.ratios("own", "wall_seconds") == [0.1, 0.2]
    assert measured.ratios("own", "cpu_seconds") == [0.2, 0.5]
    assert measured.median("own", "wall_seconds") == 2.5
    assert measured.added() == [[0.01, 0.015]]


@pytest.mark.parametrize(("found", "met"), [(0.03, "yes"), (0.0301, "no")])
def test_a_goal_is_met_up_to_its_limit(found: float, met: str) -> None:
    assert Goal("share", 0.03, found).line.endswith(f"| {met} |")


def test_a_spread_is_median_least_and_greatest() -> None:
    assert spread([3.0, 1.0, 2.0], digits=1) == "2.0 (1.0 to 3.0)"


def test_every_row_in_which_the_choice_is_slower_is_explained() -> None:
    page = "\n".join(regret.report_lines())
    models = [model for model in regret.WHY_SLOWER if f"| {model} |" in page]
    assert models == list(regret.WHY_SLOWER)
