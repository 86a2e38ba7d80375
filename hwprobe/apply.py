"""The one writer to TensorFlow and Keras: compare, set what differs, report before and after.

Nothing here initialises TensorFlow's context, so that a distribution strategy or a logical device configuration on the
next line of a script still works.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hwprobe.configuration import Decision, DtypePolicy, Memory, Step

FORCE_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ALLOCATOR = "TF_GPU_ALLOCATOR"
_TOO_LATE = (
    "TensorFlow was initialised before hwprobe came to it; call hwprobe before the first tensor, model or strategy"
)


def apply_to_tensorflow(decision: Decision) -> tuple[Step, ...]:
    """Set memory and TensorFloat-32 in the TensorFlow of this process.

    Args:
        decision: What to set.

    Returns:
        A step for every setting, also for those that were right already.
    """
    import tensorflow as tf

    return (*_memory(tf, decision.memory), _tf32(tf, decision.tf32))


def _memory(tf: Any, memory: Memory) -> tuple[Step, ...]:
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        return (Step(setting="memory_growth", subject="process", status="skipped", error="TensorFlow lists no GPU"),)
    steps = [] if memory.allocator == "default" else [_allocator(memory.allocator)]
    if memory.limit_mib is not None:
        steps += _limits(tf, gpus, memory)
    else:
        steps += _growth(tf, gpus, memory.growth)
    return tuple(steps)


def _growth(tf: Any, gpus: Sequence[Any], wanted: bool) -> list[Step]:
    forced = forced_growth()
    if forced is not None:
        return [_left_to_environment(short_name(gpu), wanted, forced) for gpu in gpus]
    configured = [short_name(gpu) for gpu in gpus if tf.config.get_logical_device_configuration(gpu) is not None]
    if configured:
        reason = f"a logical device configuration on {', '.join(configured)} sets a limit, which is kept"
        return [_growth_step(tf, gpu, wanted, "skipped", reason) for gpu in gpus]
    if wanted and _any_logical_cpu(tf):
        return [_growth_through_environment(tf, gpus)]
    return _set_growth_on_all(tf, gpus, wanted)


def _any_logical_cpu(tf: Any) -> bool:
    devices = tf.config.list_physical_devices("CPU")
    return any(tf.config.get_logical_device_configuration(device) is not None for device in devices)


def _growth_through_environment(tf: Any, gpus: Sequence[Any]) -> Step:
    # Any logical configuration, of a CPU too, makes TensorFlow 2.21 drop growth for all GPUs while get_memory_growth
    # goes on to say True (first allocation measured). The variable is read when the devices are made and wins.
    if _is_initialized():
        return Step(setting="memory_growth", subject="process", status="too_late", wanted="True", error=_TOO_LATE)
    os.environ[FORCE_GROWTH] = "true"
    return Step(
        setting="memory_growth",
        subject="process",
        status="changed",
        wanted="True",
        before=str(tf.config.experimental.get_memory_growth(gpus[0])),
        after=f"{FORCE_GROWTH}=true, since the logical CPU devices of this process would cancel it otherwise",
    )


def _set_growth_on_all(tf: Any, gpus: Sequence[Any], wanted: bool) -> list[Step]:
    before = {gpu.name: tf.config.experimental.get_memory_growth(gpu) for gpu in gpus}
    # Unset and False are the same to TensorFlow's allocator and different to its comparison of GPUs.
    if all(bool(value) is wanted for value in before.values()) and len(set(before.values())) == 1:
        return [_growth_step(tf, gpu, wanted, "unchanged") for gpu in gpus]
    try:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, wanted)
    except (RuntimeError, ValueError) as error:
        _roll_back(tf, gpus, before)
        late = _is_initialized()
        reason = f"{_TOO_LATE} ({error})" if late else str(error)
        return [_growth_step(tf, gpu, wanted, "too_late" if late else "failed", reason) for gpu in gpus]
    except BaseException:
        _roll_back(tf, gpus, before)
        raise
    return [_growth_step(tf, gpu, wanted, "changed", before=before[gpu.name]) for gpu in gpus]


def _roll_back(tf: Any, gpus: Sequence[Any], before: dict[str, bool | None]) -> None:
    for gpu in gpus:
        if bool(tf.config.experimental.get_memory_growth(gpu)) is bool(before[gpu.name]):
            continue
        try:
            tf.config.experimental.set_memory_growth(gpu, bool(before[gpu.name]))
        except (RuntimeError, ValueError):
            # The steps report the value that is read afterwards, whatever it is.
            continue


def _growth_step(
    tf: Any, gpu: Any, wanted: bool, status: Any, error: str | None = None, before: bool | None = None
) -> Step:
    after = tf.config.experimental.get_memory_growth(gpu)
    return Step(
        setting="memory_growth",
        subject=short_name(gpu),
        status=status,
        wanted=str(wanted),
        before=str(before if status == "changed" else after),
        after=str(after),
        error=error,
    )


def _left_to_environment(subject: str, wanted: bool, forced: bool) -> Step:
    value = f"{FORCE_GROWTH}={os.environ[FORCE_GROWTH]}"
    if forced is wanted:
        return Step(
            setting="memory_growth", subject=subject, status="unchanged", wanted=str(wanted), before=value, after=value
        )
    return Step(
        setting="memory_growth",
        subject=subject,
        status="skipped",
        wanted=str(wanted),
        before=value,
        after=value,
        error=f"{value} is kept: it wins over everything that is set in Python",
    )


def forced_growth() -> bool | None:
    """What `TF_FORCE_GPU_ALLOW_GROWTH` says; None where it says nothing that TensorFlow accepts."""
    # TensorFlow accepts exactly these two spellings and ignores others with an error in its log.
    return {"true": True, "false": False}.get(os.environ.get(FORCE_GROWTH, ""))


def _limits(tf: Any, gpus: Sequence[Any], memory: Memory) -> list[Step]:
    steps = [_limit(tf, gpu, memory) for gpu in gpus]
    if memory.growth and all(step.status in ("changed", "unchanged") for step in steps):
        steps.append(_growth_under_limit())
    return steps


def _limit(tf: Any, gpu: Any, memory: Memory) -> Step:
    wanted = f"{memory.limit_mib} MiB"
    existing = tf.config.get_logical_device_configuration(gpu)
    before = _limit_text(existing)
    step = {"setting": "memory_limit", "subject": short_name(gpu), "wanted": wanted, "before": before}
    if existing is not None:
        status: Any = "unchanged" if before == wanted else "skipped"
        error = None if before == wanted else "a logical device configuration exists already and is kept"
        return Step(**step, status=status, after=before, error=error)
    try:
        tf.config.set_logical_device_configuration(
            gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=memory.limit_mib)]
        )
    except (RuntimeError, ValueError) as error:
        late = _is_initialized()
        reason = f"{_TOO_LATE} ({error})" if late else str(error)
        return Step(**step, status="too_late" if late else "failed", after=before, error=reason)
    return Step(**step, status="changed", after=_limit_text(tf.config.get_logical_device_configuration(gpu)))


def _limit_text(configurations: Any) -> str:
    if configurations is None:
        return "none"
    return ", ".join(f"{configuration.memory_limit} MiB" for configuration in configurations)


def _growth_under_limit() -> Step:
    # A limit alone is also a pre-allocation, and set_memory_growth refuses a device with one; the variable is the only
    # way to have both (first allocation measured with TensorFlow 2.21: 2 MiB, capped).
    forced = forced_growth()
    before = os.environ.get(FORCE_GROWTH)
    if forced is False:
        return _left_to_environment("process", True, forced)
    if forced is None and _is_initialized():
        return Step(setting="memory_growth", subject="process", status="too_late", wanted="True", error=_TOO_LATE)
    os.environ[FORCE_GROWTH] = "true"
    return Step(
        setting="memory_growth",
        subject="process",
        status="unchanged" if forced else "changed",
        wanted="True",
        before=f"{FORCE_GROWTH}={before}" if before is not None else "unset",
        after=f"{FORCE_GROWTH}=true",
    )


def _allocator(wanted: str) -> Step:
    before = os.environ.get(ALLOCATOR)
    step = {"setting": "allocator", "subject": "process", "wanted": wanted, "before": before or "unset"}
    if before == wanted:
        return Step(**step, status="unchanged", after=before)
    if before is not None:
        return Step(**step, status="skipped", after=before, error=f"{ALLOCATOR}={before} is kept")
    if _is_initialized():
        return Step(**step, status="too_late", after="unset", error=_TOO_LATE)
    os.environ[ALLOCATOR] = wanted
    return Step(**step, status="changed", after=wanted)


def _tf32(tf: Any, wanted: bool) -> Step:
    experimental = tf.config.experimental
    before = experimental.tensor_float_32_execution_enabled()
    if before is not wanted:
        experimental.enable_tensor_float_32_execution(wanted)
    after = experimental.tensor_float_32_execution_enabled()
    return Step(
        setting="tf32",
        subject="process",
        status="unchanged" if before is wanted else "changed",
        wanted=str(wanted),
        before=str(before),
        after=str(after),
    )


def _is_initialized() -> bool:
    """Whether TensorFlow's eager context exists; no public call says so without making one."""
    from tensorflow.python.eager import context

    return bool(getattr(context.context(), "_initialized", False))


def short_name(device: Any) -> str:
    """TensorFlow's name of a physical device without its prefix: `GPU:0`."""
    return str(device.name).removeprefix("/physical_device:")


KERAS_MODULES = ("keras", "tf_keras")
"""The Keras packages that keep a global dtype policy of their own."""


def keras_modules_in_use() -> dict[str, ModuleType]:
    """The Keras packages of this process, by name: the one behind `tf.keras`, and any other that is loaded."""
    found = {name: sys.modules[name] for name in KERAS_MODULES if name in sys.modules}
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        # The attribute is a lazy loader; reading through it loads the Keras that this process will use.
        mixed_precision = tf.keras.mixed_precision
        owner = "tf_keras" if "tf_keras" in mixed_precision.__name__ else "keras"
        found.setdefault(owner, sys.modules.get(owner) or tf.keras)
    return found


def apply_dtype_policy(name: str, keras: Any, wanted: DtypePolicy) -> Step:
    """Set the global dtype policy of one Keras, in this thread.

    Args:
        name: `keras` or `tf_keras`.
        keras: The module.
        wanted: Keras' name of the policy.
    """
    step = {"setting": "dtype_policy", "subject": name, "wanted": wanted}
    try:
        before = keras.mixed_precision.global_policy().name
        if before != wanted:
            keras.mixed_precision.set_global_policy(wanted)
        after = keras.mixed_precision.global_policy().name
    except (ValueError, ImportError, AttributeError) as error:
        return Step(**step, status="failed", error=f"{type(error).__name__}: {error}")
    return Step(**step, status="unchanged" if before == wanted else "changed", before=before, after=after)
