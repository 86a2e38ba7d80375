"""`hwprobe gpus`, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwprobe.cli.gpus import gpus
from hwprobe.errors import InputError
from hwprobe.knowledge.gpu_names import search
from hwprobe.knowledge.gpus import boards
from hwprobe.render.boards import BoardEntry, BoardList
from hwprobe.serialize import from_json, to_json

Listed = Callable[..., Sequence[BoardEntry]]


@pytest.fixture(autouse=True)
def no_policy_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWPROBE_POLICY", raising=False)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        gpus.main(args=list(arguments), prog_name="hwprobe gpus", standalone_mode=False)
        return capsys.readouterr()

    return run


@pytest.fixture
def listed(call: Callable[..., Any]) -> Listed:
    def run(*arguments: str) -> Sequence[BoardEntry]:
        return from_json(call(*arguments, "--format", "json").out, BoardList).boards

    return run


def names(entries: Iterable[BoardEntry]) -> list[str]:
    return [entry.name for entry in entries]


def test_without_anything_it_lists_the_whole_catalogue(listed: Listed) -> None:
    assert names(listed()) == [board.name for board in boards()]


def test_one_board_stays_one_line_in_a_pipe(call: Callable[..., Any]) -> None:
    lines = call("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition").out.splitlines()

    (row,) = [line for line in lines if "RTX PRO 6000" in line]
    assert "12.0 Blackwell" in row
    assert "no code" in row
    assert "none so far" in row


@pytest.mark.parametrize(
    ("pattern", "cells"),
    [
        ("Tesla T4", ["7.5 Turing", "float16", "16", "mixed_float16", "2.4 on"]),
        ("L4", ["8.9 Ada Lovelace", "float16, bfloat16, tf32, fp8", "24", "mixed_bfloat16", "2.13 on"]),
        ("NVIDIA H100 NVL", ["9.0 Hopper", "94", "mixed_bfloat16", "2.13 on, native 2.16 on"]),
        ("K80", ["3.7 Kepler", "none", "12", "no code", "up to 2.14"]),
        ("GTX 1630", ["7.5 Turing", "none", "4", "float32", "2.4 on"]),
        ("DGX Spark", ["12.1 Blackwell", "128 unified", "no code*", "none so far"]),
        ("Matrox D2450", ["7.5 Turing", "unknown", "4", "float32"]),
        ("DRIVE P2021", ["10.0 Blackwell", "unknown", "no code"]),
        ("RTX 5060 Ti", ["12.0 Blackwell", "8 or 16"]),
    ],
)
def test_the_table_shows_what_counts(call: Callable[..., Any], pattern: str, cells: list[str]) -> None:
    (row,) = [line for line in call(pattern).out.splitlines() if line.strip().startswith(("NVIDIA", "Tesla", "Matrox"))]
    found = [cell.strip() for cell in row.split("   ") if cell.strip()]

    assert [cell for cell in cells if cell not in found] == []


def test_the_footer_says_for_which_tensorflow_and_what_the_marks_mean(call: Callable[..., Any]) -> None:
    shown = call("GB10").out

    assert "TensorFlow 2.21" in shown
    assert "policy default" in shown
    assert "no code:" in shown
    assert "*: comes with an Arm CPU" in shown
    assert "native:" not in shown
    assert "no code:" not in call("T4").out
    assert "native:" in call("H200").out


@pytest.mark.parametrize("words", [("rtx", "4070", "ti", "super"), ("rtx 4070 ti super",), ("4070 TI SUPER",)])
def test_a_pattern_needs_no_quotes(listed: Listed, words: tuple[str, ...]) -> None:
    assert names(listed(*words)) == ["NVIDIA GeForce RTX 4070 Ti SUPER"]


def test_variants_are_listed_beside_the_board(listed: Listed) -> None:
    assert names(listed("3090")) == ["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090 Ti"]


def test_a_doubtful_name_is_asked_back_and_a_clear_one_is_not(call: Callable[..., Any]) -> None:
    assert "name one in full" in call("A100").err
    assert "name one in full" in call("RTX 6000").err
    for clear in ("3090", "A100 80GB", "T4", "RTX 30*", ""):
        assert call(clear).err == ""


def test_a_label_of_a_mig_device_finds_its_board_and_says_what_it_is(call: Callable[..., Any]) -> None:
    shown = call("A100-SXM4-40GB-MIG-1g.5gb")

    assert "NVIDIA A100-SXM4-40GB" in shown.out
    assert "1g.5gb is a MIG device" in shown.err


def test_supports_asks_for_what_is_usable_and_not_for_what_the_silicon_could(listed: Listed) -> None:
    bfloat16 = listed("--supports", "mixed_bfloat16")

    assert "NVIDIA A100-SXM4-40GB" in names(bfloat16)
    assert "NVIDIA GeForce RTX 5090" not in names(bfloat16)
    assert "Tesla T4" not in names(bfloat16)
    assert all("mixed_bfloat16" in entry.usable for entry in bfloat16)
    assert {"Tesla T4", "NVIDIA A100-SXM4-40GB"} <= set(names(listed("--supports", "mixed_float16")))
    assert "NVIDIA GeForce GTX 1660 Ti" in names(listed("--supports", "float32"))


@pytest.mark.parametrize("size", ["40GiB", "40", "40 gib", "40960MiB", "0.0390625TiB"])
def test_a_size_may_be_written_in_several_ways(listed: Listed, size: str) -> None:
    found = listed("--min-memory", size, "--architecture", "Ampere")

    assert found
    assert all(max(entry.memory_gib) >= 40 for entry in found)
    assert {"NVIDIA A40", "NVIDIA A100-SXM4-40GB"} <= set(names(found))


def test_a_board_of_several_sizes_fits_if_one_of_them_does(listed: Listed) -> None:
    assert "NVIDIA GeForce RTX 3080" in names(listed("3080", "--min-memory", "12"))
    assert "NVIDIA GeForce RTX 3080" not in names(listed("3080", "--min-memory", "12.5"))


def test_boards_of_unknown_memory_are_left_out_aloud(call: Callable[..., Any]) -> None:
    shown = call("--min-memory", "1", "--architecture", "Blackwell")

    assert "left out: 5 boards" in shown.err
    assert "DRIVE P2021" not in shown.out
    assert call("--architecture", "Blackwell").err == ""


def test_filters_are_joined(listed: Listed) -> None:
    found = listed("--architecture", "ada", "--segment", "datacenter", "--min-memory", "48")

    assert names(found) == ["NVIDIA L20", "NVIDIA L40", "NVIDIA L40S"]
    assert {(entry.architecture, entry.segment) for entry in found} == {("Ada Lovelace", "datacenter")}


def test_nothing_that_fits_is_said_and_the_forms_stay_whole(call: Callable[..., Any]) -> None:
    impossible = ("T4", "--min-memory", "1000")

    assert call(*impossible).out == ""
    assert "no board of the catalogue fits" in call(*impossible).err
    assert json.loads(call(*impossible, "--format", "json").out)["boards"] == []
    assert len(call(*impossible, "--format", "csv").out.splitlines()) == 1


def test_json_reads_itself_back(call: Callable[..., Any]) -> None:
    shown = call("--format", "json").out
    document = from_json(shown, BoardList)

    assert (document.schema, document.tensorflow, document.policy) == ("hwprobe.gpus/1", "2.21", "default")
    assert json.loads(to_json(document)) == json.loads(shown)


def test_csv_has_a_column_for_every_key_but_the_reasons(call: Callable[..., Any], listed: Listed) -> None:
    rows = list(csv.DictReader(io.StringIO(call("V100", "--format", "csv").out)))
    entries = listed("V100")

    assert [row["name"] for row in rows] == names(entries)
    assert set(rows[0]) == set(BoardEntry.__struct_fields__) - {"rejected"}
    assert rows[0]["tensor_cores"] == "float16"
    assert rows[0]["usable"] == "mixed_float16 float32"
    assert rows[0]["unified_memory"] == "false"
    assert rows[0]["tensorflow_last"] == ""
    assert [float(size) for size in rows[0]["memory_gib"].split()] == list(entries[0].memory_gib)


def test_csv_keeps_names_of_several_words_apart(call: Callable[..., Any]) -> None:
    (row,) = csv.DictReader(io.StringIO(call("Orin", "--format", "csv").out))

    assert row["also"].split("; ") == ["Orin", "Jetson AGX Orin", "Jetson Orin NX", "Jetson Orin Nano"]


def test_a_policy_changes_the_choice(listed: Listed, tmp_path: Path) -> None:
    (entry,) = listed("L4", "--policy", "prefer-float16")

    assert entry.dtype_policy == "mixed_float16"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--min-memory", "much"), ["much", "40GiB"]),
        (("--min-memory", "-4"), ["-4", "40GiB"]),
        (("--architecture", "Rubin"), ["Rubin", "Ampere", "Blackwell"]),
        (("--architecture", ""), ["Ampere"]),
        (("--segment", "toys"), ["toys", "datacenter"]),
        (("--supports", "float16"), ["float16", "mixed_float16"]),
        (("--format", "xml"), ["xml", "csv"]),
    ],
)
def test_wrong_usage_names_the_accepted_values(
    call: Callable[..., Any], arguments: tuple[str, ...], named: list[str]
) -> None:
    with pytest.raises(click.UsageError) as caught:
        call(*arguments)

    assert [word for word in named if word not in caught.value.format_message()] == []


def test_a_name_of_nothing_is_refused_with_what_looks_like_it(call: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"'309O'.*NVIDIA GeForce RTX 3090"):
        call("309O")
    with pytest.raises(InputError, match=r"hwprobe gpus"):
        call("Radeon")


def test_an_unknown_policy_is_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="no-such-policy"):
        call("T4", "--policy", "no-such-policy")


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40))
def test_no_pattern_is_a_surprise(call: Callable[..., Any], pattern: str) -> None:
    if pattern.strip() and not search(pattern):
        with pytest.raises(InputError, match=re.escape(repr(pattern))):
            call("--", pattern)
    else:
        assert json.loads(call("--format", "json", "--", pattern).out)["boards"]
