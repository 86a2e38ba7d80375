"""The shared libraries that TensorFlow opens at start, each tried on its own as TensorFlow itself would.

TensorFlow says "Cannot dlopen some GPU libraries" and never which one (tensorflow/tensorflow#66987).

`read` runs in a child process and imports little; `request` and `xla_files` run in the parent.
"""

# pathlib would cost the child as much time as everything else here.
# ruff: noqa: PTH108, PTH113, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import ctypes
import os
import struct
import sys

from hwprobe.probe.loader import loaded_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KNOWN_FOLDERS = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda/targets/sbsa-linux/lib",
    "/opt/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
)
"""Where CUDA and cuDNN packages put their libraries; beside every `/usr/local/cuda-*/lib64`."""

CUDA_ROOTS = ("/usr/local/cuda", "/opt/cuda")
"""Where XLA looks for a toolkit."""

_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_RPATH, _DT_RUNPATH = 1, 5, 6, 10, 15, 29


def request(location: str | None, sonames: Sequence[str], search_paths: Sequence[str] = ()) -> dict[str, object]:
    """Make the request for `read`.

    Args:
        location: Folder of the `tensorflow` package.
        sonames: The names that this TensorFlow gives to the loader.
        search_paths: Folders of the `nvidia-*` wheels that hold shared libraries.

    Returns:
        Plain data. The search path that is built into TensorFlow's library is part of it where it could be read.
    """
    from hwprobe.probe.elf import ElfError, read_search_path

    asked: dict[str, object] = {"sonames": list(sonames), "search_paths": list(search_paths)}
    # tsl::internal::LoadDynamicLibrary, which calls dlopen, is defined in this library (TensorFlow 2.21 wheel).
    opener = os.path.join(location or "", "libtensorflow_framework.so.2")
    if location is not None and os.path.isfile(opener):
        try:
            search = read_search_path(opener)
        except ElfError:
            return asked
        asked |= {"folders": list(search.folders), "is_runpath": search.is_runpath, "machine": search.machine}
    return asked


def read(asked: dict[str, object]) -> dict[str, object]:
    """Try each library. Loading CUDA's user libraries touches no GPU, but runs their initialisers: for a child only.

    Args:
        asked: What `request` returned.

    Returns:
        `libraries`: for each soname the fields of `hwprobe.report.SharedLibrary`.
    """
    sonames = [str(name) for name in _items(asked, "sonames")]
    known = _known_folders([str(folder) for folder in _items(asked, "search_paths")])
    return {"libraries": [_try(soname, _Opener(asked, number), known) for number, soname in enumerate(sonames)]}


def xla_files(location: str, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Find `libdevice.10.bc` and `ptxas` where XLA looks for them.

    The order is that of `CandidateCudaRoots` and `FindCudaExecutable` in openxla/xla: the folder of
    `--xla_gpu_cuda_data_dir` first, `PATH` before the usual roots for programs, the current folder last for files.

    Args:
        location: Folder of the `tensorflow` package.
        environment: For `XLA_FLAGS` and `PATH`.

    Returns:
        The two paths, None for what is not there.
    """
    told = _data_dirs(environment.get("XLA_FLAGS", ""))
    usual = [
        *CUDA_ROOTS,
        os.path.join(os.path.dirname(location), "nvidia", "cuda_nvcc"),
        os.path.join(location, "cuda"),
        # An environment's own prefix, where NVIDIA's conda packages put the toolkit.
        os.path.normpath(os.path.join(location, *[os.pardir] * 4)),
    ]
    libdevice = [os.path.join(root, "nvvm", "libdevice", "libdevice.10.bc") for root in [*told, *usual, os.curdir]]
    programs = [
        *(os.path.join(root, "bin") for root in told),
        *(folder for folder in environment.get("PATH", "").split(os.pathsep) if folder),
        *(os.path.join(root, "bin") for root in usual),
    ]
    ptxas = [os.path.join(folder, "ptxas") for folder in programs]
    return _first_file(libdevice), _first_file(path for path in ptxas if os.access(path, os.X_OK))


def caller_image(needed: str, tag: int, folders: str, machine: int) -> bytes:
    """Write the smallest ELF library that needs another one: a header, a dynamic section, its strings.

    Args:
        needed: Name of the other one.
        tag: `DT_RPATH` (15) or `DT_RUNPATH` (29).
        folders: Its search path, separated by colons.
        machine: `e_machine`, of the process that will load it.
    """
    strings = b"\0" + needed.encode() + b"\0"
    dynamic = [(_DT_NEEDED, 1)]
    if folders:
        dynamic.append((tag, len(strings)))
        strings += os.fsencode(folders) + b"\0"
    start = 64 + 2 * 56
    symbols = start + 16 * (len(dynamic) + 4)
    text = symbols + 24
    size = text + len(strings)
    dynamic += [(_DT_STRTAB, text), (_DT_SYMTAB, symbols), (_DT_STRSZ, len(strings)), (0, 0)]
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 0x10000)
    table = struct.pack("<IIQQQQQQ", 2, 6, start, start, start, symbols - start, symbols - start, 8)
    return header + load + table + b"".join(struct.pack("<QQ", *entry) for entry in dynamic) + bytes(24) + strings


class _Opener:
    """Opens a library from inside an object that has the search path of TensorFlow's own.

    Where the loader looks depends on who asks: the built-in search path of the object that calls dlopen counts, and
    where it has one of the newer kind, that of the Python executable does not (conda's has one; ld.so(8)). So the
    request comes from a tiny library that has TensorFlow's search path and needs the one that is asked for.
    """

    def __init__(self, asked: dict[str, object], number: int) -> None:
        self._machine = asked.get("machine")
        self._tag = _DT_RUNPATH if asked.get("is_runpath") else _DT_RPATH
        self._folders = ":".join(str(folder) for folder in _items(asked, "folders"))
        self._number = number

    def open(self, soname: str) -> None:
        """Load the library and leave it loaded, as TensorFlow does.

        Raises:
            OSError: With the loader's own text.
        """
        caller = self._write(soname)
        if caller is None:
            ctypes.CDLL(soname, winmode=0)  # 0: Windows searches PATH, as for TensorFlow
            return
        try:
            ctypes.CDLL(caller)
        except OSError as error:
            if caller not in str(error):
                raise
            ctypes.CDLL(soname)
        finally:
            os.unlink(caller)

    def _write(self, soname: str) -> str | None:
        if not isinstance(self._machine, int):
            return None
        # A name of its own for each, since the loader opens no path twice.
        folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - O_EXCL below
        path = os.path.join(folder, f"hwprobe-{os.getpid()}-{self._number}.so")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            return None
        with open(handle, "wb") as file:
            file.write(caller_image(soname, self._tag, self._folders, self._machine))
        return path


def _try(soname: str, opener: _Opener, known: Sequence[str]) -> dict[str, object]:
    answer: dict[str, object] = {"soname": soname, "loads": True}
    try:
        opener.open(soname)
    except OSError as error:
        answer |= {"loads": False, "error": str(error)}
    else:
        answer["path"] = loaded_library(soname)
        if "cudnn" in soname:
            answer["version"] = _cudnn_version(soname)
    stem = soname.partition(".so.")[0] + ".so."
    there = [path for folder in known for path in _files(folder, stem)]
    answer["found_at"] = [path for path in there if os.path.basename(path) == soname]
    answer["other_versions"] = [path for path in there if not os.path.basename(path).startswith(soname)]
    return answer


def _cudnn_version(soname: str) -> str | None:
    """Ask cuDNN: 8907 is 8.9.7, and 90300 is 9.3.0 (cudnn_version.h, which changed its factors with version 9)."""
    try:
        function = ctypes.CDLL(soname).cudnnGetVersion
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_size_t
    number = int(function())
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _known_folders(wheels: Iterable[str]) -> list[str]:
    environment = os.environ
    folders = [
        *(folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder),
        *wheels,
        *KNOWN_FOLDERS,
        *(f"/usr/local/{name}/lib64" for name in _names("/usr/local") if name.startswith("cuda-")),
        *(os.path.join(prefix, "lib") for prefix in (environment.get("CONDA_PREFIX"), sys.prefix) if prefix),
    ]
    return list({os.path.realpath(folder): folder for folder in reversed(folders)}.values())[::-1]


def _files(folder: str, stem: str) -> list[str]:
    return [os.path.join(folder, name) for name in _names(folder) if name.startswith(stem)]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _items(asked: dict[str, object], key: str) -> list[object]:
    value = asked.get(key)
    return value if isinstance(value, list) else []


def _data_dirs(flags: str) -> list[str]:
    prefix = "--xla_gpu_cuda_data_dir="
    return [flag[len(prefix) :].strip("'\"") for flag in flags.split() if flag.startswith(prefix)]


def _first_file(paths: Iterable[str]) -> str | None:
    return next((path for path in paths if os.path.isfile(path)), None)
