"""Timing one kernel in several modes, turn by turn, on one device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hwprobe.bench.facts import Measurement, Mode, Ratio
from hwprobe.bench.kernels import Kernel

LEAST_ROUNDS = 3
MOST_ROUNDS = 200
OF_THE_BUDGET = 1.0 / 300.0
"""Share of the budget that one run of the baseline is to take at the size that is chosen."""


@dataclass
class Attempt:
    """One mode of one kernel: ready to run, or the reason why it does not.

    Attributes:
        mode: Which.
        run: Runs it once and waits for its end.
        error: TensorFlow's reason.
        seconds: Time of each round.
    """

    mode: Mode
    run: Callable[[], Any] | None = None
    error: str | None = None
    ran_on: str | None = None
    relative_error: float | None = None
    non_finite: int = 0
    seconds: list[float] = field(default_factory=list)


def measure_kernel(
    kernel: Kernel, modes: tuple[Mode, ...], baseline: Mode, device: str, *, budget_seconds: float, limit_bytes: int
) -> tuple[Measurement, ...]:
    """Check a kernel against float64 and time it in each mode.

    The size grows until one run of the baseline takes a three-hundredth of the budget, or the memory limit is met.

    Args:
        kernel: What to run.
        modes: In which modes.
        baseline: The one that the others are set against; one of `modes`.
        device: Logical device, `GPU:0`.
        budget_seconds: About how long to measure.
        limit_bytes: Most memory for inputs and results.
    """
    deadline = time.monotonic() + budget_seconds
    checked = {mode: _checked(kernel, mode, device) for mode in modes}
    size = _size(kernel, baseline, device, budget_seconds * OF_THE_BUDGET, limit_bytes, deadline)
    attempts = [_ready(kernel, checked[mode], size, device) for mode in modes]
    running = [attempt for attempt in attempts if attempt.run is not None]
    rounds = 0
    while running and rounds < MOST_ROUNDS and (rounds < LEAST_ROUNDS or time.monotonic() < deadline):
        turn = rounds % len(running)
        for attempt in (*running[turn:], *running[:turn]):
            assert attempt.run is not None
            attempt.seconds.append(_timed(attempt.run))
        rounds += 1
    reference = next((attempt.seconds for attempt in attempts if attempt.mode == baseline), [])
    return tuple(_measurement(kernel, attempt, size, reference) for attempt in attempts)


def has_tf32(compute_capability: tuple[int, int] | None) -> bool:
    """Whether a GPU of this capability has TF32 (8.0 and newer, CUDA Programming Guide)."""
    return compute_capability is not None and compute_capability >= (8, 0)


@contextmanager
def _as_mode(mode: Mode) -> Iterator[None]:
    """Switch TF32 as a mode wants it. 16-bit kernels do not look at it."""
    import tensorflow as tf

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(mode != "float32")
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def _checked(kernel: Kernel, mode: Mode, device: str) -> Attempt:
    """Run the smallest size once and compare it with float64 on the CPU, from the same rounded inputs."""
    import numpy
    import tensorflow as tf

    attempt = Attempt(mode)
    try:
        inputs = _inputs(kernel, mode, kernel.sizes[0], device)
        with _as_mode(mode), tf.device(device):
            result = _traced(kernel)(*inputs)
        seen = numpy.asarray(tf.cast(result, tf.float32) if result.dtype != tf.float64 else result, "float64")
    except tf.errors.OpError as error:
        attempt.error = _first_line(error)
        return attempt
    attempt.ran_on = str(result.device).rpartition("device:")[2]
    with tf.device("CPU:0"):
        wide = [tf.constant(numpy.asarray(tensor).astype("float64")) for tensor in inputs]
        reference = numpy.asarray(kernel.compute(*wide))
    finite = numpy.isfinite(seen)
    attempt.non_finite = int(seen.size - numpy.count_nonzero(finite))
    apart = numpy.linalg.norm((seen - reference)[finite])
    attempt.relative_error = float(apart / numpy.linalg.norm(reference))
    return attempt


def _size(kernel: Kernel, baseline: Mode, device: str, wanted_seconds: float, limit_bytes: int, deadline: float) -> int:
    import tensorflow as tf

    chosen = kernel.sizes[0]
    for size in kernel.sizes:
        if kernel.bytes_at(size) > limit_bytes or time.monotonic() > deadline:
            break
        try:
            run = _runner(kernel, baseline, size, device)
            run()
            took = min(_timed(run), _timed(run))
        except tf.errors.OpError:
            # Out of memory: someone else fills the device. The last size that went well stands.
            break
        chosen = size
        if took >= wanted_seconds:
            break
    return chosen


def _ready(kernel: Kernel, attempt: Attempt, size: int, device: str) -> Attempt:
    import tensorflow as tf

    if attempt.error is not None:
        return attempt
    try:
        run = _runner(kernel, attempt.mode, size, device)
        run()
        attempt.run = run
    except tf.errors.OpError as error:
        attempt.error = _first_line(error)
    return attempt


def _runner(kernel: Kernel, mode: Mode, size: int, device: str) -> Callable[[], Any]:
    import tensorflow as tf

    inputs = _inputs(kernel, mode, size, device)
    function = _traced(kernel)

    def run() -> Any:
        with _as_mode(mode), tf.device(device):
            result = function(*inputs)
        tf.test.experimental.sync_devices()
        return result

    return run


def _traced(kernel: Kernel) -> Callable[..., Any]:
    import tensorflow as tf

    return tf.function(kernel.compute)  # type: ignore[no-any-return]


def _inputs(kernel: Kernel, mode: Mode, size: int, device: str) -> list[Any]:
    import numpy
    import tensorflow as tf

    generator = numpy.random.default_rng(5)
    narrow = tf.float32 if mode in ("float32", "tf32") else tf.as_dtype(mode)
    inputs = []
    with tf.device(device):
        for position, shape in enumerate(kernel.shapes(size)):
            # A second moment is positive: the absolute value suits every kernel's other inputs as well.
            values = numpy.abs(generator.standard_normal(shape, dtype="float32"))
            tensor = tf.constant(values)
            inputs.append(tensor if position in kernel.kept_in_float32 else tf.cast(tensor, narrow))
    return inputs


def _timed(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _measurement(kernel: Kernel, attempt: Attempt, size: int, reference: list[float]) -> Measurement:
    return Measurement(
        kernel=kernel.name,
        mode=attempt.mode,
        size=kernel.words(size),
        seconds=statistics.quantiles(attempt.seconds, n=5, method="inclusive")[0] if len(attempt.seconds) > 1 else None,
        ratio=_ratio(reference, attempt.seconds),
        relative_error=attempt.relative_error,
        non_finite=attempt.non_finite,
        ran_on=attempt.ran_on,
        error=attempt.error,
    )


def _ratio(reference: list[float], seconds: list[float]) -> Ratio | None:
    ratios = [base / own for base, own in zip(reference, seconds, strict=False) if own > 0.0]
    if len(ratios) < LEAST_ROUNDS:
        return None
    fifths = statistics.quantiles(ratios, n=5, method="inclusive")
    return Ratio(median=statistics.median(ratios), low=fifths[0], high=fifths[3])


_HEADINGS = ("Graph execution error", "Detected at node", "in user code")


def _first_line(error: Exception) -> str:
    """Give the line that says what is wrong: TensorFlow puts headings and indented details around it."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith((*_HEADINGS, " ", "\t"))]
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no reason given'}"
