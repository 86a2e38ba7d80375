"""Readers that end in every way that a process can end. They run in a child process; see test_child.py."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from hwprobe.probe.bootstrap import ReaderFailure

Request = dict[str, object]


def echo(request: Request) -> Request:
    return request


def surroundings(request: Request) -> Request:
    return {"environment": dict(os.environ), "path": sys.path, "prefix": sys.prefix, "folder": str(Path.cwd())}


def modules(request: Request) -> Request:
    return {"modules": sorted(sys.modules)}


def talk(request: Request) -> Request:
    print("a library prints this")
    os.write(1, b"and that\n")
    os.write(2, b"\x1b[31mred\x1b[0m\n")
    return {"said": True}


def absent(request: Request) -> Request:
    raise ReaderFailure("absent", "no such library", code=12, error="LIBRARY_NOT_FOUND", data={"tried": "libx.so"})


def fail(request: Request) -> Request:
    raise ReaderFailure("failed", "it is broken")


def mistake(request: Request) -> Request:
    return {"value": request["missing"]}


def not_plain(request: Request) -> Request:
    return {"value": float(str(request["number"]))} if "number" in request else {"value": object()}


def nonsense(request: Request) -> Request:
    return {"devices": "many"}


def abort(request: Request) -> Request:
    os.abort()


def leave(request: Request) -> Request:
    os.write(2, b"could not map memory\n")
    os._exit(int(str(request["status"])))


def log_and_abort(request: Request) -> Request:
    """Ends as TensorFlow does where the driver aborts: after what it logs at every start."""
    if "said" in request:
        os.write(2, f"{request['said']}\n".encode())
    os.write(2, b"I0000 00:00:1796083102.1  16662 cpu_feature_guard.cc:227] This TensorFlow binary is optimized\n")
    os.write(2, b"To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow\n")
    os.abort()


def die(request: Request) -> Request:
    os.kill(os.getpid(), int(str(request["signal"])))
    return {}


def hang(request: Request) -> Request:
    if "file" in request:
        Path(str(request["file"])).write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def hang_with_grandchild(request: Request) -> Request:
    grandchild = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
    Path(str(request["file"])).write_text(str(grandchild.pid))
    return hang({})


def leave_grandchild(request: Request) -> Request:
    """Answers, while another process keeps both standard streams open."""
    grandchild = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
    return {"process": grandchild.pid}


def flood(request: Request) -> Request:
    line = b"x" * 1023 + b"\n"
    for _ in range(64 * 1024):
        os.write(2, line)
    return {"done": True}


def half_line(request: Request) -> Request:
    os.write(_private(), b'{"status":"ok","data":{"gp')
    os._exit(0)


def close_and_go_on(request: Request) -> Request:
    os.close(_private())
    return hang({})


def raw(request: Request) -> Request:
    os.write(_private(), str(request["line"]).encode() + b"\n")
    os._exit(0)


def endless_line(request: Request) -> Request:
    private = _private()
    while True:
        os.write(private, b"x" * 2**16)


def _private() -> int:
    """The descriptor of the answer: the one pipe beside the standard streams."""
    pipes = [number for number in range(3, 10) if _is_pipe(number)]
    assert len(pipes) == 1
    return pipes[0]


def _is_pipe(number: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(number).st_mode)
    except OSError:
        return False
