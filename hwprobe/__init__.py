"""Probe the hardware TensorFlow trains on, decide the precision that fits it, and apply it.

    import hwprobe
    hwprobe.auto_configure()

Importing this package loads neither TensorFlow nor NVML; each public name is loaded when it is first used.
"""

from __future__ import annotations

from hwprobe import version

__version__ = version.VERSION

# `typing` would cost an import of this package as much time again as the start of the interpreter.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    from hwprobe.model.audit import audit
    from hwprobe.model.facts import Audit
    from hwprobe.preflight import Check, check, require
    from hwprobe.report import Report
    from hwprobe.scaling.calibrate import calibrate_loss_scale
    from hwprobe.scaling.calibration import Calibration
    from hwprobe.scaling.guard import LossScaleGuard
    from hwprobe.scaling.step_check import verify_scaling
    from hwprobe.scaling.wrap import adopt, register_optimizers, wrap_optimizer
    from hwprobe.verification import verify

_PUBLIC = {
    "AgreementError": "hwprobe.errors",
    "Applied": "hwprobe.configuration",
    "ApplyError": "hwprobe.errors",
    "Audit": "hwprobe.model.facts",
    "Calibration": "hwprobe.scaling.calibration",
    "Check": "hwprobe.preflight",
    "Decision": "hwprobe.configuration",
    "Finding": "hwprobe.findings",
    "HwprobeError": "hwprobe.errors",
    "InputError": "hwprobe.errors",
    "LossScaleGuard": "hwprobe.scaling.guard",
    "LossScaling": "hwprobe.configuration",
    "Report": "hwprobe.report",
    "RequirementError": "hwprobe.errors",
    "UnsupportedError": "hwprobe.errors",
    "adopt": "hwprobe.scaling.wrap",
    "audit": "hwprobe.model.audit",
    "auto_configure": "hwprobe.auto",
    "calibrate_loss_scale": "hwprobe.scaling.calibrate",
    "check": "hwprobe.preflight",
    "register_optimizers": "hwprobe.scaling.wrap",
    "require": "hwprobe.preflight",
    "verify": "hwprobe.verification",
    "verify_scaling": "hwprobe.scaling.step_check",
    "wrap_optimizer": "hwprobe.scaling.wrap",
}

__all__ = [
    "AgreementError",
    "Applied",
    "ApplyError",
    "Audit",
    "Calibration",
    "Check",
    "Decision",
    "Finding",
    "HwprobeError",
    "InputError",
    "LossScaleGuard",
    "LossScaling",
    "Report",
    "RequirementError",
    "UnsupportedError",
    "__version__",
    "adopt",
    "audit",
    "auto_configure",
    "calibrate_loss_scale",
    "check",
    "register_optimizers",
    "require",
    "verify",
    "verify_scaling",
    "wrap_optimizer",
]


def __getattr__(name: str) -> Any:
    place = _PUBLIC.get(name)
    if place is None:
        raise AttributeError(f"module 'hwprobe' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
