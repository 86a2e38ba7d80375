"""The page: nothing from outside, nothing unescaped, and in a real browser the curves that were measured."""

import re
from pathlib import Path

import msgspec
import pytest

from hwprobe.comparison.facts import Comparison
from hwprobe.comparison.page import render_page
from hwprobe.serialize import from_json
from tests.model.browser import Browser
from tests.model.comparisons import STEPS, comparison, run, task, variant


@pytest.fixture
def measured() -> Comparison:
    dynamic = variant("mixed_float16:dynamic", ())
    scales = (32768.0, 32768.0, 16384.0, 16384.0, 8192.0)
    runs = tuple(run(seed, scales=scales, skipped_steps=2, non_finite_steps=2, first_bad_step=2) for seed in range(2))
    dynamic = msgspec.structs.replace(dynamic, runs=runs)
    lost = variant("mixed_float16:static=16777216", (None,))
    return comparison(task(variant("float32", (0.9, 0.91)), dynamic, lost))


def test_the_page_loads_nothing_from_outside(measured: Comparison) -> None:
    page = render_page(measured)
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", page)


def test_the_page_holds_the_whole_comparison(measured: Comparison) -> None:
    element = r'<script type="application/json" id="comparison">(.*?)</script>'
    data = re.search(element, render_page(measured), re.DOTALL)
    assert data is not None
    assert from_json(data[1].replace("<\\/", "</"), Comparison) == measured


def test_names_from_outside_are_text_on_the_page() -> None:
    hostile = '</script><img src=x onerror="alert(1)">'
    named = task(variant("float32"), task=hostile, title=hostile, metric=hostile)
    page = render_page(comparison(named, device=hostile))
    assert "<img" not in page.split('id="comparison">')[0]
    assert page.count("</script>") == 1


def test_a_comparison_without_results_is_a_page_too() -> None:
    assert "Nothing was measured" in render_page(comparison())


def test_a_browser_shows_every_curve_with_its_data(measured: Comparison, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_page(measured), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page)
        curves = browser.run(
            """
            return [...document.querySelectorAll('polyline')].map(line => ({
                chart: line.closest('figure').dataset.chart, variant: line.dataset.variant, seed: line.dataset.seed,
                points: line.points.numberOfItems, first: line.points[0].y, last: line.points[line.points.length - 1].y,
                width: line.getBoundingClientRect().width, title: line.querySelector('title').textContent}));
            """
        )
        rows = browser.run("return [...document.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent)")
        requested = browser.run("return performance.getEntriesByType('resource').length")
        data = browser.run("return JSON.parse(document.getElementById('comparison').textContent).schema")
        complaints = browser.complaints()
        picture = browser.picture()
    assert complaints == []
    assert requested == 0
    assert data == "hwprobe.compare/1"
    assert rows == ["float32", "mixed_float16:dynamic", "mixed_float16:static=16777216"]
    seen = {(curve["chart"], curve["variant"], curve["seed"]): curve for curve in curves}
    assert set(seen) == {
        ("loss", "float32", "0"),
        ("loss", "float32", "1"),
        ("loss", "mixed_float16:dynamic", "0"),
        ("loss", "mixed_float16:dynamic", "1"),
        ("loss", "mixed_float16:static=16777216", "0"),
        ("scale", "mixed_float16:dynamic", "0"),
        ("scale", "mixed_float16:dynamic", "1"),
    }
    assert seen["loss", "float32", "0"]["points"] == STEPS
    # The curve of a lost run ends where it was lost.
    assert seen["loss", "mixed_float16:static=16777216", "0"]["points"] == 2
    assert all(curve["width"] > 10 for curve in curves)
    # Losses and scales fall, so on the screen the curves go down.
    assert all(curve["last"] > curve["first"] for curve in curves)
    assert picture.startswith(b"\x89PNG")


def test_a_long_run_is_thinned_out_and_keeps_its_ends() -> None:
    losses = tuple(2.0 ** (step / 1000) for step in range(5000))
    long = msgspec.structs.replace(variant("mixed_bfloat16"), runs=(run(losses=losses),))
    points = re.search(r'points="([^"]*)"', render_page(comparison(task(long))))
    assert points is not None
    drawn = points[1].split()
    assert 300 < len(drawn) < 600
    assert drawn[0].startswith("56.0,")
    assert drawn[-1].startswith("640.0,")
