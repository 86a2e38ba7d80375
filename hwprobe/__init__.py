"""Probe the hardware TensorFlow trains on, decide the precision that fits it, and apply it."""
