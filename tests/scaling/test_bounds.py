"""The arithmetic of scales against what float16 really does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.scaling.bounds import LOST_SHARE, lost_share, lower_bound, quantile, subnormal_share, upper_bound
from hwprobe.scaling.gradients import BINS, HIGHEST, LOWEST

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


def histogram_of(values: np.ndarray) -> Any:
    exponents = np.clip(np.floor(np.log2(np.abs(values))).astype(int), LOWEST, HIGHEST)
    return np.bincount(exponents - LOWEST, minlength=BINS).tolist()


# Between powers of two: float16 rounds a tie such as 2**-25 to zero, and the histogram counts it as kept.
gradients = st.lists(
    st.tuples(st.integers(-50, 10), st.floats(1.01, 1.99)).map(lambda each: each[1] * 2.0 ** each[0]),
    min_size=1,
    max_size=40,
).map(np.array)
scales = st.integers(-10, 30)


@given(gradients, scales)
def test_what_is_called_lost_is_what_float16_rounds_to_zero(values: np.ndarray, bits: int) -> None:
    lost = np.count_nonzero((values * 2.0**bits).astype("float16") == 0)
    assert lost_share(histogram_of(values), bits) == pytest.approx(lost / len(values))


@given(gradients, scales)
def test_what_is_called_short_of_digits_is_what_float16_holds_as_subnormal(values: np.ndarray, bits: int) -> None:
    held = (values * 2.0**bits).astype("float16").astype("float64")
    short = np.count_nonzero((held > 0) & (values * 2.0**bits < 2.0**-14))
    assert subnormal_share(histogram_of(values), bits) == pytest.approx(short / len(values))


@given(gradients)
def test_the_lower_bound_is_the_first_scale_that_keeps_enough(values: np.ndarray) -> None:
    histogram, bits = histogram_of(values), lower_bound(histogram_of(values))
    assert lost_share(histogram, bits) <= LOST_SHARE
    assert bits == -10 or lost_share(histogram, bits - 1) > LOST_SHARE


@given(st.floats(1e-12, 1e6))
def test_the_upper_bound_leaves_three_bits_and_not_four(largest: float) -> None:
    bits = upper_bound(largest)
    assert np.isfinite(np.float16(largest * 2.0 ** (bits + 2)))
    assert largest * 2.0 ** (bits + 4) > 65504.0


@pytest.mark.parametrize(
    ("description", "values", "share", "expected"),
    [
        ("all alike", [0.3] * 10, 0.9999, 0.5),
        ("one in a hundred is larger", [0.3] * 99 + [300.0], 0.99, 0.5),
        ("the largest", [0.3] * 99 + [300.0], 1.0, 512.0),
    ],
)
def test_a_quantile_is_given_to_the_next_power_of_two(
    description: str, values: np.ndarray, share: float, expected: float
) -> None:
    assert quantile(histogram_of(np.array(values)), share) == expected


def test_an_empty_histogram_asks_for_nothing() -> None:
    assert lower_bound([0] * BINS) == -10
    assert quantile([0] * BINS, 0.5) == 0.0
