"""How long a plan of many nodes takes, and what it keeps in memory.

Records are read from one file each, as `hwprobe check --record` writes them for a large job (64 sub-folders), and from
one NDJSON file. The merge alone is given beside them: it counts equal nodes together, so what it keeps is the names of
the nodes and not their records. The time is also given in that of a bare `python -c pass`, taken in the same run.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hwprobe.cluster.job import Job
from hwprobe.cluster.merge import merge
from hwprobe.cluster.plan import Plan, plan_to_json
from hwprobe.cluster.record import GpuKind, NodeRecord, PolicyUse, Versions, Wishes
from hwprobe.cluster.record_files import read_records, record_path
from hwprobe.configuration import LossScaling, Usable
from hwprobe.serialize import to_json

SIZES = (100, 1_000, 10_000)
REPEATS = 5
JOB = Job(scheduler="slurm", id="42", step="0")


class Measured(NamedTuple):
    """One size."""

    nodes: int
    merge_seconds: float
    ndjson_seconds: float
    files_seconds: float
    peak_mib: float
    plan_kib: float


def node(number: int) -> NodeRecord:
    """One of a cluster of A100 in which every thousandth node, beginning with the eighth, has a T4."""
    old = number % 1000 == 7
    label = "Tesla T4 (7.5)" if old else "NVIDIA A100-SXM4-80GB (8.0)"
    yes = Usable(usable=True, reason="Tensor Cores for bfloat16")
    no = Usable(usable=False, reason=f"{label}: no bfloat16 in its Tensor Cores (compute capability 7.5; it needs 8.0)")
    return NodeRecord(
        host=f"node{number:05}",
        job=JOB,
        policies=PolicyUse(mixed_bfloat16=no if old else yes, mixed_float16=yes, float32=yes),
        gpus=(GpuKind(label=label, count=8),),
        driver="570.124.06",
        versions=Versions(hwprobe="0.1.0", python="3.11.7", tensorflow="2.21.0", keras="3.15.1"),
        wishes=Wishes(
            prefer=("mixed_bfloat16", "mixed_float16", "float32"),
            loss_scaling={
                "mixed_bfloat16": LossScaling.none(),
                "mixed_float16": LossScaling.dynamic(),
                "float32": LossScaling.none(),
            },
        ),
    )


def measure(nodes: int, folder: Path) -> Measured:
    """Write the records of a job and merge them, `REPEATS` times; the least time counts."""
    records = [node(number) for number in range(nodes)]
    files, ndjson = folder / f"files-{nodes}", folder / f"{nodes}.ndjson"
    _write(records, files, ndjson)
    expect = f"node[00000-{nodes - 1:05}]"
    plan, peak_mib = _peak(lambda: merge(map(node, range(nodes)), expect=expect))
    return Measured(
        nodes,
        merge_seconds=_least(lambda: merge(records, expect=expect)),
        ndjson_seconds=_least(lambda: merge(read_records([ndjson]), expect=expect)),
        files_seconds=_least(lambda: merge(read_records([files]), expect=expect)),
        peak_mib=peak_mib,
        plan_kib=len(plan_to_json(plan)) / 2**10,
    )


def _write(records: Iterable[NodeRecord], files: Path, ndjson: Path) -> None:
    lines = []
    for record in records:
        line = to_json(record) + "\n"
        path = record_path(files, record, nodes=10_000)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line)
        lines.append(line)
    ndjson.write_text("".join(lines))


def _least(merging: Callable[[], Plan]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        plan = merging()
        seconds.append(time.perf_counter() - start)
        assert plan.agreed
    return min(seconds)


def _peak(merging: Callable[[], Plan]) -> tuple[Plan, float]:
    tracemalloc.start()
    plan = merging()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return plan, peak / 2**20


def _bare_python_seconds() -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def report_lines() -> Iterator[str]:
    """The result as Markdown."""
    bare = _bare_python_seconds()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(nodes, Path(folder)) for nodes in SIZES]
    yield "| nodes | merge s | from NDJSON s | from files s | files / `python -c pass` | peak MiB | plan KiB |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.nodes:,} | {row.merge_seconds:.3f} | {row.ndjson_seconds:.3f} | {row.files_seconds:.3f} "
            f"| {row.files_seconds / bare:.1f} | {row.peak_mib:.2f} | {row.plan_kib:.0f} |"
        )
    yield ""
    yield (
        f"Least of {REPEATS}. Peak: what Python allocated during the merge, records included as they stream by. "
        f"Whole process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB."
    )


def main() -> None:
    """Print the result."""
    print("\n".join(report_lines()))


if __name__ == "__main__":
    main()
