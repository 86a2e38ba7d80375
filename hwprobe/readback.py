"""Read back what is in force in TensorFlow and Keras, and compare it with a decision. Nothing is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Sequence
from typing import Any

from hwprobe.apply import (
    ALLOCATOR,
    FORCE_GROWTH,
    forced_growth,
    keras_in_use,
    limit_text,
    made_before_growth,
    short_name,
)
from hwprobe.configuration import Decision, DtypePolicy, Memory, Step


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

        steps += _memory(tf, tf.config.get_visible_devices("GPU"), decision.memory)
        steps.append(_tf32(tf, decision.tf32))
    in_use = keras_in_use()
    steps += [_dtype_policy(name, module, decision.dtype_policy) for name, module in in_use.modules.items()]
    if in_use.error is not None:
        steps.append(_compared("dtype_policy", "tf.keras", decision.dtype_policy, None, in_use.error))
    return tuple(steps)


def _compared(setting: str, subject: str, wanted: str, now: str | None, lost: str | None) -> Step:
    """A setting that is in force, or is not, for a reason."""
    return Step(
        setting=setting,
        subject=subject,
        status="unchanged" if lost is None else "lost",
        wanted=wanted,
        before=now,
        after=now,
        error=lost,
    )


def _memory(tf: Any, gpus: Sequence[Any], memory: Memory) -> list[Step]:
    made = made_before_growth(gpus) if gpus else frozenset()
    steps = [_growth(tf, gpu, gpus, memory.growth, made) for gpu in gpus]
    if memory.limit_mib is not None:
        steps += [_limit(tf, gpu, f"{memory.limit_mib} MiB") for gpu in gpus]
    if memory.allocator != "default" and gpus:
        now = os.environ.get(ALLOCATOR)
        lost = None if now == memory.allocator else f"{ALLOCATOR} is {now or 'not set'}"
        steps.append(_compared("allocator", "process", memory.allocator, now, lost))
    return steps


def _growth(tf: Any, gpu: Any, gpus: Sequence[Any], wanted: bool, made: Container[str]) -> Step:
    in_force, evidence = _growth_in_force(tf, gpu, gpus, made)
    lost = None
    if in_force is not wanted:
        lost = f"{evidence}: TensorFlow takes nearly all memory at once" if wanted else f"{evidence}: growth is on"
    return _compared("memory_growth", short_name(gpu), str(wanted), evidence, lost)


def _growth_in_force(tf: Any, gpu: Any, gpus: Sequence[Any], made: Container[str]) -> tuple[bool, str]:
    forced = forced_growth()
    if short_name(gpu) in made:
        return False, "its device was made without growth (tf.test.gpu_device_name, device_lib)"
    if forced is not None:
        return forced, f"{FORCE_GROWTH}={str(forced).lower()}"
    said = bool(tf.config.experimental.get_memory_growth(gpu))
    cancelled = _logical_configurations(tf, gpus) if said else []
    if cancelled:
        return False, (
            f"cancelled by the logical devices of {', '.join(cancelled)}; only {FORCE_GROWTH}=true, set before the "
            "first tensor, gives growth beside them"
        )
    return said, f"memory growth is {'set' if said else 'not set'}"


def _limit(tf: Any, gpu: Any, wanted: str) -> Step:
    now = limit_text(tf.config.get_logical_device_configuration(gpu))
    lost = None if now == wanted else f"the limit is {now}"
    return _compared("memory_limit", short_name(gpu), wanted, now, lost)


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
    lost = None if now is wanted else "TensorFloat-32 was switched after hwprobe set it"
    return _compared("tf32", "process", str(wanted), str(now), lost)


def _dtype_policy(name: str, keras: Any, wanted: DtypePolicy) -> Step:
    now = keras.mixed_precision.global_policy().name
    lost = (
        None
        if now == wanted
        else "the global dtype policy of this thread is another one: Keras 3 keeps it per thread, and "
        "clear_session() drops it; call hwprobe.auto_configure() again"
    )
    return _compared("dtype_policy", name, wanted, now, lost)
