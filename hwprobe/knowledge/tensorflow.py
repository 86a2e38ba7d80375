"""TensorFlow releases: what each wheel was built for, and the libraries it opens."""

from __future__ import annotations

import functools
from typing import Literal

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from hwprobe.knowledge.tables import Row, Text, read
from hwprobe.knowledge.versions import cuda_release, cudnn_major, numbers


class Release(Row, frozen=True, kw_only=True):
    """One minor release, as its Linux x86_64 wheels are.

    Attributes:
        version: Major and minor: `2.17`.
        cuda: What it was compiled with: `12.3`.
        cudnn_minimum: What it was compiled with; at run time cuDNN needs the same major and no older minor.
        architectures: Code in the wheel: `sm_80` is machine code, `compute_90` is machine code and PTX.
        python_minimum, python_maximum: Interpreters with a wheel; None where the end is open.
        keras: What its metadata asks for; None where Keras is inside the wheel.
        and_cuda: Whether the extra `and-cuda` exists.
        native_windows_gpu: Whether Windows builds with CUDA exist.
        opens_nvml: Whether it lists no GPU without `libnvidia-ml.so.1`.
        bfloat16: Its GPU kernels: `unusable`, `partial` (several activations go to the CPU), `complete`.
        pip_libraries_fault: Versions that do not find every CUDA library of the `nvidia-*` wheels.
        cuda_recorded: Whether `build_info.py` names CUDA, cuDNN and architectures.
        pre_release: Whether only a pre-release exists.
        known: False where a newer release was asked for, and this one only stands in for it.
    """

    version: Text
    cuda: Text
    cudnn_minimum: Text
    architectures: tuple[str, ...]
    python_minimum: Text
    python_maximum: str | None = None
    keras: str | None = None
    and_cuda: bool
    native_windows_gpu: bool
    opens_nvml: bool
    bfloat16: Literal["unusable", "partial", "complete"]
    pip_libraries_fault: tuple[str, ...] = ()
    cuda_recorded: bool
    pre_release: bool = False
    known: bool = True

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor as numbers."""
        return _minor(Version(self.version))

    @property
    def package(self) -> str:
        """What pip is given for it, with the libraries of CUDA where it has an extra for them."""
        return "tensorflow[and-cuda]" if self.and_cuda else "tensorflow"

    @property
    def pythons(self) -> str:
        """The interpreters with a wheel, as a sentence part."""
        return f"{self.python_minimum} {f'to {self.python_maximum}' if self.python_maximum else 'and newer'}"

    def has_wheel_for(self, python: str) -> bool | None:
        """Whether there is a wheel for an interpreter; None if its version holds no number."""
        have, first, last = (numbers(text or "") for text in (python, self.python_minimum, self.python_maximum))
        if have is None or first is None:
            return None
        return first <= have[:2] and (last is None or have[:2] <= last)

    def misses_pip_libraries(self, version: str) -> bool:
        """Whether one version of this release does not find every CUDA library of the `nvidia-*` wheels by itself.

        Args:
            version: `2.16.1`; without its last number it is the first of the release, such as 2.21 for 2.21.0.
        """
        return Version(version) in map(Version, self.pip_libraries_fault)


class LibrarySet(Row, frozen=True, kw_only=True):
    """Shared libraries that builds of a range of CUDA releases open at start.

    Attributes:
        system: `Linux` or `Windows`.
        first, last: CUDA releases, both included; without a last one, every later release of the same major.
        libraries: Names that are given to the loader.
        cudnn: The same, with `{major}` for the major version of cuDNN.
        cudnn_major: What stands there if the build does not say.
    """

    system: Literal["Linux", "Windows"]
    first: Text
    last: str | None = None
    libraries: tuple[str, ...]
    cudnn: Text
    cudnn_major: int

    def serves(self, cuda: tuple[int, int]) -> bool:
        """Whether builds for this CUDA release open these libraries."""
        first, last = cuda_release(self.first), cuda_release(self.last or "")
        assert first is not None
        return cuda[0] == first[0] and first <= cuda and (last is None or cuda <= last)


@functools.cache
def releases() -> tuple[Release, ...]:
    """Every known minor release, oldest first."""
    return read("tensorflow.toml", "release", Release)


class LibraryPackage(Row, frozen=True, kw_only=True):
    """Which package of the index brings a library.

    Attributes:
        library: Name before `.so`: `libcublasLt`.
        package: What names the package: `cublas` for nvidia-cublas-cu12.
    """

    library: Text
    package: Text


@functools.cache
def library_packages() -> tuple[LibraryPackage, ...]:
    """Every library of CUDA that comes with a package."""
    return read("libraries.toml", "package", LibraryPackage)


def brings(package: str, soname: str) -> bool:
    """Whether a package, such as `nvidia-cudnn-cu12`, is the one that brings a library, such as `libcudnn.so.9`."""
    words = f"{package.lower().replace('_', '-')}-"
    library = soname.partition(".so")[0]
    return any(row.library == library and f"-{row.package}-" in words for row in library_packages())


@functools.cache
def library_sets() -> tuple[LibrarySet, ...]:
    """Every known set of libraries."""
    return read("libraries.toml", "set", LibrarySet)


# One check asks about one version for every dtype policy of every GPU.
@functools.lru_cache(maxsize=64)
def release(version: str) -> Release | None:
    """Look a TensorFlow version up.

    Pre-releases, post-releases and local versions count as their minor release: `2.22.0-rc0`, `2.17.0+nv25.02`.

    Args:
        version: As TensorFlow or its distribution writes it.

    Returns:
        Its row; the newest row with `known` False for a version newer than the table; None for an older one, and for
        text that is no version.
    """
    try:
        wanted = _minor(Version(version))
    except InvalidVersion:
        return None
    older = [row for row in releases() if row.minor <= wanted]
    if not older:
        return None
    return older[-1] if older[-1].minor == wanted else replace(older[-1], known=False)


def newest_release(*, pre_release: bool = False) -> Release:
    """Name the newest release of the table.

    Args:
        pre_release: Whether one that exists only as a pre-release counts.
    """
    return next(row for row in reversed(releases()) if pre_release or not row.pre_release)


def sonames(cuda_version: str | None, cudnn_version: str | None, system: str) -> tuple[str, ...]:
    """Name the shared libraries that a CUDA build of TensorFlow opens at start.

    Args:
        cuda_version: As the build records it (`12.5.1`, `64_112`); None where the build is silent, which counts as the
            newest release of the table.
        cudnn_version: As the build records it (`9`, `64_8`); None where it is silent.
        system: `Linux` or `Windows`, as `platform.system()` says it.

    Returns:
        Names for the loader, cuDNN last; empty where the table does not know this CUDA on this system.
    """
    cuda = cuda_release(cuda_version if cuda_version is not None else newest_release(pre_release=True).cuda)
    if cuda is None:
        return ()
    for row in library_sets():
        if row.system == system and row.serves(cuda):
            major = cudnn_major(cudnn_version) if cudnn_version is not None else None
            return (*row.libraries, row.cudnn.format(major=major if major is not None else row.cudnn_major))
    return ()


def _minor(version: Version) -> tuple[int, int]:
    return version.major, version.minor
