"""TensorFlow releases and the libraries that they open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hwprobe.knowledge.tensorflow import library_sets, newest_release, release, releases, sonames

CUDA_12 = (
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
)
CUDA_11 = (
    "libcudart.so.11.0",
    "libcublas.so.11",
    "libcublasLt.so.11",
    "libcufft.so.10",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusparse.so.11",
)


@pytest.mark.parametrize(
    ("version", "row", "known"),
    [
        ("2.4.4", "2.4", True),
        ("2.17.1", "2.17", True),
        ("2.21.0", "2.21", True),
        ("2.22.0-rc0", "2.22", True),
        ("2.22.0rc0", "2.22", True),
        ("2.15.0+nv23.11", "2.15", True),
        ("2.14.0.600", "2.14", True),
        ("2.20.0.post1", "2.20", True),
        ("2.23.0.dev20261026", "2.22", False),
        ("3.0.0", "2.22", False),
    ],
)
def test_a_version_finds_its_minor_release(version: str, row: str, known: bool) -> None:
    found = release(version)

    assert found is not None
    assert (found.version, found.known) == (row, known)


@pytest.mark.parametrize("version", ["2.3.4", "1.15.0", "0.12"])
def test_a_version_older_than_the_table_is_not_guessed(version: str) -> None:
    assert release(version) is None


@pytest.mark.parametrize("version", ["", "latest", "2.x", "two"])
def test_text_that_is_no_version_is_not_guessed(version: str) -> None:
    assert release(version) is None


@pytest.mark.parametrize(
    ("version", "cuda", "cudnn", "bfloat16", "opens_nvml", "and_cuda", "windows"),
    [
        ("2.10", "11.2", "8.1", "unusable", False, False, True),
        ("2.11", "11.2", "8.1", "unusable", False, False, False),
        ("2.12", "11.8", "8.6", "partial", False, False, False),
        ("2.13", "11.8", "8.6", "complete", False, False, False),
        ("2.14", "11.8", "8.7", "complete", False, True, False),
        ("2.15", "12.2", "8.9", "complete", False, True, False),
        ("2.17", "12.3", "8.9", "complete", False, True, False),
        ("2.18", "12.5", "9.3", "complete", False, True, False),
        ("2.20", "12.5", "9.3", "complete", False, True, False),
        ("2.21", "12.5", "9.3", "complete", True, True, False),
        ("2.22", "12.5", "9.10", "complete", True, True, False),
    ],
)
def test_what_a_release_was_built_for(
    version: str, cuda: str, cudnn: str, bfloat16: str, opens_nvml: bool, and_cuda: bool, windows: bool
) -> None:
    row = release(version)

    assert row is not None
    assert (row.cuda, row.cudnn_minimum, row.bfloat16) == (cuda, cudnn, bfloat16)
    assert (row.opens_nvml, row.and_cuda, row.native_windows_gpu) == (opens_nvml, and_cuda, windows)


def test_only_the_releases_that_were_seen_to_miss_pip_libraries_are_blamed() -> None:
    assert {fault for row in releases() for fault in row.pip_libraries_fault} == {"2.16.1", "2.17.0rc0", "2.21.0"}


@pytest.mark.parametrize(
    ("python", "has"),
    [("3.8.20", False), ("3.9", True), ("3.12.1", True), ("3.13.0", False), ("", None), ("unreadable", None)],
)
def test_a_release_has_wheels_for_some_pythons(python: str, has: bool | None) -> None:
    found = release("2.17")
    assert found is not None
    assert (found.has_wheel_for(python), found.pythons) == (has, "3.9 to 3.12")


def test_a_release_without_a_last_python_says_so() -> None:
    newest = newest_release(pre_release=True)
    assert (newest.has_wheel_for("3.99"), newest.pythons) == (True, f"{newest.python_minimum} and newer")


@pytest.mark.parametrize(
    ("version", "misses"),
    [("2.16.1", True), ("2.16.2", False), ("2.16", False), ("2.21.0", True), ("2.21", True), ("2.21.1", False)],
)
def test_a_fault_is_of_one_version(version: str, misses: bool) -> None:
    found = release(version)

    assert found is not None
    assert found.misses_pip_libraries(version) is misses


def test_the_newest_release_is_a_final_one_unless_asked_otherwise() -> None:
    assert newest_release().version == "2.21"
    assert newest_release(pre_release=True) == releases()[-1]


@pytest.mark.parametrize(
    ("cuda", "cudnn", "system", "expected"),
    [
        ("12.5.1", "9", "Linux", (*CUDA_12, "libcudnn.so.9")),
        ("12.3", "8", "Linux", (*CUDA_12, "libcudnn.so.8")),
        ("11.8", "8", "Linux", (*CUDA_11, "libcudnn.so.8")),
        ("11.2", None, "Linux", (*CUDA_11, "libcudnn.so.8")),
        (None, None, "Linux", (*CUDA_12, "libcudnn.so.9")),
        (None, "9", "Linux", (*CUDA_12, "libcudnn.so.9")),
        ("12.2", "unreadable", "Linux", (*CUDA_12, "libcudnn.so.9")),
        ("13.0", "9", "Linux", ()),
        ("10.1", "7", "Linux", ()),
        ("unreadable", "9", "Linux", ()),
        ("12.5.1", "9", "Darwin", ()),
        ("12.5.1", "9", "Windows", ()),
    ],
)
def test_the_libraries_of_a_build(cuda: str | None, cudnn: str | None, system: str, expected: tuple[str, ...]) -> None:
    assert sonames(cuda, cudnn, system) == expected


def test_the_release_for_cuda_11_0_asks_for_another_cusolver() -> None:
    assert "libcusolver.so.10" in sonames("11.0", "8", "Linux")
    assert "libcusolver.so.11" in sonames("11.1", "8", "Linux")


def test_windows_builds_write_their_versions_in_a_form_of_their_own() -> None:
    names = sonames("64_112", "64_8", "Windows")

    assert names[0] == "cudart64_110.dll"
    assert "cusolver64_11.dll" in names
    assert names[-1] == "cudnn64_8.dll"


def test_law_releases_ascend_without_a_gap() -> None:
    minors = [row.minor for row in releases()]

    assert minors == [(2, minor) for minor in range(4, 4 + len(minors))]


def test_law_every_version_of_a_row_parses() -> None:
    for row in releases():
        for text in (row.version, row.cuda, row.cudnn_minimum, row.python_minimum, *row.pip_libraries_fault):
            Version(text)
        assert row.python_maximum is None or Version(row.python_maximum) >= Version(row.python_minimum)
        assert row.keras is None or SpecifierSet(row.keras)
        assert all(Version(fault).release[:2] == row.minor for fault in row.pip_libraries_fault)


def test_law_abilities_never_vanish_with_a_newer_release() -> None:
    order = ["unusable", "partial", "complete"]
    for older, newer in zip(releases(), releases()[1:], strict=False):
        assert Version(newer.cuda) >= Version(older.cuda)
        assert Version(newer.cudnn_minimum) >= Version(older.cudnn_minimum)
        assert order.index(newer.bfloat16) >= order.index(older.bfloat16)
        assert newer.opens_nvml >= older.opens_nvml
        assert newer.and_cuda >= older.and_cuda
        assert newer.native_windows_gpu <= older.native_windows_gpu
        assert Version(newer.python_minimum) >= Version(older.python_minimum)


def test_law_only_the_newest_release_may_be_a_pre_release() -> None:
    assert not any(row.pre_release for row in releases()[:-1])


def test_law_each_list_of_architectures_ascends_and_ends_in_its_only_ptx() -> None:
    for row in releases():
        numbers = [int(entry.partition("_")[2]) for entry in row.architectures]
        assert numbers == sorted(numbers)
        assert [entry for entry in row.architectures if entry.startswith("compute_")] == [row.architectures[-1]]


def test_law_every_release_has_a_set_of_libraries_on_linux() -> None:
    for row in releases():
        major = row.cudnn_minimum.partition(".")[0]
        names = sonames(row.cuda, major, "Linux")
        assert names[-1] == f"libcudnn.so.{major}"
        assert len(set(names)) == len(names)


def test_law_library_sets_do_not_overlap() -> None:
    for system in ("Linux", "Windows"):
        for cuda in ((major, minor) for major in range(10, 15) for minor in range(10)):
            assert sum(row.system == system and row.serves(cuda) for row in library_sets()) <= 1


@given(st.one_of(st.none(), st.text(max_size=12)), st.one_of(st.none(), st.text(max_size=12)))
def test_no_recorded_version_is_a_surprise(cuda: str | None, cudnn: str | None) -> None:
    names = sonames(cuda, cudnn, "Linux")

    assert names == () or "cudnn" in names[-1]


@given(st.text(max_size=20))
def test_no_text_for_a_version_is_a_surprise(text: str) -> None:
    found = release(text)

    assert found is None or found.minor <= releases()[-1].minor
