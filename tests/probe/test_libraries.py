"""Each library that TensorFlow opens is tried as TensorFlow would, and what is found elsewhere is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hwprobe.knowledge.tensorflow import sonames
from hwprobe.probe import libraries
from hwprobe.probe.child import ask
from hwprobe.probe.elf import open_elf, read_search_path
from hwprobe.probe.libraries import caller_image, xla_files
from hwprobe.probe.tensorflow_build import read_build
from hwprobe.report import SharedLibrary
from hwprobe.serialize import from_builtins
from hwprobe.source import SourceStatus
from tests.machine import Machine
from tests.probe.elf_files import with_search_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TensorFlow with CUDA is for Linux")

GENEROUS = 60.0
SONAME = "libhwprobetest.so.9"
FRAMEWORK = "libtensorflow_framework.so.2"


def library(path: Path, *, needs: str = "libc.so.6") -> Path:
    """A library that this machine's loader accepts, under any name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_elf(os.path.realpath(sys.executable)) as python:
        path.write_bytes(caller_image(needs, 29, "", python.machine))
    return path


def tensorflow_with(folder: Path, tag: int, folders: str) -> str:
    """A package folder whose library has this search path."""
    with open_elf(os.path.realpath(sys.executable)) as python:
        machine = python.machine.to_bytes(2, "little")
    image = bytearray(with_search_path(tag, folders))
    image[18:20] = machine
    package = folder / "site" / "tensorflow"
    package.mkdir(parents=True, exist_ok=True)
    (package / FRAMEWORK).write_bytes(image)
    return str(package)


def tried(
    location: str | None, *names: str, wheels: tuple[Path, ...] = (), **variables: str
) -> tuple[SharedLibrary, ...]:
    request = libraries.request(location, names or (SONAME,), [str(folder) for folder in wheels])
    inherited = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "TMPDIR")}
    answer = ask("hwprobe.probe.libraries:read", request, timeout_seconds=GENEROUS, environment=inherited | variables)
    assert answer.status is SourceStatus.OK, answer
    assert answer.data is not None
    return from_builtins(answer.data["libraries"], tuple[SharedLibrary, ...])


def test_the_search_path_inside_tensorflow_counts(tmp_path: Path) -> None:
    there = library(tmp_path / "site/nvidia/cudnn/lib" / SONAME)
    found = tried(tensorflow_with(tmp_path, 29, "$ORIGIN/../nvidia/cudnn/lib"))
    assert found == (SharedLibrary(soname=SONAME, loads=True, path=str(there)),)


def test_a_wheel_outside_of_that_search_path_is_named_and_does_not_load(tmp_path: Path) -> None:
    there = library(tmp_path / "site/nvidia/cusolver/lib" / SONAME)
    (found,) = tried(tensorflow_with(tmp_path, 29, "$ORIGIN/../nvidia/cudnn/lib"), wheels=(there.parent,))
    assert found == SharedLibrary(
        soname=SONAME,
        loads=False,
        error=f"{SONAME}: cannot open shared object file: No such file or directory",
        found_at=(str(there),),
    )


def test_it_loads_when_its_folder_is_on_the_library_path(tmp_path: Path) -> None:
    there = library(tmp_path / "elsewhere" / SONAME)
    location = tensorflow_with(tmp_path, 29, "$ORIGIN/../nvidia/cudnn/lib")
    (found,) = tried(location, LD_LIBRARY_PATH=str(there.parent))
    assert (found.loads, found.path, found.found_at) == (True, str(there), (str(there),))


@pytest.mark.parametrize(
    ("tag", "winner"), [(29, "environment"), (15, "built-in")], ids=["DT_RUNPATH comes last", "DT_RPATH comes first"]
)
def test_the_order_of_the_search_is_that_of_the_loader(tmp_path: Path, tag: int, winner: str) -> None:
    there = {name: library(tmp_path / name / SONAME) for name in ("environment", "built-in")}
    location = tensorflow_with(tmp_path, tag, str(there["built-in"].parent))
    (found,) = tried(location, LD_LIBRARY_PATH=str(there["environment"].parent))
    assert found.path == str(there[winner])


def test_a_file_that_is_no_library_is_not_missing(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / SONAME
    broken.parent.mkdir()
    broken.write_text("version https://git-lfs.example/spec/v1\n" * 20)
    (found,) = tried(tensorflow_with(tmp_path, 29, str(broken.parent)), LD_LIBRARY_PATH=str(broken.parent))
    assert found.loads is False
    assert found.error is not None
    assert "invalid ELF header" in found.error
    assert found.found_at == (str(broken),)


def test_what_the_library_needs_in_turn_is_what_the_loader_names(tmp_path: Path) -> None:
    there = library(tmp_path / "lib" / SONAME, needs="libnvJitLink.so.77")
    (found,) = tried(tensorflow_with(tmp_path, 29, str(there.parent)))
    assert found.loads is False
    assert found.error is not None
    assert found.error.startswith("libnvJitLink.so.77: cannot open shared object file")


def test_the_wheel_of_2_21_0_does_not_search_the_wheel_of_cusolver() -> None:
    tensorflow, _, _ = read_build()
    if tensorflow is None or tensorflow.version != "2.21.0" or not tensorflow.is_cuda_build or not tensorflow.location:
        pytest.skip("TensorFlow 2.21.0 with CUDA is not installed")
    searched = read_search_path(f"{tensorflow.location}/{FRAMEWORK}").folders
    wheels = {folder.rpartition("/nvidia/")[2] for folder in searched if "/nvidia/" in folder}
    assert {"cublas/lib", "cudnn/lib", "cufft/lib", "cusparse/lib", "cuda_runtime/lib"} <= wheels
    assert "cusolver/lib" not in wheels


def test_each_library_is_tried_whatever_became_of_the_one_before(tmp_path: Path) -> None:
    library(tmp_path / "lib" / "libb.so.1")
    found = tried(tensorflow_with(tmp_path, 29, str(tmp_path / "lib")), "liba.so.1", "libb.so.1", "libc-none.so.1")
    assert [each.loads for each in found] == [False, True, False]


def test_another_version_in_a_known_place_is_named(tmp_path: Path) -> None:
    older = library(tmp_path / "lib" / "libhwprobetest.so.8")
    library(tmp_path / "lib" / "libhwprobetest_adv.so.9")
    library(tmp_path / "lib" / "libhwprobetest.so")
    (found,) = tried(tensorflow_with(tmp_path, 29, ""), LD_LIBRARY_PATH=str(tmp_path / "lib"))
    assert (found.loads, found.found_at, found.other_versions) == (False, (), (str(older),))


@pytest.mark.parametrize("location", [None, "/nonexistent/tensorflow"])
def test_without_tensorflows_own_library_the_loader_is_asked_plainly(tmp_path: Path, location: str | None) -> None:
    there = library(tmp_path / "lib" / SONAME)
    assert tried(location)[0].loads is False
    assert tried(location, LD_LIBRARY_PATH=str(there.parent))[0].path == str(there)


def test_a_damaged_library_of_tensorflow_is_like_none(tmp_path: Path) -> None:
    location = tensorflow_with(tmp_path, 29, "")
    Path(location, FRAMEWORK).write_text("damaged")
    assert libraries.request(location, [SONAME]) == {"sonames": [SONAME], "search_paths": []}


def test_a_machine_without_a_folder_for_temporary_files_gets_an_answer(tmp_path: Path) -> None:
    there = library(tmp_path / "lib" / SONAME)
    location = tensorflow_with(tmp_path, 29, "")
    (found,) = tried(location, LD_LIBRARY_PATH=str(there.parent), TMPDIR=str(tmp_path / "none"))
    assert found.path == str(there)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    library(tmp_path / "lib" / "libb.so.1")
    tried(tensorflow_with(tmp_path, 29, str(tmp_path / "lib")), "liba.so.1", "libb.so.1", TMPDIR=str(folder))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("toolkit", "cudnn", "opened", "version"),
    [("12.5", "9.3.0", ("12.5.1", "9"), "9.3.0"), ("12.2", "8.9.7", ("12.2", "8"), "8.9.7")],
)
def test_every_library_of_a_machine_loads_and_cudnn_says_its_version(
    machine: Callable[..., Machine], toolkit: str, cudnn: str, opened: tuple[str, str], version: str
) -> None:
    m = machine(toolkit=toolkit, cudnn=cudnn)
    request = libraries.request(None, sonames(*opened, "Linux"))
    answer = ask("hwprobe.probe.libraries:read", request, timeout_seconds=GENEROUS, environment=m.environment())
    assert answer.data is not None
    found = from_builtins(answer.data["libraries"], tuple[SharedLibrary, ...])
    assert [each.soname for each in found if not each.loads] == []
    assert [each.path for each in found] == [str(m.folder / "lib" / each.soname) for each in found]
    assert found[-1].version == version


NVCC = "site/nvidia/cuda_nvcc"
LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"

XLA_CASES: list[tuple[str, tuple[str, ...], Mapping[str, str], tuple[str | None, str | None]]] = [
    ("nothing anywhere", (), {}, (None, None)),
    (
        "in the wheel of the compiler",
        (f"{NVCC}/{LIBDEVICE}", f"{NVCC}/bin/ptxas"),
        {},
        (f"{NVCC}/{LIBDEVICE}", f"{NVCC}/bin/ptxas"),
    ),
    (
        "in the folder that XLA was told",
        (f"cuda/{LIBDEVICE}", f"{NVCC}/{LIBDEVICE}"),
        {"XLA_FLAGS": "--xla_dump_to=/x --xla_gpu_cuda_data_dir={root}/cuda"},
        (f"cuda/{LIBDEVICE}", None),
    ),
    (
        "an assembler on PATH, before the one of the wheel",
        ("bin/ptxas", f"{NVCC}/bin/ptxas"),
        {"PATH": "/nonexistent::{root}/bin"},
        (None, "bin/ptxas"),
    ),
    (
        "a copy in the package",
        (f"site/tensorflow/cuda/{LIBDEVICE}",),
        {},
        (f"site/tensorflow/cuda/{LIBDEVICE}", None),
    ),
]


@pytest.mark.parametrize(
    ("files", "variables", "expected"), [case[1:] for case in XLA_CASES], ids=[case[0] for case in XLA_CASES]
)
def test_what_xla_needs_is_found_where_xla_looks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[str, ...],
    variables: Mapping[str, str],
    expected: tuple[str | None, str | None],
) -> None:
    monkeypatch.setattr(libraries, "CUDA_ROOTS", ())
    monkeypatch.chdir(tmp_path)
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
    environment = {name: value.format(root=tmp_path) for name, value in variables.items()}
    found = xla_files(str(tmp_path / "site" / "tensorflow"), environment)
    assert found == tuple(None if name is None else str(tmp_path / name) for name in expected)


def test_an_assembler_that_may_not_run_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "CUDA_ROOTS", ())
    (tmp_path / "ptxas").write_text("")
    (tmp_path / "ptxas").chmod(0o644)
    assert xla_files(str(tmp_path / "tensorflow"), {"PATH": str(tmp_path)}) == (None, None)
