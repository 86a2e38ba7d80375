from __future__ import annotations

import threading

from hwprobe.configuration import LossScaling
from hwprobe.scaling import in_force, set_in_force


def test_nothing_is_in_force_before_somebody_decides() -> None:
    assert in_force() is None


def test_a_decision_is_in_force_for_every_thread() -> None:
    seen = []
    set_in_force(LossScaling.static(64.0))
    reader = threading.Thread(target=lambda: seen.append(in_force()))
    reader.start()
    reader.join()
    assert seen == [LossScaling.static(64.0)]


def test_setting_gives_back_what_was_in_force_so_that_it_can_be_restored() -> None:
    assert set_in_force(LossScaling.dynamic()) is None
    assert set_in_force(None) == LossScaling.dynamic()
    assert in_force() is None
