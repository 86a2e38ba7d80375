"""The snippets of the page on loss scaling, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "loss-scaling.md"


def snippets() -> Iterator[tuple[str, str]]:
    """Give the code blocks with the headings that they stand under."""
    heading = ""
    for match in re.finditer(r"^## ([^\n]+)$|^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        if match[1]:
            heading = match[1]
        else:
            yield heading, match[2]


KERAS_3 = [each for each in snippets() if "tf_keras" not in each[1]]
KERAS_2 = [each for each in snippets() if "tf_keras" in each[1]]

PREPARATION = """
import numpy as np
draw = np.random.default_rng(0)
x = draw.normal(size=(64, 64)).astype("float32")
y = draw.integers(0, 10, 64).astype("int32")
batches = [(x[start : start + 16], y[start : start + 16]) for start in range(0, 64, 16)]
"""


def test_the_page_has_snippets_for_fit_and_a_loop_in_each_keras() -> None:
    assert len(KERAS_2) == 2
    assert len(KERAS_3) >= 2


@pytest.mark.parametrize("heading", [each[0] for each in KERAS_3])
def test_a_snippet_for_keras_3_runs(
    heading: str, mixed_float16: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("keras")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(PREPARATION, names)
    exec(dict(KERAS_3)[heading], names)
    if "model" in names:
        assert all(np.isfinite(weight).all() for weight in names["model"].get_weights())


def test_the_snippets_for_keras_2_run(tmp_path: Path) -> None:
    pytest.importorskip("tf_keras")
    script = PREPARATION + "\n".join(code for _, code in KERAS_2)
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_every_rule_that_the_page_names_exists() -> None:
    from hwprobe.scaling import RULES

    named = set(re.findall(r"HWP6\d\d", PAGE.read_text(encoding="utf-8")))
    assert named <= {rule.id for rule in RULES}
