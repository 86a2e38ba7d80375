"""Running a bench on one device of this process, and on no other."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hwprobe.bench.facts import Bench, Measurement, Mode
from hwprobe.bench.kernels import KERNELS
from hwprobe.bench.timing import has_tf32, measure_kernel
from hwprobe.errors import InputError
from hwprobe.quiet import retracing_expected
from hwprobe.version import VERSION

SECONDS = 20.0
QUICK_SECONDS = 3.0
LIMIT_BYTES = 512 * 2**20
QUICK_LIMIT_BYTES = 64 * 2**20

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _Device:
    listed: str
    logical: str
    description: str
    compute_capability: tuple[int, int] | None


def bench(
    device: str | None = None,
    *,
    seconds: float = SECONDS,
    quick: bool = False,
    progress: Progress | None = None,
) -> Bench:
    """Time kernels in float32, TF32, float16 and bfloat16 on one device, and check them against float64.

    Soft placement is off meanwhile, so that a kernel that the device lacks fails instead of running on the CPU. If
    TensorFlow has not started yet, no other GPU is made visible to it, so that nothing is allocated there.

    Args:
        device: As TensorFlow lists it (`GPU:1`, `CPU:0`); None for the first GPU, or the CPU where there is none.
        seconds: About how long to measure, beside TensorFlow's own start.
        quick: Use small sizes.
        progress: Told which kernel is measured.

    Raises:
        InputError: TensorFlow lists no such device, or is not installed.
    """
    started = time.monotonic()
    tf = _tensorflow()
    chosen = _choose(tf, device)
    baseline: Mode = "tf32" if has_tf32(chosen.compute_capability) else "float32"
    modes: tuple[Mode, ...] = ("float32", *(("tf32",) if baseline == "tf32" else ()), "float16", "bfloat16")
    measured: list[Measurement] = []
    with _placed_as_asked(tf), retracing_expected():
        for number, kernel in enumerate(KERNELS):
            if progress is not None:
                progress(kernel.name, number, len(KERNELS))
            measured.extend(
                measure_kernel(
                    kernel,
                    modes,
                    baseline,
                    chosen.logical,
                    budget_seconds=seconds / len(KERNELS),
                    limit_bytes=QUICK_LIMIT_BYTES if quick else LIMIT_BYTES,
                )
            )
    if progress is not None:
        progress("done", len(KERNELS), len(KERNELS))
    capability = chosen.compute_capability
    return Bench(
        hwprobe=VERSION,
        tensorflow=tf.__version__,
        device=chosen.listed,
        description=chosen.description,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability is not None else None,
        quick=quick,
        baseline=baseline,
        measurements=tuple(measured),
        seconds=round(time.monotonic() - started, 3),
    )


def quick(device: str | None = None) -> Bench:
    """Give the three-second form, for a check.

    Args:
        device: As for `bench`.

    Raises:
        InputError: As for `bench`.
    """
    return bench(device, seconds=QUICK_SECONDS, quick=True)


def list_devices() -> tuple[str, ...]:
    """Name the devices that a bench can run on, which starts TensorFlow's libraries.

    Raises:
        InputError: TensorFlow is not installed.
    """
    return tuple(_listed(_tensorflow()))


def _listed(tf: Any) -> dict[str, Any]:
    named = {each.name.rpartition("physical_device:")[2]: each for each in tf.config.list_physical_devices()}
    return {name: each for name, each in named.items() if each.device_type in ("CPU", "GPU")}


def _tensorflow() -> Any:
    try:
        import tensorflow as tf
    except ImportError as error:
        raise InputError(f"a bench needs TensorFlow: {error}") from error
    return tf


def _choose(tf: Any, wanted: str | None) -> _Device:
    listed = _listed(tf)
    gpus = [name for name, each in listed.items() if each.device_type == "GPU"]
    name = wanted or (gpus[0] if gpus else "CPU:0")
    device = listed.get(name)
    if device is None:
        raise InputError(f"device {name!r} is not there: this process may use {', '.join(sorted(listed))}")
    if device.device_type == "CPU":
        return _Device(name, "CPU:0", _cpu_description(), None)
    details = tf.config.experimental.get_device_details(device)
    return _Device(
        listed=name,
        logical=_only(tf, device, gpus.index(name)),
        description=str(details.get("device_name", "GPU")),
        compute_capability=details.get("compute_capability"),
    )


def _only(tf: Any, device: Any, position: int) -> str:
    """Make this GPU the only visible one, with growing memory; give its logical name."""
    try:
        tf.config.set_visible_devices([device], "GPU")
        tf.config.experimental.set_memory_growth(device, True)
    except (RuntimeError, ValueError):
        # TensorFlow has started: what is visible is settled, and the logical devices are in the order of the list.
        return f"GPU:{position}"
    return "GPU:0"


def _cpu_description() -> str:
    return f"CPU ({platform.machine()})"


@contextmanager
def _placed_as_asked(tf: Any) -> Iterator[None]:
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(before)
