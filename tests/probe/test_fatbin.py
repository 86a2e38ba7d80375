"""Which architectures a TensorFlow library carries code for, and what becomes of damaged files."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.probe import fatbin
from hwprobe.probe.elf import ElfError, read_search_path
from hwprobe.probe.fatbin import read_compute_capabilities
from tests.probe.elf_files import MACHINE_CODE, code_for, elf, fat_binary, record, with_search_path

MAIN = "libtensorflow_cc.so.2"
FRAMEWORK = "libtensorflow_framework.so.2"


def package(folder: Path, **libraries: bytes) -> str:
    names = {"main": MAIN, "framework": FRAMEWORK, "older": "python/_pywrap_tensorflow_internal.so"}
    (folder / "python").mkdir(exist_ok=True)
    for key, content in libraries.items():
        (folder / names[key]).write_bytes(content)
    return str(folder)


def code(*binaries: bytes) -> bytes:
    return elf({".text": b"\x90" * 40, ".nv_fatbin": b"".join(binaries), ".data": b"x"})


def test_the_real_wheel_holds_what_its_build_info_lists_and_machine_code_for_its_ptx() -> None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        pytest.skip("no TensorFlow is installed")
    location = Path(spec.origin).parent
    if not (location / MAIN).exists():
        pytest.skip("this TensorFlow is no Linux build")
    from hwprobe.probe.tensorflow_build import parse_build_info

    listed = parse_build_info((location / "python/platform/build_info.py").read_text()).get("cuda_compute_capabilities")
    if not listed:
        pytest.skip("this TensorFlow has no CUDA code, or does not say which")
    found = read_compute_capabilities(str(location))
    assert set(listed) <= set(found)
    assert {entry.replace("compute_", "sm_") for entry in found} == {
        entry for entry in found if entry.startswith("sm_")
    }


def test_machine_code_comes_first_and_in_order_of_age(tmp_path: Path) -> None:
    location = package(tmp_path, main=code(code_for("compute_90", "sm_90", "sm_120", "sm_60", "sm_100")))
    assert read_compute_capabilities(location) == ("sm_60", "sm_90", "sm_100", "sm_120", "compute_90")


def test_both_libraries_are_read(tmp_path: Path) -> None:
    location = package(tmp_path, main=code(code_for("sm_80")), framework=code(code_for("sm_90")))
    assert read_compute_capabilities(location) == ("sm_80", "sm_90")


def test_an_old_wheel_with_all_kernels_in_one_extension_module_is_read(tmp_path: Path) -> None:
    assert read_compute_capabilities(package(tmp_path, older=code(code_for("sm_70", "compute_80")))) == (
        "sm_70",
        "compute_80",
    )


def test_an_architecture_that_few_files_were_compiled_for_does_not_count(tmp_path: Path) -> None:
    own, linked_in = code_for("sm_80", "compute_80"), code_for("sm_80", "sm_90")
    assert read_compute_capabilities(package(tmp_path, main=code(own, own, linked_in))) == ("sm_80", "compute_80")


def test_padding_between_fat_binaries_and_at_the_end_is_skipped(tmp_path: Path) -> None:
    content = code(bytes(8), code_for("sm_80"), bytes(64), code_for("sm_80"), bytes(24))
    assert read_compute_capabilities(package(tmp_path, main=content)) == ("sm_80",)


def test_records_of_other_kinds_and_longer_headers_are_stepped_over(tmp_path: Path) -> None:
    records = [record(16, 99), record(MACHINE_CODE, 86, header_size=112), record(MACHINE_CODE, 89, payload=b"")]
    location = package(tmp_path, main=code(fat_binary(records, header_size=24)))
    assert read_compute_capabilities(location) == ("sm_86", "sm_89")


def test_a_library_without_gpu_code_has_none(tmp_path: Path) -> None:
    assert read_compute_capabilities(package(tmp_path, main=elf({".text": b"x"}))) == ()


def test_a_folder_without_libraries_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="holds none of libtensorflow_cc"):
        read_compute_capabilities(str(tmp_path))


GOOD = code_for("sm_80", "compute_80")

DAMAGED = [
    ("nothing in it", b"", "empty"),
    ("a text file", b"version https://git-lfs.example\n" * 9, "not a 64-bit little-endian ELF file"),
    ("a 32-bit file", b"\x7fELF\x01" + code(GOOD)[5:], "not a 64-bit little-endian ELF file"),
    ("cut off in the header", code(GOOD)[:40], "not a 64-bit little-endian ELF file"),
    ("cut off before the section table", code(GOOD)[:-400], "section table lies beyond the end"),
    ("a fat binary of CUDA 4", code(fat_binary([], magic=0x1EE55A01)), "CUDA 4 and older"),
    ("an unknown magic number", code(fat_binary([], magic=0xDEADBEEF)), "unknown fat binary 0xdeadbeef"),
    (
        "a fat binary longer than its section",
        code(GOOD[:8] + (2**63).to_bytes(8, "little") + GOOD[16:]),
        "not fit into",
    ),
    ("a fat binary with a header of no size", code(fat_binary([])[:6] + bytes(10)), "does not fit into"),
    ("a record longer than its fat binary", code(fat_binary([record(2, 80)[:8] + b"\xff" * 100])), "a record at byte"),
    ("a record with a header of no size", code(fat_binary([bytes(80)])), "a record at byte"),
    ("a section of zeros", code(bytes(2**20)), "bytes of nothing"),
]


@pytest.mark.parametrize(("content", "reason"), [case[1:] for case in DAMAGED], ids=[case[0] for case in DAMAGED])
def test_a_damaged_library_is_named_with_what_is_wrong(tmp_path: Path, content: bytes, reason: str) -> None:
    location = package(tmp_path, main=content)
    with pytest.raises(ElfError, match=reason) as caught:
        read_compute_capabilities(location)
    assert MAIN in str(caught.value)


def test_endless_records_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "MAX_RECORDS", 10)
    location = package(tmp_path, main=code(*[code_for("sm_80")] * 11))
    with pytest.raises(ElfError, match="more than 10 records"):
        read_compute_capabilities(location)


@given(st.data())
def test_no_flipped_byte_and_no_cut_does_more_than_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(code(GOOD, code_for("sm_90")))
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[position] = data.draw(st.integers(0, 255))
    kept = bytes(content[: data.draw(st.integers(0, len(content)))])
    answer: Sequence[str] | ElfError
    try:
        answer = read_compute_capabilities(package(tmp_path_factory.mktemp("damaged"), main=kept))
    except ElfError as error:
        answer = error
    if isinstance(answer, ElfError):
        assert MAIN in str(answer)
    else:
        assert all(entry.startswith(("sm_", "compute_")) for entry in answer)


@pytest.mark.parametrize(("tag", "is_runpath"), [(29, True), (15, False)])
def test_a_search_path_is_read_with_its_origin_each_folder_once(tmp_path: Path, tag: int, is_runpath: bool) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(with_search_path(tag, "$ORIGIN/../nvidia/cudnn/lib:${ORIGIN}/x:/opt/y::$ORIGIN/x"))
    search = read_search_path(str(library))
    assert search.folders == (f"{tmp_path}/../nvidia/cudnn/lib", f"{tmp_path}/x", "/opt/y")
    assert (search.is_runpath, search.machine) == (is_runpath, 62)


def test_a_library_without_a_search_path_has_an_empty_one(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(with_search_path(1, "libm.so.6"))
    assert read_search_path(str(library)).folders == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (elf({".text": b"x"}), "no dynamic section"),
        (elf({".dynamic": with_search_path(29, "")[64:96], ".dynstr": b""}), "outside of its table"),
        (elf({".dynamic": with_search_path(29, "")[64:96], ".dynstr": b"\0abc"}), "has no end"),
    ],
)
def test_a_broken_dynamic_section_is_an_error(tmp_path: Path, content: bytes, reason: str) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(content)
    with pytest.raises(ElfError, match=reason):
        read_search_path(str(library))
