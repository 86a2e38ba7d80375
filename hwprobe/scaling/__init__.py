"""Loss scaling that is right: the optimizers, a guard, a calibration, and checks.

Importing this loads neither Keras nor TensorFlow.
"""

from __future__ import annotations

from hwprobe.scaling.calibrate import calibrate_loss_scale
from hwprobe.scaling.calibration import Calibration
from hwprobe.scaling.guard import LossScaleGuard
from hwprobe.scaling.in_force import in_force, set_in_force
from hwprobe.scaling.model_check import ModelScaling, verify_model
from hwprobe.scaling.reading import ScalingState, read_scaling
from hwprobe.scaling.rules import RULES
from hwprobe.scaling.step_check import ScalingCheck, verify_scaling
from hwprobe.scaling.wrap import adopt, register_optimizers, wrap_optimizer

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
