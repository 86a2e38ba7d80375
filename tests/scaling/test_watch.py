"""The ways in which loss scaling goes wrong, each from what its steps show."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import pytest

from hwprobe.configuration import LossScaling
from hwprobe.findings import Finding, Severity
from hwprobe.scaling.reading import ScalingState
from hwprobe.scaling.watch import Seen, SkipCounter, Watch

NAN = float("nan")


def keras_state(
    scale: float, good_steps: int = 0, minimum_scale: float | None = None, initial: float = 2.0**15
) -> ScalingState:
    """Of a scaler that does not count."""
    return ScalingState(
        scaler="keras",
        loss_scaling=LossScaling.dynamic(initial),
        scale=scale,
        good_steps=good_steps,
        minimum_scale=minimum_scale,
    )


def our_state(scale: float, skipped: int = 0, consecutive: int = 0, scaling: LossScaling | None = None) -> ScalingState:
    return ScalingState(
        scaler="hwprobe",
        loss_scaling=scaling or LossScaling.dynamic(),
        scale=scale,
        minimum_scale=2.0**-14 if scaling is None else None,
        good_steps=0 if consecutive else 1,
        skipped_steps=skipped,
        consecutive_skips=consecutive,
    )


def unscaled(scaler: Literal["none", "loss_scale_factor"] = "none") -> ScalingState:
    return ScalingState(scaler=scaler, loss_scaling=LossScaling.none())


def follow(
    states: Iterable[ScalingState], *, loss: float = 1.0, weights: bool | None = True, patience: int = 10
) -> list[Finding]:
    """What a watch says over a run of steps."""
    watch = Watch(patience)
    said: list[Finding] = []
    for state in states:
        said += watch.look(Seen(loss=loss, state=state), lambda: weights)
    return said


def falling(count: int, start: int = 15, floor: float = -math.inf) -> list[ScalingState]:
    return [keras_state(2.0 ** max(start - number, floor), minimum_scale=2.0**floor if floor > -99 else None)
            for number in range(1, count + 1)]  # fmt: skip


class TestStartUp:
    def test_a_search_that_ends_is_told_once_without_alarm(self) -> None:
        states = [*falling(13), *[keras_state(4.0, good_steps=each) for each in range(1, 5)]]
        (said,) = follow(states)
        assert (said.id, said.severity) == ("HWP611", Severity.INFO)
        assert said.evidence == {"skipped_steps": 13, "loss_scale": 4.0}

    def test_a_clean_start_is_told_nothing(self) -> None:
        assert follow([keras_state(2.0**15, good_steps=each) for each in range(1, 60)]) == []

    def test_a_skip_in_the_middle_of_training_is_no_start(self) -> None:
        clean = [keras_state(2.0**15, good_steps=each) for each in range(1, 200)]
        assert follow([*clean, keras_state(2.0**14), keras_state(2.0**14, good_steps=1)]) == []


class TestForwardPass:
    def test_a_loss_that_is_not_finite_is_told_at_once(self) -> None:
        (said,) = follow([keras_state(2.0**14)], loss=NAN)
        assert (said.id, said.severity, said.subject) == ("HWP612", Severity.WARNING, "model")
        assert "the weights are finite" in said.message

    def test_it_becomes_an_error_when_it_does_not_end(self) -> None:
        said = follow(falling(40), loss=NAN)
        assert [(each.id, each.severity) for each in said] == [
            ("HWP612", Severity.WARNING),
            ("HWP612", Severity.ERROR),
        ]

    def test_the_mean_of_an_epoch_hides_later_losses_and_the_streak_still_counts(self) -> None:
        watch = Watch(patience=5)
        said = list(watch.look(Seen(loss=NAN, state=keras_state(2.0**14)), lambda: True))
        for state in falling(8, start=14):
            said += watch.look(Seen(loss=None, state=state), lambda: True)
        assert [each.severity for each in said] == [Severity.WARNING, Severity.ERROR]

    def test_nobody_claims_to_have_seen_the_weights_who_has_not(self) -> None:
        (said,) = follow([keras_state(2.0**14)], loss=NAN, weights=None)
        assert "nobody looked at the weights" in said.message


class TestCollapse:
    def test_a_scale_that_falls_below_one_with_a_finite_loss_is_told(self) -> None:
        said = follow(falling(20))
        assert [(each.id, each.severity) for each in said] == [("HWP613", Severity.WARNING)]

    def test_a_scale_without_a_floor_ends_as_an_error(self) -> None:
        said = follow([*falling(142), keras_state(0.0), keras_state(0.0)])
        assert [(each.id, each.severity) for each in said] == [
            ("HWP613", Severity.WARNING),
            ("HWP613", Severity.ERROR),
        ]

    def test_a_long_search_that_stays_above_one_is_none(self) -> None:
        assert [each.id for each in follow([*falling(14), keras_state(2.0, good_steps=1)])] == ["HWP611"]


class TestStuck:
    def test_a_scale_at_the_floor_of_keras_2(self) -> None:
        said = follow(falling(30, floor=0))
        assert [(each.id, each.severity) for each in said] == [("HWP614", Severity.ERROR)]
        assert "its floor of 1" in said[0].message

    def test_a_scale_at_the_floor_of_ours(self) -> None:
        states = [our_state(max(2.0 ** (15 - each), 2.0**-14), each, each) for each in range(1, 60)]
        assert [each.id for each in follow(states)] == ["HWP613", "HWP614"]

    def test_a_fixed_scale_that_is_too_large(self) -> None:
        scaling = LossScaling.static(2.0**20)
        states = [our_state(2.0**20, each, each, scaling) for each in range(1, 12)]
        (said,) = follow(states)
        assert said.id == "HWP614"
        assert "lower the scale" in said.fix[0]

    def test_a_few_skips_at_a_fixed_scale_are_its_business(self) -> None:
        scaling = LossScaling.static(64.0)
        states = [our_state(64.0, each, each, scaling) for each in range(1, 6)]
        assert follow([*states, our_state(64.0, 5, 0, scaling)]) [1:] == []  # fmt: skip


class TestPoison:
    @pytest.mark.parametrize(
        ("state", "who"),
        [
            (unscaled(), "no loss scaler is in force"),
            (unscaled("loss_scale_factor"), "loss_scale_factor never skips a step"),
            (keras_state(2.0**15, good_steps=7), "Keras' scaler let it through"),
        ],
    )
    def test_weights_that_are_not_finite_are_told_with_who_let_it_happen(self, state: ScalingState, who: str) -> None:
        (said,) = follow([state], loss=NAN, weights=False)
        assert (said.id, said.severity, said.subject) == ("HWP615", Severity.ERROR, "weights")
        assert who in said.message

    def test_it_is_told_once(self) -> None:
        assert len(follow([unscaled()] * 5, loss=NAN, weights=False)) == 1

    def test_the_weights_are_not_looked_at_while_nothing_is_wrong(self) -> None:
        def never() -> bool | None:
            raise AssertionError("nobody should look")

        watch = Watch()
        for good in range(1, 50):
            watch.look(Seen(loss=0.5, state=keras_state(2.0**15, good_steps=good)), never)
        watch.look(Seen(loss=0.5, state=keras_state(2.0**14)), never)


class TestUnderflow:
    @pytest.mark.parametrize(("share", "told"), [(0.98, ["HWP616"]), (0.25, ["HWP616"]), (0.01, []), (None, [])])
    def test_many_lost_gradients_are_told(self, share: float | None, told: list[str]) -> None:
        assert [each.id for each in Watch().look_at_gradients(share, 1.0)] == told

    def test_once(self) -> None:
        watch = Watch()
        assert watch.look_at_gradients(0.5, 1.0)
        assert not watch.look_at_gradients(0.9, 1.0)


class TestSkipCounter:
    def test_it_takes_the_numbers_of_a_scaler_that_counts(self) -> None:
        counter = SkipCounter()
        counter.look(our_state(64.0, skipped=9, consecutive=2), steps=100)
        assert (counter.skipped_steps, counter.consecutive_skips) == (9, 2)

    @pytest.mark.parametrize(
        ("description", "looks", "expected"),
        [
            ("each halving is a skip", [(2.0**14, 0), (2.0**13, 0)], (2, 2)),
            ("a clean step ends the streak", [(2.0**14, 0), (2.0**14, 1)], (1, 0)),
            ("growth is no skip", [(2.0**15, 1999), (2.0**16, 0)], (0, 0)),
            ("at zero every step is one", [(0.0, 0), (0.0, 0)], (2, 2)),
            ("a scale from a checkpoint is none", [(2.0**9, 17), (2.0**9, 18)], (0, 0)),
        ],
    )
    def test_it_reads_skips_off_a_scaler_that_does_not_count(
        self, description: str, looks: list[tuple[float, int]], expected: tuple[int, int]
    ) -> None:
        counter = SkipCounter()
        for scale, good_steps in looks:
            counter.look(keras_state(scale, good_steps), steps=1)
        assert (counter.skipped_steps, counter.consecutive_skips) == expected

    def test_several_steps_between_two_looks_are_told_apart_by_the_scale(self) -> None:
        counter = SkipCounter()
        counter.look(keras_state(2.0**15, 3), steps=4)
        counter.look(keras_state(2.0**12, 1), steps=4)
        assert (counter.skipped_steps, counter.consecutive_skips) == (3, 0)

    def test_at_the_floor_of_keras_2_a_counter_that_stays_at_zero_is_a_skip(self) -> None:
        counter = SkipCounter()
        for good_steps in (0, 0, 1, 0):
            counter.look(keras_state(1.0, good_steps, minimum_scale=1.0, initial=1.0), steps=1)
        assert (counter.skipped_steps, counter.consecutive_skips) == (3, 1)
