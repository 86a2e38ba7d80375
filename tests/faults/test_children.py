"""What becomes of a check whose child processes hang, die, stammer or flood."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hwprobe.probe.collect import CUDA, NVML
from tests.faults.command import GENEROUS, ROOT, check
from tests.machine import A100, Machine
from tests.probe.readers import hang

MakeMachine = Callable[..., Machine]

READERS = "tests.probe.readers"
BRIEF = ("--timeout", "5")

ENDS: list[tuple[str, str]] = [
    ("abort", "died by signal 6 (SIGABRT)"),
    ("half_line", "in the middle of its answer"),
    ("mistake", "ended with exit status 1 without an answer"),
    ("nonsense", "not understood"),
    ("endless_line", "answered with more than"),
]


@pytest.mark.parametrize("source", [NVML, CUDA])
@pytest.mark.parametrize(("reader", "says"), ENDS, ids=[reader for reader, _ in ENDS])
def test_a_child_that_ends_badly_fails_its_source(machine: MakeMachine, source: str, reader: str, says: str) -> None:
    answer = check(machine(gpus=[A100]), readers={source: f"{READERS}:{reader}"})
    other, broken = ("cuda", "nvml") if source == NVML else ("nvml", "cuda")
    assert getattr(answer.report.sources, other).status.value == "ok"
    failed = getattr(answer.report.sources, broken)
    assert failed.status.value == "failed"
    assert says in str(failed.reason)
    assert answer.check.verdict == "not_ready"


def test_both_that_end_badly_leave_nothing_known(machine: MakeMachine) -> None:
    readers = {NVML: f"{READERS}:abort", CUDA: f"{READERS}:half_line"}
    answer = check(machine(gpus=[A100]), readers=readers)
    assert answer.statuses == ("failed", "failed")
    assert answer.report.devices == ()
    assert (answer.check.verdict, answer.dtype_policy) == ("not_ready", "float32")


def test_a_flood_on_standard_error_reaches_nobody(machine: MakeMachine) -> None:
    answer = check(machine(gpus=[A100]), readers={NVML: f"{READERS}:flood"})
    assert answer.statuses[1] == "ok"
    assert len(answer.text) < 100_000


@pytest.mark.parametrize("reader", ["hang", "close_and_go_on"])
def test_a_child_that_does_not_come_back_costs_its_facts(machine: MakeMachine, reader: str) -> None:
    answer = check(machine(gpus=[A100]), *BRIEF, readers={CUDA: f"{READERS}:{reader}"})
    assert answer.statuses[0] == "ok"
    assert answer.statuses[1] in ("timeout", "failed")
    assert (answer.check.verdict, answer.dtype_policy) == ("not_ready", "float32")


def test_drivers_that_hang_and_ignore_a_polite_signal_end_at_the_limit(machine: MakeMachine) -> None:
    m = machine(gpus=[A100], stubborn=["nvmlInit", "cuInit"])
    answer = check(m, *BRIEF)
    assert answer.statuses == ("timeout", "timeout")
    assert answer.report.devices == ()
    assert answer.check.verdict != "ready"
    for call in m.calls("nvmlInit", "nvmlInitWithFlags", "cuInit"):
        assert not Path(f"/proc/{call.process}").exists()


UNKILLABLE = """
import os, sys
os.killpg = lambda group, signal: None
from hwprobe.cli import main
from hwprobe.probe import collect
collect.READERS[collect.NVML] = "tests.probe.readers:hang"
sys.exit(main(sys.argv[1:]))
"""


def test_a_child_that_no_signal_reaches_is_left_behind(machine: MakeMachine, tmp_path: Path) -> None:
    """As one that sleeps inside the kernel."""
    m = machine(gpus=[A100])
    note = tmp_path / "child"
    source = UNKILLABLE.replace('"tests.probe.readers:hang"', f'"{__name__}:hang_and_note"')
    source = f"import os; os.environ['NOTE'] = {str(note)!r}\n{source}"
    done = m.run(
        [sys.executable, "-c", source, "check", "--fast", "--format", "json", *BRIEF], cwd=ROOT, timeout=GENEROUS
    )
    process = int(note.read_text())
    try:
        assert '"status": "timeout"' in done.stdout, done.stderr
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        os.kill(process, 0)
    finally:
        os.kill(process, signal.SIGKILL)


def hang_and_note(request: dict[str, object]) -> dict[str, object]:
    """A reader that writes down its process and never answers."""
    return hang({"file": os.environ["NOTE"]})
