"""`hwprobe rules` and `hwprobe explain ID`: the pages behind the findings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hwprobe.cli import main
from hwprobe.cli.every_rule import every_rule
from hwprobe.render.rule_pages import rule_page, rules_document

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rules.md"
REGENERATE = "python -m hwprobe rules --format markdown > docs/rules.md"


def test_the_page_in_docs_is_the_catalogue_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == rules_document(every_rule()), f"write it again: {REGENERATE}"


def test_every_link_of_the_page_has_its_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = {line.removeprefix("### ").lower().replace(" ", "-") for line in text.splitlines() if line[:4] == "### "}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) == headings


@pytest.mark.parametrize("asked", ["HWP208", "hwp208", "library-missing"])
def test_a_rule_is_explained_by_id_and_by_name(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", asked]) == 0
    page = capsys.readouterr().out
    assert page.startswith("HWP208 library-missing: A shared library that TensorFlow opens is missing\n")
    for heading in ("What it checks: ", "Why it matters: ", "How to fix it: ", "Reference: "):
        assert re.search(rf"^{heading}\S", page, re.MULTILINE)
    assert "Skipped where one of these is an error and the cause: HWP209" in page


@pytest.mark.parametrize("id_", ["HWP450", "HWP605", "HWP643"])
def test_rules_of_benches_training_and_models_are_explained_too(id_: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", id_]) == 0
    assert capsys.readouterr().out.startswith(f"{id_} ")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("HWP299", "there is no rule HWP299: near it are HWP201"),
        ("library-mising", "near it are library-missing"),
        ("what", "see hwprobe rules"),
    ],
)
def test_an_unknown_rule_is_wrong_usage_with_a_way_on(
    asked: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", asked]) == 2
    assert says in capsys.readouterr().err


def test_the_list_has_a_line_for_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [rule.id for rule in every_rule()]
    assert main(["rules", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [rule["id"] for rule in listed] == [rule.id for rule in every_rule()]
    assert set(listed[0]) == {
        *("id", "name", "title", "severity", "action", "explanation", "after", "hides_gpus"),
    }


def test_the_command_writes_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")


def test_no_page_is_cut_short() -> None:
    for rule in every_rule():
        page = rule_page(rule)
        assert rule.explanation.fix in page
        assert page.endswith("\n")


def test_without_an_id_the_decision_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--fast", "--policy", "default"]) == 0
    here = capsys.readouterr().out
    assert "\npolicy default (from: argument)\n" in here
    assert "\nwhat would change it:\n" in here
    assert main(["explain", "--target", "Tesla T4, tensorflow 2.17"]) == 0
    assert capsys.readouterr().out.startswith("mixed_float16 with dynamic loss scaling: Tesla T4 (7.5)\n")


def test_explaining_loads_neither_tensorflow_nor_nvml() -> None:
    heavy = ("tensorflow", "keras", "pynvml", "numpy")
    source = (
        "import sys; from hwprobe.cli import main; main(['explain', 'HWP643']); main(['rules']); "
        f"print('loaded', [name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "loaded []"
