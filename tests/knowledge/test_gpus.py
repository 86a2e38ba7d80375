"""The catalogue of boards, and the search for one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.annotate import annotate_gpu
from hwprobe.knowledge.gpu_names import find, search
from hwprobe.knowledge.gpus import GIB, SEGMENTS, Board, boards, source_text
from hwprobe.knowledge.tables import read_legend

BY_NAME = {board.name: board for board in boards()}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("nvidia geforce rtx 3090", "NVIDIA GeForce RTX 3090"),
        ("GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("RTX3090", "NVIDIA GeForce RTX 3090"),
        ("3090", "NVIDIA GeForce RTX 3090"),
        ("3090 24 GB", "NVIDIA GeForce RTX 3090"),
        ("3090ti", "NVIDIA GeForce RTX 3090 Ti"),
        ("rtx 4070 ti super", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("4070", "NVIDIA GeForce RTX 4070"),
        ("gtx1660ti", "NVIDIA GeForce GTX 1660 Ti"),
        ("3080 mobile", "NVIDIA GeForce RTX 3080 Laptop GPU"),
        ("gtx 1080 max-q", "NVIDIA GeForce GTX 1080 with Max-Q Design"),
        ("NVIDIA GeForce RTX 2080 SUPER", "NVIDIA GeForce RTX 2080 SUPER"),
        ("NVIDIA GeForce RTX 2080 Super", "NVIDIA GeForce RTX 2080 Super"),
        ("T4", "Tesla T4"),
        ("Tesla-T4", "Tesla T4"),
        ("Tesla-T4-SHARED", "Tesla T4"),
        ("NVIDIA-GeForce-RTX-3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA H100 80GB HBM3"),
        ("A100 SXM 80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("h100 sxm", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100", "NVIDIA H100"),
        ("L40S", "NVIDIA L40S"),
        ("L4", "NVIDIA L4"),
        ("a10", "NVIDIA A10"),
        ("K80", "Tesla K80"),
        ("T1000", "NVIDIA T1000"),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("RTX A2000 12GB", "NVIDIA RTX A2000 12GB"),
        ("4090 D", "NVIDIA GeForce RTX 4090 D"),
        ("DGX Spark", "NVIDIA GB10"),
        ("Orin", "Orin (nvgpu)"),
        ("Jetson AGX Orin", "Orin (nvgpu)"),
        ("teslat4", "Tesla T4"),
        ("NVIDIATeslaT4", "Tesla T4"),
        ("4070tisuper", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("geforcertx3090", "NVIDIA GeForce RTX 3090"),
        ("quadrop2000", "Quadro P2000"),
        ("H10080GBHBM3", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_a_name_that_names_one_board(text: str, name: str) -> None:
    match = find(text)

    assert [board.name for board in match.boards] == [name]
    assert match.is_settled


@pytest.mark.parametrize("text", ["A100 80GB", "V100 32GB", "H200", "RTX PRO 6000", "RTX 2080 Super"])
def test_boards_that_differ_in_form_only_leave_nothing_to_ask(text: str) -> None:
    match = find(text)
    gpu = match.as_gpu()

    assert match.board is None
    assert match.is_settled
    assert gpu is not None
    assert gpu.name == text
    assert gpu.memory.total_bytes is not None


@pytest.mark.parametrize("text", ["A100", "V100", "H100", "P100"])
def test_a_family_of_different_sizes_is_asked_back_but_has_one_precision(text: str) -> None:
    match = find(text)
    gpu = match.as_gpu()

    assert len(match.boards) > 1
    assert not match.is_settled
    assert match.agrees_on_precision
    assert gpu is not None
    assert gpu.memory.total_bytes is None
    assert gpu.name == text


@pytest.mark.parametrize(
    ("text", "capabilities"),
    [
        ("RTX 6000", {"7.5", "8.9", "12.0"}),
        ("titan x", {"5.2", "6.1"}),
        ("GT 730", {"3.0", "3.5"}),
        ("NVIDIA GeForce GT 730", {"3.0", "3.5"}),
        ("RTX 4500", {"8.9", "12.0"}),
    ],
)
def test_a_doubtful_name_is_asked_back_and_never_guessed(text: str, capabilities: set[str]) -> None:
    match = find(text)

    assert {str(board.capability) for board in match.boards} == capabilities
    assert match.board is None
    assert not match.is_settled
    assert match.as_gpu() is None


@pytest.mark.parametrize("text", ["", " ", "NVIDIA", "foo", "Radeon RX 7900", "-", "MIG", "["])
def test_a_name_of_nothing_finds_nothing(text: str) -> None:
    match = find(text)

    assert match.boards == ()
    assert not match.is_settled
    assert match.as_gpu() is None


def test_a_slip_of_the_pen_finds_names_that_look_like_it() -> None:
    assert "NVIDIA GeForce RTX 3090" in find("309O").similar
    assert "NVIDIA A100X" in find("A100XX").similar
    assert find("3090").similar == ()


@pytest.mark.parametrize(
    ("text", "memory_gib"), [("3080 12GB", 12), ("3080 10G", 10), ("4060 ti 16gb", 16), ("3080", None), ("3090", None)]
)
def test_a_size_in_the_name_picks_the_variant(text: str, memory_gib: int | None) -> None:
    match = find(text)
    gpu = match.as_gpu()

    assert match.board is not None
    assert gpu is not None
    assert match.memory_gib == memory_gib
    expected = memory_gib or (match.board.memory_gib[0] if len(match.board.memory_gib) == 1 else None)
    assert gpu.memory.total_bytes == (expected and expected * GIB)


def test_a_size_that_the_board_does_not_have_is_no_match() -> None:
    assert find("3090 12GB").boards == ()


def test_the_memory_of_a_mig_device_is_not_that_of_its_board() -> None:
    whole, part = find("A100-SXM4-40GB"), find("A100-SXM4-40GB-MIG-1g.5gb")
    whole_gpu, part_gpu = whole.as_gpu(), part.as_gpu()

    assert (whole.mig, part.mig) == (None, "1g.5gb")
    assert whole_gpu is not None
    assert part_gpu is not None
    assert whole_gpu.memory.total_bytes == 40 * GIB
    assert part_gpu.memory.total_bytes is None


@pytest.mark.parametrize(
    "profile", ["1g.10gb", "1g.10gb+me", "1g.10gb.me", "1g.10gb-me", "1g.10gb.me.all", "2g.24gb+gfx", "1c.2g.20gb"]
)
def test_every_spelling_of_a_mig_profile_is_told_from_the_board(profile: str) -> None:
    for text in (f"NVIDIA-H100-80GB-HBM3-MIG-{profile}", f"NVIDIA H100 80GB HBM3 MIG {profile}"):
        match = find(text)

        assert match.board == BY_NAME["NVIDIA H100 80GB HBM3"]
        assert match.mig == profile


def test_several_boards_without_tensor_cores_keep_a_name_that_says_so() -> None:
    gpu = find("GTX 16*").as_gpu()

    assert gpu is not None
    assert gpu.name != "GTX 16*"
    assert gpu.tensor_cores == ()
    assert annotate_gpu(gpu).tensor_cores == ()


def test_searching_lists_the_variants_too() -> None:
    assert {board.name for board in search("3090")} == {"NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090 Ti"}
    assert {board.name for board in search("rtx a2000 *")} >= {"NVIDIA RTX A2000", "NVIDIA RTX A2000 12GB"}
    assert all("30" in board.name for board in search("GeForce RTX 30*"))
    assert search("nothing") == ()


@pytest.mark.parametrize("board", boards(), ids=lambda board: f"{board.name} {board.capability}")
def test_law_every_board_is_found_by_its_own_name_and_its_label(board: Board) -> None:
    same_name = [other for other in boards() if other.name == board.name]

    assert list(find(board.name).boards) == same_name
    assert list(find(board.name.replace(" ", "-")).boards) == same_name
    assert board in find(board.name.replace(" ", "").lower()).boards
    assert board in search(board.name)


def test_law_name_and_capability_are_unique_and_a_shared_name_says_so() -> None:
    names = Counter(board.name for board in boards())

    assert len({(board.name, board.capability) for board in boards()}) == len(boards())
    for board in boards():
        says_so = "two chips of different compute capability" in (board.note or "")
        assert says_so == (names[board.name] > 1), board.name


def test_law_the_catalogue_is_sorted_by_capability() -> None:
    capabilities = [board.capability for board in boards()]

    assert capabilities == sorted(capabilities)


def test_law_a_capability_is_a_known_one() -> None:
    assert all(board.architecture.known for board in boards())


@pytest.mark.parametrize("board", boards(), ids=lambda board: f"{board.name} {board.capability}")
def test_law_tensor_cores_follow_from_capability_and_exceptions(board: Board) -> None:
    dtypes = board.tensor_core_dtypes

    assert (None if dtypes is None else bool(dtypes)) == board.tensor_cores
    if dtypes:
        assert dtypes == board.architecture.tensor_core_dtypes
        assert board.capability >= ComputeCapability(7, 0)


def test_law_device_ids_are_four_hexadecimal_digits_and_unique_in_their_row() -> None:
    for board in boards():
        assert len(set(board.pci)) == len(board.pci), board.name
        for device_id in board.pci:
            assert device_id == f"{int(device_id, 16):04X}", board.name


def test_law_boards_that_share_a_device_id_share_the_capability() -> None:
    of_id: dict[str, set[ComputeCapability]] = {}
    for board in boards():
        for device_id in board.pci:
            of_id.setdefault(device_id, set()).add(board.capability)

    assert {device_id: found for device_id, found in of_id.items() if len(found) > 1} == {}


def test_law_a_board_without_a_device_id_says_why() -> None:
    assert all(board.pci or board.note for board in boards() if board.segment != "mining")


def test_law_sizes_ascend_and_are_plausible() -> None:
    for board in boards():
        assert list(board.memory_gib) == sorted(set(board.memory_gib)), board.name
        assert all(0.5 <= size <= 288 for size in board.memory_gib), board.name


def test_law_every_source_is_explained() -> None:
    legend = read_legend("gpus.toml", "sources")

    assert {board.source for board in boards()} == set(legend)
    assert source_text(BY_NAME["Tesla T4"]) == legend["ogkm"]
    assert all(len(text) > 20 for text in legend.values())


def test_law_every_segment_has_boards() -> None:
    assert {board.segment for board in boards()} == set(SEGMENTS)


@pytest.mark.parametrize("board", boards(), ids=lambda board: f"{board.name} {board.capability}")
def test_law_a_board_becomes_the_gpu_that_a_probe_would_report(board: Board) -> None:
    gpu = board.as_gpu()

    assert gpu == annotate_gpu(replace(gpu, tensor_cores=None, tensor_cores_reason=None, architecture=None))
    assert (gpu.name, gpu.compute_capability, gpu.visible, gpu.kind) == (board.name, board.capability, True, "nvidia")
    assert gpu.tensor_cores == board.tensor_core_dtypes
    assert (gpu.memory.total_bytes is not None) == (len(board.memory_gib) == 1)


@given(st.text(max_size=60))
def test_no_text_is_a_surprise(text: str) -> None:
    match = find(text)

    assert not (match.boards and match.similar)
    assert set(match.boards) <= set(search(text)) or match.boards == ()


@given(st.sampled_from(sorted(BY_NAME)), st.data())
def test_any_words_of_a_name_find_that_board_among_others(name: str, data: st.DataObject) -> None:
    noise = ("NVIDIA", "GPU", "with", "Design", "Generation", "Blackwell", "/")
    words = [word for word in name.split() if word not in noise]
    chosen = data.draw(st.lists(st.sampled_from(words), min_size=1, unique=True))

    assert BY_NAME[name] in search(" ".join(chosen))
