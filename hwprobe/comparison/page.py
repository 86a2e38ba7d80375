"""A comparison as one self-contained HTML page: tables, verdicts, and curves of loss and scale as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from hwprobe.comparison.facts import Comparison, Run, TaskResult, VariantResult
from hwprobe.comparison.figures import about, headings, rows, scaling_text
from hwprobe.serialize import to_json

_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#767676")
"""Okabe and Ito's palette, which people with colour-blindness can tell apart; yellow replaced by grey."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 260, 56, 28, 12
_POINTS = 400

_STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
td { white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; flex: 1 1 24rem; }
figcaption { font-size: .85rem; } svg { width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; } svg .axis { stroke: currentColor; opacity: .4; }
svg .grid { stroke: var(--line); } svg polyline { fill: none; stroke-width: 1.5; stroke-opacity: .75; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px; }
"""


def render_page(comparison: Comparison) -> str:
    """Write the page. It loads nothing from anywhere and holds the comparison as JSON too."""
    # In a script element only "</" could end it early.
    data = to_json(comparison).replace("</", "<\\/")
    sections = "".join(_section(task) for task in comparison.tasks) or "<p>Nothing was measured.</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>hwprobe compare: {escape(comparison.device)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>Precision variants compared</h1><p>{escape(about(comparison))}</p>{sections}"
        f'<script type="application/json" id="comparison">{data}</script></body></html>\n'
    )


def _section(task: TaskResult) -> str:
    better = "higher is better" if task.higher_is_better else "lower is better"
    verdicts = "".join(f"<li>{escape(sentence)}</li>" for sentence in task.verdict)
    return (
        f'<section id="{escape(task.task, quote=True)}"><h2>{escape(task.task)}: {escape(task.title)}</h2>'
        f"<p>{task.steps} steps a run; {escape(task.metric)}: {better}.</p><ul>{verdicts}</ul>"
        f'{_table(task)}<div class="charts">'
        f"{_chart(task, 'loss', 'loss of each step (logarithmic)', _losses)}"
        f"{_chart(task, 'scale', 'loss scale of each step (logarithmic)', _scales)}</div></section>"
    )


def _table(task: TaskResult) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings(task))
    lines = []
    for number, (variant, cells) in enumerate(zip(task.variants, rows(task), strict=True)):
        swatch = f'<span class="swatch" style="background:{_color(number)}"></span>'
        about_it = escape(variant.not_run_because or variant.note or scaling_text(variant.loss_scaling), quote=True)
        first = f'<td title="{about_it}">{swatch}{escape(cells[0])}</td>'
        lines.append(f"<tr>{first}{''.join(f'<td>{escape(cell)}</td>' for cell in cells[1:])}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _color(number: int) -> str:
    return _COLORS[number % len(_COLORS)]


def _losses(run: Run) -> Sequence[float | None]:
    return run.losses


def _scales(run: Run) -> Sequence[float | None]:
    return run.scales


def _chart(task: TaskResult, name: str, caption: str, series: Callable[[Run], Sequence[float | None]]) -> str:
    curves = [
        (number, variant, run, _logarithms(series(run)))
        for number, variant in enumerate(task.variants)
        for run in variant.runs
    ]
    known = [value for *_, values in curves for value in values if value is not None]
    if not known:
        return ""
    low, high = math.floor(min(known)), math.ceil(max(known))
    high = max(high, low + 1)
    last = max(len(values) for *_, values in curves) - 1
    lines = "".join(
        _curve(number, variant, run, values, last, low, high) for number, variant, run, values in curves if values
    )
    title = escape(f"{task.task}: {caption}")
    return (
        f'<figure data-chart="{name}"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{title}</title>'
        f"{_axes(last, low, high)}{lines}</svg><figcaption>{escape(caption)}; one line a run</figcaption></figure>"
    )


def _logarithms(values: Sequence[float | None]) -> list[float | None]:
    return [math.log2(value) if value is not None and value > 0.0 else None for value in values]


def _axes(last: int, low: int, high: int) -> str:
    step = max(1, (high - low) // 6)
    parts = []
    for exponent in range(low, high + 1, step):
        y = _y(exponent, low, high)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">2^{exponent}</text>')
    bottom = _HEIGHT - _BOTTOM
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">step 0</text>')
    parts.append(f'<text x="{_WIDTH}" y="{_HEIGHT - 8}" text-anchor="end">step {last}</text>')
    return "".join(parts)


def _curve(
    number: int, variant: VariantResult, run: Run, values: list[float | None], last: int, low: int, high: int
) -> str:
    """Draw one run, in pieces: where a value is not finite there is a gap."""
    stride = max(1, len(values) // _POINTS)
    pieces: list[list[str]] = [[]]
    for step in (*range(0, len(values) - 1, stride), len(values) - 1):
        value = values[step]
        if value is None:
            if pieces[-1]:
                pieces.append([])
            continue
        pieces[-1].append(f"{_x(step, last):.1f},{_y(value, low, high):.1f}")
    label = escape(f"{variant.variant}, seed {run.seed}", quote=True)
    return "".join(
        f'<polyline data-variant="{escape(variant.variant, quote=True)}" data-seed="{run.seed}" '
        f'stroke="{_color(number)}" points="{" ".join(piece)}"><title>{label}</title></polyline>'
        for piece in pieces
        if len(piece) > 1
    )


def _x(step: int, last: int) -> float:
    return _LEFT + (_WIDTH - _LEFT) * step / max(1, last)


def _y(value: float, low: int, high: int) -> float:
    return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (high - value) / (high - low)
