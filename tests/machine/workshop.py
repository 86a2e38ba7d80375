"""Compiles the stand-in libraries, each once for a whole test run."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent / "stand_ins"
NOT_SUPPORTED = {"libcuda.so.1": 801, "libnvidia-ml.so.1": 3}
"""What each driver library answers to a call that the stand-in does not know."""

DRIVER_LIBRARIES = tuple(NOT_SUPPORTED)


@dataclasses.dataclass(frozen=True)
class Toolkit:
    """The CUDA user libraries that one kind of TensorFlow build opens, and the version of its cuDNN."""

    libraries: tuple[str, ...]
    cudnn: str


_CUDA_12 = (
    *("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12"),
    *("libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12"),
)
_CUDA_11 = (
    *("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11"),
    *("libcufft.so.10", "libcusolver.so.11", "libcusparse.so.11"),
)
TOOLKITS = {
    "12.5": Toolkit((*_CUDA_12, "libcudnn.so.9"), "9.3.0"),
    "12.2": Toolkit((*_CUDA_12, "libcurand.so.10", "libcudnn.so.8"), "8.9.4"),
    "11.8": Toolkit((*_CUDA_11, "libcurand.so.10", "libcudnn.so.8"), "8.7.0"),
}
"""By CUDA version: TensorFlow 2.18 and newer; 2.15; 2.12 to 2.14."""


class NoCompilerError(Exception):
    """There is no C compiler here, or none that can build for this system."""


def find_compiler() -> str:
    """The C compiler: `$CC`, `cc` or `gcc`."""
    if os.uname().sysname != "Linux":
        raise NoCompilerError("the stand-in libraries are made for Linux")
    for name in (os.environ.get("CC"), "cc", "gcc"):
        if name and (path := shutil.which(name)):
            return path
    raise NoCompilerError("no C compiler (cc or gcc) to build the stand-in libraries with")


def _sources(soname: str) -> tuple[str, ...]:
    if soname == "libcuda.so.1":
        return ("machine.c", "cuda_visible.c", "cuda_device.c", "cuda_context.c")
    if soname == "libnvidia-ml.so.1":
        return ("machine.c", "nvml.c", "nvml_device.c")
    if soname.startswith("libcudart"):
        return ("machine.c", "cudart.c")
    if soname.startswith("libcudnn"):
        return ("machine.c", "cudnn.c")
    return ()


@functools.cache
def _written(soname: str) -> frozenset[str]:
    """Functions that somebody wrote for this library, plainly or through a macro of its file."""
    text = "".join((SOURCES / name).read_text() for name in _sources(soname))
    return frozenset(re.findall(r"^(?:API |EXPORT .*?|[A-Z_]+\()((?:nvml|cuda|cudnn|cu)[A-Z]\w*)", text, re.MULTILINE))


@functools.cache
def functions(soname: str) -> frozenset[str]:
    """Every function that the stand-in for `soname` exports: the written ones and those of a list of names.

    The lists hold what nvidia-ml-py 13.615.71 and TensorFlow 2.21 look for.
    """
    listed = SOURCES / f"{soname.split('.')[0]}.txt"
    return _written(soname) | frozenset(listed.read_text().split() if listed.exists() else ())


def _stubs(soname: str) -> str:
    """C source of every function that is only listed. A call about one NVML device minds that device's own faults."""
    lines = ['#include "nvml.h"' if "nvidia-ml" in soname else '#include "machine.h"']
    for name in sorted(functions(soname) - _written(soname)):
        if name.startswith("nvmlDevice") and "GetHandleBy" not in name:
            lines.append(f"API {name}(void *handle) {{ DEVICE(handle); return NOT_SUPPORTED; }}")
        else:
            answer = NOT_SUPPORTED[soname]
            lines.append(f"EXPORT int {name}(void) {{ int code = enter(__func__); return code ? code : {answer}; }}")
    return "\n".join(lines) + "\n"


class Workshop:
    """A folder of compiled libraries, shared by all workers of a test run.

    Args:
        folder: Where to build; every process that shares it waits for the others' builds.
        compiler: Path of a C compiler.
    """

    def __init__(self, folder: Path, compiler: str) -> None:
        self.folder = folder
        self.compiler = compiler

    def install(
        self,
        folder: Path,
        *,
        driver: str | None,
        toolkit: str | None,
        lacks: frozenset[str],
        missing: frozenset[str],
        broken: frozenset[str],
    ) -> tuple[str, ...]:
        """Fills a folder with libraries, those of the driver as links to a file with its version, and names them."""
        wanted = (*(DRIVER_LIBRARIES if driver else ()), *(TOOLKITS[toolkit].libraries if toolkit else ()))
        assert missing | broken <= set(wanted), (
            f"this machine would not have {sorted((missing | broken) - set(wanted))}"
        )
        known = frozenset().union(*map(functions, wanted))
        assert lacks <= known, f"no library would have {sorted(lacks - known)}"
        folder.mkdir(parents=True)
        for soname in broken:
            (folder / soname).write_text("not a library\n")
        loadable = tuple(soname for soname in wanted if soname not in missing | broken)
        for soname in loadable:
            name = f"{soname[:-2]}.{driver}" if soname in DRIVER_LIBRARIES else soname
            shutil.copyfile(self.library(soname, lacks & functions(soname)), folder / name)
            if name != soname:
                (folder / soname).symlink_to(name)
        return loadable

    def library(self, soname: str, lacks: frozenset[str] = frozenset()) -> Path:
        """A compiled stand-in for `soname`, without the functions that it `lacks`."""
        target = self.folder / f"{soname}-{self._key(soname, lacks)}"
        with self._lock():
            if not target.exists():
                self._build(soname, lacks, target)
        return target

    def _key(self, soname: str, lacks: frozenset[str]) -> str:
        digest = hashlib.sha256(f"{self.compiler} {soname} {sorted(lacks)} ".encode())
        for path in sorted(SOURCES.iterdir()):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def _build(self, soname: str, lacks: frozenset[str], target: Path) -> None:
        stubs = target.with_name(f"{target.name}.stubs.c")
        stubs.write_text(_stubs(soname) if _sources(soname) else "")
        unfinished = target.with_name(f"{target.name}.unfinished")
        command = [self.compiler, "-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{SOURCES}"]
        command += [f"-Wl,-soname,{soname}", "-o", str(unfinished), str(stubs)]
        command += [str(SOURCES / name) for name in _sources(soname)]
        if lacks:
            script = target.with_name(f"{target.name}.map")
            script.write_text("{ global: *; local: " + " ".join(f"{name};" for name in sorted(lacks)) + " };\n")
            command.append(f"-Wl,--version-script={script}")
        done = subprocess.run([*command, "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}\n{done.stderr}")
        unfinished.replace(target)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
