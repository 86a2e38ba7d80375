"""Opening a driver library, and saying which file that was."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from hwprobe.probe.bootstrap import ReaderFailure
from hwprobe.probe.loader import loaded_library, long_bus_id, open_library, version_in_name

NONE = "No such file or directory"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(OSError(f"libcuda.so.1: cannot open shared object file: {NONE}"), "absent", id="glibc"),
        pytest.param(OSError(f"Error loading shared library libcuda.so.1: {NONE}"), "absent", id="musl"),
        pytest.param(
            OSError("dlopen(libcuda.so.1, 0x0006): tried: '/usr/lib/libcuda.so.1' (no such file)"), "absent", id="macOS"
        ),
        pytest.param(FileNotFoundError("Could not find module 'nvcuda.dll'"), "absent", id="Windows"),
        pytest.param(
            OSError(f"libnvidia-ptxjitcompiler.so.1: cannot open shared object file: {NONE}"), "failed", id="a need"
        ),
        pytest.param(
            OSError(f"Error loading shared library libm.so: {NONE} (needed by /lib/libcuda.so.1)"),
            "failed",
            id="a need, musl",
        ),
        pytest.param(OSError("/lib/libcuda.so.1: file too short"), "failed", id="empty"),
        pytest.param(OSError("libcuda.so.1: wrong ELF class: ELFCLASS32"), "failed", id="of another architecture"),
    ],
)
def test_a_library_that_is_not_there_and_one_that_does_not_load_differ(
    monkeypatch: pytest.MonkeyPatch, error: OSError, status: str
) -> None:
    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(ReaderFailure) as caught:
        open_library("libcuda.so.1")
    assert (caught.value.status, caught.value.reason) == (status, f"the loader says: {error}")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("0000:65:00.0", "00000000:65:00.0"),
        ("00000000:65:00.0", "00000000:65:00.0"),
        ("3E3F8E05:00:00.0", "3e3f8e05:00:00.0"),
        ("0000000F:01:00.0", "0000000f:01:00.0"),
        ("10000:01:00.0", "00010000:01:00.0"),
        ("", None),
        (None, None),
        ("N/A", None),
        ("65:00.0", None),
        ("::", None),
    ],
)
def test_bus_ids_are_written_in_one_way(text: str | None, long: str | None) -> None:
    assert long_bus_id(text) == long


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05", "535.104.05"),
        ("/usr/local/cuda/compat/libcuda.so.580.65", "580.65"),
        ("/usr/lib/wsl/lib/libcuda.so.1", None),
        ("/usr/local/cuda/lib64/stubs/libcuda.so", None),
        ("/lib/libcuda.so.1.1-beta", None),
        (None, None),
    ],
)
def test_a_librarys_version_is_in_its_real_name(path: str | None, version: str | None) -> None:
    assert version_in_name(path) == version


def test_a_loaded_library_is_found_in_the_memory_map(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 00000000 00:00 0 \n"
        "7f01-7f02 r-xp 00000000 08:01 42                         /opt/my libs/libcudart.so.12\n"
        "7f02-7f03 r-xp 00000000 08:01 43                         /opt/my libs/libcuda.so.535.104.05 (deleted)\n"
        "7f03-7f04 rw-p 00000000 00:00 0                          [stack]\n"
    )
    assert loaded_library("libcuda.so", str(maps)) == "/opt/my libs/libcuda.so.535.104.05"
    assert loaded_library("libnvidia-ml.so", str(maps)) is None
    assert loaded_library("libcuda.so", str(tmp_path / "missing")) is None
