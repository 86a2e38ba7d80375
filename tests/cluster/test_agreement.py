"""Workers without a plan agree over the chief's address, or nothing is applied."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest

from hwprobe.cluster import agreement
from hwprobe.cluster.agreement import agree
from hwprobe.cluster.messages import (
    SCHEMA,
    Answer,
    Envelope,
    Hello,
    Joining,
    from_line,
    new_nonce,
    read_secret,
    seal,
    to_line,
    unseal,
)
from hwprobe.cluster.plan import Plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.errors import AgreementError, HwprobeError, InputError
from tests.cluster.records import a100, job, rtx_5090, t4

TIMEOUT = 20.0
SHORT = 2.0


class Group:
    """Workers on loopback; each agrees in a thread of its own."""

    def __init__(self, count: int, host: str = "127.0.0.1") -> None:
        self.ports = free_ports(count)
        self.addresses = [f"{host}:{port}" for port in self.ports]

    def environment(self, index: int) -> dict[str, str]:
        return {
            "TF_CONFIG": json.dumps({"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": index}})
        }

    def agree(
        self,
        records: Mapping[int, NodeRecord],
        *,
        timeout: float = TIMEOUT,
        secrets: Mapping[int, bytes] | None = None,
        environments: Mapping[int, dict[str, str]] | None = None,
        beside: Callable[[], Any] | None = None,
    ) -> dict[int, Plan | HwprobeError]:
        """What each worker got: the plan, or the error that it raised."""
        results: dict[int, Plan | HwprobeError] = {}

        def run(index: int) -> None:
            environment = (environments or {}).get(index, self.environment(index))
            try:
                results[index] = agree(
                    records[index], environment, timeout_seconds=timeout, secret=(secrets or {}).get(index)
                )
            except HwprobeError as error:
                results[index] = error

        threads = [threading.Thread(target=run, args=(index,)) for index in records]
        for thread in threads:
            thread.start()
        if beside is not None:
            beside()
        for thread in threads:
            thread.join(3 * timeout + 30)
            assert not thread.is_alive()
        return results


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def plan_of(results: Mapping[int, Plan | HwprobeError]) -> Plan:
    """The one plan that all have."""
    plans = list(results.values())
    assert all(isinstance(plan, Plan) for plan in plans), plans
    assert len({plan.digest for plan in plans if isinstance(plan, Plan)}) == 1
    assert isinstance(plans[0], Plan)
    return plans[0]


def failures(results: Mapping[int, Plan | HwprobeError]) -> dict[int, str]:
    assert all(isinstance(result, AgreementError) for result in results.values()), results
    return {index: str(result) for index, result in results.items()}


@pytest.mark.parametrize("secret", [None, b"correct horse"])
def test_all_workers_get_the_plan_of_all_records(secret: bytes | None) -> None:
    group = Group(4)
    records = {0: a100("n0"), 1: a100("n1"), 2: t4("n2"), 3: a100("n3")}
    secrets = {} if secret is None else dict.fromkeys(records, secret)
    plan = plan_of(group.agree(records, secrets=secrets))
    assert (plan.dtype_policy, plan.limited_by, plan.hosts) == (
        "mixed_float16",
        "n2:worker-2",
        ("n0", "n1", "n2", "n3"),
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3", "localhost"])
def test_the_port_is_free_for_tensorflow_afterwards(host: str) -> None:
    group = Group(3, host)
    plan_of(group.agree({index: a100(f"n{index}") for index in range(3)}))
    with socket.socket() as taken:
        taken.bind((socket.gethostbyname(host), group.ports[0]))
        taken.listen()


def test_a_negative_plan_reaches_everybody() -> None:
    plan = plan_of(Group(2).agree({0: a100("n0"), 1: rtx_5090("n1")}))
    assert (plan.agreed, plan.limited_by) == (False, "n1:worker-1")


def test_thirty_workers_agree() -> None:
    plan = plan_of(Group(30).agree({index: a100(f"n{index:02}") for index in range(30)}))
    assert plan.nodes == "n[00-29]"


def test_a_chief_beside_workers_is_the_one_to_meet_at() -> None:
    group = Group(2)
    cluster = {"worker": [group.addresses[0]], "chief": [group.addresses[1]]}
    environments = {
        0: {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})},
        1: {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})},
    }
    plan = plan_of(group.agree({0: a100("n0"), 1: t4("n1")}, environments=environments))
    assert plan.limited_by == "n1:chief-0"


def test_it_works_where_a_loop_is_running_already() -> None:
    group = Group(2)
    other = threading.Thread(target=group.agree, args=({1: a100("n1")},))
    other.start()

    async def cell() -> Plan:
        return agree(a100("n0"), group.environment(0), timeout_seconds=TIMEOUT)

    assert asyncio.run(cell()).agreed
    other.join()


def test_missing_workers_are_named_to_everybody() -> None:
    group = Group(4)
    said = failures(group.agree({0: a100("n0"), 2: a100("n2")}, timeout=SHORT))
    expected = (
        f"2 of 4 workers did not come within 2 s: worker-1 ({group.addresses[1]}), worker-3 ({group.addresses[3]})"
    )
    assert expected in said[0]
    assert expected in said[2]
    assert "hwprobe plan DIR --expect NODES" in said[0]


def test_a_chief_that_does_not_come_is_named() -> None:
    group = Group(2)
    said = failures(group.agree({1: a100("n1")}, timeout=SHORT))
    assert f"the chief worker-0 ({group.addresses[0]}) did not answer within 2 s" in said[1]


def test_a_chief_whose_name_cannot_be_resolved_is_named() -> None:
    group = Group(2, host="no-such-host.invalid")
    said = failures(group.agree({1: a100("n1")}, timeout=SHORT))
    assert "its name cannot be resolved" in said[1]


def test_a_port_that_is_taken_is_named() -> None:
    group = Group(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", group.ports[0]))
        taken.listen()
        said = failures(group.agree({0: a100("n0")}, timeout=SHORT))
    assert f"cannot listen on {group.addresses[0]}" in said[0]


@pytest.mark.parametrize(
    ("secrets", "chief_says", "worker_says"),
    [
        ({0: b"one", 1: b"other"}, "its signature is wrong", "refuses: its signature is wrong"),
        ({0: b"one"}, "it is not signed and this job has a secret", "refuses: it is not signed"),
        ({1: b"other"}, "1 of 2 workers did not come", "has no secret and this worker has one"),
    ],
)
def test_workers_with_other_secrets_do_not_agree(secrets: dict[int, bytes], chief_says: str, worker_says: str) -> None:
    said = failures(Group(2).agree({0: a100("n0"), 1: a100("n1")}, secrets=secrets, timeout=SHORT))
    assert chief_says in said[0]
    assert worker_says in said[1]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (a100("n1", job=job("41")), "worker-1 belongs to slurm job 41, this is slurm job 42"),
        (a100("n1", job=job(restart=1)), "worker-1 belongs to slurm job 42, restart 1"),
        (a100("n1"), "worker-1 belongs to no job"),
    ],
)
def test_a_worker_of_another_job_is_refused(record: NodeRecord, says: str) -> None:
    said = failures(Group(2).agree({0: a100("n0", job=job()), 1: record}, timeout=SHORT))
    assert says in said[0]
    assert says in said[1]


def test_workers_that_count_differently_do_not_agree() -> None:
    group = Group(3)
    two = json.dumps({"cluster": {"worker": group.addresses[:2]}, "task": {"type": "worker", "index": 1}})
    said = failures(group.agree({0: a100("n0"), 1: a100("n1")}, timeout=SHORT, environments={1: {"TF_CONFIG": two}}))
    assert "worker-1 knows of 2 workers, the chief of 3: their TF_CONFIG differs" in said[1]


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
            with connection:
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


def test_the_secret_comes_from_a_variable_or_a_file(tmp_path: Any) -> None:
    file = tmp_path / "secret"
    file.write_text("  of the job\n")
    assert read_secret({}) is None
    assert read_secret({"HWPROBE_SECRET": "of the job"}) == b"of the job"
    assert read_secret({"HWPROBE_SECRET_FILE": str(file)}) == b"of the job"


@pytest.mark.parametrize(
    "environment",
    [
        {"HWPROBE_SECRET": ""},
        {"HWPROBE_SECRET": " \n"},
        {"HWPROBE_SECRET": "x" * 5000},
        {"HWPROBE_SECRET_FILE": "/no/such/file"},
        {"HWPROBE_SECRET_FILE": "/dev/zero"},
        {"HWPROBE_SECRET": "a", "HWPROBE_SECRET_FILE": "b"},
    ],
)
def test_a_secret_that_is_none_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(InputError, match="HWPROBE_SECRET"):
        read_secret(environment)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, r"SLURM_NTASKS=4 says .*no TF_CONFIG.*srun --ntasks=1"),
        (
            {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": ["n1:1", "n2:1"], "evaluator": ["n3:1"]},
                        "task": {"type": "evaluator", "index": 0},
                    }
                )
            },
            "evaluator-0 does not compute",
        ),
        (
            {
                "TF_CONFIG": json.dumps(
                    {"cluster": {"worker": [f"n{n}:1" for n in range(5000)]}, "task": {"type": "worker", "index": 0}}
                )
            },
            "5000 workers are too many",
        ),
    ],
)
def test_where_there_is_no_way_to_agree_it_says_how_to_make_a_plan(environment: dict[str, str], says: str) -> None:
    with pytest.raises(AgreementError, match=f"{says}.*hwprobe plan DIR --expect NODES"):
        agree(a100("n0"), environment, timeout_seconds=SHORT)


def test_a_process_that_trains_alone_has_nobody_to_agree_with() -> None:
    with pytest.raises(InputError, match="nothing in the environment"):
        agree(a100("n0"), {})


def test_the_message_names_commands_that_exist() -> None:
    from hwprobe.cli import hwprobe as command
    from hwprobe.cluster.template import templates

    for name in ("check", "plan", "template"):
        assert f"hwprobe {name}" in agreement.HOW_TO_PLAN
        assert command.get_command(None, name) is not None  # type: ignore[arg-type]
    for template in ("slurm", "kubernetes-job", "mpi"):
        assert template in agreement.HOW_TO_PLAN
        assert template in templates()
