"""Boards of 7.5 with and without Tensor Cores, by PCI device id and by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.exceptions import (
    ExceptionalChip,
    ExceptionalName,
    TensorCores,
    exceptional_chips,
    exceptional_names,
    tensor_cores,
)
from hwprobe.knowledge.gpus import Board, boards

TURING = ComputeCapability(7, 5)

TURING_BOARDS = [board for board in boards() if board.capability == TURING]


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce GTX 1660 Ti",
        "GeForce GTX 1650",
        "NVIDIA GeForce GTX 1650 SUPER",
        "NVIDIA-GeForce-GTX-1660-Ti",
        "NVIDIA GeForce MX450",
        "NVIDIA GeForce MX550",
        "NVIDIA T400 4GB",
        "NVIDIA T400E",
        "NVIDIA T1200 Laptop GPU",
        "NVIDIA T1000 8GB",
        "Quadro T1000 with Max-Q Design",
        "Quadro T2000 with Max-Q Design",
        "NVIDIA CMP 30HX",
        "nvidia t600 laptop gpu",
    ],
)
def test_a_name_without_tensor_cores(name: str) -> None:
    cores = tensor_cores(name, None, TURING)

    assert cores.dtypes == ()
    assert cores.reason is not None
    assert name in cores.reason


@pytest.mark.parametrize(
    "name",
    [
        "Tesla T4",
        "NVIDIA T4G",
        "GRID T4-4Q",
        "GRID RTX6000-4Q",
        "NVIDIA GeForce RTX 2060",
        "NVIDIA TITAN RTX",
        "Quadro RTX 4000",
        "NVIDIA CMP 40HX",
        "NVIDIA T10",
        "NVIDIA T4000X",
    ],
)
def test_a_name_with_tensor_cores(name: str) -> None:
    assert tensor_cores(name, None, TURING) == TensorCores(("float16",), None)


@pytest.mark.parametrize(
    ("device_id", "chip"),
    [
        ("2182", "TU116"),
        ("1F91", "TU117"),
        ("1f91", "TU117"),
        ("1F0A", "TU106"),
        ("1FFF", "TU117"),
        ("1F80", "TU117"),
        ("2180", "TU116"),
        ("21FF", "TU116"),
    ],
)
def test_a_device_id_without_tensor_cores_whatever_its_name(device_id: str, chip: str) -> None:
    for name in ("Graphics Device", None, "Tesla T4"):
        cores = tensor_cores(name, device_id, TURING)

        assert cores.dtypes == ()
        assert cores.reason is not None
        assert chip in cores.reason
        assert device_id.upper() in cores.reason


@pytest.mark.parametrize("device_id", ["1EB8", "1F7F", "2000", "217F", "2200", "1F76", "1E04"])
def test_a_device_id_with_tensor_cores(device_id: str) -> None:
    assert tensor_cores("Graphics Device", device_id, TURING) == TensorCores(("float16",), None)


@pytest.mark.parametrize(
    ("what", "name", "device_id", "capability"),
    [
        ("no capability", "Tesla T4", "1EB8", None),
        ("a driver that is older than the board, and no id", "Graphics Device", None, TURING),
        ("neither name nor id", None, None, TURING),
        ("sources that disagree", "Matrox D-Series D2450", "1F76", TURING),
    ],
)
def test_what_nobody_can_tell_stays_unknown_with_a_reason(
    what: str, name: str | None, device_id: str | None, capability: ComputeCapability | None
) -> None:
    cores = tensor_cores(name, device_id, capability)

    assert cores.dtypes is None, what
    assert cores.reason, what


@pytest.mark.parametrize(
    ("name", "device_id", "capability", "dtypes"),
    [
        ("NVIDIA GeForce GTX 1660 Ti", "2182", ComputeCapability(6, 1), ()),
        ("NVIDIA GeForce GTX 1660 Ti", "2182", ComputeCapability(8, 0), ("float16", "bfloat16", "tf32")),
        ("NVIDIA A100-SXM4-40GB", "20B0", ComputeCapability(8, 0), ("float16", "bfloat16", "tf32")),
        ("Tesla P100-PCIE-16GB", None, ComputeCapability(6, 0), ()),
        (None, None, ComputeCapability(9, 0), ("float16", "bfloat16", "tf32", "fp8")),
    ],
)
def test_other_capabilities_have_no_exceptions(
    name: str | None, device_id: str | None, capability: ComputeCapability, dtypes: tuple[str, ...]
) -> None:
    assert tensor_cores(name, device_id, capability) == TensorCores(dtypes, None)


@pytest.mark.parametrize("board", TURING_BOARDS, ids=lambda board: board.name)
def test_law_name_alone_agrees_with_the_catalogue(board: Board) -> None:
    assert _has_cores(tensor_cores(board.name, None, TURING).dtypes) == board.tensor_cores


@pytest.mark.parametrize(
    ("board", "device_id"), [(board, device_id) for board in TURING_BOARDS for device_id in board.pci]
)
def test_law_device_id_alone_agrees_with_the_catalogue(board: Board, device_id: str) -> None:
    shared_with_cores = any(other.tensor_cores for other in TURING_BOARDS if device_id in other.pci)
    expected = board.tensor_cores if board.tensor_cores is not None else shared_with_cores

    assert _has_cores(tensor_cores(None, device_id, TURING).dtypes) == expected


def test_law_every_id_of_a_board_without_tensor_cores_is_listed() -> None:
    listed = {device_id for chip in exceptional_chips() for device_id in chip.ids}

    assert listed == {device_id for board in TURING_BOARDS if board.tensor_cores is False for device_id in board.pci}


def test_law_ids_stand_in_the_block_of_their_chip() -> None:
    for chip in exceptional_chips():
        assert all(chip.owns(device_id) for device_id in chip.ids)
        assert (chip.first is None) == (chip.last is None)
        if chip.first is not None:
            assert chip.last is not None
            assert all(chip.first <= device_id <= chip.last for device_id in chip.ids)
        else:
            blocks = [other for other in exceptional_chips() if other.first is not None]
            assert not any(block.owns(device_id) for block in blocks for device_id in chip.ids)


def test_law_every_name_row_is_needed_by_a_board_or_explained() -> None:
    for row in exceptional_names():
        fitting = [board.name for board in boards() if row.fits(board.name)]
        assert fitting or row.note, row.tokens


def test_law_exceptions_are_about_known_capabilities_that_have_tensor_cores() -> None:
    rows: tuple[ExceptionalChip | ExceptionalName, ...] = (*exceptional_chips(), *exceptional_names())
    for row in rows:
        assert tensor_cores("any other board", "0000", row.capability).dtypes


@given(st.one_of(st.none(), st.text(max_size=30)), st.one_of(st.none(), st.text(max_size=6)))
def test_no_name_and_no_id_is_a_surprise(name: str | None, device_id: str | None) -> None:
    cores = tensor_cores(name, device_id, TURING)

    assert cores.dtypes in ((), ("float16",), None)
    assert (cores.reason is None) == (cores.dtypes == ("float16",))


def _has_cores(dtypes: tuple[str, ...] | None) -> bool | None:
    return None if dtypes is None else bool(dtypes)
