"""The precision variants that a comparison trains: `float32`, `mixed_float16:dynamic`, `mixed_float16:static=auto`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hwprobe.configuration import DTYPE_POLICIES, DtypePolicy, LossScaling
from hwprobe.errors import InputError

DEFAULT_VARIANTS = (
    "float32",
    "mixed_float16:dynamic",
    "mixed_float16:static=auto",
    "mixed_float16:none",
    "mixed_bfloat16",
)
AUTO = "static=auto"
_POWER = re.compile(r"(?<==)2\^(-?\d{1,3})$")
"""A scale written as a power: `static=2^24`."""


@dataclass(frozen=True)
class Variant:
    """A dtype policy with a loss scaling.

    Attributes:
        name: As it was asked for.
        dtype_policy: Keras' name of the policy.
        loss_scaling: None where calibration is to find it.
    """

    name: str
    dtype_policy: DtypePolicy
    loss_scaling: LossScaling | None


def parse_variants(text: str) -> tuple[Variant, ...]:
    """Read a list of variants, separated by commas.

    `POLICY` stands for the scaling that suits it: dynamic with `mixed_float16`, none with the others.

    Raises:
        InputError: One is not understood, or named twice, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"no variant is named; the default is {','.join(DEFAULT_VARIANTS)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"variant {twice[0]} is named twice")
    return tuple(_parse(name) for name in names)


def _parse(name: str) -> Variant:
    policy, colon, scaling = name.partition(":")
    if policy not in DTYPE_POLICIES or (colon and not scaling):
        raise InputError(
            f"variant {name!r} is not understood: expected POLICY or POLICY:SCALING with a policy of "
            f"{', '.join(DTYPE_POLICIES)} and a scaling of dynamic, dynamic=SCALE, static=SCALE, {AUTO}, none"
        )
    scaling = _POWER.sub(lambda found: str(2.0 ** int(found[1])), scaling)
    if scaling == AUTO:
        return Variant(name, policy, None)
    if not colon:
        return Variant(name, policy, LossScaling.dynamic() if policy == "mixed_float16" else LossScaling.none())
    return Variant(name, policy, LossScaling.parse(scaling))
