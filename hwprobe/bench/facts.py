"""What a bench measured, as frozen types."""

from __future__ import annotations

import math
from typing import Literal

from hwprobe.source import Fact

Mode = Literal["float32", "tf32", "float16", "bfloat16"]
KernelName = Literal["matmul", "convolution", "attention", "optimizer"]

POLICY_MODES: dict[str, Mode] = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
"""What the layers of a dtype policy compute in. `float32` is the baseline: TF32 where this device has it."""


class Ratio(Fact, frozen=True, kw_only=True):
    """Time of the baseline over time of the mode, round by round: above 1 the mode is faster.

    Attributes:
        median: Of all rounds.
        low, high: Between these lie the middle three fifths of the rounds.
    """

    median: float
    low: float
    high: float


class Measurement(Fact, frozen=True, kw_only=True):
    """One kernel in one mode.

    Attributes:
        kernel: Which.
        mode: `float32` with TF32 switched off, `tf32` (float32 products with TF32 on), `float16`, `bfloat16`.
        size: In words: `2048 x 2048`.
        seconds: 20th percentile of one run; None where it did not run.
        ratio: Against the baseline; None where either did not run.
        relative_error: |result - reference| over |reference| against float64 on the same, already rounded inputs;
            None where it did not run.
        non_finite: Elements of the result that are infinite or NaN.
        ran_on: Device of the result: `GPU:0`.
        error: Why it did not run, in TensorFlow's words.
    """

    kernel: KernelName
    mode: Mode
    size: str
    seconds: float | None = None
    ratio: Ratio | None = None
    relative_error: float | None = None
    non_finite: int = 0
    ran_on: str | None = None
    error: str | None = None


class Bench(Fact, frozen=True, kw_only=True):
    """The answer of `hwprobe bench`.

    Attributes:
        schema: `hwprobe.bench/1`.
        hwprobe: Version of hwprobe.
        tensorflow: Version.
        device: As TensorFlow lists it: `GPU:1`, `CPU:0`.
        description: Its name, as the driver writes it; the machine's kind for a CPU.
        compute_capability: Of an NVIDIA GPU.
        uuid: Of the GPU, where the caller knows it.
        quick: Whether this is the short form.
        baseline: `tf32` where the device has it, else `float32`: what a float32 policy does by default.
        measurements: By kernel, then mode.
        seconds: How long all of it took.
    """

    schema: Literal["hwprobe.bench/1"] = "hwprobe.bench/1"
    hwprobe: str
    tensorflow: str
    device: str
    description: str
    compute_capability: str | None = None
    uuid: str | None = None
    quick: bool = False
    baseline: Mode = "float32"
    measurements: tuple[Measurement, ...] = ()
    seconds: float = 0.0

    def of(self, kernel: KernelName, mode: Mode) -> Measurement | None:
        """Give one measurement; None if it is not there."""
        return next((each for each in self.measurements if (each.kernel, each.mode) == (kernel, mode)), None)

    def policy_ratio(self, dtype_policy: str) -> float | None:
        """Give the speed of a dtype policy against float32: geometric mean of product, convolution and attention.

        Args:
            dtype_policy: Keras' name.

        Returns:
            1 for float32; None where one of the kernels did not run in that dtype, gave a wrong result, or was not
            measured.
        """
        if dtype_policy == "float32":
            return 1.0
        ratios = []
        for kernel in WORK_KERNELS:
            seen = self.of(kernel, POLICY_MODES[dtype_policy])
            if seen is None or seen.ratio is None or is_wrong(seen):
                return None
            ratios.append(seen.ratio.median)
        return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


WORK_KERNELS: tuple[KernelName, ...] = ("matmul", "convolution", "attention")
"""The kernels that the time of training is made of; the optimizer's step is shown and not weighed."""

ERROR_LIMITS: dict[Mode, float] = {"float32": 1e-4, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}
"""Relative errors that rounding alone cannot reach: some ten times what each format's spacing gives here."""


def is_wrong(seen: Measurement) -> bool:
    """Whether a kernel's result is not what rounding explains."""
    if seen.relative_error is None:
        return seen.non_finite > 0
    return seen.non_finite > 0 or seen.relative_error > ERROR_LIMITS[seen.mode]
