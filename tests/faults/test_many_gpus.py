"""More GPUs than a table expects, and a list of them that changes while it is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.command import check
from tests.machine import A100, T4, Machine

MakeMachine = Callable[..., Machine]


def test_64_gpus_are_each_read_and_joined(machine: MakeMachine) -> None:
    m = machine(gpus=[A100.at(f"{domain:08x}:0a:00.0") for domain in range(64)])
    answer = check(m, "--require", "gpus==64")
    devices = answer.report.devices
    assert [gpu.uuid for gpu in devices] == [gpu.uuid for gpu in m.gpus]
    assert [gpu.nvml_index for gpu in devices] == list(range(64))
    assert sorted(gpu.cuda_index for gpu in devices if gpu.cuda_index is not None) == list(range(64))
    assert (answer.check.verdict, answer.dtype_policy) == ("ready", "mixed_bfloat16")


def test_one_lost_among_64_is_named_and_the_others_stay(machine: MakeMachine) -> None:
    boards = [A100.at(f"{domain:08x}:0a:00.0") for domain in range(63)]
    answer = check(machine(gpus=[*boards, A100.at("00000100:0a:00.0").lost()]))
    assert len(answer.report.devices) == 64
    assert [gpu.nvml_index for gpu in answer.report.devices if gpu.error is not None] == [63]
    assert answer.check.verdict == "not_ready"
    assert "HWP120" in answer.ids


@pytest.mark.parametrize(("boards", "then"), [(3, 1), (2, 0), (2, 5)], ids=["fewer", "none", "more"])
def test_a_list_that_changes_between_two_calls_is_told_without_repeats(
    machine: MakeMachine, boards: int, then: int
) -> None:
    m = machine(gpus=[A100, T4, A100][:boards], count_after=(0, then))
    answer = check(m)
    uuids = [gpu.uuid for gpu in answer.report.devices if gpu.uuid is not None]
    assert len(set(uuids)) == len(uuids)
    assert set(uuids) == {gpu.uuid for gpu in m.gpus}
    for gpu in answer.report.devices:
        assert gpu.uuid is not None or gpu.error is not None
