"""A process takes the job's decision in place of its own, or refuses, or trains alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwprobe.cluster.job import current_host
from hwprobe.cluster.joining import decision_of_job, refuse_early
from hwprobe.cluster.merge import merge
from hwprobe.cluster.plan import Plan, plan_to_json
from hwprobe.configuration import Decision, LossScaling
from hwprobe.decide import Request, decide
from hwprobe.errors import AgreementError, InputError
from hwprobe.policy import Policy
from hwprobe.render.headline import decision_line
from hwprobe.report import Report
from tests.cluster.records import a100, job, t4
from tests.reports import A100, T4, report

SLURM = {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "42", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}


def join(
    found: Report | None = None, *, environment: dict[str, str] | None = None, plan: Any = None, **request: Any
) -> tuple[Decision, Decision]:
    """One's own decision, and the one that counts."""
    facts, asked = found or report(gpus=[A100]), Request(**request)
    own = decide(facts, Policy(), asked)
    return own, decision_of_job(
        own, report=facts, policy=Policy(), request=asked, environment=environment or {}, plan=plan, timeout_seconds=1
    )


def plan_for_two(**facts: Any) -> Plan:
    return merge([a100("n1"), t4("n2")], **facts)


def test_a_process_that_trains_alone_keeps_its_own_decision() -> None:
    own, decision = join()
    assert decision is own


def test_a_plan_counts_in_place_of_one_s_own_decision() -> None:
    own, decision = join(environment=SLURM, plan=plan_for_two())
    assert (own.dtype_policy, decision.dtype_policy) == ("mixed_bfloat16", "mixed_float16")
    assert (decision.origin, decision.loss_scaling) == ("plan", LossScaling.dynamic())
    line = "mixed_float16 with dynamic loss scaling: agreed for 2 nodes, n[1-2], limited by n2"
    assert decision_line(decision) == line
    assert decision_line(own) == "mixed_bfloat16 without loss scaling: NVIDIA A100-SXM4-80GB (8.0)"


def test_the_variable_names_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(plan_for_two()))
    assert join(environment=SLURM | {"HWPROBE_PLAN": str(path)})[1].dtype_policy == "mixed_float16"
    assert join(environment=SLURM, plan=path)[1].dtype_policy == "mixed_float16"
    assert join(environment={"HWPROBE_PLAN": ""})[1].dtype_policy == "mixed_bfloat16"


@pytest.mark.parametrize("content", [None, "", "{", '{"schema": "hwprobe.node/1"}'])
def test_a_plan_that_cannot_be_read_names_its_file(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=r"plan .*plan\.json: "):
        join(environment=SLURM | {"HWPROBE_PLAN": str(path)})


def test_a_machine_that_cannot_do_what_the_plan_says_refuses_it() -> None:
    with pytest.raises(AgreementError, match=r"mixed_bfloat16, and Tesla T4 \(7.5\) cannot use it"):
        join(report(gpus=[T4]), environment=SLURM, plan=merge([a100("n1"), a100("n2")]))


def test_a_node_that_is_not_in_the_plan_refuses_it() -> None:
    with pytest.raises(AgreementError, match="this node, n9, is not in it"):
        join(environment=SLURM | {"SLURMD_NODENAME": "n9"}, plan=plan_for_two())


@pytest.mark.parametrize(
    "request_",
    [{"dtype_policy": "mixed_bfloat16"}, {"loss_scaling": LossScaling.static(8.0)}],
    ids=["policy", "scaling"],
)
def test_a_request_that_contradicts_the_plan_is_refused_unless_a_fallback_is_allowed(request_: dict[str, Any]) -> None:
    with pytest.raises(AgreementError, match=f"{next(iter(request_))}: this process asks for .* for all nodes"):
        join(environment=SLURM, plan=plan_for_two(), **request_)
    _, decision = join(environment=SLURM, plan=plan_for_two(), allow_fallback=True, **request_)
    assert (decision.dtype_policy, decision.loss_scaling) == ("mixed_float16", LossScaling.dynamic())


def test_memory_growth_is_the_caller_s_own_matter() -> None:
    assert join(environment=SLURM, plan=plan_for_two(), memory_growth=False)[1].memory.growth is False


def test_a_worker_without_a_plan_does_not_decide_alone() -> None:
    with pytest.raises(AgreementError, match="the workers did not agree on a precision, and nothing was applied"):
        join(environment=SLURM)


def test_workers_agree_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ["127.0.0.1:1", "127.0.0.1:2"]
    environment = {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}})}
    asked = []

    def meet(record: Any, *_: Any, **__: Any) -> Plan:
        asked.append(record)
        return merge([record, t4(current_host(environment), task="worker-1")])

    monkeypatch.setattr("hwprobe.cluster.joining._agreed", None)
    monkeypatch.setattr("hwprobe.cluster.agreement.agree", meet)
    for growth in (None, None, False):
        assert join(environment=environment, memory_growth=growth)[1].dtype_policy == "mixed_float16"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("plan", "environment", "says"),
    [
        (merge([a100("n9")]), SLURM, "this node, n1, is not in it"),
        (merge([a100("n1")], expect=2), SLURM, "must not start"),
        (merge([a100("n1", job=job("41"))]), SLURM, "made for slurm job 41"),
        (None, SLURM, "SLURM_NTASKS=2 says that this process is one of several"),
        (None, {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "mpi4py is not installed"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_looked_at(
    plan: Plan | None, environment: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hwprobe.cluster.agreement.find_spec", lambda name: None)
    with pytest.raises(AgreementError, match=says):
        refuse_early(plan, environment)


def test_what_may_work_is_not_refused_early() -> None:
    refuse_early(None, {})
    refuse_early(merge([a100("n1")]), SLURM)
    refuse_early(
        None,
        {"TF_CONFIG": '{"cluster": {"worker": ["n1:1", "n2:1"]}, "task": {"type": "worker", "index": 0}}'},
    )


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e9"])
def test_a_time_limit_is_a_positive_number_of_seconds(text: str) -> None:
    environment = {"TF_CONFIG": '{"cluster": {"worker": ["n1:1", "n2:1"]}, "task": {"type": "worker", "index": 0}}'}
    found = report(gpus=[A100])
    own = decide(found, Policy())
    with pytest.raises(InputError, match="HWPROBE_AGREEMENT_TIMEOUT"):
        decision_of_job(
            own,
            report=found,
            policy=Policy(),
            request=Request(),
            environment=environment | {"HWPROBE_AGREEMENT_TIMEOUT": text},
        )
