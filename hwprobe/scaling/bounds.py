"""Which loss scales fit a set of gradients: arithmetic on histograms of exponents, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hwprobe.scaling.gradients import LOWEST

FLOAT16_LARGEST = 65504.0

ROUNDS_TO_ZERO = -25
"""float16's smallest number is 2**-24; what is below half of it becomes 0."""

SMALLEST_NORMAL = -14
"""Below 2**-14 float16 loses digits one by one."""

HEADROOM_BITS = 3
"""float32 does not see the partial sums of float16 reductions. A network whose float32 gradients reached 30,000 at a
scale of 2**15 overflowed there within 250 steps for three seeds of three, and at 2**13 for none."""

LOST_SHARE = 0.001
"""Multibox SSD trained with a scale that lost 0.1% of its gradients (NVIDIA's guide, as ports of it quote it)."""

LOWEST_SCALE = -10
"""The search for a lower bound ends here; a smaller one was never needed."""


def upper_bound(largest: float) -> int:
    """Give the largest k for which gradients up to `largest`, times 2**k, stay in float16 with three bits to spare.

    Args:
        largest: Largest magnitude that was seen; positive.
    """
    return math.floor(math.log2(FLOAT16_LARGEST) - math.log2(largest) - HEADROOM_BITS)


def lower_bound(histogram: Sequence[int]) -> int:
    """Give the smallest k at which at most 0.1% of the non-zero gradients, times 2**k, round to zero in float16.

    Args:
        histogram: Non-zero elements by exponent, from `gradients.LOWEST` on.
    """
    bits = LOWEST_SCALE
    while lost_share(histogram, bits) > LOST_SHARE:
        bits += 1
    return bits


def lost_share(histogram: Sequence[int], bits: int) -> float:
    """Give the share of non-zero elements that become 0 at scale 2**bits."""
    return share_below(histogram, ROUNDS_TO_ZERO - bits)


def subnormal_share(histogram: Sequence[int], bits: int) -> float:
    """Give the share of non-zero elements that survive at scale 2**bits with fewer digits than float16 has."""
    return share_below(histogram, SMALLEST_NORMAL - bits) - lost_share(histogram, bits)


def share_below(histogram: Sequence[int], exponent: int) -> float:
    """Give the share of elements smaller than 2**exponent; 0 for an empty histogram."""
    return sum(histogram[: max(0, exponent - LOWEST)]) / max(1, sum(histogram))


def quantile(histogram: Sequence[int], share: float) -> float:
    """Give a magnitude that this share of the elements does not exceed, to the next power of two.

    Args:
        histogram: Non-zero elements by exponent.
        share: Between 0 and 1.
    """
    wanted = share * sum(histogram)
    below = 0
    for exponent, count in enumerate(histogram, start=LOWEST):
        below += count
        if count and below >= wanted:
            return 2.0 ** (exponent + 1)
    return 0.0
