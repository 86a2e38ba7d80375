"""The quick bench as a reader for a child process: `hwprobe.probe.child.ask("hwprobe.bench.child:read", ...)`."""

from __future__ import annotations

from hwprobe.probe.bootstrap import ReaderFailure


def read(request: dict[str, object]) -> dict[str, object]:
    """Measure one device for a few seconds.

    Args:
        request: `device` (as TensorFlow lists it; absent or null for the first GPU) and `seconds` (absent: 3).

    Returns:
        A `Bench` as plain data; `hwprobe.serialize.from_builtins(data, Bench)` reads it.

    Raises:
        ReaderFailure: `absent` without TensorFlow or without that device.
    """
    from hwprobe.bench.running import QUICK_SECONDS, bench
    from hwprobe.errors import InputError
    from hwprobe.serialize import to_builtins

    device, seconds = request.get("device"), request.get("seconds")
    try:
        measured = bench(
            None if device is None else str(device),
            seconds=float(seconds) if isinstance(seconds, (int, float)) else QUICK_SECONDS,
            quick=True,
        )
    except InputError as error:
        raise ReaderFailure("absent", str(error)) from error
    data = to_builtins(measured)
    assert isinstance(data, dict)
    return data
