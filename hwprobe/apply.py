"""The one writer to TensorFlow and Keras: compare, set what differs, report before and after.

Nothing here initialises TensorFlow's context, so that a distribution strategy or a logical device configuration on the
next line of a script still works.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import msgspec

from hwprobe.configuration import Decision, DtypePolicy, Memory, Step, StepStatus
from hwprobe.probe.cuda import active_in_process
from hwprobe.probe.keras_packages import LEGACY_VALUES

FORCE_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ALLOCATOR = "TF_GPU_ALLOCATOR"
_TOO_LATE = (
    "TensorFlow was initialised before hwprobe came to it; call hwprobe before the first tensor, model or strategy"
)
_DEVICES_MADE = (
    "TensorFlow made its GPU devices before growth was set, and they take all memory at the first tensor; "
    "call hwprobe before tf.test.gpu_device_name, tf.test.is_gpu_available and device_lib.list_local_devices"
)

OTHER_CUDA_USERS = ("cupy", "jax", "numba", "pycuda", "torch")
"""Modules that make a CUDA context of their own."""

_own_variables: dict[str, str] = {}
"""Environment variables that hwprobe set in this process: a later call may take them back."""

_made_before: set[str] = set()
"""GPUs whose TensorFlow device was seen to exist before growth could reach it."""


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
    if memory.allocator == "default":
        _take_back(ALLOCATOR)
    steps = [] if memory.allocator == "default" else [_allocator(memory.allocator, _lateness(gpus))]
    if memory.limit_mib is not None:
        steps += _limits(tf, gpus, memory)
    else:
        steps += _growth(tf, gpus, memory.growth)
    return tuple(steps)


def _growth(tf: Any, gpus: Sequence[Any], wanted: bool) -> list[Step]:
    forced = forced_growth()
    if forced is not None and (forced is wanted or not _take_back(FORCE_GROWTH)):
        return [_left_to_environment(short_name(gpu), wanted, forced) for gpu in gpus]
    configured = [short_name(gpu) for gpu in gpus if tf.config.get_logical_device_configuration(gpu) is not None]
    if configured:
        reason = f"a logical device configuration on {', '.join(configured)} sets a limit, which is kept"
        return [_growth_step(tf, gpu, wanted, "skipped", reason) for gpu in gpus]
    if wanted and _any_logical_cpu(tf):
        return [_growth_through_environment(tf, gpus)]
    steps = _set_growth_on_all(tf, gpus, wanted)
    return _noting_late_ones(tf, gpus, steps) if wanted else steps


def _any_logical_cpu(tf: Any) -> bool:
    devices = tf.config.list_physical_devices("CPU")
    return any(tf.config.get_logical_device_configuration(device) is not None for device in devices)


def _growth_through_environment(tf: Any, gpus: Sequence[Any]) -> Step:
    # Any logical configuration, of a CPU too, makes TensorFlow 2.21 drop growth for all GPUs while get_memory_growth
    # goes on to say True (first allocation measured). The variable is read when the devices are made and wins.
    late = _lateness(gpus)
    if late is not None:
        return Step(setting="memory_growth", subject="process", status="too_late", wanted="True", error=late)
    before = _text(tf.config.experimental.get_memory_growth(gpus[0]))
    _set_variable(FORCE_GROWTH, "true")
    return Step(
        setting="memory_growth",
        subject="process",
        status="changed",
        wanted="True",
        before=before,
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
        late = is_initialized()
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


def _noting_late_ones(tf: Any, gpus: Sequence[Any], steps: list[Step]) -> list[Step]:
    """TensorFlow accepts the setting for a device that exists already, and does not heed it."""
    late = made_before_growth(gpus)
    return [
        _growth_step(tf, gpu, True, "too_late", _DEVICES_MADE)
        if step.status in ("changed", "unchanged") and short_name(gpu) in late
        else step
        for gpu, step in zip(gpus, steps, strict=True)
    ]


def made_before_growth(gpus: Sequence[Any]) -> frozenset[str]:
    """Name the GPUs whose TensorFlow device came into being outside of the eager context, without growth.

    `device_lib.list_local_devices` and `tf.test.gpu_device_name` make the devices of the process with default options,
    and leave the eager context uninitialised (first allocation measured with TensorFlow 2.21). What shows it is a CUDA
    context where nothing else in this process makes one.

    Args:
        gpus: Physical devices.
    """
    if not is_initialized() and not any(name in sys.modules for name in OTHER_CUDA_USERS):
        by_ordinal = {int(short_name(gpu).rpartition(":")[2]): short_name(gpu) for gpu in gpus}
        _made_before.update(by_ordinal[ordinal] for ordinal in active_in_process(by_ordinal))
    return frozenset(_made_before)


def _lateness(gpus: Sequence[Any]) -> str | None:
    """Why nothing that TensorFlow reads when it makes its devices can be set any more; None if it still can."""
    if is_initialized():
        return _TOO_LATE
    return _DEVICES_MADE if made_before_growth(gpus) else None


def _set_variable(name: str, value: str) -> None:
    os.environ[name] = value
    _own_variables[name] = value


def _take_back(name: str) -> bool:
    """Drop a variable that an earlier call set and nobody has changed since, while TensorFlow has not read it yet."""
    value = _own_variables.get(name)
    if value is None or os.environ.get(name) != value or is_initialized():
        return False
    del os.environ[name], _own_variables[name]
    return True


def _growth_step(
    tf: Any, gpu: Any, wanted: bool, status: StepStatus, error: str | None = None, before: bool | None = None
) -> Step:
    after = tf.config.experimental.get_memory_growth(gpu)
    return Step(
        setting="memory_growth",
        subject=short_name(gpu),
        status=status,
        wanted=str(wanted),
        before=_text(before if status == "changed" else after),
        after=_text(after),
        error=error,
    )


def _text(value: bool | None) -> str | None:
    return None if value is None else str(value)


def _left_to_environment(subject: str, wanted: bool, forced: bool) -> Step:
    value = f"{FORCE_GROWTH}={os.environ[FORCE_GROWTH]}"
    kept = f"{value} is kept: it wins over everything that is set in Python"
    return Step(
        setting="memory_growth",
        subject=subject,
        status="unchanged" if forced is wanted else "skipped",
        wanted=str(wanted),
        before=value,
        after=value,
        error=None if forced is wanted else kept,
    )


def forced_growth() -> bool | None:
    """What `TF_FORCE_GPU_ALLOW_GROWTH` says; None where it says nothing that TensorFlow accepts."""
    # TensorFlow accepts exactly these two spellings and ignores others with an error in its log.
    return {"true": True, "false": False}.get(os.environ.get(FORCE_GROWTH, ""))


def _limits(tf: Any, gpus: Sequence[Any], memory: Memory) -> list[Step]:
    late = _lateness(gpus)
    steps = [_limit(tf, gpu, memory, late) for gpu in gpus]
    if not memory.growth:
        _take_back(FORCE_GROWTH)
    elif all(step.status in ("changed", "unchanged") for step in steps):
        steps.append(_growth_under_limit(late))
    return steps


def _limit(tf: Any, gpu: Any, memory: Memory, late: str | None) -> Step:
    wanted = f"{memory.limit_mib} MiB"
    existing = tf.config.get_logical_device_configuration(gpu)
    before = limit_text(existing)
    step = {"setting": "memory_limit", "subject": short_name(gpu), "wanted": wanted, "before": before}
    if existing is not None:
        status: StepStatus = "unchanged" if before == wanted else "skipped"
        error = None if before == wanted else "a logical device configuration exists already and is kept"
        return Step(**step, status=status, after=before, error=error)
    if late is not None:
        return Step(**step, status="too_late", after=before, error=late)
    try:
        tf.config.set_logical_device_configuration(
            gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=memory.limit_mib)]
        )
    except (RuntimeError, ValueError) as error:
        return Step(**step, status="failed", after=before, error=str(error))
    return Step(**step, status="changed", after=limit_text(tf.config.get_logical_device_configuration(gpu)))


def limit_text(configurations: Any) -> str:
    """The limits of a physical device's logical devices: `1024 MiB`, or `none`."""
    if configurations is None:
        return "none"
    limits = [configuration.memory_limit for configuration in configurations]
    return ", ".join("none" if limit is None else f"{limit:g} MiB" for limit in limits)


def _growth_under_limit(late: str | None) -> Step:
    # A limit alone is also a pre-allocation, and set_memory_growth refuses a device with one; the variable is the only
    # way to have both (first allocation measured with TensorFlow 2.21: 2 MiB, capped).
    forced = forced_growth()
    before = os.environ.get(FORCE_GROWTH)
    if forced is not None:
        return _left_to_environment("process", True, forced)
    if late is not None:
        return Step(setting="memory_growth", subject="process", status="too_late", wanted="True", error=late)
    _set_variable(FORCE_GROWTH, "true")
    return Step(
        setting="memory_growth",
        subject="process",
        status="changed",
        wanted="True",
        before=None if before is None else f"{FORCE_GROWTH}={before}",
        after=f"{FORCE_GROWTH}=true",
    )


def _allocator(wanted: str, late: str | None) -> Step:
    before = os.environ.get(ALLOCATOR)
    status: StepStatus = "unchanged"
    error = None
    if before is None and late is None:
        _set_variable(ALLOCATOR, wanted)
        status = "changed"
    elif before is None:
        status, error = "too_late", late
    elif before != wanted:
        status, error = "skipped", f"{ALLOCATOR}={before} is kept"
    return Step(
        setting="allocator",
        subject="process",
        status=status,
        wanted=wanted,
        before=before,
        after=os.environ.get(ALLOCATOR),
        error=error,
    )


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


def is_initialized() -> bool:
    """Whether TensorFlow's eager context exists; no public call says so without making one."""
    from tensorflow.python.eager import context

    return bool(getattr(context.context(), "_initialized", False))


def visible_names() -> frozenset[str] | None:
    """The GPUs that the script has left to its TensorFlow (`set_visible_devices`); None without TensorFlow."""
    if "tensorflow" not in sys.modules:
        return None
    import tensorflow as tf

    return frozenset(short_name(device) for device in tf.config.get_visible_devices())


def short_name(device: Any) -> str:
    """TensorFlow's name of a physical device without its prefix: `GPU:0`."""
    return str(device.name).removeprefix("/physical_device:")


KERAS_MODULES = ("keras", "tf_keras")
"""The Keras packages that keep a global dtype policy of their own."""


LEGACY = "TF_USE_LEGACY_KERAS"


class KerasInUse(msgspec.Struct, frozen=True):
    """The Keras packages of this process.

    Attributes:
        modules: By name: the one behind `tf.keras`, and any other that is loaded.
        error: Why there is none behind `tf.keras`.
    """

    modules: dict[str, ModuleType]
    error: str | None = None


def keras_in_use() -> KerasInUse:
    """Find the Keras packages of this process."""
    # None stands there for a module that somebody forbids to import.
    found = {name: module for name in KERAS_MODULES if (module := sys.modules.get(name)) is not None}
    if "tensorflow" not in sys.modules:
        return KerasInUse(found)
    import tensorflow as tf

    if os.environ.get(LEGACY) in LEGACY_VALUES and find_spec("tf_keras") is None:
        # TensorFlow's lazy loader says so once and recurses without end from the second time on (2.15 to 2.21).
        return KerasInUse(found, f"{LEGACY} is set and tf_keras is not installed: pip install tf_keras, or unset it")
    try:
        # The attribute is a lazy loader; reading through it loads the Keras that this process will use.
        mixed_precision = tf.keras.mixed_precision
    except (ImportError, AttributeError, RecursionError) as error:
        return KerasInUse(found, f"tf.keras does not load: {type(error).__name__}: {error}")
    owner = "tf_keras" if mixed_precision.__name__.partition(".")[0] == "tf_keras" else "keras"
    found.setdefault(owner, sys.modules.get(owner) or tf.keras)
    return KerasInUse(found)


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
