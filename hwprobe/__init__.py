"""Probe the hardware TensorFlow trains on, decide the precision that fits it, and apply it.

    import hwprobe
    hwprobe.auto_configure()

Importing this package loads neither TensorFlow nor NVML; each public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hwprobe import version

__version__ = version.VERSION

if TYPE_CHECKING:
    from hwprobe.auto import auto_configure
    from hwprobe.configuration import Applied, Decision, LossScaling
    from hwprobe.errors import (
        AgreementError,
        ApplyError,
        HwprobeError,
        InputError,
        RequirementError,
        UnsupportedError,
    )
    from hwprobe.findings import Finding
    from hwprobe.preflight import Check, check, require
    from hwprobe.report import Report
    from hwprobe.verification import verify

_PUBLIC = {
    "AgreementError": "hwprobe.errors",
    "Applied": "hwprobe.configuration",
    "ApplyError": "hwprobe.errors",
    "Check": "hwprobe.preflight",
    "Decision": "hwprobe.configuration",
    "Finding": "hwprobe.findings",
    "HwprobeError": "hwprobe.errors",
    "InputError": "hwprobe.errors",
    "LossScaling": "hwprobe.configuration",
    "Report": "hwprobe.report",
    "RequirementError": "hwprobe.errors",
    "UnsupportedError": "hwprobe.errors",
    "auto_configure": "hwprobe.auto",
    "check": "hwprobe.preflight",
    "require": "hwprobe.preflight",
    "verify": "hwprobe.verification",
}

__all__ = [
    "AgreementError",
    "Applied",
    "ApplyError",
    "Check",
    "Decision",
    "Finding",
    "HwprobeError",
    "InputError",
    "LossScaling",
    "Report",
    "RequirementError",
    "UnsupportedError",
    "__version__",
    "auto_configure",
    "check",
    "require",
    "verify",
]


def __getattr__(name: str) -> Any:
    place = _PUBLIC.get(name)
    if place is None:
        raise AttributeError(f"module 'hwprobe' has no attribute {name!r}")
    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
