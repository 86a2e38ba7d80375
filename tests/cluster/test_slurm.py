"""A real Slurm of four nodes: T4 on two of them, A100 on the others, and the printed job files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hwprobe.cluster.plan import Plan, load_plan
from hwprobe.cluster.template import fill
from tests.cluster.presence import need
from tests.cluster.slurm import Finished, Slurm, why_not_here
from tests.machine import A100, RTX_5090, T4, Machine, Workshop

NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture(scope="module")
def make(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Machine]:
    """Makes machines that outlive a test."""

    def machine(*gpus: Any, **faults: Any) -> Machine:
        return Machine(tmp_path_factory.mktemp("machine"), workshop, gpus, **faults)

    return machine


@pytest.fixture(scope="module")
def machines(make: Callable[..., Machine]) -> dict[str, Machine]:
    return {node: make(T4, T4) if node in ("n1", "n2") else make(A100, A100) for node in NODES}


@pytest.fixture(scope="module")
def cluster(machines: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    need(why_not_here())
    with Slurm(tmp_path_factory.mktemp("slurm") / "cluster", NODES) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm, machines: dict[str, Machine]) -> Iterator[Slurm]:
    """The cluster with every node as it was, and its hooks idle, before and after."""
    for node, machine in machines.items():
        cluster.place(node, machine)
    yield cluster
    for hook in (cluster.prolog, cluster.task_prolog):
        cluster.hook(hook, "#!/bin/sh\nexit 0\n")
    for node in NODES:
        if cluster.node_state(node)[0] not in ("idle", "mixed", "allocated", "completing"):
            cluster.resume(node)


def submit(slurm: Slurm, folder: Path, command: str, *options: str, nodes: int = 4) -> tuple[Finished, Plan]:
    """Submit the printed template; the job's end, and its plan."""
    script = folder / "job.sh"
    script.write_text(
        fill(
            "slurm",
            {
                "nodes": str(nodes),
                "gpus": "2",
                "time": "10",
                "command": command,
                "hwprobe": str(slurm.hwprobe),
                "directory": str(folder / "records"),
            },
        )
    )
    finished = slurm.submit(script, *options)
    return finished, load_plan(folder / "records" / finished.id / "plan-0.json")


WORKER = """
import os
import hwprobe
decision = hwprobe.auto_configure(quiet=True).decision
import keras
hwprobe.auto_configure(quiet=True)
policy = keras.config.dtype_policy().name
said = f"worker {os.environ['SLURMD_NODENAME']} {policy} {decision.loss_scaling.mode} {decision.origin}"
os.write(1, f"{said}\\n".encode())
"""


def test_every_worker_of_a_mixed_job_trains_with_the_one_policy(slurm: Slurm, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    finished, plan = submit(slurm, tmp_path, f"{slurm.python} {worker}")
    assert (finished.state, finished.exit_status) == ("COMPLETED", 0), finished.output
    assert (plan.agreed, plan.dtype_policy, plan.limited_by) == (True, "mixed_float16", "n[1-2]")
    assert (plan.nodes, plan.expected, plan.job.id) == ("n[1-4]", 4, finished.id)
    assert {difference.what for difference in plan.differences} == {"gpus"}
    workers = sorted(line for line in finished.output.splitlines() if line.startswith("worker "))
    assert workers == [f"worker {node} mixed_float16 dynamic plan" for node in NODES]


def test_equal_nodes_take_what_they_prefer(slurm: Slurm, tmp_path: Path) -> None:
    finished, plan = submit(slurm, tmp_path, "true", "--nodelist=n[3-4]", nodes=2)
    assert (finished.exit_status, plan.dtype_policy, plan.nodes) == (0, "mixed_bfloat16", "n[3-4]"), finished.output


def test_a_preflight_that_fails_on_one_node_stops_the_job_and_names_it(
    slurm: Slurm, make: Callable[..., Machine], tmp_path: Path
) -> None:
    slurm.place("n2", make(RTX_5090, RTX_5090))
    finished, plan = submit(slurm, tmp_path, "echo trained", "--nodelist=n[1-2]", nodes=2)
    assert (finished.state, finished.exit_status) == ("FAILED", 1), finished.output
    assert "trained" not in finished.output
    assert not plan.agreed
    assert any(problem.startswith("n2: not ready: HWP") for problem in plan.problems), plan.problems
    assert "not agreed: slurm job" in finished.output


def test_a_node_that_sends_no_record_is_named(slurm: Slurm, tmp_path: Path) -> None:
    slurm.place("n4", None)
    finished, plan = submit(slurm, tmp_path, "echo trained", "--nodelist=n[3-4]", nodes=2)
    assert (finished.exit_status, plan.agreed, plan.missing) == (1, False, "n4"), finished.output
    assert "1 of 2 expected nodes sent no record: n4" in finished.output
    assert "trained" not in finished.output


def test_fewer_gpus_than_the_job_asked_for_are_not_ready(
    slurm: Slurm, make: Callable[..., Machine], tmp_path: Path
) -> None:
    slurm.place("n3", make(A100))
    finished, plan = submit(slurm, tmp_path, "echo trained", "--nodelist=n[3-4]", nodes=2)
    assert (finished.exit_status, plan.agreed) == (1, False), finished.output
    assert [difference.what for difference in plan.differences] == ["gpus", "gpu_count"]


def test_tasks_without_a_plan_do_not_decide_alone(slurm: Slurm) -> None:
    source = "import hwprobe; hwprobe.auto_configure()"
    done = slurm.run(["srun", "--nodes=2", "--gpus-per-node=2", str(slurm.python), "-c", source], timeout=120)
    assert done.returncode != 0
    assert done.stderr.count("AgreementError: the workers did not agree on a precision") == 2
    assert "SLURM_STEP_NUM_TASKS=2 says that this process is one of several" in done.stderr
    alone = slurm.run(["srun", "--ntasks=1", "--gpus-per-node=2", str(slurm.python), "-c", source], timeout=120)
    assert alone.returncode == 0, alone.stderr


def test_a_plan_of_another_job_is_refused(slurm: Slurm, tmp_path: Path) -> None:
    finished, plan = submit(slurm, tmp_path, "true", "--nodelist=n3", nodes=1)
    assert plan.agreed, finished.output
    path = tmp_path / "records" / finished.id / "plan-0.json"
    source = "import hwprobe; hwprobe.auto_configure()"
    done = slurm.run(
        ["srun", "--nodelist=n3", "--gpus-per-node=2", str(slurm.python), "-c", source],
        timeout=120,
        HWPROBE_PLAN=str(path),
    )
    assert done.returncode != 0
    assert f"it was made for slurm job {finished.id}, and this process belongs to slurm job" in done.stderr


def test_the_task_prolog_hands_the_plan_to_every_task(slurm: Slurm, tmp_path: Path) -> None:
    slurm.hook(slurm.task_prolog, fill("slurm-taskprolog", {"directory": str(tmp_path)}))
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n"
        f'mkdir "{tmp_path}/$SLURM_JOB_ID"; srun --ntasks=2 sh -c \'echo "before: $HWPROBE_PLAN"\'\n'
        f'echo "{{}}" > "{tmp_path}/$SLURM_JOB_ID/plan-0.json"; srun --ntasks=2 sh -c \'echo "after: $HWPROBE_PLAN"\'\n'
    )
    finished = slurm.submit(script)
    lines = sorted(finished.output.splitlines())
    assert lines == [f"after: {tmp_path}/{finished.id}/plan-0.json"] * 2 + ["before: "] * 2
    assert slurm.node_state("n1")[0] == "idle"


@pytest.fixture
def prolog(slurm: Slurm) -> Slurm:
    """The cluster with the printed prolog in force. Its log lies on each node's own disk."""
    slurm.hook(slurm.prolog, fill("slurm-prolog", {"hwprobe": str(slurm.hwprobe), "log": "/var/tmp/hwprobe.json"}))
    return slurm


def run_on(slurm: Slurm, node: str) -> tuple[int, str, str]:
    """Run a step on a node: its status, and the state of the node afterwards with its reason."""
    done = slurm.run(["srun", f"--nodelist={node}", "--gpus-per-node=2", "true"], timeout=120)
    return done.returncode, *slurm.settled_state(node)


def test_a_prolog_lets_a_healthy_node_work(prolog: Slurm) -> None:
    status, state, reason = run_on(prolog, "n3")
    assert (status, state) == (0, "idle"), reason


def test_a_prolog_drains_a_node_whose_gpus_no_job_can_use(prolog: Slurm, make: Callable[..., Machine]) -> None:
    prolog.place("n3", make(A100, A100, cu_init=802))
    status, state, reason = run_on(prolog, "n3")
    assert status != 0
    assert state.startswith("drain"), (state, reason)
    assert reason == "Prolog error"


@pytest.mark.parametrize("case", ["no code for this GPU", "fewer GPUs than asked", "no GPU", "hwprobe cannot start"])
def test_a_prolog_never_drains_a_node_for_what_is_not_its_fault(
    prolog: Slurm, make: Callable[..., Machine], case: str
) -> None:
    machines: dict[str, Callable[[], Machine | None]] = {
        "no code for this GPU": lambda: make(RTX_5090, RTX_5090),
        "fewer GPUs than asked": lambda: make(A100),
        "no GPU": lambda: make(driver=None),
        "hwprobe cannot start": lambda: None,
    }
    machine = machines[case]()
    prolog.place("n3", machine)
    status, state, reason = run_on(prolog, "n3")
    assert (status, state) == (0, "idle"), reason
