"""Which job, and which start of it, a process belongs to."""

from __future__ import annotations

import pytest

from hwprobe.cluster.job import Job, current_host, current_job, local_task
from hwprobe.errors import InputError


@pytest.mark.parametrize(
    ("environment", "job", "folder"),
    [
        ({}, Job(), None),
        ({"SLURM_JOB_ID": ""}, Job(), None),
        (
            {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "3", "SLURM_RESTART_COUNT": "2"},
            Job(scheduler="slurm", id="42", step="3", restart=2),
            "slurm-42.3.2",
        ),
        ({"SLURM_JOB_ID": "42"}, Job(scheduler="slurm", id="42"), "slurm-42.0.0"),
        ({"PBS_JOBID": "7[3].host"}, Job(scheduler="pbs", id="7[3].host"), "pbs-7_3__host.0.0"),
        ({"LSB_JOBID": "9"}, Job(scheduler="lsf", id="9"), "lsf-9.0.0"),
        (
            {"HWPROBE_JOB": "../run", "SLURM_JOB_ID": "42", "SLURM_STEP_ID": "1"},
            Job(scheduler="named", id="../run"),
            "named-___run.0.0",
        ),
    ],
)
def test_the_scheduler_names_the_job(environment: dict[str, str], job: Job, folder: str | None) -> None:
    assert current_job(environment) == job
    assert job.folder == folder


@pytest.mark.parametrize(
    "environment", [{"SLURM_JOB_ID": "4 2"}, {"HWPROBE_JOB": "x" * 129}, {"SLURM_RESTART_COUNT": "twice"}]
)
def test_what_cannot_be_an_id_or_a_count_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(InputError, match="|".join(environment)):
        current_job(environment)


def test_a_requeued_job_is_another_start_and_a_later_step_is_not() -> None:
    first = Job(scheduler="slurm", id="42", step="0")
    assert first.is_same_start(Job(scheduler="slurm", id="42", step="1"))
    assert not first.is_same_start(Job(scheduler="slurm", id="42", step="0", restart=1))
    assert not first.is_same_start(Job(scheduler="pbs", id="42"))
    assert str(Job(scheduler="slurm", id="42", restart=1)) == "slurm job 42, restart 1"


def test_slurm_names_the_node_and_the_domain_does_not_count() -> None:
    assert current_host({"SLURMD_NODENAME": "n7.cluster.example"}) == "n7"
    with pytest.raises(InputError, match="host name"):
        current_host({"SLURMD_NODENAME": "n 7"})


@pytest.mark.parametrize(
    ("environment", "task"),
    [({}, None), ({"SLURM_LOCALID": "0"}, None), ({"SLURM_LOCALID": "3"}, "task-3"), ({"SLURM_LOCALID": "x"}, None)],
)
def test_the_first_task_of_a_node_stands_for_it(environment: dict[str, str], task: str | None) -> None:
    assert local_task(environment) == task
