"""Loss scaling that is right: optimizers, calibration, guard."""
