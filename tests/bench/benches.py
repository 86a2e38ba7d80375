"""Benches, built by hand."""

from typing import Any

from hwprobe.bench.facts import Bench, KernelName, Measurement, Mode, Ratio

KERNELS: tuple[KernelName, ...] = ("matmul", "convolution", "attention", "optimizer")


def measurement(kernel: KernelName, mode: Mode, speed: float = 1.0, **facts: Any) -> Measurement:
    """One kernel that ran well, this much faster than the baseline."""
    return Measurement(
        **{
            "kernel": kernel,
            "mode": mode,
            "size": "small",
            "seconds": 0.01 / speed,
            "ratio": Ratio(median=speed, low=speed * 0.98, high=speed * 1.02),
            "relative_error": 1e-4 if mode != "float32" else 1e-7,
            "ran_on": "GPU:0",
            **facts,
        }
    )


def bench(*, float16: float = 1.0, bfloat16: float = 1.0, without: str = "", **facts: Any) -> Bench:
    """A GPU that runs everything; `without` names a mode whose convolution is missing."""
    speeds: tuple[tuple[Mode, float], ...] = (("float16", float16), ("bfloat16", bfloat16))
    measurements = []
    for kernel in KERNELS:
        measurements.append(measurement(kernel, "float32"))
        for mode, speed in speeds:
            missing = kernel == "convolution" and mode == without
            measurements.append(
                Measurement(kernel=kernel, mode=mode, size="small", error="NotFoundError: no kernel")
                if missing
                else measurement(kernel, mode, speed)
            )
    return Bench(
        **{
            "hwprobe": "0.1.0",
            "tensorflow": "2.21.0",
            "device": "GPU:0",
            "description": "Tesla T4",
            "compute_capability": "7.5",
            "measurements": tuple(measurements),
            **facts,
        }
    )
