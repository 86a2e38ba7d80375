"""Where the time of a fast check goes: CPU milliseconds of its parts, the least of several runs of each."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.measure import NEUTRAL, installed_environment, machine_words
from tests.machine import A100, Machine, Workshop, find_compiler
from tests.machine.machine import HOOK

RUNS = 9

OWN = """
import json, time
laps = {"start of Python": time.process_time()}

def lap(name):
    laps[name] = time.process_time() - sum(laps.values())

import click
lap("import of click")
import msgspec, pathlib
lap("imports of msgspec and pathlib")
import hwprobe.cli.check
lap("imports of hwprobe: types, tables, policies, rules")
from hwprobe.policy_reader import read_policy
policy = read_policy(None)
lap("reading the policy")
from hwprobe.probe import collect
lap("imports of hwprobe: readers")
report = collect.collect(runtime=False)
lap("reading the machine and the packages, starting and hearing the children")
from hwprobe.knowledge.annotate import annotate
from hwprobe.preflight import assess
result = assess(annotate(report), policy)
lap("judging and deciding, with the tables that this needs")
from hwprobe.render.formats import write
write(result, "json")
lap("writing JSON")
write(result, "text")
lap("writing text, with the import of rich")
print(json.dumps(laps))
"""

CHILDREN = """
import json, resource, sys
from hwprobe.probe import collect
from hwprobe.probe.child import ask

def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

request = json.loads(sys.argv[1])
costs = {}
for source in (collect.NVML, collect.CUDA, collect.LIBRARIES):
    before = spent()
    answer = ask(collect.READERS[source], request if source == collect.LIBRARIES else {}, timeout_seconds=60)
    assert answer.data is not None, answer
    costs[f"child: {source}"] = spent() - before
print(json.dumps(costs))
"""

SONAMES = ["libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11"]
SONAMES += ["libcusparse.so.12", "libcudnn.so.9"]


def least(program: Path, source: str, environment: Mapping[str, str], *arguments: str) -> dict[str, float]:
    """Run a script several times that prints seconds by name, and take the least of each."""
    found: dict[str, float] = {}
    for _ in range(RUNS):
        done = subprocess.run(
            [str(program), "-c", source, *arguments],
            env=dict(environment),
            cwd=NEUTRAL,
            capture_output=True,
            text=True,
            check=True,
        )
        for name, seconds in json.loads(done.stdout).items():
            found[name] = min(seconds, found.get(name, seconds))
    return found


def report_lines() -> Iterator[str]:
    """The result as Markdown."""
    yield f"{machine_words()}. CPU milliseconds, each the least of {RUNS} runs."
    yield ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = installed_environment(folder) / "python"
        workshop = Workshop(folder / "stand-ins", find_compiler())
        none = Machine(folder / "none", workshop, driver=None, toolkit=None).environment(PYTHONPATH=str(HOOK))
        eight = Machine(folder / "eight", workshop, [A100] * 8).environment(PYTHONPATH=str(HOOK))
        own = {"none": least(program, OWN, none), "eight": least(program, OWN, eight)}
        children = least(program, CHILDREN, eight, json.dumps({"sonames": SONAMES, "search_paths": []}))
    yield "| part | no GPU | eight GPUs |"
    yield "|---|---|---|"
    for part, seconds in own["none"].items():
        yield f"| {part} | {seconds * 1000:.1f} | {own['eight'][part] * 1000:.1f} |"
    for part, seconds in children.items():
        yield f"| {part} | not started | {seconds * 1000:.1f} |"


def main() -> None:
    """Print the result."""
    print("\n".join(report_lines()))


if __name__ == "__main__":
    main()
