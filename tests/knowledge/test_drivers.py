"""Drivers and CUDA releases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.knowledge.drivers import (
    Compatibility,
    Toolkit,
    compatibilities,
    driver_cuda_ceiling,
    driver_for_ptx,
    driver_is_older,
    minimum_driver,
    toolkits,
)
from hwprobe.knowledge.tensorflow import Release, releases
from hwprobe.knowledge.versions import cuda_release, numbers


@pytest.mark.parametrize(
    ("version", "minimum", "older"),
    [
        ("535.54.03", "535.104.05", True),
        ("535.104.05", "535.54.03", False),
        ("525.60.13", "525.60.13", False),
        ("450.80.02-grid", "450.80.02", False),
        ("579.99", "580", True),
        ("580.65.06", "580", False),
        ("99.1", "100", True),
        ("unknown", "580", None),
        ("580", "", None),
        ("525", "525.60.13", None),
        ("525.60", "525.60.13", None),
        ("524", "525.60.13", True),
        ("526", "525.60.13", False),
        ("580", "580", False),
    ],
)
def test_drivers_are_compared_number_by_number(version: str, minimum: str, older: bool | None) -> None:
    assert driver_is_older(version, minimum) is older


@pytest.mark.parametrize(
    ("cuda", "linux", "windows"),
    [
        ("11.0", "450.51.05", "451.48"),
        ("11.2", "450.80.02", "452.39"),
        ("11.8", "450.80.02", "452.39"),
        ("12.0", "525.60.13", "527.41"),
        ("12.5.1", "525.60.13", "527.41"),
        ("13.0", "580", None),
        ("13.7", "580", None),
        ("10.1", "418.39", "418.96"),
        ("64_112", "450.80.02", "452.39"),
    ],
)
def test_the_oldest_driver_that_runs_machine_code(cuda: str, linux: str, windows: str | None) -> None:
    assert minimum_driver(cuda, "Linux") == linux
    assert minimum_driver(cuda, "Windows") == windows


@pytest.mark.parametrize(
    ("cuda", "system"), [("14.0", "Linux"), ("8.0", "Linux"), ("none", "Linux"), ("12.5", "Darwin")]
)
def test_a_minimum_that_is_not_known_is_not_guessed(cuda: str, system: str) -> None:
    assert minimum_driver(cuda, system) is None
    assert driver_for_ptx(cuda, system) is None


@pytest.mark.parametrize(
    ("cuda", "linux"), [("12.5.1", "555.42.02"), ("12.2", "535.54.03"), ("11.8", "520.61.05"), ("13.1", "590.44.01")]
)
def test_ptx_needs_the_driver_of_its_own_release(cuda: str, linux: str) -> None:
    assert driver_for_ptx(cuda, "Linux") == linux


def test_ptx_of_a_release_that_the_table_lacks_is_not_guessed() -> None:
    assert driver_for_ptx("12.7", "Linux") is None
    assert minimum_driver("12.7", "Linux") == "525.60.13"


@pytest.mark.parametrize(
    ("driver", "system", "cuda"),
    [
        ("535.104.05", "Linux", "12.2"),
        ("535.54.02", "Linux", "12.1"),
        ("470.42.01", "Linux", "11.4"),
        ("550.54.15", "Linux", "12.4"),
        ("570.124.06-grid", "Linux", "12.8"),
        ("410.72", "Linux", "10.0"),
        ("610.57.04", "Linux", "13.2"),
        ("531.14", "Windows", "12.1"),
        ("581.29", "Windows", "12.9"),
        ("384.80", "Linux", None),
        ("unknown", "Linux", None),
        ("535.104.05", "Darwin", None),
    ],
)
def test_the_newest_cuda_that_a_driver_covers(driver: str, system: str, cuda: str | None) -> None:
    assert driver_cuda_ceiling(driver, system) == cuda


def test_law_toolkits_and_their_drivers_ascend() -> None:
    releases_ = [cuda_release(row.cuda) for row in toolkits()]
    linux = [numbers(row.linux) for row in toolkits()]
    windows = [numbers(row.windows) for row in toolkits() if row.windows is not None]

    for ascending in (releases_, linux, windows):
        assert None not in ascending
        assert ascending == sorted({each for each in ascending if each is not None})


def test_law_a_windows_driver_is_missing_only_where_the_toolkit_brings_none() -> None:
    assert [row.cuda for row in toolkits() if row.windows is None] == ["13.0", "13.1", "13.2"]


def test_law_the_compatibility_floor_lies_within_the_first_release_of_its_major() -> None:
    for row in compatibilities():
        drivers = [linux_driver(toolkit) for toolkit in toolkits() if cuda_major(toolkit) == row.major]
        before = [linux_driver(toolkit) for toolkit in toolkits() if cuda_major(toolkit) < row.major]
        assert max(before) < linux_driver(row) < drivers[1]


def cuda_major(row: Toolkit) -> int:
    release = cuda_release(row.cuda)
    assert release is not None
    return release[0]


def linux_driver(row: Toolkit | Compatibility) -> tuple[int, ...]:
    driver = numbers(row.linux)
    assert driver is not None
    return driver


@pytest.mark.parametrize("row", toolkits(), ids=lambda row: row.cuda)
def test_law_a_releases_own_driver_runs_it_and_covers_it(row: Toolkit) -> None:
    assert driver_cuda_ceiling(row.linux) == row.cuda
    assert driver_for_ptx(row.cuda, "Linux") == row.linux
    minimum = minimum_driver(row.cuda, "Linux")
    assert minimum is not None
    assert driver_is_older(row.linux, minimum) is False


@pytest.mark.parametrize("row", releases(), ids=lambda row: row.version)
def test_law_every_tensorflow_release_has_its_drivers(row: Release) -> None:
    assert minimum_driver(row.cuda, "Linux") is not None
    assert driver_for_ptx(row.cuda, "Linux") is not None


@given(st.lists(st.integers(0, 999), min_size=1, max_size=3), st.lists(st.integers(0, 999), min_size=1, max_size=3))
def test_law_a_newer_driver_covers_no_less(one: list[int], other: list[int]) -> None:
    older, newer = sorted((one, other))
    order = [None, *(row.cuda for row in toolkits())]
    ceilings = [order.index(driver_cuda_ceiling(".".join(map(str, parts)))) for parts in (older, newer)]

    assert ceilings == sorted(ceilings)
