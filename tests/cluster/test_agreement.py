"""Workers without a plan agree over the chief's address, or nothing is applied."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any

import pytest

from hwprobe.cluster import agreement
from hwprobe.cluster.agreement import agree
from hwprobe.cluster.messages import read_secret
from hwprobe.cluster.plan import Plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.errors import AgreementError, InputError
from tests.cluster.group import SHORT, TIMEOUT, Group, failures, plan_of
from tests.cluster.records import a100, job, rtx_5090, t4


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
