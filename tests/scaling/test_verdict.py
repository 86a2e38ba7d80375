"""How a calibration comes to its verdict, from what the float32 steps and the runs in float16 showed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from hwprobe.scaling.calibrate import _judge
from hwprobe.scaling.calibration import ShadowRun


class Evidence(NamedTuple):
    lowest_bits: int
    highest_bits: int
    drift_bits: float = 0.0


def run_in_float16(overflows_above: int = 99, zero_share: float = 0.0) -> Callable[[int], ShadowRun]:
    def try_scale(bits: int) -> ShadowRun:
        return ShadowRun(
            scale=2.0**bits,
            steps=50,
            overflows=3 if bits > overflows_above else 0,
            zero_share=zero_share,
            float32_zero_share=0.0,
        )

    return try_scale


@pytest.mark.parametrize(
    ("description", "evidence", "runs", "later", "verdict", "scales"),
    [
        ("the middle of the interval", Evidence(1, 13), {}, None, "static", [7]),
        ("rounded down", Evidence(14, 21), {}, None, "static", [17]),
        ("below one", Evidence(-10, 0), {}, None, "static", [-5]),
        ("three bits free on both sides of one", Evidence(-3, 3), {}, None, "none", [0]),
        ("only two below", Evidence(-2, 16), {}, None, "static", [7]),
        ("an empty interval", Evidence(18, 14), {}, None, "dynamic", []),
        ("an overflow lowers it by four bits", Evidence(1, 13), {"overflows_above": 5}, None, "static", [7, 3]),
        ("a second overflow ends it", Evidence(1, 13), {"overflows_above": 2}, None, "dynamic", [7, 3]),
        (
            "an overflow without scaling cannot be lowered",
            Evidence(-5, 9),
            {"overflows_above": -1},
            None,
            "dynamic",
            [0],
        ),
        ("many more zeros than in float32", Evidence(1, 13), {"zero_share": 0.06}, None, "dynamic", [7]),
        ("a few more zeros", Evidence(1, 13), {"zero_share": 0.04}, None, "static", [7]),
        ("gradients that move by more than half of it", Evidence(1, 13, 6.5), {}, None, "dynamic", [7]),
        ("gradients that move down", Evidence(1, 13, -6.5), {}, None, "dynamic", [7]),
        ("gradients that move by less", Evidence(1, 13, 5.5), {}, None, "static", [7]),
        ("a later checkpoint far away", Evidence(1, 13), {}, -9.0, "dynamic", [7]),
    ],
)
def test_the_verdict(
    description: str, evidence: Any, runs: dict[str, Any], later: float | None, verdict: str, scales: list[int]
) -> None:
    judged, reason, _, tried = _judge(evidence, later, run_in_float16(**runs))
    assert judged == verdict
    assert [each.scale for each in tried] == [2.0**bits for bits in scales]
    assert reason
