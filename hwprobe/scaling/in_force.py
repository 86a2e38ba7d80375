"""The loss scaling that this process has decided on: one value, written by the applier, read by the optimizers."""

from __future__ import annotations

import threading

from hwprobe.configuration import LossScaling

_lock = threading.Lock()
_current: LossScaling | None = None


def set_in_force(loss_scaling: LossScaling | None) -> LossScaling | None:
    """Make a loss scaling the one in force for the whole process.

    Args:
        loss_scaling: What was decided; None forgets an earlier decision.

    Returns:
        What was in force before, so that a caller can put it back.
    """
    global _current
    with _lock:
        before, _current = _current, loss_scaling
    return before


def in_force() -> LossScaling | None:
    """Give the loss scaling in force, or None where nobody has decided yet."""
    with _lock:
        return _current
