"""Draws the pictures of docs/audit.md, docs/compare.md and docs/bench.md: `python -m docs.images.draw [compare.json]`.

The picture of a comparison is a screenshot of the page that `hwprobe compare --html` writes. It is made from the JSON
of a comparison that was run before, since that takes minutes; without the argument it is left as it is.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from examples.hazards import with_mistakes
from hwprobe.bench.rules import judge_bench
from hwprobe.bench.running import bench
from hwprobe.bench.text import print_bench
from hwprobe.comparison.facts import Comparison
from hwprobe.comparison.page import render_page
from hwprobe.model.audit import audit
from hwprobe.model.text import print_audit
from hwprobe.serialize import from_json
from tests.model.browser import Browser

HERE = Path(__file__).parent


class _Wrapping(Console):
    """Wraps the lines that a terminal would: a picture has an edge."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        del soft_wrap
        super().print(*objects, soft_wrap=False, **options)


def draw(name: str, command: str, show: Callable[[Console], None], width: int = 118) -> None:
    """Draw what a command prints."""
    console = _Wrapping(record=True, width=width, file=io.StringIO(), highlight=False, markup=False, emoji=False)
    show(console)
    picture = console.export_svg(title=command)
    # rich names a web font; a viewer's own monospaced one does as well, and nothing is fetched.
    picture = re.sub(r"@font-face\s*\{.*?\}", "", picture, flags=re.DOTALL)
    lines = [line.rstrip() for line in picture.splitlines()]
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_page(recorded: Path) -> None:
    """Take the picture of a comparison's page, from its JSON."""
    comparison = from_json(recorded.read_text(encoding="utf-8"), Comparison, where=str(recorded))
    shown = tuple(task for task in comparison.tasks if task.task.startswith("regression"))
    comparison = msgspec.structs.replace(comparison, tasks=shown)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        page.write_text(render_page(comparison), encoding="utf-8")
        with Browser(Path(folder, "profile")) as browser:
            browser.open(page)
            (HERE / "compare.png").write_bytes(browser.picture())


if __name__ == "__main__":
    model, batch = with_mistakes()
    result = audit(model, batch)
    draw("audit.svg", "hwprobe audit examples.hazards:with_mistakes", lambda console: print_audit(result, console))
    measured = bench("CPU:0")
    draw("bench.svg", "hwprobe bench", lambda console: print_bench(measured, judge_bench(measured), console))
    if len(sys.argv) > 1:
        draw_page(Path(sys.argv[1]))
