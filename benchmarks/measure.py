"""Runs commands in turns and measures each: wall time, CPU time of the process tree, memory, path system calls."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hwprobe.probe.distributions import installed
from hwprobe.probe.host import collect_host

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 300
NEUTRAL = os.sep
"""Where commands run: Python would import this tree from the folder that holds it."""


class Command(NamedTuple):
    """One row of a table.

    Attributes:
        name: As the table shows it.
        words: Program and arguments; empty where the program is not installed.
        environment: The whole environment of the process.
    """

    name: str
    words: Sequence[str]
    environment: Mapping[str, str]


class Cost(NamedTuple):
    """What one run cost. The memory is that of the largest process of the tree."""

    wall_seconds: float
    cpu_seconds: float
    peak_mebibytes: float
    output: str


def run(command: Command) -> Cost:
    """Run a command and measure its process tree.

    Raises:
        RuntimeError: It ended with a status that no check of a healthy machine has.
    """
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        child = subprocess.Popen(
            command.words,
            env=dict(command.environment),
            cwd=NEUTRAL,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        limit = threading.Timer(LIMIT_SECONDS, os.killpg, (child.pid, signal.SIGKILL))
        limit.start()
        try:
            # The usage of a process that was waited for holds that of all that it waited for itself.
            _, status, usage = os.wait4(child.pid, 0)
        finally:
            limit.cancel()
        seconds = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode != 0:
        raise RuntimeError(f"{command.name} ended with status {child.returncode}: {text[-500:]}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def in_turns(commands: Sequence[Command], rounds: int) -> dict[str, list[Cost]]:
    """Run every command once a round, so that a machine that slows down slows all of them down.

    One round before those that count warms the caches.
    """
    runnable = [command for command in commands if command.words]
    costs: dict[str, list[Cost]] = {command.name: [] for command in runnable}
    for number in range(rounds + 1):
        for command in runnable:
            cost = run(command)
            if number:
                costs[command.name].append(cost)
    return costs


def path_calls(command: Command) -> int | None:
    """Count the system calls of the process tree that take a path; None where strace is missing."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.NamedTemporaryFile() as trace:
        traced = (strace, "-f", "-qq", "-e", "trace=%file", "-e", "signal=none", "-o", trace.name, *command.words)
        subprocess.run(
            traced,
            env=dict(command.environment),
            cwd=NEUTRAL,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        with Path(trace.name).open(errors="replace") as lines:
            return sum(1 for _ in lines)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median, and least to greatest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def installed_environment(folder: Path) -> Path:
    """Make an environment into which this tree is installed as its wheel, and everything else is borrowed.

    An editable install loads a module finder with pathlib and more into every Python process, which nobody who
    installs the wheel pays for.

    Returns:
        The folder of its programs.
    """
    source = folder / "source"
    unneeded = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests", "benchmarks", "docs")
    shutil.copytree(ROOT, source, ignore=unneeded)
    place = folder / "environment"
    venv.create(place, symlinks=True)
    borrowed = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    (site,) = place.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text("".join(f"{each}\n" for each in borrowed))
    program = place / "bin" / "python"
    install = [str(program), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    # The tree's own editable install is among what is borrowed, and must stay there.
    done = subprocess.run(
        [*install, "--ignore-installed", str(source)], capture_output=True, text=True, cwd=folder, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"this tree cannot be installed: {done.stdout}{done.stderr}")
    return place / "bin"


def machine_words() -> str:
    """Name the processor, its cores and the versions, and say how busy it is."""
    host, _ = collect_host()
    cores = len(os.sched_getaffinity(0))
    versions = ", ".join(f"{each.name} {each.version}" for each in installed(sys.path) if each.name == "tensorflow")
    return (
        f"{cores} cores of {host.cpu_model or platform.machine()}, Linux {host.kernel}, "
        f"Python {platform.python_version()}, {versions}; load average {os.getloadavg()[0]:.1f} at the start"
    )
