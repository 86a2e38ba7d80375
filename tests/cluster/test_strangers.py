"""What is not a worker of this job, or not its chief: others, impostors, broken lines, forged signatures."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest

from hwprobe.cluster.messages import (
    SCHEMA,
    Answer,
    Envelope,
    Hello,
    Joining,
    from_line,
    new_nonce,
    seal,
    to_line,
    unseal,
)
from hwprobe.cluster.plan import Plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.errors import AgreementError, HwprobeError
from tests.cluster.group import SHORT, TIMEOUT, Group, failures, plan_of
from tests.cluster.records import a100, rtx_5090, t4


def connect(group: Group) -> socket.socket:
    """A connection to the chief as soon as it listens."""
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", group.ports[0]), timeout=TIMEOUT)
        except ConnectionRefusedError:
            threading.Event().wait(0.05)
    raise AssertionError("the chief does not listen")


def joining_line(connection: socket.socket, task: str, record: NodeRecord, count: int = 2) -> bytes:
    with connection.makefile("rb") as stream:
        hello = from_line(stream.readline(), Hello)
    joining = Joining(task=task, count=count, record=record)
    return to_line(seal(joining, role="worker", nonces=(hello.nonce, new_nonce()), secret=None))


def refusal(connection: socket.socket) -> str:
    with connection.makefile("rb") as stream:
        envelope = from_line(stream.readline(), Envelope)
    return str(json.loads(envelope.body)["refused"])


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00\xff\xfe\n",
        b"{}\n",
        b"[" * 1000 + b"\n",
        b'{"schema":"hwprobe.agree/2","body":"","nonce":"' + b"0" * 32 + b'"}\n',
        b'{"schema":"hwprobe.agree/1","body":"{}","nonce":"' + b"0" * 32 + b'"}\n',
        b'{"schema":"hwprobe.agree/1","body":"' + b"x" * 300_000 + b'"}\n',
        b"no end",
        b"",
    ],
)
def test_a_stranger_is_refused_and_the_workers_agree_all_the_same(line: bytes) -> None:
    group = Group(2)

    def stranger() -> None:
        with connect(group) as connection:
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

    chief = threading.Thread(target=lambda: results.update(group.agree({0: a100("n0")})))
    results: dict[int, Plan | HwprobeError] = {}
    chief.start()
    # What a flood sent and nobody read is answered by a reset: when it comes says which error it is.
    with suppress(OSError) if len(line) > 100_000 else nullcontext():
        stranger()
    results.update(group.agree({1: t4("n1")}))
    chief.join()
    assert plan_of(results).limited_by == "n1:worker-1"


def test_a_silent_stranger_holds_nobody_up() -> None:
    group = Group(2)
    results: dict[int, Plan | HwprobeError] = {}

    def silent() -> None:
        with connect(group):
            results.update(group.agree({1: a100("n1")}))

    results.update(group.agree({0: a100("n0")}, beside=silent))
    assert plan_of(results).agreed


def test_a_worker_that_left_may_come_again() -> None:
    group = Group(3)

    def leave() -> None:
        connection = connect(group)
        connection.sendall(joining_line(connection, "worker-1", rtx_5090("n1"), count=3))
        threading.Event().wait(0.3)
        # A reset, as a killed process leaves it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        results.update(group.agree({1: t4("n1"), 2: a100("n2")}))

    results: dict[int, Plan | HwprobeError] = {}
    results.update(group.agree({0: a100("n0")}, beside=leave))
    assert plan_of(results).dtype_policy == "mixed_float16"


def test_two_processes_cannot_be_the_same_worker() -> None:
    group = Group(3)
    said: list[str] = []

    def twice() -> None:
        with connect(group) as first, connect(group) as second:
            for connection in (first, second):
                connection.sendall(joining_line(connection, "worker-1", t4("n1"), count=3))
            said.extend(refusal(connection) for connection in (first, second))

    failures(group.agree({0: a100("n0")}, beside=twice, timeout=2))
    # Which of them the chief reads first is not said.
    assert said.count("worker-1 is here already: two processes say that they are it") == 1, said
    assert any("worker-2" in words for words in said), said


def test_a_task_that_is_not_of_this_job_is_refused() -> None:
    group = Group(2)
    said: list[str] = []

    def stranger() -> None:
        with connect(group) as connection:
            connection.sendall(joining_line(connection, "worker-7", t4("n1")))
            said.append(refusal(connection))

    assert (
        "worker-7 is not one of the 2 workers"
        in failures(group.agree({0: a100("n0")}, beside=stranger, timeout=SHORT))[0]
    )
    assert said == ["worker-7 is not one of the 2 workers of this job"]


def test_a_worker_that_leaves_before_the_plan_reaches_it_is_named_by_the_chief() -> None:
    group = Group(2)

    def half_way() -> None:
        with connect(group) as connection:
            connection.sendall(joining_line(connection, "worker-1", t4("n1")))
            with connection.makefile("rb") as stream:
                stream.readline()

    said = failures(group.agree({0: a100("n0")}, beside=half_way))
    assert "worker-1" in said[0]
    assert "left before the plan reached it" in said[0]


@contextmanager
def something_else(group: Group, answers: Sequence[bytes]) -> Iterator[None]:
    """A program on the chief's address that is not hwprobe."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", group.ports[0]))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            # The worker may have understood already, and have gone.
            with connection, suppress(OSError):
                for answer in answers:
                    connection.sendall(answer)
                connection.settimeout(TIMEOUT)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


HELLO = to_line(Hello(schema=SCHEMA, nonce="0" * 32, signed=False, seconds_left=5))


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\n"], "is not hwprobe, or another version of it"),
        ([b"220 mail.example ESMTP\r\n"], "is not hwprobe"),
        ([b'{"schema":"hwprobe.agree/9","nonce":"0","signed":false,"seconds_left":1}\n'], "another version"),
        ([], "ended the connection without an answer"),
        ([HELLO], "ended the connection without an answer"),
        ([HELLO, b"oops\n"], "is not hwprobe"),
        ([HELLO, to_line(seal(Answer(), role="chief", nonces=("", ""), secret=None))[:-1]], "cut off"),
        (
            [HELLO, to_line(seal(Answer(plan="{"), role="chief", nonces=("", "0" * 32), secret=None))],
            "not a whole JSON",
        ),
    ],
)
def test_what_is_not_the_chief_is_recognised(answers: list[bytes], says: str) -> None:
    group = Group(2)
    with something_else(group, answers):
        said = failures(group.agree({1: a100("n1")}, timeout=SHORT))
    assert says in said[1]


def test_a_plan_that_is_signed_with_another_secret_is_refused() -> None:
    group = Group(2)
    hello = to_line(Hello(schema=SCHEMA, nonce="0" * 32, signed=True, seconds_left=5))
    forged = to_line(seal(Answer(plan="{}"), role="chief", nonces=("0" * 32, "0" * 32), secret=b"guess"))
    with something_else(group, [hello, forged]):
        said = failures(group.agree({1: a100("n1")}, secrets={1: b"secret"}, timeout=SHORT))
    assert "its signature is wrong" in said[1]


def test_a_signature_covers_role_nonces_and_body() -> None:
    nonces = ("a" * 32, "b" * 32)
    envelope = seal(Answer(refused="no"), role="chief", nonces=nonces, secret=b"secret")
    assert unseal(envelope, Answer, role="chief", nonces=nonces, secret=b"secret") == Answer(refused="no")
    replayed: list[dict[str, Any]] = [
        {"role": "worker", "nonces": nonces},
        {"role": "chief", "nonces": ("c" * 32, nonces[1])},
        {"role": "chief", "nonces": (nonces[0], "c" * 32)},
    ]
    for other in replayed:
        with pytest.raises(AgreementError, match="signature is wrong"):
            unseal(envelope, Answer, secret=b"secret", **other)
    changed = Envelope(schema=SCHEMA, body=envelope.body.replace("no", "on"), nonce=nonces[1], mac=envelope.mac)
    with pytest.raises(AgreementError, match="signature is wrong"):
        unseal(changed, Answer, role="chief", nonces=nonces, secret=b"secret")
    with pytest.raises(AgreementError, match="this process has no secret"):
        unseal(envelope, Answer, role="chief", nonces=nonces, secret=None)
