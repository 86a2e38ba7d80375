"""Which job, and which start of it, a process belongs to, as the scheduler's variables say."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Annotated

import msgspec

from hwprobe.cluster.nodeset import is_plain_name, short_host_name
from hwprobe.errors import InputError
from hwprobe.source import Fact

JOB_VARIABLES = (
    ("slurm", "SLURM_JOB_ID"),
    ("pbs", "PBS_JOBID"),
    ("lsf", "LSB_JOBID"),
    ("flux", "FLUX_JOB_ID"),
)
"""Scheduler and the variable that holds its job's id, in the order in which they are asked."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ID = re.compile(r"[\x21-\x7e]{1,128}")
_COUNT = re.compile(r"\d{1,9}")


class Job(Fact, frozen=True, kw_only=True):
    """One start of one job. A file of another job, or of an earlier start, must never count.

    Attributes:
        scheduler: `slurm`, `pbs`, `lsf`, `flux`, or `named` where HWPROBE_JOB gives the id; None outside of a job.
        id: The scheduler's own id of the job.
        step: Number of the job step; None where the scheduler has none or the process is in none.
        restart: How often the job was requeued.
    """

    scheduler: Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,20}$(?!\n)")] | None = None
    id: Annotated[str, msgspec.Meta(pattern=r"^[\x21-\x7e]{1,128}$(?!\n)")] | None = None
    step: Annotated[str, msgspec.Meta(pattern=r"^[\x21-\x7e]{1,128}$(?!\n)")] | None = None
    restart: Annotated[int, msgspec.Meta(ge=0)] = 0

    def is_same_start(self, other: Job) -> bool:
        """Whether both belong to the same start of the same job, in whatever step."""
        return (self.scheduler, self.id, self.restart) == (other.scheduler, other.id, other.restart)

    @property
    def step_number(self) -> int:
        """The step as a number, to tell a later from an earlier one; -1 outside of numbered steps."""
        return int(self.step) if self.step is not None and _COUNT.fullmatch(self.step) else -1

    @property
    def folder(self) -> str | None:
        """Name of the folder that holds this step's records; None outside of a job."""
        if self.id is None:
            return None
        parts = (self.id, self.step or "0", str(self.restart))
        return f"{self.scheduler}-" + ".".join(_UNSAFE.sub("_", part) for part in parts)

    def __str__(self) -> str:
        if self.id is None:
            return "no job"
        name = f"job {self.id}" if self.scheduler == "named" else f"{self.scheduler} job {self.id}"
        return f"{name}, restart {self.restart}" if self.restart else name


def current_job(environment: Mapping[str, str]) -> Job:
    """Read the job of this process from its environment.

    `HWPROBE_JOB` comes first: launchers without an id of their own (Kubernetes, plain mpirun) can set it.

    Args:
        environment: Usually `os.environ`.

    Raises:
        InputError: A variable holds what cannot be an id or a count.
    """
    restart = _restart(environment)
    for scheduler, variable in (("named", "HWPROBE_JOB"), *JOB_VARIABLES):
        value = environment.get(variable, "").strip()
        if not value:
            continue
        if not _ID.fullmatch(value):
            raise InputError(f"{variable}={value[:80]!r}: expected 1 to 128 printable characters without blanks")
        step = environment.get("SLURM_STEP_ID") or None
        return Job(scheduler=scheduler, id=value, step=step if scheduler == "slurm" else None, restart=restart)
    return Job()


def current_host(environment: Mapping[str, str]) -> str:
    """Name of this node, as the scheduler calls it, else as the host calls itself, without its domain.

    Args:
        environment: Usually `os.environ`. Slurm's `SLURMD_NODENAME` counts first: it is the name in its node lists.

    Raises:
        InputError: The name cannot be a node's.
    """
    name = short_host_name(environment.get("SLURMD_NODENAME") or socket.gethostname())
    if not is_plain_name(name):
        raise InputError(f"host name {name[:80]!r}: expected letters, digits, '.', '_' and '-'")
    return name


def local_task(environment: Mapping[str, str]) -> str | None:
    """Name of this task among several on its node; None for the first or only one.

    Args:
        environment: Usually `os.environ`.
    """
    value = environment.get("SLURM_LOCALID") or environment.get("OMPI_COMM_WORLD_LOCAL_RANK") or "0"
    return None if value == "0" or not _COUNT.fullmatch(value) else f"task-{value}"


def _restart(environment: Mapping[str, str]) -> int:
    value = environment.get("SLURM_RESTART_COUNT") or "0"
    if not _COUNT.fullmatch(value):
        raise InputError(f"SLURM_RESTART_COUNT={value[:80]!r}: expected a number")
    return int(value)
