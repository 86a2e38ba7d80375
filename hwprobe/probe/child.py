"""Run a reader in a process of its own, with a time limit: the one door to child processes.

A reader is a function `read(request: dict) -> dict` of plain JSON data in an importable module. Whatever becomes of its
process (no answer in time, a signal, half a line, garbage), the parent gets an `Answer`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from hwprobe.errors import InputError
from hwprobe.probe.answer import Answer
from hwprobe.probe.bootstrap import ReaderFailure
from hwprobe.serialize import from_json
from hwprobe.source import Fact, SourceStatus

__all__ = ["Answer", "Child", "ReaderFailure", "ask"]

ANSWER_LIMIT_BYTES = 16 * 2**20
STDERR_KEPT_BYTES = 8 * 2**10
LAST_WORDS_CHARACTERS = 400
_CHATTER = re.compile(
    r"\s*([IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] |WARNING: All log messages|To enable the following instructions)"
)
"""What TensorFlow logs at INFO and WARNING at every start; what it dies of is logged at ERROR or FATAL."""
LIMIT_SECONDS = 7 * 24 * 3600.0
"""The longest time limit; an infinite one is as long."""

REAP_SECONDS = 1.0
"""How long a killed child is waited for. One that sleeps inside the kernel does not die and is left behind."""


class _Line(Fact, frozen=True, kw_only=True):
    """The one line of JSON that `hwprobe.probe.bootstrap` writes."""

    status: SourceStatus
    reason: str | None = None
    code: int | None = None
    error: str | None = None
    data: dict[str, Any] | None = None


def ask(
    reader: str,
    request: Mapping[str, object],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Run one reader in a child process and wait for its answer.

    Args:
        reader: `module:function`, for instance `hwprobe.probe.nvml:read`.
        request: Plain data that the function gets as its one argument.
        timeout_seconds: When the child is killed.
        environment: The child's whole environment; None for a copy of this process's.

    Returns:
        The answer. Nothing that the child does raises here.

    Raises:
        InputError: The limit is not a positive number.
    """
    with Child(reader, request, timeout_seconds=timeout_seconds, environment=environment) as child:
        return child.answer()


class Child:
    """A reader in its own process.

    Use it as a context manager: the block starts the process, and whatever ends the block, an interrupt by the user
    included, ends the process too.

    Args:
        reader: `module:function`.
        request: Plain data that the function gets as its one argument.
        timeout_seconds: When the child is killed, counted from its start.
        environment: The child's whole environment; None for a copy of this process's.

    Raises:
        InputError: The limit is not a positive number.
    """

    def __init__(
        self,
        reader: str,
        request: Mapping[str, object],
        *,
        timeout_seconds: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if not timeout_seconds > 0:
            raise InputError(f"a time limit is a positive number of seconds, not {timeout_seconds}")
        self._limit_seconds = min(timeout_seconds, LIMIT_SECONDS)
        self._process = _Process(_program(reader, request, self._limit_seconds), environment)
        self._started = time.monotonic()
        self._answer: Answer | None = None

    def __enter__(self) -> Child:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the process, which has to be closed then."""
        self._started = time.monotonic()
        self._process.start()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long, and tell whether `answer` would return at once.

        Args:
            seconds: Zero only looks.
        """
        if self._answer is not None:
            return True
        remaining = self._started + self._limit_seconds - time.monotonic()
        return self._process.wait(min(seconds, remaining)) or seconds >= remaining

    def answer(self) -> Answer:
        """Wait for the answer, for the end of the process or for the limit, whichever comes first."""
        if self._answer is None:
            self.wait(self._limit_seconds)
            self._answer = _judge(self._process, self._started, self._limit_seconds)
        return self._answer

    def close(self) -> None:
        """End the process if it still runs."""
        self._process.kill()


def _judge(process: _Process, started: float, limit_seconds: float) -> Answer:
    outcome: dict[str, Any] = {"status": SourceStatus.FAILED}
    if not process.wait(0):
        outcome = {"status": SourceStatus.TIMEOUT, "reason": f"no answer within {limit_seconds:g} s"}
    elif process.failure is not None:
        outcome["reason"] = f"could not start a child process: {process.failure}"
    elif process.line.endswith(b"\n"):
        outcome = _read_line(process.line)
    elif len(process.line) >= ANSWER_LIMIT_BYTES:
        outcome["reason"] = f"the child process answered with more than {ANSWER_LIMIT_BYTES} bytes"
    else:
        ending = process.ending()
        process.kill()
        half = "in the middle of its answer" if process.line else "without an answer"
        outcome["reason"] = f"the child process {ending} {half}{_last_words(process.stderr_text())}"
    process.kill()
    return Answer(**outcome, seconds=(process.ended or time.monotonic()) - started, stderr=process.stderr_text())


def _last_words(text: str) -> str:
    """The last line that is more than chatter, as the tail of a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and _CHATTER.match(line) is None]
    return f"; its last words: {lines[-1][:LAST_WORDS_CHARACTERS]}" if lines else ""


def _read_line(text: bytes) -> dict[str, Any]:
    try:
        line = from_json(text, _Line, where="the child process did not answer as agreed")
    except InputError as error:
        return {"status": SourceStatus.FAILED, "reason": str(error)}
    if line.status is SourceStatus.OK and line.data is None:
        return {"status": SourceStatus.FAILED, "reason": "the child process answered ok without data"}
    return {name: getattr(line, name) for name in line.__struct_fields__}


class _Process:
    """The process, and the two threads that start it and empty its pipes.

    Python raises KeyboardInterrupt in the main thread alone: there it could come between the start of a process and the
    note of its number, and nobody would end that process.

    Attributes:
        line: What it wrote up to the first newline, its end, or more than any answer may have.
        ended: When that was there, on the monotonic clock.
        failure: Why there is no process.
    """

    def __init__(self, program: str, environment: Mapping[str, str] | None) -> None:
        self._program = program
        self._environment = environment
        self._starting = threading.Lock()
        self._unwanted = threading.Event()
        self._killed = False
        self._done = threading.Event()
        self._popen: subprocess.Popen[bytes] | None = None
        self._stderr: _TailReader | None = None
        self.line = b""
        self.ended: float | None = None
        self.failure: str | None = None

    def start(self) -> None:
        """Start it soon. Where that fails, `failure` says why."""
        try:
            threading.Thread(target=self._run, name="hwprobe-answer", daemon=True).start()
        except RuntimeError as error:
            self._fail(error)

    def wait(self, seconds: float) -> bool:
        """Wait for the line to be there or to be impossible, and tell whether that is so."""
        return self._done.wait(max(0.0, seconds))

    def kill(self) -> None:
        """End the process and whatever it started, unless that was tried or its end was seen already."""
        self._unwanted.set()
        # Whoever is starting it sees after the start that it is not wanted.
        if self._starting.acquire(timeout=REAP_SECONDS):
            try:
                self._kill()
            finally:
                self._starting.release()

    def ending(self) -> str:
        """How the process ended that closed its pipe."""
        self._reap()
        status = self._popen.returncode if self._popen is not None else None
        if status is None:
            return "closed its pipe and went on"
        if status < 0:
            return f"died by {_signal_name(-status)}"
        return f"ended with exit status {status}"

    def stderr_text(self) -> str:
        """The last that it wrote on standard error."""
        if self._popen is None or self._stderr is None:
            return ""
        return self._stderr.text(REAP_SECONDS if self._popen.returncode is not None else 0.0)

    def _run(self) -> None:
        pipe = self._launch()
        if pipe is not None:
            self._read(pipe)

    def _launch(self) -> IO[bytes] | None:
        with self._starting:
            if self._unwanted.is_set():
                return None
            try:
                self._popen = _popen(self._program, self._environment)
                self._stderr = _TailReader(self._popen.stderr)
            except (OSError, ValueError, RuntimeError) as error:
                # ValueError: a NUL in a variable or argument. RuntimeError: no thread can be started.
                self._kill()
                self._fail(error)
                return None
            if self._unwanted.is_set():
                self._kill()
            return self._popen.stdout

    def _fail(self, error: Exception) -> None:
        self.failure = str(error)
        self._done.set()

    def _read(self, pipe: IO[bytes]) -> None:
        parts = []
        length = 0
        with pipe:
            while length < ANSWER_LIMIT_BYTES and (part := os.read(pipe.fileno(), 2**16)):
                line, newline, _ = part.partition(b"\n")
                parts += [line, newline]
                length += len(line)
                if newline:
                    break
            self.line = b"".join(parts)
            self.ended = time.monotonic()
            self._done.set()

    def _kill(self) -> None:
        if self._killed or self._popen is None or self._popen.returncode is not None:
            return
        self._killed = True
        if os.name == "posix":
            # A process group that is gone, or (macOS) holds only a dead process that nobody reaped.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
        else:
            self._popen.kill()
        self._reap()

    def _reap(self) -> None:
        if self._popen is not None:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(REAP_SECONDS)


class _TailReader:
    """Reads a pipe to its end and keeps the last of it."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._tail = b""
        self._thread = threading.Thread(target=self._read, name="hwprobe-stderr", daemon=True)
        self._thread.start()

    def text(self, seconds: float) -> str:
        """What was read by the end of the pipe, or after so long: a process left behind may hold it open."""
        self._thread.join(seconds)
        text = self._tail.decode("utf-8", "replace")
        return "".join(character for character in text if character.isprintable() or character in "\n\t")

    def _read(self) -> None:
        with self._pipe:
            while part := os.read(self._pipe.fileno(), 2**16):
                self._tail = (self._tail + part)[-STDERR_KEPT_BYTES:]


def _popen(program: str, environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise OSError("this Python does not know its own executable")
    bytecode = ["-B"] if sys.dont_write_bytecode else []
    return subprocess.Popen(
        # -I and -S: no environment variable, no .pth file and no current folder has a say in how it starts.
        [sys.executable, "-I", "-S", *bytecode, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment,
        # A session of its own: it can be killed with all that it started, and Ctrl-C reaches it through us.
        start_new_session=os.name == "posix",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def _program(reader: str, request: Mapping[str, object], limit_seconds: float) -> str:
    """Write the child's program.

    It finds modules where this process finds them. `hwprobe` itself is a bare package that points to this one's folder:
    editable installs come through hooks that the child does not have, and what the package offers to users is not
    needed there.
    """
    package = str(Path(__file__).resolve().parent.parent)
    return (
        "import sys\n"
        # Python ignores entries that are no text, and so must the child.
        f"sys.path[:] = {[entry for entry in sys.path if isinstance(entry, str)]!a}\n"
        f"sys.prefix, sys.exec_prefix = {sys.prefix!a}, {sys.exec_prefix!a}\n"
        "hwprobe = type(sys)('hwprobe')\n"
        f"hwprobe.__path__ = [{package!a}]\n"
        "sys.modules['hwprobe'] = hwprobe\n"
        "from hwprobe.probe.bootstrap import serve\n"
        f"serve({reader!a}, {dict(request)!a}, {limit_seconds!a})\n"
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
