"""The TensorFlow that a description means: a wheel of the package index, or somebody's own build."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from hwprobe.errors import InputError
from hwprobe.knowledge.tensorflow import Release, newest_release, release, releases
from hwprobe.offline.description import Platform, left_out
from hwprobe.report import Distribution, Report, TensorFlow

ARCHITECTURE = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")
"""An entry of a build's list, as `build_info.py` writes it."""

_MAX_LENGTH = 40


class Wish(NamedTuple):
    """Which TensorFlow a description names.

    Attributes:
        version: `2.17`; None for the newest final release of the table.
        built_for: Architectures of a build that is not the wheel of the package index.
        cpu_only: Whether `tensorflow-cpu` is meant.
    """

    version: str | None = None
    built_for: tuple[str, ...] = ()
    cpu_only: bool = False


class Build(NamedTuple):
    """A TensorFlow, and what is taken for granted with it."""

    tensorflow: TensorFlow
    assumptions: tuple[str, ...]


def build_of(wish: Wish, platform: Platform, where: str) -> Build:
    """Give the facts that a probe of this TensorFlow would find, as far as hwprobe's tables know them.

    Args:
        wish: Which TensorFlow.
        platform: Where it would be installed. The wheels for aarch64, and those for Windows from 2.11 on, have no CUDA.
        where: What named it, for the error message.

    Raises:
        InputError: It is no version, or one that the tables do not know and whose architectures nobody names, or there
            is no wheel for that Python.
    """
    row = _row(wish, platform, where)
    version = wish.version if wish.version is not None else row.version
    if wish.built_for:
        return _own_build(version, row, wish.built_for)
    named = f"TensorFlow {version} as its"
    if wish.version is None:
        named = f"TensorFlow {version}, the newest release that hwprobe knows, since none is named; its"
    target = _platform_name(platform)
    if wish.cpu_only or not _has_cuda(row, platform):
        package = "tensorflow-cpu" if wish.cpu_only else "tensorflow"
        facts = TensorFlow(
            version=version,
            distributions=_distributions(package, version),
            is_cuda_build=False,
            is_rocm_build=False,
        )
        return Build(facts, (f"{named} {package} wheel for {target}, which has no CUDA in it",))
    facts = TensorFlow(
        version=version,
        distributions=_distributions("tensorflow", version),
        is_cuda_build=True,
        is_rocm_build=False,
        cuda_version=row.cuda,
        cudnn_version=row.cudnn_minimum,
        # The table's lists are those of the Linux wheels.
        compute_capabilities=row.architectures if platform.system == "Linux" else None,
        compute_capabilities_origin="build_info" if row.cuda_recorded else "fatbin",
    )
    return Build(facts, (f"{named} wheel for {target}, {_libraries(version, row)}",))


def _distributions(name: str, version: str) -> tuple[Distribution, ...]:
    return (Distribution(name=name, version=version, in_effect=True, ships_code=True),)


def with_tensorflow(report: Report, wish: Wish) -> Report:
    """Put another TensorFlow into a machine, with libraries that load.

    Args:
        report: The machine.
        wish: Which TensorFlow.

    Raises:
        InputError: There is no such TensorFlow, or no wheel of it for the machine's Python.
    """
    host = report.host
    platform = Platform(system=host.system, machine=host.machine, wsl=host.wsl, python=host.python)
    build = build_of(wish, platform, "--tensorflow")
    skipped = left_out("recording: another TensorFlow was put in its place")
    return replace(
        report,
        tensorflow=build.tensorflow,
        devices=tuple(replace(gpu, tensorflow_name=None) for gpu in report.devices),
        sources=replace(report.sources, tensorflow_build=skipped, tensorflow_runtime=skipped),
        assumptions=(*report.assumptions, *build.assumptions),
    )


def _row(wish: Wish, platform: Platform, where: str) -> Release:
    if wish.version is None:
        return newest_release()
    text = wish.version
    try:
        wanted = Version(text) if len(text) <= _MAX_LENGTH else None
    except InvalidVersion:
        wanted = None
    if wanted is None:
        raise InputError(
            f"{where}: {text[:_MAX_LENGTH]!r} is not a version of TensorFlow: expected a form such as 2.17"
        )
    row = release(text)
    first, last = releases()[0].version, releases()[-1].version
    if row is None:
        raise InputError(f"{where}: TensorFlow {text} is older than {first}, with which hwprobe's tables begin")
    if not row.known and not wish.built_for:
        raise InputError(
            f"{where}: TensorFlow {text} is newer than {last}, with which hwprobe's tables end: upgrade tf-hwprobe, "
            f"or name what it was built for, such as 'tensorflow {text}, built for sm_80 sm_90 compute_90'"
        )
    if platform.python is not None and not wish.built_for:
        _require_python(text, row, platform.python, where)
    return row


def _require_python(version: str, row: Release, python: str, where: str) -> None:
    if row.has_wheel_for(python) is False:
        raise InputError(
            f"{where}: there is no wheel of TensorFlow {version} for Python {python}: it is for {row.pythons}"
        )


def _own_build(version: str, row: Release, built_for: Sequence[str]) -> Build:
    facts = TensorFlow(
        version=version,
        is_cuda_build=True,
        is_rocm_build=False,
        # Which CUDA somebody else's build was made with is not told; its list says what runs.
        compute_capabilities=tuple(built_for),
        compute_capabilities_origin="build_info",
    )
    stands_in = "" if row.known else f"; {row.version} stands in for it in hwprobe's tables"
    return Build(facts, (f"TensorFlow {version}, a build for {', '.join(built_for)}{stands_in}",))


def _has_cuda(row: Release, platform: Platform) -> bool:
    if platform.system == "Windows":
        return row.native_windows_gpu
    return platform.machine not in ("aarch64", "arm64")


def _platform_name(platform: Platform) -> str:
    if platform.wsl:
        return "Linux x86_64 under WSL"
    return f"{platform.system} {platform.machine or 'x86_64'}"


def _libraries(version: str, row: Release) -> str:
    found = "with the CUDA libraries that it opens installed and found"
    if not row.misses_pip_libraries(version):
        return found
    return f"{found}; of those of the nvidia-* wheels it overlooks some by itself (HWP209)"
