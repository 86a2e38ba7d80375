from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("keras")
pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"


def test_the_example_trains_in_each_mode_to_the_accuracy_of_float32(
    float32: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    specification = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    monkeypatch.setattr("sys.argv", ["train_digits.py", "--epochs", "6"])
    example.main()
    table = capsys.readouterr().out.rpartition("mode ")[2].splitlines()[1:]
    rows = {mode: (float(accuracy), int(skipped)) for mode, accuracy, skipped in map(str.split, table)}
    assert set(rows) == set(example.MODES)
    truth = rows["float32"][0]
    assert truth > 0.9
    assert all(accuracy == pytest.approx(truth, abs=0.03) for accuracy, _ in rows.values())
