"""A Keras that is imported later gets the dtype policy too: tf_keras beside Keras 3 keeps one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from hwprobe.apply import KERAS_MODULES, apply_dtype_policy
from hwprobe.configuration import DtypePolicy, Step
from hwprobe.report import Keras

_wanted: DtypePolicy | None = None
_watched: set[str] = set()


def watch_for_keras(wanted: DtypePolicy, in_use: Mapping[str, ModuleType], keras: Keras | None) -> tuple[Step, ...]:
    """See to it that every installed Keras that is not loaded yet gets the dtype policy when it is.

    Args:
        wanted: The policy.
        in_use: The Keras packages that have it already.
        keras: Which are installed; None if that is not known.

    Returns:
        A step for each package that is watched.
    """
    global _wanted
    _wanted = wanted
    return tuple(_watch(name, wanted) for name in KERAS_MODULES if name not in in_use and _is_installed(name, keras))


def _is_installed(name: str, keras: Keras | None) -> bool:
    if keras is None:
        return False
    return (keras.version if name == "keras" else keras.tf_keras_version) is not None


def _watch(name: str, wanted: DtypePolicy) -> Step:
    if name not in _watched:
        from wrapt import register_post_import_hook

        register_post_import_hook(_imported, name)
        _watched.add(name)
    return Step(
        setting="dtype_policy",
        subject=name,
        status="skipped",
        wanted=wanted,
        error="not imported yet; set when it is",
    )


def _imported(module: ModuleType) -> None:
    if _wanted is not None:
        apply_dtype_policy(module.__name__, module, _wanted)
