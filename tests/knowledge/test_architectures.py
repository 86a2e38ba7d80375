"""Capability to architecture, for known, newer and older devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.architectures import architecture_of, architectures

HALF = ("float16",)
BFLOAT = ("float16", "bfloat16", "tf32")


@pytest.mark.parametrize(
    ("capability", "name", "dtypes"),
    [
        ("3.0", "Kepler", ()),
        ("3.7", "Kepler", ()),
        ("5.2", "Maxwell", ()),
        ("6.0", "Pascal", ()),
        ("6.1", "Pascal", ()),
        ("7.0", "Volta", HALF),
        ("7.2", "Volta", HALF),
        ("7.5", "Turing", HALF),
        ("8.0", "Ampere", BFLOAT),
        ("8.6", "Ampere", BFLOAT),
        ("8.7", "Ampere", BFLOAT),
        ("8.9", "Ada Lovelace", (*BFLOAT, "fp8")),
        ("9.0", "Hopper", (*BFLOAT, "fp8")),
        ("10.0", "Blackwell", (*BFLOAT, "fp8", "fp4")),
        ("10.3", "Blackwell", (*BFLOAT, "fp8", "fp4")),
        ("11.0", "Blackwell", (*BFLOAT, "fp8", "fp4")),
        ("12.0", "Blackwell", (*BFLOAT, "fp8", "fp4")),
        ("12.1", "Blackwell", (*BFLOAT, "fp8", "fp4")),
    ],
)
def test_a_known_capability(capability: str, name: str, dtypes: tuple[str, ...]) -> None:
    row = architecture_of(ComputeCapability.parse(capability))

    assert (row.name, row.tensor_core_dtypes, row.known) == (name, dtypes, True)
    assert str(row.capability) == capability


@pytest.mark.parametrize(
    ("capability", "stand_in"),
    [("8.8", "8.7"), ("9.1", "9.0"), ("4.0", "3.7"), ("13.0", "12.1"), ("12.2", "12.1"), ("99.9", "12.1")],
)
def test_an_unknown_capability_is_judged_by_the_nearest_older_one_and_says_so(capability: str, stand_in: str) -> None:
    row = architecture_of(ComputeCapability.parse(capability))
    substitute = architecture_of(ComputeCapability.parse(stand_in))

    assert not row.known
    assert substitute.known
    assert (str(row.capability), row.name, row.tensor_core_dtypes) == (
        stand_in,
        substitute.name,
        substitute.tensor_core_dtypes,
    )


@pytest.mark.parametrize("capability", ["2.1", "1.0", "0.0"])
def test_a_device_older_than_the_table_has_no_tensor_cores(capability: str) -> None:
    row = architecture_of(ComputeCapability.parse(capability))

    assert (row.name, row.tensor_core_dtypes, row.known) == ("before Kepler", (), False)


def test_pascal_says_that_float16_is_slow_and_turing_that_some_boards_differ() -> None:
    assert any("1/64" in note for note in architecture_of(ComputeCapability(6, 1)).notes)
    assert any("TU117" in note for note in architecture_of(ComputeCapability(7, 5)).notes)
    assert not any("1/64" in note for note in architecture_of(ComputeCapability(6, 0)).notes)


@given(st.integers(0, 120), st.integers(0, 12))
def test_every_capability_has_an_answer_that_is_not_newer_than_it(major: int, minor: int) -> None:
    capability = ComputeCapability(major, minor)
    row = architecture_of(capability)

    assert row.capability <= capability
    assert row.known == (capability in {each.capability for each in architectures()})
