"""A plan is whole or it is refused; a worker takes it only where it fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.cluster.job import Job
from hwprobe.cluster.merge import merge
from hwprobe.cluster.plan import (
    Difference,
    NodeNote,
    Plan,
    check_plan,
    decision_from_plan,
    load_plan,
    plan_to_json,
    read_plan,
    sealed,
)
from hwprobe.cluster.summary import plan_summary
from hwprobe.configuration import Decision, LossScaling, Memory
from hwprobe.errors import AgreementError, InputError
from tests.cluster.records import a100, job, t4, usability

FULL = sealed(
    Plan(
        hwprobe="0.1.0",
        agreed=True,
        dtype_policy="mixed_float16",
        loss_scaling=LossScaling.dynamic(1024.0, 500),
        tf32=False,
        memory=Memory(growth=False, limit_mib=8000, allocator="cuda_malloc_async"),
        job=Job(scheduler="slurm", id="42", step="3", restart=1),
        nodes="n[1-2]",
        node_count=2,
        record_count=3,
        expected=2,
        prefer=("mixed_bfloat16", "mixed_float16"),
        limited_by="n2",
        rejected={"mixed_bfloat16": "1 of 2 nodes, n2: ü"},
        missing="",
        unexpected="",
        unreadable={},
        differences=(Difference(what="gpus", values={"T4": "n2", "A100": "n1"}, blocks=False),),
        problems=(),
        notes=(NodeNote(nodes="n1", text="a note"),),
        hosts=("n1", "n2"),
    )
)


def plan_for(*hosts: str, **facts: Any) -> Plan:
    return merge([t4(host, job=job()) for host in hosts], **facts)


def test_every_field_comes_back() -> None:
    assert read_plan(plan_to_json(FULL)) == FULL


def test_a_negative_plan_comes_back() -> None:
    plan = plan_for("n1", expect="n[1-2]")
    assert read_plan(plan_to_json(plan)) == plan


def test_the_digest_does_not_depend_on_layout() -> None:
    compact = json.dumps(dict(reversed(json.loads(plan_to_json(FULL)).items())), separators=(",", ":"))
    assert read_plan(compact) == FULL


def test_a_key_of_a_later_minor_version_is_covered_by_the_digest() -> None:
    data = json.loads(plan_to_json(FULL)) | {"later": 1}
    with pytest.raises(InputError, match="digest"):
        read_plan(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dtype_policy": "float32"}, "digest"),
        ({"tf32": True}, "digest"),
        ({"hosts": ["n1", "n2", "n3"]}, "digest"),
        ({"digest": "sha256:" + "0" * 64}, "digest"),
        ({"digest": ""}, "digest"),
        ({"schema": "hwprobe.plan/2"}, r"schema: found 'hwprobe.plan/2', expected 'hwprobe.plan/1'"),
        ({"schema": None}, "schema: found 'None'"),
        ({"dtype_policy": "float8"}, "dtype_policy"),
        ({"agreed": "yes"}, "agreed"),
        ({"loss_scaling": None}, "names dtype_policy, loss_scaling"),
        ({"agreed": False}, "nothing to set"),
    ],
)
def test_a_plan_that_was_changed_is_refused(change: dict[str, Any], says: str) -> None:
    data = json.loads(plan_to_json(FULL)) | change
    with pytest.raises(InputError, match=says):
        read_plan(json.dumps(data), where="plan.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "NaN", '"plan"', "{'a': 1}", "[" * 100_000])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^plan\.json: "):
        read_plan(text, where="plan.json")


@given(st.integers(min_value=0, max_value=len(plan_to_json(FULL)) - 2))
def test_a_plan_that_was_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(InputError):
        read_plan(plan_to_json(FULL)[:length])


@given(st.integers(min_value=0, max_value=len(plan_to_json(FULL)) - 2), st.characters(codec="ascii"))
def test_a_plan_with_one_character_changed_is_refused_or_the_same(position: int, character: str) -> None:
    text = plan_to_json(FULL)
    changed = text[:position] + character + text[position + 1 :]
    try:
        assert read_plan(changed) == FULL
    except InputError:
        assert changed != text


def test_a_plan_is_loaded_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(InputError, match=r"plan .*plan\.json: No such file"):
        load_plan(path)
    path.write_text(plan_to_json(FULL))
    assert load_plan(path) == FULL
    path.write_bytes(b" " * (17 * 2**20))
    with pytest.raises(InputError, match="larger than 16 MiB"):
        load_plan(path)


def check(plan: Plan, **facts: Any) -> Plan:
    known: dict[str, Any] = {"host": "n1", "job": job(step="1"), "usability": usability("Tesla T4 (7.5)")}
    return check_plan(plan, **{**known, **facts})


def test_a_plan_that_fits_is_taken() -> None:
    plan = plan_for("n1", "n2")
    assert check(plan) is plan


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"host": "n9"}, r"this node, n9, is not in it \(it is for n\[1-2\]\)"),
        ({"job": job("43")}, "made for slurm job 42, and this process belongs to slurm job 43"),
        ({"job": job(restart=1)}, "made for slurm job 42, and this process belongs to slurm job 42, restart 1"),
        ({"job": Job()}, "belongs to no job"),
        (
            {"usability": usability("Tesla K80 (3.7)", mixed_float16=False)},
            r"asks for mixed_float16, and Tesla K80 \(3.7\) cannot use it",
        ),
        ({"usability": usability("NVIDIA X (99.0)", mixed_float16=None)}, "may not be able to use it"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_the_reason(facts: dict[str, Any], says: str) -> None:
    with pytest.raises(AgreementError, match=f"is refused and nothing was applied: .*{says}"):
        check(plan_for("n1", "n2"), **facts)


def test_a_negative_plan_is_refused_and_says_why() -> None:
    with pytest.raises(AgreementError, match="must not start: 1 of 2 expected nodes sent no record: n2"):
        check(plan_for("n1", expect="n[1-2]"))


def test_a_plan_made_outside_of_any_job_counts_in_every_job() -> None:
    plan = merge([t4("n1")])
    assert check(plan) is plan
    assert check(plan, job=Job()) is plan


def test_the_decision_is_the_plan_s_and_the_devices_are_one_s_own() -> None:
    own = Decision(dtype_policy="mixed_bfloat16", loss_scaling=LossScaling.none(), usability=usability("A100"))
    decision = decision_from_plan(FULL, own)
    assert (decision.dtype_policy, decision.loss_scaling) == ("mixed_float16", LossScaling.dynamic(1024.0, 500))
    assert (decision.tf32, decision.memory, decision.origin) == (False, FULL.memory, "plan")
    assert decision.usability == own.usability
    assert decision.reasons == (
        "mixed_float16: agreed for 3 workers on n[1-2] of slurm job 42, restart 1",
        "limited by n2",
    )
    with pytest.raises(AgreementError, match="the plan sets nothing"):
        decision_from_plan(plan_for("n1", expect="n[1-2]"), own)


def test_the_summary_has_the_answer_first() -> None:
    lines = plan_summary(merge([a100("n1"), t4("n2"), t4("n3")])).splitlines()
    assert lines[0] == "mixed_float16 with dynamic loss scaling, TF32 allowed, for 3 nodes, n[1-3]"
    assert lines[1] == "limited by n[2-3]"
    assert lines[2].startswith("  not mixed_bfloat16: 2 of 3 nodes, n[2-3]: Tesla T4 (7.5)")
    assert lines[3].startswith("differs: gpus: 8 x Tesla T4 (7.5) on n[2-3]; ")
    assert lines[4] == "note: n1: could use mixed_bfloat16 without n[2-3]"


def test_the_summary_of_a_negative_plan_says_so_first() -> None:
    assert plan_summary(plan_for("n1", expect="n[1-2]")).splitlines()[:2] == [
        "not agreed: slurm job 42 must not start",
        "  1 of 2 expected nodes sent no record: n2",
    ]


def test_the_summary_says_nothing_twice() -> None:
    """What keeps a job from starting is among the notes and the refusals too, for those who read the file."""
    lost = t4("n1", verdict="not_ready", problem="HWP104: A GPU is lost", notes=("HWP104: A GPU is lost", "HWP305: b"))
    plan = merge([lost], prefer=("mixed_bfloat16",))
    text = plan_summary(plan)
    assert (text.count("A GPU is lost"), text.count("no bfloat16"), text.count("HWP305")) == (1, 1, 1)
    assert len(plan.notes) == 2
    assert plan.rejected


def test_the_summary_holds_no_control_characters() -> None:
    plan = merge([t4("n1", verdict="not_ready", problem="\x1b[31mred\x07")])
    assert "\x1b" not in plan_summary(plan)
    assert "\\x1b[31mred" in plan_summary(plan)
