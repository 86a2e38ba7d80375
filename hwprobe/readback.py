"""Read back what is in force in TensorFlow and Keras, and compare it with a decision. Nothing is written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hwprobe.apply import FORCE_GROWTH, forced_growth, keras_modules_in_use, short_name
from hwprobe.configuration import Decision, DtypePolicy, Step


def read_back(decision: Decision) -> tuple[Step, ...]:
    """Say for every setting of a decision whether it is in force in this process and thread.

    Args:
        decision: What should be in force.

    Returns:
        Steps that are `unchanged` where the wish is in force, `lost` where it is not, `skipped` where there is nothing
        to compare.
    """
    steps: list[Step] = []
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        gpus = tf.config.get_visible_devices("GPU")
        steps += [_growth(tf, gpu, gpus, decision.memory.growth) for gpu in gpus]
        steps.append(_tf32(tf, decision.tf32))
    steps += [_dtype_policy(name, module, decision.dtype_policy) for name, module in keras_modules_in_use().items()]
    return tuple(steps)


def _growth(tf: Any, gpu: Any, gpus: Sequence[Any], wanted: bool) -> Step:
    said = bool(tf.config.experimental.get_memory_growth(gpu))
    forced = forced_growth()
    if forced is not None:
        in_force, evidence = forced, f"{FORCE_GROWTH}={str(forced).lower()}"
    else:
        cancelled = _logical_configurations(tf, gpus)
        in_force = said and not cancelled
        evidence = f"{said}, cancelled by the logical devices of {', '.join(cancelled)}" if cancelled else str(said)
    return Step(
        setting="memory_growth",
        subject=short_name(gpu),
        status="unchanged" if in_force is wanted else "lost",
        wanted=str(wanted),
        before=evidence,
        after=evidence,
        error=None if in_force is wanted else _growth_lost(wanted),
    )


def _growth_lost(wanted: bool) -> str:
    if not wanted:
        return "memory growth is in force and was not wanted"
    return (
        "TensorFlow takes GPU memory at once: the environment or a logical device configuration cancels growth; "
        f"only {FORCE_GROWTH}=true, set before the first tensor, gives growth under a limit"
    )


def _logical_configurations(tf: Any, gpus: Sequence[Any]) -> list[str]:
    # Any logical configuration, of a CPU too, makes TensorFlow 2.21 drop growth for all GPUs (measured).
    devices = (*gpus, *tf.config.list_physical_devices("CPU"))
    return [short_name(device) for device in devices if _explicitly_configured(tf, device)]


def _explicitly_configured(tf: Any, device: Any) -> bool:
    configurations = tf.config.get_logical_device_configuration(device)
    if configurations is None:
        return False
    # An initialised context gives every device one plain configuration of its own.
    return len(configurations) > 1 or any(item.memory_limit is not None for item in configurations)


def _tf32(tf: Any, wanted: bool) -> Step:
    now = tf.config.experimental.tensor_float_32_execution_enabled()
    return Step(
        setting="tf32",
        subject="process",
        status="unchanged" if now is wanted else "lost",
        wanted=str(wanted),
        before=str(now),
        after=str(now),
        error=None if now is wanted else "TensorFloat-32 was switched after hwprobe set it",
    )


def _dtype_policy(name: str, keras: Any, wanted: DtypePolicy) -> Step:
    now = keras.mixed_precision.global_policy().name
    lost = (
        None
        if now == wanted
        else "the global dtype policy of this thread is another one: Keras 3 keeps it per thread, and "
        "clear_session() drops it; call hwprobe.auto_configure() again"
    )
    return Step(
        setting="dtype_policy",
        subject=name,
        status="unchanged" if lost is None else "lost",
        wanted=wanted,
        before=now,
        after=now,
        error=lost,
    )
