"""One policy for processes that train together and have no plan: they agree, or nothing is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import msgspec

from hwprobe.cluster.merge import merge
from hwprobe.cluster.messages import read_secret
from hwprobe.cluster.plan import Plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.cluster.workers import DEFAULT_TIMEOUT_SECONDS, Workers, find_workers
from hwprobe.errors import AgreementError, InputError

HOW_TO_PLAN = (
    "Make one plan for all nodes: run `hwprobe check --record DIR` once on every node, then "
    "`hwprobe plan DIR --expect NODES -o plan.json`, and set HWPROBE_PLAN=plan.json (or plan=, or --plan) for every "
    "worker; `hwprobe template slurm`, `kubernetes-job` and `mpi` print job files that do so"
)

_MAX_WORKERS = 4000
"""One process holds a connection to each; above, a plan made beforehand costs less and says more."""


def agree(
    record: NodeRecord,
    environment: Mapping[str, str],
    *,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    secret: bytes | None = None,
) -> Plan:
    """Agree with all processes that train together on one plan.

    With `TF_CONFIG` it goes through the chief's own address, which TensorFlow takes afterwards: call it before
    TensorFlow's strategy is made. Under MPI it goes through mpi4py. It is bounded, and names who is missing.

    Args:
        record: What this process can use, and wants.
        environment: Usually `os.environ`.
        timeout_seconds: How long to wait for the others.
        secret: That all workers share; None reads `HWPROBE_SECRET` or `HWPROBE_SECRET_FILE`.

    Returns:
        The same plan in every process; it may be negative, which `check_plan` refuses.

    Raises:
        AgreementError: They cannot be asked, somebody is missing or refused, or there is no way to agree here; the
            text says how to make a plan.
        InputError: `TF_CONFIG` or the secret cannot be read.
    """
    workers = find_workers(environment)
    if workers is None:
        raise InputError("nothing in the environment says that this process trains together with others")
    secret = secret if secret is not None else read_secret(environment)
    own = msgspec.structs.replace(record, task=workers.task)
    refuse_impossible(workers)
    try:
        return _agree(workers, own, secret, timeout_seconds)
    except AgreementError as error:
        raise _failure(error) from error


def refuse_impossible(workers: Workers) -> None:
    """Raise where these workers have no way to agree, before anything is tried.

    Args:
        workers: The group.

    Raises:
        AgreementError: With the reason, and how to make a plan.
    """
    reason = _why_impossible(workers)
    if reason is not None:
        raise _failure(reason)


def _why_impossible(workers: Workers) -> str | None:
    if not workers.takes_part:
        return f"{workers.task} does not compute in the training step, so the workers do not wait for it"
    if workers.launcher == "slurm":
        return (
            f"{workers.evidence} says that this process is one of several, and there is no address to meet at "
            f"(no TF_CONFIG); a process that trains alone is started with `srun --ntasks=1`"
        )
    if workers.launcher == "mpi" and find_spec("mpi4py") is None:
        return f"{workers.evidence} says that this process is one of several, and mpi4py is not installed to ask them"
    if workers.launcher == "tf_config" and workers.count > _MAX_WORKERS:
        return f"{workers.count} workers are too many to agree through one of them"
    return None


def _failure(reason: str | AgreementError) -> AgreementError:
    return AgreementError(f"the workers did not agree on a precision, and nothing was applied: {reason}. {HOW_TO_PLAN}")


def _agree(workers: Workers, record: NodeRecord, secret: bytes | None, timeout_seconds: float) -> Plan:
    if workers.launcher == "mpi":
        from hwprobe.cluster.mpi import agree_over_mpi

        return agree_over_mpi(record, _merge, timeout_seconds)
    from hwprobe.cluster.chief import Chief
    from hwprobe.cluster.peer import ask_chief

    if workers.task == workers.chief:
        return _run(Chief(workers, record, _merge, secret, timeout_seconds).agree())
    return _run(ask_chief(workers, record, secret, timeout_seconds))


def _merge(records: Sequence[NodeRecord]) -> Plan:
    return merge(records)


def _run(coroutine: Coroutine[Any, Any, Plan]) -> Plan:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # A notebook's kernel runs a loop in this very thread already, and loops do not nest.
    with ThreadPoolExecutor(max_workers=1) as other_thread:
        return other_thread.submit(asyncio.run, coroutine).result()
