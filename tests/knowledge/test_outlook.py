"""What hwprobe would choose on every board of the catalogue, and with which TensorFlow."""

from __future__ import annotations

import pytest

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu
from hwprobe.knowledge.gpu_names import find
from hwprobe.knowledge.gpus import Board, boards
from hwprobe.knowledge.tensorflow import newest_release, releases
from hwprobe.outlook import Outlook, outlook, outlooks
from hwprobe.policy import DeviceOverride, Policy, Precision

DEFAULT = Policy()
OUTLOOKS = dict(
    zip(
        ((board.name, board.capability) for board in boards()),
        outlooks((board.as_gpu() for board in boards()), DEFAULT),
        strict=True,
    )
)


def gpu_of(name: str) -> Gpu:
    gpu = find(name).as_gpu()
    assert gpu is not None
    return gpu


def seen(name: str, policy: Policy = DEFAULT) -> Outlook:
    return outlook(gpu_of(name), policy)


@pytest.mark.parametrize(
    ("name", "choice", "since", "native_since"),
    [
        ("Tesla T4", "mixed_float16", "2.4", "2.4"),
        ("V100", "mixed_float16", "2.4", "2.4"),
        ("A100", "mixed_bfloat16", "2.13", "2.4"),
        ("RTX 4090", "mixed_bfloat16", "2.13", "2.4"),
        ("NVIDIA H100 80GB HBM3", "mixed_bfloat16", "2.13", "2.16"),
        ("GTX 1660 Ti", "float32", "2.4", "2.4"),
        ("T1200", "float32", "2.4", "2.4"),
        ("P100", "float32", "2.4", "2.4"),
        ("GTX 1080 Ti", "float32", "2.4", "2.4"),
    ],
)
def test_a_board_with_code_in_the_newest_wheel(name: str, choice: str, since: str, native_since: str) -> None:
    found = seen(name)

    assert (found.dtype_policy, found.since, found.native_since, found.last) == (choice, since, native_since, None)
    assert choice in found.usable


@pytest.mark.parametrize(
    ("name", "last"), [("GTX 980", "2.16"), ("K80", "2.14"), ("GTX 680", None), ("RTX 5090", None), ("GB10", None)]
)
def test_a_board_without_code_in_the_newest_wheel(name: str, last: str | None) -> None:
    found = seen(name)

    assert (found.dtype_policy, found.usable, found.since, found.native_since) == (None, (), None, None)
    assert found.last == last
    assert set(found.rejected) == {"mixed_bfloat16", "mixed_float16", "float32"}


def test_the_release_is_the_newest_final_one() -> None:
    assert seen("T4").tensorflow == newest_release().version == "2.21"


def test_what_is_not_usable_says_why() -> None:
    assert "8.0" in seen("T4").rejected["mixed_bfloat16"]
    assert "Tensor Cores" in seen("GTX 1660 Ti").rejected["mixed_float16"]
    assert "known to fail" in seen("RTX 5090").rejected["float32"]
    assert seen("A100").rejected == {}


def test_a_sites_preference_counts() -> None:
    prefers_float16 = Policy(precision=Precision(prefer=("mixed_float16", "float32")))

    assert seen("A100", prefers_float16).dtype_policy == "mixed_float16"
    assert seen("A100", prefers_float16).since == "2.4"


def test_a_sites_word_about_a_board_counts_for_that_board_only() -> None:
    denied = DeviceOverride(name="*A30", deny=("mixed_bfloat16",), reason="measured here")
    policy = Policy(devices=(denied,))
    a30, a100 = outlooks((gpu_of("A30"), gpu_of("A100")), policy)

    assert (a30.dtype_policy, a100.dtype_policy) == ("mixed_float16", "mixed_bfloat16")
    assert "measured here" in a30.rejected["mixed_bfloat16"]


def test_judging_many_at_once_is_judging_each() -> None:
    gpus = [gpu_of(name) for name in ("T4", "GTX 1660 Ti", "T1200", "A100", "RTX 5090", "T4")]

    assert outlooks(gpus, DEFAULT) == tuple(outlook(gpu, DEFAULT) for gpu in gpus)


def test_no_gpu_no_outlook() -> None:
    assert outlooks((), DEFAULT) == ()


@pytest.mark.parametrize("board", boards(), ids=lambda board: f"{board.name} {board.capability}")
def test_law_the_choice_follows_from_capability_and_tensor_cores(board: Board) -> None:
    found = OUTLOOKS[board.name, board.capability]

    if not ComputeCapability(6, 0) <= board.capability < ComputeCapability(10, 0):
        assert found.dtype_policy is None
    elif not board.tensor_cores:
        assert found.dtype_policy == "float32"
    elif board.capability < ComputeCapability(8, 0):
        assert found.dtype_policy == "mixed_float16"
    else:
        assert found.dtype_policy == "mixed_bfloat16"


@pytest.mark.parametrize("board", boards(), ids=lambda board: f"{board.name} {board.capability}")
def test_law_usable_and_rejected_divide_the_policies_and_the_releases_fit(board: Board) -> None:
    found = OUTLOOKS[board.name, board.capability]
    versions = {row.version for row in releases() if not row.pre_release}

    assert set(found.usable).isdisjoint(found.rejected)
    assert set(found.usable) | set(found.rejected) == {"mixed_bfloat16", "mixed_float16", "float32"}
    assert all(found.rejected.values())
    assert (found.dtype_policy is None) == (found.since is None)
    assert {found.since, found.native_since, found.last} - {None} <= versions
    assert found.last is None or found.dtype_policy is None
