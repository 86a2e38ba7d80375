"""Starting TensorFlow for a command: without its log, and without taking all of a GPU's memory."""

from __future__ import annotations

import os


def quiet_log() -> None:
    """Silence TensorFlow's own log, unless the user set its level. Before the first import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def start_quietly() -> None:
    """Silence TensorFlow's own log and let the memory of GPUs grow. Before the first import."""
    quiet_log()
    try:
        import tensorflow as tf
    except ImportError:
        # Keras 3 on another backend: a model is read all the same.
        return
    try:
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    except (RuntimeError, ValueError):
        # Somebody's own settings (a factory's module, TF_FORCE_GPU_ALLOW_GROWTH) came first: they stand.
        return
