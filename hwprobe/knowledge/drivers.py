"""Drivers and CUDA releases: which driver runs what."""

from __future__ import annotations

import functools

from hwprobe.knowledge.tables import Row, Text, read
from hwprobe.knowledge.versions import cuda_release, numbers


class Toolkit(Row, frozen=True, kw_only=True):
    """A CUDA release and the driver that came with its first build.

    Attributes:
        cuda: Major and minor.
        linux, windows: Driver versions; None where NVIDIA states none.
    """

    cuda: Text
    linux: Text
    windows: str | None = None


class Compatibility(Row, frozen=True, kw_only=True):
    """Minor-version compatibility of one CUDA major: from which driver the machine code of all its releases runs.

    Attributes:
        major: Of CUDA.
        linux, windows: Driver versions; None where NVIDIA states none.
    """

    major: int
    linux: Text
    windows: str | None = None


@functools.cache
def toolkits() -> tuple[Toolkit, ...]:
    """Every known CUDA release, oldest first."""
    return read("drivers.toml", "toolkit", Toolkit)


@functools.cache
def compatibilities() -> tuple[Compatibility, ...]:
    """Every CUDA major that has minor-version compatibility."""
    return read("drivers.toml", "compatibility", Compatibility)


def driver_is_older(version: str, minimum: str) -> bool | None:
    """Compare two driver versions number by number: 535.104.05 is newer than 535.54.03, and 580.65.06 than 580.

    A branch without its release, such as 525, may be older than 525.60.13 or newer: that is not known.

    Args:
        version: Of the driver, with whatever a vendor added to it.
        minimum: What is needed.

    Returns:
        Whether it is older; None if one of them holds no number, or if the version says too little.
    """
    have, need = numbers(version), numbers(minimum)
    if have is None or need is None:
        return None
    if len(have) < len(need) and need[: len(have)] == have:
        return None
    return have < need


def minimum_driver(cuda_version: str, system: str) -> str | None:
    """Name the oldest driver that runs machine code built with a CUDA release.

    Args:
        cuda_version: As a build records it: `12.5.1`, `11.2`, `64_112`.
        system: `Linux` or `Windows`; under WSL the driver is that of Windows.

    Returns:
        The lower of the release's own driver and the floor of minor-version compatibility; None where neither is known.
    """
    release = cuda_release(cuda_version)
    if release is None:
        return None
    floors = [_of(row, system) for row in compatibilities() if row.major == release[0]]
    candidates = [driver for driver in (*floors, driver_for_ptx(cuda_version, system)) if driver is not None]
    return min(candidates, key=lambda driver: numbers(driver) or (), default=None)


def driver_for_ptx(cuda_version: str, system: str) -> str | None:
    """Name the oldest driver that compiles the PTX of a CUDA release.

    Minor-version compatibility does not cover PTX: code that is compiled at first use, and what XLA generates, needs
    the driver of the release itself.

    Args:
        cuda_version: As a build records it.
        system: `Linux` or `Windows`; under WSL the driver is that of Windows.

    Returns:
        The driver; None where it is not known.
    """
    release = cuda_release(cuda_version)
    for row in toolkits():
        if release is not None and cuda_release(row.cuda) == release:
            return _of(row, system)
    return None


def driver_cuda_ceiling(driver_version: str, system: str = "Linux") -> str | None:
    """Name the newest CUDA release of the table that a driver covers in full.

    Args:
        driver_version: `535.104.05`.
        system: `Linux` or `Windows`; under WSL the driver is that of Windows.

    Returns:
        `12.2`. A driver that is newer than the table may cover more. None for one that is older than the table, and for
        text that holds no number.
    """
    covered = None
    for row in toolkits():
        driver = _of(row, system)
        if driver is not None and driver_is_older(driver_version, driver) is False:
            covered = row.cuda
    return covered


def _of(row: Toolkit | Compatibility, system: str) -> str | None:
    return {"Linux": row.linux, "Windows": row.windows}.get(system)
