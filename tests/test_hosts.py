"""Recorded machines, each with the answer beside it: `tests/hosts/NAME.json` (or .xml, .csv) and `NAME.toml`.

The recording is a file of `hwprobe capture`, output of `nvidia-smi -q -x` or of its csv, or the labels of a Kubernetes
node (`NAME.labels.json`). The other file says what must come out, with the default policy:

    about = "Two unlike cards: the weaker one decides"
    source = "where the recording is from"
    tensorflow = "2.17"                 # only for a recording without one
    verdict = "ready"
    dtype_policy = "mixed_float16"
    loss_scaling = "dynamic"
    findings = ["HWP207"]               # every error and warning, causes before effects; none is left out
    primary = "HWP206"                  # the one first cause, where it is not the first of them
    notes = ["HWP403"]                  # information that must be among it
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwprobe.cli import main
from hwprobe.rules.catalogue import RULES
from tests.toml import read_toml

FOLDER = Path(__file__).parent / "hosts"
ANSWERS = sorted(FOLDER.glob("*.toml"))
RECORDINGS = [path for path in sorted(FOLDER.iterdir()) if path.suffix != ".toml"]
REQUIRED = {"about", "source", "verdict", "dtype_policy", "loss_scaling", "findings"}
HWPROBE_ITSELF = "HWP9"
"""Rules that speak of hwprobe's own tables and of today's date, not of the machine."""


def name_of(path: Path) -> str:
    return path.name.partition(".")[0]


def expected(path: Path) -> dict[str, Any]:
    return read_toml(FOLDER / f"{name_of(path)}.toml")


def test_every_recording_has_its_answer_and_every_answer_its_recording() -> None:
    assert [name_of(path) for path in RECORDINGS] == [name_of(path) for path in ANSWERS]


@pytest.mark.parametrize("path", ANSWERS, ids=name_of)
def test_an_answer_says_what_it_must_and_nothing_else(path: Path) -> None:
    answer = expected(path)
    assert set(answer) >= REQUIRED
    assert set(answer) <= REQUIRED | {"tensorflow", "notes", "primary"}
    assert set(answer["findings"]) | set(answer.get("notes", [])) <= {rule.id for rule in RULES}


@pytest.mark.parametrize("path", RECORDINGS, ids=name_of)
def test_a_recorded_machine_is_judged_as_it_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = expected(path)
    option = "--target" if path.name.endswith(".labels.json") else "--from"
    tensorflow = ["--tensorflow", answer["tensorflow"]] if "tensorflow" in answer else []
    main(
        ["check", option, str(path), *tensorflow, "--policy", "default", "--ignore", HWPROBE_ITSELF, "--format", "json"]
    )
    check = json.loads(capsys.readouterr().out)
    assert check.get("error") is None
    found = check["findings"]
    assert (check["verdict"], check["decision"]["dtype_policy"], check["decision"]["loss_scaling"]["mode"]) == (
        answer["verdict"],
        answer["dtype_policy"],
        answer["loss_scaling"],
    )
    assert [finding["id"] for finding in found if finding["severity"] != "info"] == answer["findings"]
    assert set(answer.get("notes", [])) <= {finding["id"] for finding in found if finding["severity"] == "info"}
    first = [answer["primary"]] if "primary" in answer else answer["findings"][:1]
    assert [finding["id"] for finding in found if finding["primary"]] == first
