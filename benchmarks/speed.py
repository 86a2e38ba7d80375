"""What hwprobe costs, as ratios to `import tensorflow` taken in the same run.

Every round runs all commands once, in turns, so that a machine that slows down slows all of them down. CPU seconds
are those of the whole process tree. The GPUs are those of a machine of ours (`tests/machine`): the calls of NVML and
CUDA are real ones, made to stand-ins that answer at once, so a driver that wakes its GPUs slowly is not in them.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.machine import A100, Machine, Workshop, find_compiler

ROUNDS = 5
IMPORT = "import tensorflow"
CONFIGURE = "import tensorflow; import hwprobe; hwprobe.auto_configure(quiet=True)"
BY_HAND = "import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))"
CHECK = (sys.executable, "-m", "hwprobe", "check")


class Cost(NamedTuple):
    """What one run cost."""

    wall_seconds: float
    cpu_seconds: float
    peak_mebibytes: float


class Row(NamedTuple):
    """One command of the table."""

    name: str
    command: Sequence[str]


def rows() -> list[Row]:
    """The commands; those of other tools only where they are installed."""
    folder = Path(sys.executable).parent
    python = sys.executable
    table = [
        Row("`python -c pass`", (python, "-c", "pass")),
        Row("`import hwprobe`", (python, "-c", "import hwprobe")),
        Row("`hwprobe check --fast`", (*CHECK, "--fast")),
        Row("`hwprobe check --fast --format json`", (*CHECK, "--fast", "--format", "json")),
        Row("`hwprobe check`", CHECK),
        Row("`import tensorflow`", (python, "-c", IMPORT)),
        Row("the same and `hwprobe.auto_configure()`", (python, "-c", CONFIGURE)),
        Row("a script that imports TensorFlow and lists GPUs", (python, "-c", BY_HAND)),
    ]
    others = {"nvitop": ("-1",), "gpustat": ("--json",), "nvidia-smi": ()}
    for name, arguments in others.items():
        path = shutil.which(name, path=f"{folder}:{os.environ['PATH']}")
        if path is not None:
            table.append(Row(f"`{' '.join((name, *arguments))}`", (path, *arguments)))
    return table


def run(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Run one command and measure its process tree."""
    started = time.monotonic()
    child = subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(child.pid, 0)
    return Cost(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def path_calls(command: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Count the system calls that take a path; None where strace is missing."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.NamedTemporaryFile() as trace:
        traced = (strace, "-f", "-qq", "-e", "trace=%file", "-e", "signal=none", "-o", trace.name, *command)
        subprocess.run(traced, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return sum(1 for _ in Path(trace.name).open(errors="replace"))


def measure(environment: Mapping[str, str], rounds: int = ROUNDS) -> list[str]:
    """The table of one machine, as Markdown."""
    table = rows()
    costs: dict[str, list[Cost]] = {row.name: [] for row in table}
    for _ in range(rounds + 1):
        for row in table:
            costs[row.name].append(run(row.command, environment))
    reference = costs["`import tensorflow`"][1:]
    lines = [
        "| command | CPU / `import tensorflow` | wall / `import tensorflow` | CPU s | peak MiB | path calls |",
        "|---|---|---|---|---|---|",
    ]
    for row in table:
        own = costs[row.name][1:]  # the first round warms the caches
        cpu = [cost.cpu_seconds / other.cpu_seconds for cost, other in zip(own, reference, strict=True)]
        wall = [cost.wall_seconds / other.wall_seconds for cost, other in zip(own, reference, strict=True)]
        calls = path_calls(row.command, environment)
        lines.append(
            f"| {row.name} | {_spread(cpu)} | {_spread(wall)} | "
            f"{statistics.median(cost.cpu_seconds for cost in own):.2f} | "
            f"{max(cost.peak_mebibytes for cost in own):.0f} | {'-' if calls is None else calls} |"
        )
    return lines


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    """Print the table for eight GPUs and for none."""
    with tempfile.TemporaryDirectory() as name:
        workshop = Workshop(Path(name) / "stand-ins", find_compiler())
        machines = {
            "eight A100": Machine(Path(name) / "eight", workshop, [A100] * 8),
            "no GPU and no driver": Machine(Path(name) / "none", workshop, driver=None, toolkit=None),
        }
        for title, machine in machines.items():
            print(f"### A machine with {title}\n")
            print("\n".join(measure(machine.environment(TF_CPP_MIN_LOG_LEVEL="3"))) + "\n", flush=True)


if __name__ == "__main__":
    main()
