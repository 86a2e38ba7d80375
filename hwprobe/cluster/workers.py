"""Whether this process is one of several that train together, as the launcher's variables say. Nothing is imported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from hwprobe.errors import InputError
from hwprobe.source import Fact

COMPUTING = ("chief", "master", "worker")
"""Task types of `TF_CONFIG` that train together. `ps` and `evaluator` compute nothing in a training step."""

DEFAULT_TIMEOUT_SECONDS = 60.0
"""How long they wait for each other."""

_TASK_TYPE = re.compile(r"[a-z]{1,20}")
_COUNT = re.compile(r"\d{1,9}")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+):(?P<port>\d{1,5})")


class Address(Fact, frozen=True, kw_only=True):
    """Host and port of a task."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Workers(Fact, frozen=True, kw_only=True):
    """The processes that train together, and which of them this one is.

    Attributes:
        launcher: Whose variables say so: `tf_config`, `mpi` or `slurm`.
        count: How many they are.
        task: This process: `worker-1`, `rank-3`.
        addresses: Each task's address, the chief first (`tf_config` only).
        takes_part: Whether this process computes in the training step.
        evidence: The variable and what it says, for a message.
    """

    launcher: Literal["tf_config", "mpi", "slurm"]
    count: int
    task: str
    addresses: dict[str, Address] = {}
    takes_part: bool = True
    evidence: str

    @property
    def chief(self) -> str:
        """The task that the others turn to."""
        return next(iter(self.addresses), self.task)


def find_workers(environment: Mapping[str, str]) -> Workers | None:
    """Find out whether this process trains together with others.

    Args:
        environment: Usually `os.environ`.

    Returns:
        The group, or None for a process that trains alone.

    Raises:
        InputError: `TF_CONFIG` is set and cannot be read.
    """
    return _from_tf_config(environment) or _from_mpi(environment) or _from_slurm(environment)


def _from_tf_config(environment: Mapping[str, str]) -> Workers | None:
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return None
    config = _tf_config(text)
    cluster = _member(config, "cluster", dict)
    if not cluster:
        return None
    addresses = {
        f"{type_}-{index}": _address(f"cluster.{type_}[{index}]", value)
        for type_ in COMPUTING
        for index, value in enumerate(_member(cluster, type_, list, "cluster."))
    }
    type_, index = _task(_member(config, "task", dict))
    name = f"{type_}-{index}"
    everyone = sum(len(tasks) for tasks in cluster.values() if isinstance(tasks, (list, dict)))
    if everyone < 2 or (type_ in COMPUTING and len(addresses) < 2):
        return None
    if type_ in COMPUTING and name not in addresses:
        raise InputError(f"TF_CONFIG: task {name} is not in cluster, which has {', '.join(addresses) or 'no worker'}")
    return Workers(
        launcher="tf_config",
        count=len(addresses),
        task=name,
        addresses=addresses,
        takes_part=type_ in COMPUTING,
        evidence=f"TF_CONFIG names {everyone} tasks",
    )


def _task(task: dict[str, Any]) -> tuple[str, int]:
    type_, index = task.get("type", "worker"), task.get("index", 0)
    if isinstance(index, str) and _COUNT.fullmatch(index):
        # As a launcher's variable has it; TensorFlow takes it too (tfconfig_cluster_resolver.py).
        index = int(index)
    is_type = isinstance(type_, str) and _TASK_TYPE.fullmatch(type_) is not None
    if not is_type or not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise InputError(f"TF_CONFIG: task: expected a type such as worker and an index from 0, not {str(task)[:80]}")
    return type_, index


def _tf_config(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"TF_CONFIG is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InputError("TF_CONFIG: expected a JSON object with the keys cluster and task")
    return config


def _member(data: dict[str, Any], key: str, type_: type, prefix: str = "") -> Any:
    value = data.get(key) or type_()
    if not isinstance(value, type_):
        kind = "an object" if type_ is dict else "a list"
        raise InputError(f"TF_CONFIG: {prefix}{key}: expected {kind}, not {str(value)[:80]!r}")
    return value


def _address(key: str, value: Any) -> Address:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"]) < 65536:
        raise InputError(f"TF_CONFIG: {key}: expected host:port, not {str(value)[:80]!r}")
    return Address(host=match["host"].strip("[]"), port=int(match["port"]))


def _from_mpi(environment: Mapping[str, str]) -> Workers | None:
    variables = [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")]
    if not environment.get("SLURM_STEP_ID"):
        # srun sets these for programs without MPI too, and an MPI that was not built for its PMI ends the process.
        variables.append(("PMI_SIZE", "PMI_RANK"))
    for size, rank in variables:
        count = _count(environment, size)
        if count > 1:
            return Workers(
                launcher="mpi",
                count=count,
                task=f"rank-{_count(environment, rank)}",
                evidence=f"{size}={count}",
            )
    return None


def _from_slurm(environment: Mapping[str, str]) -> Workers | None:
    # Inside a step the step counts: `srun --ntasks=1` in a job of four tasks is a process that trains alone.
    variable = "SLURM_STEP_NUM_TASKS" if environment.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    count = _count(environment, variable)
    if count < 2:
        return None
    return Workers(
        launcher="slurm",
        count=count,
        task=f"rank-{_count(environment, 'SLURM_PROCID')}",
        evidence=f"{variable}={count}",
    )


def _count(environment: Mapping[str, str], variable: str) -> int:
    text = environment.get(variable, "").strip()
    return int(text) if _COUNT.fullmatch(text) else 0
