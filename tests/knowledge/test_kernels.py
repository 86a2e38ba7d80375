"""Native, compiled at the first start, or none: by the build's list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.kernels import code_for
from hwprobe.knowledge.tensorflow import Release, release, releases

CUSTOM = {
    "NVIDIA's container": ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "compute_120"),
    "CUDA 13": ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120"),
    "Hopper with its own features": ("sm_80", "sm_90a"),
    "Blackwell family": ("sm_90", "compute_100f"),
    "one Blackwell chip": ("sm_90", "sm_100a"),
    "Thor's container": ("sm_110", "compute_110"),
    "no PTX": ("sm_80", "sm_90"),
    "bare numbers": ("7.5", "8.6"),
    "RTX 50": ("sm_120",),
    "datacenter Blackwell with PTX": ("sm_100", "compute_100"),
}


def architectures_of(version: str) -> tuple[str, ...]:
    found = release(version)
    assert found is not None
    return found.architectures


@pytest.mark.parametrize(
    ("version", "capability", "kind", "by"),
    [
        ("2.10", "3.5", "native", "sm_35"),
        ("2.10", "3.7", "native", "sm_35"),
        ("2.10", "8.6", "native", "compute_80"),
        ("2.14", "9.0", "jit", "compute_80"),
        ("2.15", "3.7", "none", None),
        ("2.15", "9.0", "jit", "compute_80"),
        ("2.15", "8.9", "native", "compute_80"),
        ("2.16", "5.2", "native", "sm_50"),
        ("2.16", "9.0", "native", "compute_90"),
        ("2.17", "5.2", "none", None),
        ("2.17", "6.1", "native", "sm_60"),
        ("2.21", "7.0", "native", "sm_70"),
        ("2.21", "7.5", "native", "sm_70"),
        ("2.21", "8.0", "native", "sm_80"),
        ("2.21", "8.7", "native", "sm_80"),
        ("2.21", "8.9", "native", "sm_89"),
        ("2.21", "9.0", "native", "compute_90"),
        ("2.21", "5.2", "none", None),
        ("2.21", "10.0", "none", None),
        ("2.21", "10.3", "none", None),
        ("2.21", "11.0", "none", None),
        ("2.21", "12.0", "none", None),
        ("2.21", "12.1", "none", None),
        ("2.22", "9.0", "native", "sm_90"),
    ],
)
def test_the_wheels_of_the_package_index(version: str, capability: str, kind: str, by: str | None) -> None:
    code = code_for(ComputeCapability.parse(capability), architectures_of(version))

    assert (code.kind, code.by) == (kind, by)


@pytest.mark.parametrize(
    ("build", "capability", "kind", "by"),
    [
        ("NVIDIA's container", "12.0", "native", "compute_120"),
        ("NVIDIA's container", "12.1", "native", "compute_120"),
        ("NVIDIA's container", "10.3", "native", "sm_100"),
        ("NVIDIA's container", "7.0", "none", None),
        ("CUDA 13", "7.0", "none", None),
        ("CUDA 13", "7.5", "native", "sm_75"),
        ("CUDA 13", "13.0", "jit", "compute_120"),
        ("Hopper with its own features", "9.0", "native", "sm_90a"),
        ("Hopper with its own features", "10.0", "none", None),
        ("Blackwell family", "10.0", "native", "compute_100f"),
        ("Blackwell family", "10.3", "native", "compute_100f"),
        ("Blackwell family", "12.0", "none", None),
        ("one Blackwell chip", "10.0", "native", "sm_100a"),
        ("one Blackwell chip", "10.3", "none", None),
        ("Thor's container", "11.0", "native", "sm_110"),
        ("Thor's container", "12.0", "jit", "compute_110"),
        ("Thor's container", "8.7", "none", None),
        ("no PTX", "12.0", "none", None),
        ("no PTX", "9.0", "native", "sm_90"),
        ("bare numbers", "7.5", "native", "7.5"),
        ("bare numbers", "8.9", "native", "8.6"),
        ("bare numbers", "8.0", "jit", "7.5"),
        ("bare numbers", "9.0", "jit", "8.6"),
        ("RTX 50", "12.1", "native", "sm_120"),
        ("RTX 50", "10.0", "none", None),
        ("datacenter Blackwell with PTX", "12.0", "jit", "compute_100"),
    ],
)
def test_a_build_of_someones_own_counts_by_its_own_list(build: str, capability: str, kind: str, by: str | None) -> None:
    code = code_for(ComputeCapability.parse(capability), CUSTOM[build])

    assert (code.kind, code.by) == (kind, by)


def test_the_reason_for_an_old_gpu_names_the_oldest_capability_of_the_build() -> None:
    reason = code_for(ComputeCapability(5, 2), architectures_of("2.21")).reason

    assert "5.2" in reason
    assert "6.0" in reason


def test_the_reason_for_blackwell_names_the_ptx_and_where_its_failure_was_seen() -> None:
    reason = code_for(ComputeCapability(12, 0), architectures_of("2.21")).reason

    assert "compute_90" in reason
    assert "tensorflow/tensorflow#89272" in reason


def test_a_gpu_newer_than_the_tables_is_judged_by_the_newest_one_and_the_reason_says_so() -> None:
    code = code_for(ComputeCapability(13, 0), architectures_of("2.21"))

    assert code.kind == "none"
    assert "13.0" in code.reason
    assert "12.1" in code.reason


@pytest.mark.parametrize("architectures", [(), ("gfx90a", "gfx1100"), ("",), ("sm_", "compute_x")])
def test_a_list_without_nvidia_architectures_serves_nobody(architectures: tuple[str, ...]) -> None:
    code = code_for(ComputeCapability(8, 0), architectures)

    assert (code.kind, code.by) == ("none", None)
    assert code.reason


def test_an_entry_that_is_not_understood_does_not_spoil_the_others() -> None:
    assert code_for(ComputeCapability(8, 0), ("sm_80", "sm_future")).kind == "native"


CAPABILITIES = st.builds(ComputeCapability, st.integers(3, 14), st.integers(0, 9))
ENTRIES = st.builds(
    lambda kind, capability, suffix: f"{kind}_{capability.major}{capability.minor}{suffix}",
    st.sampled_from(["sm", "compute"]),
    CAPABILITIES,
    st.sampled_from(["", "", "a", "f"]),
)


@given(CAPABILITIES, st.lists(ENTRIES, max_size=6))
def test_law_more_code_never_makes_a_gpu_unusable(device: ComputeCapability, architectures: list[str]) -> None:
    ranks = {"none": 0, "jit": 1, "native": 2}
    alone = ranks[code_for(device, architectures).kind]

    assert ranks[code_for(device, [*architectures, "sm_80"]).kind] >= alone


@given(CAPABILITIES, st.lists(ENTRIES, max_size=6))
def test_law_the_answer_names_an_entry_of_the_list_and_no_newer_one(
    device: ComputeCapability, architectures: list[str]
) -> None:
    code = code_for(device, architectures)

    assert (code.by is None) == (code.kind == "none")
    if code.by is not None:
        assert code.by in architectures
        digits = code.by.partition("_")[2].rstrip("af")
        assert ComputeCapability(int(digits[:-1]), int(digits[-1])) <= device


@given(CAPABILITIES, st.permutations(architectures_of("2.21")))
def test_law_order_does_not_matter(device: ComputeCapability, architectures: list[str]) -> None:
    assert code_for(device, architectures) == code_for(device, architectures_of("2.21"))


@pytest.mark.parametrize("row", releases(), ids=lambda row: row.version)
def test_law_the_wheels_own_architectures_are_native_to_it(row: Release) -> None:
    for entry in row.architectures:
        digits = entry.partition("_")[2]
        assert code_for(ComputeCapability(int(digits[:-1]), int(digits[-1])), row.architectures).kind == "native"
