"""Four ranks under Open MPI agree through mpi4py, and the printed script runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hwprobe.cluster.plan import load_plan
from hwprobe.cluster.template import fill
from tests.cluster.presence import need

LIMIT_SECONDS = 120

RANK = """
import os, sys, time
from hwprobe.cluster.agreement import agree
from hwprobe.errors import AgreementError
from tests.cluster.records import a100, t4
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
if rank in {absent}:
    {instead}
record = t4("n1") if rank == 2 else a100("n1")
try:
    plan = agree(record, os.environ, timeout_seconds={limit})
    said = f"{{plan.dtype_policy}} limited by {{plan.limited_by}} {{plan.digest}}"
except AgreementError as error:
    said = str(error)
# One write: mpirun mixes what the ranks write.
os.write(1, f"rank {{rank}}: {{said}}\\n".encode())
if "limited" not in said:
    from mpi4py import MPI
    MPI.COMM_WORLD.Abort(1)
"""


def why_not_here() -> str | None:
    if shutil.which("mpirun") is None:
        return "not installed: mpirun (Debian: openmpi-bin)"
    return None if importlib.util.find_spec("mpi4py") is not None else "not installed: mpi4py"


@pytest.fixture(autouse=True)
def open_mpi() -> None:
    need(why_not_here())


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run something that calls mpirun, alone on this host, and kill it and its ranks at the limit."""
    root = Path(__file__).parents[2]
    own = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_btl": "self,vader",
        "OMPI_MCA_oob": "tcp",
        "OMPI_MCA_oob_tcp_if_include": "lo",
        "PYTHONPATH": str(root),
        "TMPDIR": "/tmp",
    }
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "OMPI", "PMI", "HWPROBE"))
    }
    with subprocess.Popen(
        command,
        cwd=folder,
        env=kept | own | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=LIMIT_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def ranks(folder: Path, *, absent: tuple[int, ...] = (), instead: str = "pass", limit: int = 100) -> list[str]:
    script = folder / "rank.py"
    script.write_text(RANK.format(absent=absent or "()", instead=instead, limit=limit))
    done = run(["mpirun", "-np", "4", sys.executable, str(script)], folder)
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    return said or [done.stderr]


def test_four_ranks_get_the_same_plan(tmp_path: Path) -> None:
    said = ranks(tmp_path)
    assert len(said) == 4
    assert len({line.split(": ", 1)[1] for line in said}) == 1
    assert "mixed_float16 limited by n1:rank-2 sha256:" in said[0]


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    # The three others have to start MPI within the limit, on a machine that may be busy.
    said = ranks(tmp_path, absent=(3,), instead="from mpi4py import MPI; time.sleep(100)", limit=15)
    assert any("1 of 4 ranks did not come within 15 s: rank 3" in line for line in said), said


def test_a_rank_that_does_not_start_mpi_ends_the_job_in_time(tmp_path: Path) -> None:
    said = ranks(tmp_path, absent=(3,), instead="time.sleep(100)", limit=2)
    assert "Timeout (0:00:02)!" in said[0]
    assert "_start_mpi" in said[0]


def test_the_printed_script_checks_plans_and_trains(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, hwprobe\n"
        "decision = hwprobe.auto_configure(quiet=True).decision\n"
        "said = f\"rank {os.environ['OMPI_COMM_WORLD_RANK']} {decision.dtype_policy} {decision.origin}\"\n"
        "os.write(1, f'{said}\\n'.encode())\n"
    )
    command = f"{sys.executable} {worker}"
    script = tmp_path / "job.sh"
    script.write_text(
        fill("mpi", {"nodes": "1", "ranks": "2", "command": command, "hwprobe": f"{sys.executable} -m hwprobe"})
    )
    done = run(["bash", str(script)], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "hwprobe-records").glob("*/plan.json")
    plan = load_plan(path)
    assert (plan.agreed, plan.node_count, plan.job.scheduler) == (True, 1, "named")
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert said == [f"rank {rank} {plan.dtype_policy} plan" for rank in (0, 1)]
