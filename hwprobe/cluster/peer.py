"""A worker's side of an agreement: it finds the chief, sends its record and waits for the plan, all within bounds."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import suppress

from hwprobe.cluster.messages import (
    MAX_ANSWER_BYTES,
    Answer,
    Envelope,
    Hello,
    Joining,
    Receipt,
    from_line,
    new_nonce,
    seal,
    to_line,
    unseal,
)
from hwprobe.cluster.plan import Plan, read_plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.cluster.workers import Workers
from hwprobe.errors import AgreementError, HwprobeError, InputError

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
CONNECT_SECONDS = 5.0
HELLO_SECONDS = 10.0
GRACE_SECONDS = 5.0
"""How much longer than the chief a worker waits, so that it hears from the chief who is missing."""


async def ask_chief(workers: Workers, record: NodeRecord, secret: bytes | None, timeout_seconds: float) -> Plan:
    """Send this worker's record to the chief and wait for the plan.

    Args:
        workers: The group.
        record: This worker's record.
        secret: That all workers share; None without one.
        timeout_seconds: How long to look for the chief, and the most that it may then ask to be waited for.

    Returns:
        The plan.

    Raises:
        AgreementError: The chief does not answer, refuses, is not hwprobe, or does not know the secret.
    """
    reader, writer = await _connect(workers, timeout_seconds)
    try:
        return await _talk(workers, record, secret, timeout_seconds, reader, writer)
    except InputError as error:
        raise AgreementError(
            f"what answers at {_chief(workers)} is not hwprobe, or another version of it ({error}); "
            f"is TensorFlow started there already?"
        ) from error
    except (OSError, asyncio.TimeoutError) as error:
        raise AgreementError(f"the connection to {_chief(workers)} broke: {error}") from error
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _connect(workers: Workers, timeout_seconds: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        connection, failure = await _try_to_connect(workers, max(0.1, min(CONNECT_SECONDS, deadline - loop.time())))
        if connection is not None:
            return connection
        if loop.time() + pause >= deadline:
            raise AgreementError(f"{_chief(workers)} did not answer within {timeout_seconds:g} s: {failure}")
        # Jitter, so that thousands of workers that start together do not knock together.
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def _try_to_connect(
    workers: Workers, seconds: float
) -> tuple[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None, str]:
    address = workers.addresses[workers.chief]
    opening = asyncio.open_connection(address.host, address.port, limit=MAX_ANSWER_BYTES)
    try:
        return await asyncio.wait_for(opening, seconds), ""
    except asyncio.TimeoutError:
        return None, "no connection"
    except socket.gaierror as error:
        return None, f"its name cannot be resolved ({error.strerror})"
    except OSError as error:
        return None, error.strerror or str(error)


async def _talk(
    workers: Workers,
    record: NodeRecord,
    secret: bytes | None,
    timeout_seconds: float,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> Plan:
    hello = from_line(await _line(reader, HELLO_SECONDS, workers), Hello)
    if secret is not None and not hello.signed:
        raise AgreementError(f"{_chief(workers)} has no secret and this worker has one: give all of them the same")
    nonces = (hello.nonce, new_nonce())
    joining = Joining(task=workers.task, count=workers.count, record=record)
    writer.write(to_line(seal(joining, role="worker", nonces=nonces, secret=secret)))
    patience = min(max(hello.seconds_left, 0.0), timeout_seconds) + GRACE_SECONDS
    plan = _plan(await _line(reader, patience, workers), nonces, secret, workers)
    writer.write(to_line(seal(Receipt(digest=plan.digest), role="worker", nonces=nonces, secret=secret)))
    await asyncio.wait_for(writer.drain(), GRACE_SECONDS)
    return plan


def _plan(line: bytes, nonces: tuple[str, str], secret: bytes | None, workers: Workers) -> Plan:
    envelope = from_line(line, Envelope)
    refusal = _refusal(envelope)
    if refusal is not None:
        raise AgreementError(f"{_chief(workers)} refuses: {refusal}")
    try:
        answer = unseal(envelope, Answer, role="chief", nonces=nonces, secret=secret)
    except AgreementError as error:
        raise AgreementError(f"the answer of {_chief(workers)} is refused: {error}") from error
    if answer.plan is None:
        raise AgreementError(f"{_chief(workers)} sent no plan")
    return read_plan(answer.plan, where=f"the plan of {_chief(workers)}")


def _refusal(envelope: Envelope) -> str | None:
    """Why the chief refuses. That needs no signature: a chief cannot sign for whom it cannot understand."""
    with suppress(HwprobeError):
        return unseal(
            Envelope(schema=envelope.schema, body=envelope.body, nonce=envelope.nonce),
            Answer,
            role="chief",
            nonces=("", ""),
            secret=None,
        ).refused
    return None


async def _line(reader: asyncio.StreamReader, seconds: float, workers: Workers) -> bytes:
    try:
        line = await asyncio.wait_for(reader.readline(), seconds)
    except asyncio.TimeoutError:
        raise AgreementError(
            f"{_chief(workers)} took the connection and then said nothing for {seconds:.0f} s"
        ) from None
    except ValueError as error:
        raise AgreementError(f"{_chief(workers)} sent a line longer than any plan") from error
    if not line:
        raise AgreementError(f"{_chief(workers)} ended the connection without an answer")
    return line


def _chief(workers: Workers) -> str:
    return f"the chief {workers.chief} ({workers.addresses[workers.chief]})"
