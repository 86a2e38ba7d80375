"""What hwprobe costs, as ratios to `import tensorflow` taken in the same run.

hwprobe is installed as its wheel. Every round runs all commands once, in turns; CPU seconds are those of the whole
process tree. The GPUs are those of a machine of the tests: the calls of NVML and CUDA are real ones, made to stand-ins
that answer at once, so a driver that wakes its GPUs slowly is not in them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Command, Cost, in_turns, installed_environment, machine_words, path_calls, spread
from benchmarks.merge import measure as measure_merge
from tests.machine import A100, Machine, Workshop, find_compiler
from tests.machine.machine import HOOK

ROUNDS = 4
REFERENCE = "`import tensorflow`"
CONFIGURE = "`auto_configure()`"
RECORDS = 10_000

BY_HAND = """
import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    print(gpu.name, tf.config.experimental.get_device_details(gpu))
"""

WITHIN = """
import gc, json, resource, time

def now():
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in usage)

start = now()
import tensorflow
imported = now()
gc.collect()
collected = now()
import hwprobe
hwprobe.auto_configure(quiet=True)
configured = now()
print(json.dumps([*(b - a for a, b in zip(start, imported)), *(b - a for a, b in zip(collected, configured))]))
"""
"""What one call adds, inside of one script: the difference of two scripts of several seconds is noise.

The import of TensorFlow leaves Python close to its next full collection of garbage, which whatever comes next would pay
for in about half of the runs. It is had out of the way first, and counted on neither side.
"""


class Goal(NamedTuple):
    """What was aimed at: at most so much of something."""

    what: str
    limit: float
    found: float

    @property
    def line(self) -> str:
        """As a row of a table."""
        return f"| {self.what} | {self.limit:g} | {self.found:.3f} | {'yes' if self.found <= self.limit else 'no'} |"


class Measured(NamedTuple):
    """One machine: its commands and what their runs cost."""

    commands: Sequence[Command]
    costs: Mapping[str, list[Cost]]

    def median(self, name: str, field: str) -> float:
        """Of the runs of a command."""
        return statistics.median(float(getattr(cost, field)) for cost in self.costs[name])

    def ratios(self, name: str, field: str) -> list[float]:
        """To the reference, round by round."""
        pairs = zip(self.costs[name], self.costs[REFERENCE], strict=True)
        return [getattr(own, field) / getattr(reference, field) for own, reference in pairs]

    def added(self) -> list[list[float]]:
        """Of each round, the wall and CPU time of `auto_configure` over those of the import before it."""
        runs = [json.loads(cost.output.splitlines()[-1]) for cost in self.costs[CONFIGURE]]
        return [[wall / import_wall, cpu / import_cpu] for import_wall, import_cpu, wall, cpu in runs]


def commands(programs: Path, environment: Mapping[str, str], *, others: bool) -> list[Command]:
    """The rows of one machine.

    Args:
        programs: Folder of an environment's programs.
        environment: Of the machine.
        others: Whether to time other tools too, which have nothing to say where there is no driver.
    """
    python, hwprobe = str(programs / "python"), str(programs / "hwprobe")
    table = [
        ("`python -c pass`", [python, "-c", "pass"]),
        ("`import hwprobe`", [python, "-c", "import hwprobe"]),
        ("`hwprobe check --fast --format json`", [hwprobe, "check", "--fast", "--format", "json"]),
        ("`hwprobe check --fast`", [hwprobe, "check", "--fast"]),
        ("`hwprobe check`", [hwprobe, "check"]),
        (REFERENCE, [python, "-c", "import tensorflow"]),
        (CONFIGURE, [python, "-c", WITHIN]),
        ("imports TensorFlow and lists the GPUs, by hand", [python, "-c", BY_HAND]),
    ]
    if others:
        tools = {"nvitop": ["-1"], "gpustat": ["--json"], "nvidia-smi": []}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        for name, arguments in tools.items():
            found = shutil.which(name, path=path)
            table.append((f"`{' '.join([name, *arguments])}`", [found, *arguments] if found else []))
    return [Command(name, words, environment) for name, words in table]


def table_lines(measured: Measured, *, trace: bool) -> Iterator[str]:
    """The table of one machine, as Markdown."""
    yield "| command | CPU / import | wall / import | CPU s | wall s | peak MiB | path calls |"
    yield "|---|---|---|---|---|---|---|"
    for command in measured.commands:
        name = command.name
        if name == CONFIGURE:
            continue
        if not command.words:
            yield f"| {name} | not installed | | | | | |"
            continue
        calls = path_calls(command) if trace else None
        yield (
            f"| {name} | {spread(measured.ratios(name, 'cpu_seconds'))} "
            f"| {spread(measured.ratios(name, 'wall_seconds'))} "
            f"| {measured.median(name, 'cpu_seconds'):.2f} | {measured.median(name, 'wall_seconds'):.2f} "
            f"| {_peak(measured.median(name, 'peak_mebibytes'))} | {'' if calls is None else calls} |"
        )
    wall, cpu = zip(*measured.added(), strict=True)
    yield f"| {CONFIGURE} after it, in the same process | {spread(cpu)} | {spread(wall)} | | | | |"


def _peak(mebibytes: float) -> str:
    # A process begins as a copy of this one, and Linux counts that too.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{mebibytes:.0f}" if mebibytes > own else f"at most {own:.0f}"


def goals(eight: Measured, none: Measured, merge_seconds: float) -> Iterator[Goal]:
    """What issues and design ask for, beside what was found."""
    fast, fast_json, check = "`hwprobe check --fast`", "`hwprobe check --fast --format json`", "`hwprobe check`"
    for where, measured in (("no GPU", none), ("8 GPUs", eight)):
        for name in (fast_json, fast):
            ratio = statistics.median(measured.ratios(name, "cpu_seconds"))
            yield Goal(f"{name}, {where}: share of the CPU time of the import", 0.03, ratio)
            yield Goal(f"{name}, {where}: wall seconds", 0.15, measured.median(name, "wall_seconds"))
        yield Goal(
            f"{check}, {where}: share of the wall time of the import",
            0.25,
            statistics.median(measured.ratios(check, "wall_seconds")),
        )
        for what, position in (("wall", 0), ("CPU", 1)):
            added = statistics.median(round_[position] for round_ in measured.added())
            yield Goal(f"{CONFIGURE}, {where}: share of the {what} time of the import", 0.01, added)
    yield Goal(f"merge of {RECORDS:,} records from one file: seconds", 1.0, merge_seconds)


def report_lines(rounds: int = ROUNDS) -> Iterator[str]:
    """The result as Markdown."""
    yield f"{machine_words()}. Medians of {rounds} rounds, least and greatest in brackets."
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = installed_environment(folder)
        workshop = Workshop(folder / "stand-ins", find_compiler())
        places = {
            "no GPU and no driver": Machine(folder / "none", workshop, driver=None, toolkit=None),
            "eight A100": Machine(folder / "eight", workshop, [A100] * 8),
        }
        measured: dict[str, Measured] = {}
        for title, machine in places.items():
            others = bool(machine.gpus)
            rows = commands(
                programs, machine.environment(TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=str(HOOK)), others=others
            )
            measured[title] = Measured(rows, in_turns(rows, rounds))
            yield f"\n### A machine with {title}\n"
            yield from table_lines(measured[title], trace=others)
        merged = measure_merge(RECORDS, folder)
    none, eight = measured.values()
    share = merged.ndjson_seconds / none.median(REFERENCE, "wall_seconds")
    yield f"\nMerging {RECORDS:,} records takes {merged.ndjson_seconds:.2f} s from one file, {share:.2f} of the import."
    yield f"From {RECORDS:,} files it takes {merged.files_seconds:.2f} s.\n"
    yield "### Goals\n"
    yield "| goal | at most | found | met |"
    yield "|---|---|---|---|"
    yield from (goal.line for goal in goals(eight, none, merged.ndjson_seconds))


def main() -> None:
    """Print the result."""
    for line in report_lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
