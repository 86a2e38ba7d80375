"""The chief's side of an agreement: it listens where TensorFlow will, hears every worker, gives all the same plan."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from hwprobe.cluster.messages import (
    MAX_ASKING_BYTES,
    SCHEMA,
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
from hwprobe.cluster.plan import Plan, plan_to_json
from hwprobe.cluster.record import NodeRecord
from hwprobe.cluster.workers import Address, Workers
from hwprobe.errors import AgreementError, HwprobeError
from hwprobe.render.printable import printable

PEER_SECONDS = 10.0
"""How long one connection may take for its own messages, so that a silent one holds nobody up."""

SPARE_CONNECTIONS = 16
MAX_REFUSALS = 5

OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Merge = Callable[[Sequence[NodeRecord]], Plan]


class Chief:
    """One agreement, seen from the chief.

    Args:
        workers: The group; this process is its chief.
        record: The chief's own record.
        merge: Makes the plan of all records.
        secret: That all workers share; None without one.
        timeout_seconds: How long to wait for the others.
    """

    def __init__(
        self, workers: Workers, record: NodeRecord, merge: Merge, secret: bytes | None, timeout_seconds: float
    ) -> None:
        self._workers = workers
        self._merge = merge
        self._secret = secret
        self._timeout_seconds = timeout_seconds
        self._records: dict[str, NodeRecord] = {workers.task: record}
        self._receipts: set[str] = set()
        self._refusals: list[str] = []

    async def agree(self) -> Plan:
        """Hear every worker, and give all of them the plan.

        Raises:
            AgreementError: The port is taken, a worker did not come, or one left before it had the plan.
        """
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._timeout_seconds
        self._joined = asyncio.Event()
        self._members: set[asyncio.Task[None]] = set()
        self._answer: asyncio.Future[Answer] = loop.create_future()
        self._talks: set[asyncio.Task[None]] = set()
        server = await _listen(self._workers.addresses[self._workers.task], self._on_connection)
        try:
            plan = await self._hear_all()
            await self._deliver(plan)
        finally:
            server.close()
            await self._end_talks()
        return plan

    async def _hear_all(self) -> Plan:
        try:
            await asyncio.wait_for(self._everyone(), self._timeout_seconds)
            plan = self._merge([self._records[task] for task in self._workers.addresses])
        except asyncio.TimeoutError:
            reason = self._who_is_missing()
            self._answer.set_result(Answer(refused=reason))
            raise AgreementError(reason) from None
        except HwprobeError as error:
            self._answer.set_result(Answer(refused=str(error)))
            raise
        self._answer.set_result(Answer(plan=plan_to_json(plan)))
        return plan

    async def _everyone(self) -> None:
        while len(self._records) < self._workers.count:
            self._joined.clear()
            await self._joined.wait()

    async def _deliver(self, plan: Plan) -> None:
        if self._members:
            await asyncio.wait(self._members, timeout=PEER_SECONDS)
        silent = [task for task in self._workers.addresses if task not in self._receipts | {self._workers.task}]
        if silent and plan.agreed:
            raise AgreementError(
                f"{_named(silent, self._workers)} left before the plan reached it, so the workers do not all have it"
            )

    async def _end_talks(self) -> None:
        """Let refused workers hear why, then end every connection, so that the port is free for TensorFlow."""
        talks = set(self._talks)
        if talks:
            await asyncio.wait(talks, timeout=1.0)
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    def _who_is_missing(self) -> str:
        missing = [task for task in self._workers.addresses if task not in self._records]
        text = (
            f"{len(missing)} of {self._workers.count} workers did not come within {self._timeout_seconds:g} s: "
            f"{_named(missing, self._workers)}"
        )
        return f"{text} (refused: {'; '.join(self._refusals)})" if self._refusals else text

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)
        try:
            if len(self._talks) <= 2 * self._workers.count + SPARE_CONNECTIONS:
                await self._talk(reader, writer)
        except (OSError, asyncio.TimeoutError):
            # Whoever it was went away or fell silent; if it was a worker, it is missing or comes again.
            return
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = new_nonce()
        left = max(0.0, self._deadline - asyncio.get_running_loop().time())
        writer.write(
            to_line(Hello(schema=SCHEMA, nonce=nonce, signed=self._secret is not None, seconds_left=round(left, 1)))
        )
        try:
            envelope = from_line(await _line(reader), Envelope)
            nonces = (nonce, envelope.nonce)
            joining = unseal(envelope, Joining, role="worker", nonces=nonces, secret=self._secret)
            self._join(joining)
        except HwprobeError as error:
            # What a stranger sent may stand in the text, and the text is shown on a terminal.
            await self._refuse(printable(str(error)), writer)
            return
        talk = asyncio.current_task()
        assert talk is not None
        self._members.add(talk)
        gone = asyncio.ensure_future(reader.read(1))
        first: list[asyncio.Future[Any]] = [self._answer, gone]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not self._answer.done():
                del self._records[joining.task]
                self._members.discard(talk)
                return
            await self._give(self._answer.result(), joining.task, nonces, gone, reader, writer)
        finally:
            gone.cancel()

    def _join(self, joining: Joining) -> None:
        task, own = joining.task, self._records[self._workers.task]
        if task not in self._workers.addresses:
            raise AgreementError(f"{task} is not one of the {self._workers.count} workers of this job")
        if joining.count != self._workers.count:
            raise AgreementError(
                f"{task} knows of {joining.count} workers, the chief of {self._workers.count}: their TF_CONFIG differs"
            )
        if not joining.record.job.is_same_start(own.job):
            raise AgreementError(f"{task} belongs to {joining.record.job}, this is {own.job}")
        if task in self._records:
            raise AgreementError(f"{task} is here already: two processes say that they are it")
        self._records[task] = joining.record
        self._joined.set()

    async def _refuse(self, reason: str, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername") or ("an unknown address",)
        if len(self._refusals) < MAX_REFUSALS:
            self._refusals.append(f"{peer[0]}: {reason}")
        envelope = seal(Answer(refused=reason), role="chief", nonces=("0" * 32, "0" * 32), secret=None)
        writer.write(to_line(envelope))
        await asyncio.wait_for(writer.drain(), PEER_SECONDS)

    async def _give(
        self,
        answer: Answer,
        task: str,
        nonces: tuple[str, str],
        first_byte: asyncio.Future[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(to_line(seal(answer, role="chief", nonces=nonces, secret=self._secret)))
        await asyncio.wait_for(writer.drain(), PEER_SECONDS)
        start = await asyncio.wait_for(first_byte, PEER_SECONDS)
        if answer.plan is None or not start:
            return
        with suppress(HwprobeError):
            envelope = from_line(start + await _line(reader), Envelope)
            unseal(envelope, Receipt, role="worker", nonces=nonces, secret=self._secret)
            self._receipts.add(task)
        # The worker closes first, so that no half-closed connection stays on the port that TensorFlow needs next.
        await asyncio.wait_for(reader.read(1), PEER_SECONDS)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.readline(), PEER_SECONDS)
    except ValueError as error:
        raise AgreementError(f"its message is longer than {MAX_ASKING_BYTES // 1024} KiB") from error


async def _listen(address: Address, on_connection: OnConnection) -> asyncio.AbstractServer:
    host = address.host if _is_literal(address.host) else None
    try:
        return await _start(on_connection, host, address.port)
    except OSError as error:
        if host is None or error.errno != errno.EADDRNOTAVAIL:
            raise _cannot_listen(address, error) from error
    try:
        # The address is one that others see, behind a translation; TensorFlow listens everywhere then, too.
        return await _start(on_connection, None, address.port)
    except OSError as error:
        raise _cannot_listen(address, error) from error


async def _start(on_connection: OnConnection, host: str | None, port: int) -> asyncio.AbstractServer:
    return await asyncio.start_server(on_connection, host, port, limit=MAX_ASKING_BYTES, backlog=1024)


def _cannot_listen(address: Address, error: OSError) -> AgreementError:
    return AgreementError(
        f"the chief cannot listen on {address}, its address in TF_CONFIG: {error.strerror or error}; "
        f"is TensorFlow, or an earlier run, on that port already?"
    )


def _is_literal(host: str) -> bool:
    """Whether a host is an address. A name may mean the loopback address on its own machine (Debian's 127.0.1.1)."""
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _named(tasks: Sequence[str], workers: Workers) -> str:
    return ", ".join(f"{task} ({workers.addresses[task]})" for task in tasks)
