"""What the documents say about rules is what the catalogue holds."""

import re
from pathlib import Path

import pytest

from hwprobe.bench.rules import RULES as BENCH_RULES
from hwprobe.findings import Rule
from hwprobe.model.rules import RULES as MODEL_RULES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("document", "rules"), [("audit.md", MODEL_RULES), ("bench.md", BENCH_RULES)])
def test_the_table_of_a_document_is_the_catalogue(document: str, rules: tuple[Rule, ...]) -> None:
    text = (DOCS / document).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (HWP\d{3}) \| (\w+) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(rule.id, rule.severity.value, rule.title) for rule in rules]


@pytest.mark.parametrize("document", ["audit.md", "bench.md", "compare.md"])
def test_every_picture_is_there_and_loads_nothing(document: str) -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", (DOCS / document).read_text(encoding="utf-8"))
    assert pictures
    for picture in pictures:
        content = (DOCS / picture).read_bytes()
        assert not re.search(rb"(href|src)=|url\(http", content) or picture.endswith(".png")
