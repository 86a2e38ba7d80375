"""Version numbers in the spellings of their owners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.knowledge.versions import cuda_release, cudnn_major, numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("535.104.05", (535, 104, 5)),
        ("580", (580,)),
        ("R570", (570,)),
        ("535.104.05-grid", (535, 104, 5)),
        ("580.95.05+ubuntu", (580, 95, 5)),
        (" 470.42.01\n", (470, 42, 1)),
        ("540.4.0", (540, 4, 0)),
        ("", None),
        ("unknown", None),
    ],
)
def test_numbers_of_a_driver(text: str, expected: tuple[int, ...] | None) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.5.1", (12, 5)),
        ("12.5", (12, 5)),
        ("11.0", (11, 0)),
        ("64_112", (11, 2)),
        ("64_110", (11, 0)),
        ("64_101", (10, 1)),
        ("12", None),
        ("", None),
        ("none", None),
    ],
)
def test_major_and_minor_of_cuda(text: str, expected: tuple[int, int] | None) -> None:
    assert cuda_release(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("9", 9), ("8.9.7.29", 8), ("64_8", 8), ("9.10", 9), ("", None), ("cuDNN", None)]
)
def test_major_of_cudnn(text: str, expected: int | None) -> None:
    assert cudnn_major(text) == expected


@given(st.text(max_size=40))
def test_any_text_gives_numbers_or_nothing(text: str) -> None:
    for found in (numbers(text), cuda_release(text)):
        assert found is None or (len(found) > 0 and all(part >= 0 for part in found))
    major = cudnn_major(text)
    assert major is None or major >= 0


@given(st.lists(st.integers(0, 999), min_size=1, max_size=4))
def test_numbers_survive_being_written(parts: list[int]) -> None:
    assert numbers(".".join(map(str, parts))) == tuple(parts)
