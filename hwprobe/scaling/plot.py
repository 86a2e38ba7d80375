"""Drawing a calibration with matplotlib, which only the extra `plots` brings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from hwprobe.errors import InputError, UnsupportedError
from hwprobe.scaling.bounds import FLOAT16_LARGEST, ROUNDS_TO_ZERO, SMALLEST_NORMAL

if TYPE_CHECKING:
    from hwprobe.scaling.calibration import Calibration

_BAR, _LOST, _DIGITS, _INK = "#3b6ea8", "#c8553d", "#d9a441", "#333333"


def draw(calibration: Calibration, path: Path) -> None:
    """Draw the exponents of the gradients, and where float16 ends for the scale that was chosen.

    Args:
        calibration: What to draw.
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
    exponents = range(calibration.histogram_from, calibration.histogram_from + len(calibration.histogram))
    total = max(1, sum(calibration.histogram))
    axes.bar(exponents, [count / total for count in calibration.histogram], width=0.9, align="edge", color=_BAR)
    bits = math.log2(calibration.scale) if calibration.scale else 0.0
    ends = ((ROUNDS_TO_ZERO, _LOST, "becomes 0"), (SMALLEST_NORMAL, _DIGITS, "loses digits"))
    for edge, colour, label in (*ends, (math.log2(FLOAT16_LARGEST), _LOST, "overflows")):
        axes.axvline(edge - bits, color=colour, linestyle="--", label=f"{label} at 2**{edge - bits:.0f}")
    seen = [exponent for exponent, count in zip(exponents, calibration.histogram, strict=True) if count]
    left, right = min(seen, default=ROUNDS_TO_ZERO), max(seen, default=0)
    axes.set_xlim(min(left, ROUNDS_TO_ZERO - bits) - 2, max(right, 16.0 - bits) + 2)
    axes.set_xlabel("exponent of the gradient (powers of two)", color=_INK)
    axes.set_ylabel("share of the non-zero elements", color=_INK)
    axes.set_title(calibration.headline, color=_INK, fontsize=10, wrap=True)
    axes.legend(frameon=False)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {path}: {error}") from error
