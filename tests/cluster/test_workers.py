"""Whether a process trains together with others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hwprobe.cluster.workers import Address, Workers, find_workers
from hwprobe.errors import InputError


def tf_config(cluster: Any, type_: str = "worker", index: Any = 0) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": type_, "index": index}})}


TWO = {"worker": ["n1:2222", "n2:2222"]}


def found(environment: dict[str, str]) -> Workers:
    workers = find_workers(environment)
    assert workers is not None
    return workers


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{}"},
        {"TF_CONFIG": '{"cluster": {}}'},
        tf_config({"worker": ["n1:2222"]}),
        tf_config({"chief": ["n1:2222"]}, "chief"),
        tf_config({"worker": ["n1:2222"], "ps": ["n2:2222"]}),
        {"SLURM_NTASKS": "1"},
        {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": "0"},
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {"PMI_SIZE": "many"},
    ],
)
def test_a_process_that_trains_alone(environment: dict[str, str]) -> None:
    assert find_workers(environment) is None


def test_the_workers_of_tf_config() -> None:
    workers = found(tf_config(TWO, index=1))
    assert (workers.launcher, workers.count, workers.task, workers.chief) == ("tf_config", 2, "worker-1", "worker-0")
    assert workers.addresses["worker-1"] == Address(host="n2", port=2222)


def test_an_index_may_be_text_as_a_launchers_variable_is() -> None:
    assert found(tf_config(TWO, index="1")).task == "worker-1"


def test_the_chief_comes_first_where_there_is_one() -> None:
    workers = found(tf_config({**TWO, "chief": ["[fe80::1]:1"], "ps": ["p:1"], "evaluator": ["e:1"]}, "worker", 1))
    assert (workers.chief, workers.count) == ("chief-0", 3)
    assert str(workers.addresses["chief-0"]) == "[fe80::1]:1"


@pytest.mark.parametrize("type_", ["ps", "evaluator"])
def test_a_task_that_does_not_compute_takes_no_part(type_: str) -> None:
    assert not found(tf_config({**TWO, type_: ["p:1"]}, type_)).takes_part


@pytest.mark.parametrize(
    ("environment", "launcher", "count", "task"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "3"}, "slurm", 4, "rank-3"),
        ({"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, "slurm", 2, "rank-1"),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2", "SLURM_NTASKS": "4"}, "mpi", 4, "rank-2"),
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, "mpi", 3, "rank-0"),
        ({"PMI_SIZE": "3", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3", "SLURM_PROCID": "2"}, "slurm", 3, "rank-2"),
        ({**tf_config(TWO), "SLURM_NTASKS": "2", "OMPI_COMM_WORLD_SIZE": "2"}, "tf_config", 2, "worker-0"),
    ],
)
def test_the_launcher_is_found(environment: dict[str, str], launcher: str, count: int, task: str) -> None:
    workers = found(environment)
    assert (workers.launcher, workers.count, workers.task) == (launcher, count, task)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a JSON object"),
        ('{"cluster": ["n1:1"]}', "cluster: expected an object"),
        ('{"cluster": {"worker": "n1:1"}}', "cluster.worker: expected a list"),
        ('{"cluster": {"worker": ["n1", "n2"]}}', r"cluster.worker\[0\]: expected host:port, not 'n1'"),
        ('{"cluster": {"worker": ["n1:1", "n2:70000"]}}', r"cluster.worker\[1\]: expected host:port"),
        ('{"cluster": {"worker": ["n1:1", 7]}}', r"cluster.worker\[1\]: expected host:port"),
        (tf_config(TWO, index=2)["TF_CONFIG"], "task worker-2 is not in cluster"),
        (tf_config(TWO, index="one")["TF_CONFIG"], "task: expected a type"),
        (tf_config(TWO, index=True)["TF_CONFIG"], "task: expected a type"),
        (tf_config(TWO, index=-1)["TF_CONFIG"], "task: expected a type"),
        (tf_config(TWO, type_="Wörker")["TF_CONFIG"], "task: expected a type"),
    ],
)
def test_a_tf_config_that_cannot_be_read_is_named_with_its_key(text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"TF_CONFIG.*{says}"):
        find_workers({"TF_CONFIG": text})
