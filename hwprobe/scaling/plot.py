"""Drawing a calibration with matplotlib, which only the extra `plots` brings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from hwprobe.errors import InputError, UnsupportedError
from hwprobe.scaling.bounds import FLOAT16_LARGEST, ROUNDS_TO_ZERO, SMALLEST_NORMAL

_BAR, _LOST, _DIGITS, _INK = "#3b6ea8", "#c8553d", "#d9a441", "#333333"


def draw(histogram: Sequence[int], histogram_from: int, scale: float | None, *, title: str, path: Path) -> None:
    """Draw the exponents of the gradients, and where float16 ends for the scale that was chosen.

    Args:
        histogram: Number of elements of each exponent.
        histogram_from: The first exponent.
        scale: The loss scale; None where none was chosen.
        title: What stands above.
        path: PNG, SVG or PDF, by its ending.

    Raises:
        UnsupportedError: matplotlib is not installed.
        InputError: The file cannot be written, or its ending is not known.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError('drawing needs matplotlib: pip install "tf-hwprobe[plots]"') from error
    figure = Figure(figsize=(9.0, 4.5), layout="constrained")
    axes = figure.subplots()
    exponents = range(histogram_from, histogram_from + len(histogram))
    total = max(1, sum(histogram))
    axes.bar(exponents, [count / total for count in histogram], width=0.9, align="edge", color=_BAR)
    bits = math.log2(scale) if scale else 0.0
    ends = ((ROUNDS_TO_ZERO, _LOST, "becomes 0"), (SMALLEST_NORMAL, _DIGITS, "loses digits"))
    for edge, colour, label in (*ends, (math.log2(FLOAT16_LARGEST), _LOST, "overflows")):
        axes.axvline(edge - bits, color=colour, linestyle="--", label=f"{label} at 2**{edge - bits:.0f}")
    seen = [exponent for exponent, count in zip(exponents, histogram, strict=True) if count]
    left, right = min(seen, default=ROUNDS_TO_ZERO), max(seen, default=0)
    axes.set_xlim(min(left, ROUNDS_TO_ZERO - bits) - 2, max(right, 16.0 - bits) + 2)
    axes.set_xlabel("exponent of the gradient (powers of two)", color=_INK)
    axes.set_ylabel("share of the non-zero elements", color=_INK)
    axes.set_title(title, color=_INK, fontsize=10, wrap=True)
    axes.legend(frameon=False)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {path}: {error}") from error
