"""The two 16-bit number formats, in the figures that decide what survives in them."""

from __future__ import annotations

from hwprobe.source import Fact


class Format(Fact, frozen=True, kw_only=True):
    """A 16-bit floating point format.

    Attributes:
        name: As TensorFlow and Keras write it.
        largest: Largest finite value.
        rounds_to_zero: Positive values up to this one become 0 (half of the smallest subnormal).
        integers_to: Integers up to this one are all held exactly; above it some are not.
        epsilon: Distance from 1 to the next value: the relative spacing.
    """

    name: str
    largest: float
    rounds_to_zero: float
    integers_to: int
    epsilon: float

    def spacing(self, magnitude: float) -> float:
        """Distance between neighbouring values near `magnitude`.

        Args:
            magnitude: A positive number inside the format's range.
        """
        power = 1.0
        while power * 2.0 <= magnitude:
            power *= 2.0
        while power > magnitude:
            power /= 2.0
        return power * self.epsilon


# IEEE 754-2019, section 3.3 (binary16) and the bfloat16 definition of the Intel and Arm instruction sets:
# 11 and 8 significant bits, exponents from -14 and -126.
FLOAT16 = Format(name="float16", largest=65504.0, rounds_to_zero=2.0**-25, integers_to=2048, epsilon=2.0**-10)
BFLOAT16 = Format(
    name="bfloat16",
    largest=float.fromhex("0x1.fep127"),
    rounds_to_zero=2.0**-134,
    integers_to=256,
    epsilon=2.0**-7,
)
FORMATS: dict[str, Format] = {"float16": FLOAT16, "bfloat16": BFLOAT16}

COMPUTE_DTYPES: dict[str, str] = {
    "mixed_float16": "float16",
    "mixed_bfloat16": "bfloat16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float64": "float64",
}
"""Compute dtype of each dtype policy that a layer of a model can have (quantised ones aside)."""
