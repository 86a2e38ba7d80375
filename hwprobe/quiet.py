"""Keeping TensorFlow quiet: its libraries' first lines, its greed for memory, a warning that is expected."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def native_log_silenced() -> Iterator[None]:
    """Drop what TensorFlow's libraries write while they start: their first lines ignore every level.

    Nothing is dropped where the user chose a level.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def retracing_expected() -> Iterator[None]:
    """Drop TensorFlow's warning of retracing, for code that traces many functions on purpose."""

    def keep(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger = logging.getLogger("tensorflow")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def start_quietly() -> None:
    """Import TensorFlow without its own log and let the memory of GPUs grow."""
    with native_log_silenced():
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
