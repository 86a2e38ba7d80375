"""A reader in a child process: whatever becomes of it, the parent gets an answer with a clear reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.errors import InputError
from hwprobe.probe import child
from hwprobe.probe.bootstrap import json_line
from hwprobe.probe.child import Answer, Child, ask
from hwprobe.probe.collect import collect
from hwprobe.source import Source, SourceStatus

GENEROUS = 60.0
READERS = "tests.probe.readers"

plain_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def answer_of(name: str, timeout_seconds: float = GENEROUS, **request: object) -> Answer:
    return ask(f"{READERS}:{name}", request, timeout_seconds=timeout_seconds)


def environment() -> dict[str, str]:
    """For a Python that finds what this one finds."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}


def is_gone(process_id: int) -> bool:
    """Whether a process has ended, as soon as it has; a zombie that nobody reaps counts as ended."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@given(plain_data)
def test_the_childs_own_json_reads_back_exactly(value: object) -> None:
    line = json_line(value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: "a"}, b"bytes"])
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="reader's answer"):
        json_line({"value": value} if not isinstance(value, dict) else value)


def test_the_answer_comes_back_as_it_was_given() -> None:
    request: dict[str, Any] = {
        "text": "Jürgen's \U0001f600 'GPU' \"0\"\n\x1b[31m",
        "list": [1, 2.5, None, True],
        "nested": {"a": {}},
    }
    answer = answer_of("echo", **request)
    assert answer.status is SourceStatus.OK
    assert answer.data == request
    assert answer.reason is None


def test_what_a_library_prints_goes_to_the_tail_and_not_into_the_answer() -> None:
    answer = answer_of("talk")
    assert answer.data == {"said": True}
    assert sorted(answer.stderr.split()) == ["[31mred[0m", "a", "and", "library", "prints", "that", "this"]
    assert "\x1b" not in answer.stderr


def test_the_child_finds_modules_where_this_process_does_and_runs_in_its_folder() -> None:
    answer = answer_of("surroundings")
    assert answer.data is not None
    assert answer.data["path"] == sys.path
    assert answer.data["prefix"] == sys.prefix
    assert answer.data["folder"] == str(Path.cwd())


def test_what_is_no_text_on_the_module_path_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [Path("/no/such/folder"), *sys.path])
    assert answer_of("echo", number=1).data == {"number": 1}


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_is_a_positive_number(limit: float) -> None:
    with pytest.raises(InputError, match="a time limit is a positive number of seconds"):
        answer_of("echo", limit)


def test_no_limit_is_a_very_long_one() -> None:
    assert answer_of("echo", float("inf"), number=1).data == {"number": 1}


def test_the_environment_can_be_replaced() -> None:
    answer = ask(f"{READERS}:surroundings", {}, timeout_seconds=GENEROUS, environment={"ONLY": "this"})
    assert answer.data is not None
    assert answer.data["environment"]["ONLY"] == "this"
    assert "PATH" not in answer.data["environment"]


def test_the_child_loads_nothing_heavy_by_itself() -> None:
    answer = answer_of("modules")
    assert answer.data is not None
    own_imports = {"subprocess", "signal", "stat"}  # by tests.probe.readers
    heavy = {"msgspec", "psutil", "json", "pynvml", "tensorflow", "site", "click"} - own_imports
    assert not heavy & set(answer.data["modules"])


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (
            "absent",
            Source(status=SourceStatus.ABSENT, reason="no such library", code=12, error="LIBRARY_NOT_FOUND"),
        ),
        ("fail", Source(status=SourceStatus.FAILED, reason="it is broken")),
    ],
)
def test_a_reader_that_gives_up_says_why(reader: str, expected: Source) -> None:
    answer = answer_of(reader)
    source = answer.source
    assert (source.status, source.reason, source.code, source.error) == (
        expected.status,
        expected.reason,
        expected.code,
        expected.error,
    )
    assert source.seconds is not None
    assert answer.data == ({"tried": "libx.so"} if reader == "absent" else None)


@pytest.mark.parametrize(
    ("reader", "request_", "reason"),
    [
        ("mistake", {}, "ended with exit status 1 without an answer; its last words: KeyError: 'missing'"),
        ("not_plain", {}, "its last words: TypeError: a reader's answer is plain data, not object"),
        ("not_plain", {"number": "nan"}, "its last words: TypeError: a reader's answer holds finite numbers, not nan"),
        ("leave", {"status": 7}, "ended with exit status 7 without an answer; its last words: could not map memory"),
        ("leave", {"status": 0}, "ended with exit status 0 without an answer; its last words: could not map memory"),
        ("die", {"signal": 11}, "died by signal 11 (SIGSEGV) without an answer"),
        ("die", {"signal": 6}, "died by signal 6 (SIGABRT) without an answer"),
        ("die", {"signal": 9}, "died by signal 9 (SIGKILL) without an answer"),
        ("log_and_abort", {}, "died by signal 6 (SIGABRT) without an answer"),
        ("log_and_abort", {"said": "F0000 no such device"}, "an answer; its last words: F0000 no such device"),
        ("half_line", {}, "ended with exit status 0 in the middle of its answer"),
        ("close_and_go_on", {}, "closed its pipe and went on without an answer"),
        ("raw", {"line": "hello"}, "did not answer as agreed: "),
        ("raw", {"line": "[1, 2]"}, "did not answer as agreed: Expected `object`, got `array`"),
        ("raw", {"line": '{"status": "fine"}'}, "did not answer as agreed: Invalid enum value 'fine'"),
        ("raw", {"line": '{"status": "ok", "data": 7}'}, "did not answer as agreed: Expected `object | null`"),
        ("raw", {"line": '{"status": "ok"}'}, "answered ok without data"),
        ("endless_line", {}, "answered with more than 16777216 bytes"),
        ("no_such_reader", {}, "has no attribute 'no_such_reader'"),
    ],
)
def test_a_child_that_does_not_answer_is_a_failed_source(reader: str, request_: dict[str, object], reason: str) -> None:
    answer = ask(f"{READERS}:{reader}", request_, timeout_seconds=GENEROUS)
    assert answer.status is SourceStatus.FAILED
    assert answer.reason is not None
    assert reason in answer.reason
    assert answer.data is None


def test_a_reader_that_cannot_be_imported_is_a_failed_source() -> None:
    answer = ask("no.such.module:read", {}, timeout_seconds=GENEROUS)
    assert answer.status is SourceStatus.FAILED
    assert "ModuleNotFoundError: No module named 'no'" in str(answer.reason)


def test_a_flood_on_standard_error_neither_blocks_nor_fills_memory() -> None:
    answer = answer_of("flood")
    assert answer.data == {"done": True}
    assert 0 < len(answer.stderr) <= child.STDERR_KEPT_BYTES


def test_a_child_that_hangs_is_killed_at_its_limit(tmp_path: Path) -> None:
    answer = answer_of("hang", 1.0, file=str(tmp_path / "pid"))
    assert answer.status is SourceStatus.TIMEOUT
    assert answer.reason == "no answer within 1 s"
    assert answer.data is None
    if (tmp_path / "pid").exists():
        assert is_gone(int((tmp_path / "pid").read_text()))


def test_what_a_hanging_child_started_is_killed_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with Child(f"{READERS}:hang_with_grandchild", {"file": str(file)}, timeout_seconds=GENEROUS):
        while not file.exists() or not file.read_text():
            time.sleep(0.01)
    assert is_gone(int(file.read_text()))


def test_a_grandchild_that_holds_the_pipes_open_does_not_hold_up_the_answer() -> None:
    answer = answer_of("leave_grandchild")
    assert answer.data is not None
    assert is_gone(answer.data["process"])


def test_a_child_that_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A process that sleeps inside the kernel (a dead NFS mount, a wedged driver) outlives SIGKILL.
    file = tmp_path / "pid"
    kill = os.killpg
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda group, number: None)
        answer = answer_of("hang", 2.0, file=str(file))
    assert answer.status is SourceStatus.TIMEOUT
    if file.exists():
        kill(int(file.read_text()), signal.SIGKILL)
        assert is_gone(int(file.read_text()))


def test_an_interrupt_of_the_parent_ends_the_child(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    program = (
        f"from hwprobe.probe.child import ask\nask('{READERS}:hang', {{'file': {str(file)!r}}}, timeout_seconds=600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], env=environment(), stderr=subprocess.PIPE)
    while not file.exists() or not file.read_text():
        assert parent.poll() is None
        time.sleep(0.01)
    parent.send_signal(signal.SIGINT)
    _, stderr = parent.communicate(timeout=GENEROUS)
    assert b"KeyboardInterrupt" in stderr
    assert is_gone(int(file.read_text()))


@pytest.mark.parametrize("ask_it", [lambda: answer_of("hang"), collect], ids=["one reader", "every source"])
def test_an_interrupt_in_the_moment_of_the_start_ends_the_child(
    monkeypatch: pytest.MonkeyPatch, ask_it: Callable[[], object]
) -> None:
    started: list[int] = []

    class InterruptedPopen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", InterruptedPopen)
    with pytest.raises(KeyboardInterrupt):
        ask_it()
    assert started
    assert all(is_gone(process_id) for process_id in started)


def test_a_child_whose_parent_was_killed_ends_by_itself() -> None:
    program = (
        "from hwprobe.probe import bootstrap\n"
        "bootstrap.ORPHAN_SECONDS = 0.1\n"
        f"bootstrap.serve('{READERS}:hang', {{}}, 0.1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), timeout=GENEROUS, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert b"Timeout" in done.stderr


@pytest.mark.parametrize(
    ("executable", "reason"),
    [
        ("/no/such/python", "could not start a child process: [Errno 2] No such file or directory: '/no/such/python'"),
        ("", "could not start a child process: this Python does not know its own executable"),
    ],
)
def test_without_a_python_to_start_the_source_fails(
    monkeypatch: pytest.MonkeyPatch, executable: str, reason: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    answer = answer_of("echo")
    assert (answer.status, answer.reason) == (SourceStatus.FAILED, reason)


def test_without_descriptors_left_the_source_fails() -> None:
    program = (
        "import os, resource, sys\n"
        "from hwprobe.probe.child import ask\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')), 4096))\n"
        f"answer = ask('{READERS}:echo', {{}}, timeout_seconds=60)\n"
        "print(answer.status.value, answer.reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), timeout=GENEROUS, capture_output=True, text=True
    )
    assert done.stdout == "failed could not start a child process: [Errno 24] Too many open files\n", done.stderr


def test_without_a_thread_to_read_with_the_source_fails_and_the_child_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    answer = answer_of("hang")
    assert (answer.status, answer.reason) == (
        SourceStatus.FAILED,
        "could not start a child process: can't start new thread",
    )


def test_several_children_run_side_by_side_and_nothing_is_left_of_them() -> None:
    def in_use() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    answer_of("echo")
    before = in_use()
    for _ in range(5):
        with ExitStack() as stack:
            children = [
                stack.enter_context(Child(f"{READERS}:echo", {"number": number}, timeout_seconds=GENEROUS))
                for number in range(4)
            ]
            assert [one.answer().data for one in children] == [{"number": number} for number in range(4)]
    for _ in range(1000):
        if in_use() == before:
            break
        time.sleep(0.01)
    assert in_use() == before


def test_waiting_tells_whether_the_answer_is_there() -> None:
    with Child(f"{READERS}:hang", {}, timeout_seconds=GENEROUS) as slow:
        assert not slow.wait(0)
    with Child(f"{READERS}:echo", {}, timeout_seconds=GENEROUS) as quick:
        assert quick.wait(GENEROUS)
        assert quick.answer().data == {}
        assert quick.answer() is quick.answer()
