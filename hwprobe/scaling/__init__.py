"""Loss scaling that is right: the optimizers, a guard, a calibration, and checks.

Importing this loads neither Keras nor TensorFlow. Each name is loaded at its first use: `auto_configure` needs few.
"""

from __future__ import annotations

# At once: a module of the same name would otherwise stand where the function belongs.
from hwprobe.scaling.in_force import in_force, set_in_force

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hwprobe.scaling.calibrate import calibrate_loss_scale
    from hwprobe.scaling.calibration import Calibration
    from hwprobe.scaling.guard import LossScaleGuard
    from hwprobe.scaling.model_check import ModelScaling, verify_model
    from hwprobe.scaling.reading import ScalingState, read_scaling
    from hwprobe.scaling.rules import RULES
    from hwprobe.scaling.step_check import ScalingCheck, verify_scaling
    from hwprobe.scaling.wrap import adopt, register_optimizers, wrap_optimizer

_MODULES = {
    "calibrate": ("calibrate_loss_scale",),
    "calibration": ("Calibration",),
    "guard": ("LossScaleGuard",),
    "model_check": ("ModelScaling", "verify_model"),
    "reading": ("ScalingState", "read_scaling"),
    "rules": ("RULES",),
    "step_check": ("ScalingCheck", "verify_scaling"),
    "wrap": ("adopt", "register_optimizers", "wrap_optimizer"),
}

__all__ = [
    "RULES",
    "Calibration",
    "LossScaleGuard",
    "ModelScaling",
    "ScalingCheck",
    "ScalingState",
    "adopt",
    "calibrate_loss_scale",
    "in_force",
    "read_scaling",
    "register_optimizers",
    "set_in_force",
    "verify_model",
    "verify_scaling",
    "wrap_optimizer",
]


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
