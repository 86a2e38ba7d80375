"""An agreement between the ranks of an MPI job, through mpi4py: JSON as bytes, bounded, the missing ranks named."""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from hwprobe.cluster.messages import MAX_ANSWER_BYTES, MAX_ASKING_BYTES, Answer
from hwprobe.cluster.plan import Plan, plan_to_json, read_plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.errors import AgreementError, HwprobeError
from hwprobe.serialize import from_json, to_json

TAG_RECORD, TAG_ANSWER = 23_170, 23_171
"""Tags that no other user of the world communicator is likely to take; MPI guarantees tags up to 32,767."""

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.002


def agree_over_mpi(record: NodeRecord, merge: Callable[[Sequence[NodeRecord]], Plan], timeout_seconds: float) -> Plan:
    """Send every rank's record to rank 0, and its plan to every rank.

    MPI is started where it is not running yet, which waits for all ranks. Where one does not start it in time, this
    process ends: nothing can be raised out of MPI's own start.

    Args:
        record: This rank's record.
        merge: Makes the plan of all records, on rank 0.
        timeout_seconds: How long to wait for the others.

    Raises:
        AgreementError: mpi4py cannot be loaded, or a rank did not come in time.
    """
    mpi = _start_mpi(timeout_seconds)
    world = mpi.COMM_WORLD
    deadline = time.monotonic() + timeout_seconds
    if world.Get_rank() == 0:
        return _gather(mpi, world, record, merge, deadline, timeout_seconds)
    _wait(mpi, [world.Isend([to_json(record).encode(), mpi.BYTE], dest=0, tag=TAG_RECORD)], deadline + GRACE_SECONDS)
    text = _receive(mpi, world, 0, TAG_ANSWER, MAX_ANSWER_BYTES, deadline + GRACE_SECONDS)
    if text is None:
        raise AgreementError(f"rank 0 did not answer within {timeout_seconds + GRACE_SECONDS:g} s")
    answer = from_json(text[1], Answer, where="the answer of rank 0")
    if answer.plan is None:
        raise AgreementError(f"rank 0 refuses: {answer.refused}")
    return read_plan(answer.plan, where="the plan of rank 0")


def _start_mpi(timeout_seconds: float) -> Any:
    if "mpi4py.MPI" in sys.modules:
        return sys.modules["mpi4py.MPI"]
    # The import starts MPI, which waits for every rank inside C and holds Python's lock: only a watchdog outside of
    # Python can end that. It prints where the process stood and ends it, on which mpirun ends the other ranks.
    faulthandler.dump_traceback_later(timeout_seconds, exit=True, file=2)
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise AgreementError(f"mpi4py is installed and cannot be loaded: {error}") from error
    finally:
        faulthandler.cancel_dump_traceback_later()
    return MPI


def _gather(
    mpi: Any,
    world: Any,
    record: NodeRecord,
    merge: Callable[[Sequence[NodeRecord]], Plan],
    deadline: float,
    timeout_seconds: float,
) -> Plan:
    records = {0: record}
    try:
        while len(records) < world.Get_size():
            came = _receive(mpi, world, mpi.ANY_SOURCE, TAG_RECORD, MAX_ASKING_BYTES, deadline)
            if came is None:
                missing = [f"rank {rank}" for rank in range(world.Get_size()) if rank not in records]
                raise AgreementError(
                    f"{len(missing)} of {world.Get_size()} ranks did not come within {timeout_seconds:g} s: "
                    f"{', '.join(missing)}"
                )
            records[came[0]] = from_json(came[1], NodeRecord, where=f"the record of rank {came[0]}")
        plan = merge([records[rank] for rank in sorted(records)])
    except HwprobeError as error:
        _tell(mpi, world, records, Answer(refused=str(error)))
        raise
    _tell(mpi, world, records, Answer(plan=plan_to_json(plan)))
    return plan


def _tell(mpi: Any, world: Any, records: dict[int, NodeRecord], answer: Answer) -> None:
    text = to_json(answer).encode()
    sending = [world.Isend([text, mpi.BYTE], dest=rank, tag=TAG_ANSWER) for rank in records if rank != 0]
    if not _wait(mpi, sending, time.monotonic() + GRACE_SECONDS) and answer.plan is not None:
        raise AgreementError("a rank left before the plan reached it, so the ranks do not all have it")


def _receive(
    mpi: Any, world: Any, source: int, tag: int, limit_bytes: int, deadline: float
) -> tuple[int, bytes] | None:
    status = mpi.Status()
    while (message := world.Improbe(source=source, tag=tag, status=status)) is None:
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)
    size = status.Get_count(mpi.BYTE)
    buffer = bytearray(size)
    message.Recv([buffer, mpi.BYTE])
    if size > limit_bytes:
        raise AgreementError(f"rank {status.Get_source()} sent {size:,} bytes, more than any message here")
    return status.Get_source(), bytes(buffer)


def _wait(mpi: Any, requests: list[Any], deadline: float) -> bool:
    while not mpi.Request.Testall(requests):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
