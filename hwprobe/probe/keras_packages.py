"""The Keras of this environment, from distribution folders, variables and Keras's own configuration file.

Keras is never imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hwprobe.files import open_without_waiting
from hwprobe.probe.distributions import Installed, first_version, utf8
from hwprobe.report import Keras

LEGACY_VALUES = ("1", "true", "True")
"""What `TF_USE_LEGACY_KERAS` must be to make tf_keras of `tf.keras` (TensorFlow 2.21, `python/util/lazy_loader.py`)."""

MAX_CONFIG_BYTES = 2**20


def read_keras(distributions: Sequence[Installed], environment: Mapping[str, str] | None = None) -> Keras | None:
    """Read which Keras is installed and which backend it would take.

    Args:
        distributions: What is installed.
        environment: Variables; None for this process's.

    Returns:
        None where neither Keras nor tf_keras is installed.
    """
    variables = os.environ if environment is None else environment
    version = first_version(distributions, "keras", "keras-nightly")
    tf_keras_version = first_version(distributions, "tf-keras", "tf-keras-nightly")
    if version is None and tf_keras_version is None:
        return None
    legacy = variables.get("TF_USE_LEGACY_KERAS") in LEGACY_VALUES
    backend, origin = _backend(variables)
    return Keras(
        version=version,
        tf_keras_version=tf_keras_version,
        backend=backend,
        backend_origin=origin,
        legacy=legacy,
        dtype_policy=loaded_dtype_policy(legacy=legacy),
    )


def loaded_dtype_policy(*, legacy: bool) -> str | None:
    """Read the global dtype policy of the Keras that this process has imported already.

    Args:
        legacy: Whether `tf.keras` is tf_keras.

    Returns:
        `float32`, `mixed_float16`, ...; None if no Keras is loaded yet.
    """
    for name in ("tf_keras", "keras") if legacy else ("keras", "tf_keras"):
        module = sys.modules.get(name)
        policy = _keras_3_policy(module) if hasattr(module, "ops") else _keras_2_policy(module)
        if policy is not None:
            return policy
    return None


def _keras_3_policy(module: Any) -> str | None:
    # keras.config.dtype_policy() would fix the default as the policy, and a later set_floatx() would change nothing.
    state = sys.modules.get("keras.src.backend.common.global_state")
    read = getattr(state, "get_global_attribute", None)
    floatx = getattr(getattr(module, "config", None), "floatx", None)
    if read is None or floatx is None:
        return None
    policy = read("dtype_policy")
    return str(floatx() if policy is None else policy.name)


def _keras_2_policy(module: Any) -> str | None:
    global_policy = getattr(getattr(module, "mixed_precision", None), "global_policy", None)
    return None if global_policy is None else str(global_policy().name)


def _backend(variables: Mapping[str, str]) -> tuple[str, Literal["environment", "file", "default"]]:
    """Choose as `keras/src/backend/config.py` of Keras 3 does; Keras 2 and tf_keras have TensorFlow alone."""
    if variables.get("KERAS_BACKEND"):
        return utf8(variables["KERAS_BACKEND"]), "environment"
    configured = _configured_backend(variables)
    return ("tensorflow", "default") if configured is None else (configured, "file")


def _configured_backend(variables: Mapping[str, str]) -> str | None:
    try:
        with open_without_waiting(_keras_home(variables) / "keras.json") as file:
            text = file.read(MAX_CONFIG_BYTES)
    except OSError:
        return None
    import json

    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # Keras takes its defaults then, too
        return None
    backend = content.get("backend") if isinstance(content, dict) else None
    return backend if isinstance(backend, str) else None


def _keras_home(variables: Mapping[str, str]) -> Path:
    if "KERAS_HOME" in variables:
        return Path(os.path.expanduser(variables["KERAS_HOME"]))  # noqa: PTH111 - pathlib's raises without a home
    home = os.path.expanduser("~")  # noqa: PTH111
    return Path(home if os.access(home, os.W_OK) else "/tmp") / ".keras"  # noqa: S108 - as Keras does
