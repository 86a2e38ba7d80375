"""Many records, one plan."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from hwprobe.cluster.merge import merge
from hwprobe.cluster.plan import Difference, NodeNote, Plan, plan_to_json, read_plan
from hwprobe.cluster.record import NodeRecord, PolicyUse
from hwprobe.cluster.record_files import UnreadableRecord
from hwprobe.configuration import LossScaling, Memory, Usable
from hwprobe.errors import InputError
from tests.cluster.records import T4, VERSIONS, WISHES, YES, a100, cpu, job, rtx_5090, t4


def wishing(record: NodeRecord, **wishes: Any) -> NodeRecord:
    return msgspec.structs.replace(record, wishes=msgspec.structs.replace(record.wishes, **wishes))


def running(record: NodeRecord, **versions: Any) -> NodeRecord:
    return msgspec.structs.replace(record, versions=msgspec.structs.replace(VERSIONS, **versions))


def test_equal_nodes_take_their_first_preference() -> None:
    plan = merge([a100("n1"), a100("n2")])
    assert plan.agreed
    assert (plan.dtype_policy, plan.loss_scaling, plan.tf32) == ("mixed_bfloat16", LossScaling.none(), True)
    assert (plan.nodes, plan.node_count, plan.hosts) == ("n[1-2]", 2, ("n1", "n2"))
    assert (plan.limited_by, plan.rejected, plan.problems, plan.differences, plan.notes) == ("", {}, (), (), ())


def test_the_weakest_nodes_limit_the_job_and_are_named_folded() -> None:
    plan = merge([a100("a100-1"), t4("t4-08"), t4("t4-07"), a100("a100-2")])
    assert (plan.dtype_policy, plan.loss_scaling) == ("mixed_float16", LossScaling.dynamic())
    assert plan.limited_by == "t4-[07-08]"
    assert plan.rejected == {"mixed_bfloat16": f"2 of 4 nodes, t4-[07-08]: {T4}: no bfloat16 in its Tensor Cores"}
    assert plan.notes == (NodeNote(nodes="a100-[1-2]", text="could use mixed_bfloat16 without t4-[07-08]"),)
    assert [difference.what for difference in plan.differences] == ["gpus"]


def test_unknown_counts_as_no_and_says_so() -> None:
    unknown = PolicyUse(
        mixed_bfloat16=Usable(usable=None, reason="no TensorFlow was read"), mixed_float16=YES, float32=YES
    )
    plan = merge([a100("n1"), a100("n2", policies=unknown)])
    assert plan.dtype_policy == "mixed_float16"
    assert plan.rejected["mixed_bfloat16"] == "1 of 2 nodes, n2: unknown, which counts as no: no TensorFlow was read"


def test_without_a_common_policy_the_plan_is_negative_and_sets_nothing() -> None:
    plan = merge([a100("n1"), rtx_5090("n2")])
    assert not plan.agreed
    assert (plan.dtype_policy, plan.loss_scaling, plan.tf32, plan.memory) == (None, None, None, None)
    assert plan.problems[0].startswith("no policy of mixed_bfloat16, mixed_float16, float32 is usable on every node")
    assert plan.limited_by == "n2"


def test_a_job_without_any_gpu_takes_the_preference_for_cpus() -> None:
    assert merge([cpu("n1"), cpu("n2")]).prefer == ("float32",)
    mixed = merge([cpu("n1"), a100("n2")])
    assert (mixed.prefer, mixed.dtype_policy, mixed.limited_by) == (WISHES.prefer, "float32", "n1")


@pytest.mark.parametrize("expect", ["n[1-4]", "n1,n2,n3,n4", "n[1-4].cluster.example"])
def test_missing_nodes_are_named(expect: str) -> None:
    plan = merge([a100("n2"), a100("n4")], expect=expect)
    assert not plan.agreed
    assert (plan.missing, plan.expected) == ("n[1,3]", 4)
    assert plan.problems == ("2 of 4 expected nodes sent no record: n[1,3]",)


def test_two_ranges_in_one_name_are_expected() -> None:
    plan = merge([a100("rack1n01"), a100("rack1n02"), a100("rack2n01")], expect="rack[1-2]n[01-02]")
    assert plan.missing == "rack2n02"


def test_nodes_that_nobody_expects_are_named() -> None:
    plan = merge([a100("n1"), a100("x9")], expect="n1")
    assert plan.unexpected == "x9"
    assert plan.problems == ("nodes that are not expected sent a record: x9",)


@pytest.mark.parametrize(
    ("expect", "problems"),
    [
        (2, ()),
        ("2", ()),
        (3, ("2 of 3 expected nodes sent a record; a node list after --expect would name the missing",)),
        (1, ("2 of 1 expected nodes sent a record",)),
    ],
)
def test_a_number_of_nodes_may_be_expected(expect: str | int, problems: tuple[str, ...]) -> None:
    assert merge([a100("n1"), a100("n2")], expect=expect).problems == problems


@pytest.mark.parametrize("expect", ["0", "n[1-", "a b;c", "-3", "n1,/", "."])
def test_an_expectation_that_is_none_is_refused(expect: str) -> None:
    with pytest.raises(InputError):
        merge([a100("n1")], expect=expect)


def test_no_record_at_all_is_a_negative_plan() -> None:
    assert merge([]).problems == ("no record was found",)
    assert merge([], job=job()).problems == (f"no record of {job()} was found",)
    plan = merge([], expect="n[1-2]", job=job())
    assert (plan.agreed, plan.missing, plan.hosts) == (False, "n[1-2]", ())


@pytest.mark.parametrize(
    ("verdict", "problem", "says"),
    [
        ("not_ready", "HWP104: a GPU is lost", "n[2-3]: not ready: HWP104: a GPU is lost"),
        ("unknown", "NVML: timeout", "n[2-3]: of unknown state, which counts as not ready: NVML: timeout"),
    ],
)
def test_a_node_that_is_not_ready_keeps_the_job_from_starting(verdict: str, problem: str, says: str) -> None:
    facts = {"verdict": verdict, "problem": problem}
    plan = merge([a100("n1"), a100("n2", **facts), a100("n3", **facts)])
    assert (plan.agreed, plan.problems) == (False, (says,))


@pytest.mark.parametrize("what", ["tensorflow", "keras", "tf_keras"])
def test_versions_that_differ_by_more_than_a_patch_keep_the_job_from_starting(what: str) -> None:
    plan = merge([running(a100(f"n{number}"), **{what: "2.20.0" if number == 3 else "2.21.0"}) for number in (1, 2, 3)])
    assert plan.differences == (Difference(what=what, values={"2.21.0": "n[1-2]", "2.20.0": "n3"}, blocks=True),)
    assert plan.problems == (f"the version of {what} differs between the nodes: 2.21.0 on n[1-2]; 2.20.0 on n3",)


@pytest.mark.parametrize("versions", [{"tensorflow": "2.21.1"}, {"python": "3.12.1"}, {"hwprobe": "0.2.0"}])
def test_a_smaller_difference_is_named_and_does_no_harm(versions: dict[str, str]) -> None:
    plan = merge([a100("n1"), running(a100("n2"), **versions)])
    assert plan.agreed
    assert [difference.what for difference in plan.differences] == list(versions)


def test_a_node_without_tensorflow_differs() -> None:
    plan = merge([a100("n1"), running(a100("n2"), tensorflow=None)])
    assert plan.problems == ("the version of tensorflow differs between the nodes: 2.21.0 on n1; not installed on n2",)


def test_gpu_counts_and_drivers_that_differ_are_named() -> None:
    fewer = a100("n2", gpus=(msgspec.structs.replace(a100("n2").gpus[0], count=7),), driver="535.104.05")
    plan = merge([a100("n1"), fewer])
    values = {difference.what: difference.values for difference in plan.differences}
    assert values["gpu_count"] == {"7": "n2", "8": "n1"}
    assert values["driver"] == {"535.104.05": "n2", "570.124.06": "n1"}
    assert "MultiWorkerMirroredStrategy needs the same number" in plan.notes[0].text
    assert plan.agreed


@pytest.mark.parametrize(
    ("wishes", "says"),
    [
        (
            {"prefer": ("mixed_float16", "float32")},
            "mixed_bfloat16 before mixed_float16 before float32 on n1; mixed_float16 before float32 on n2",
        ),
        ({"cpu": ("mixed_bfloat16",)}, "float32 on a CPU on n1; mixed_bfloat16 on a CPU on n2"),
        ({"tf32": False}, "TF32 allowed on n1; TF32 off on n2"),
        (
            {"loss_scaling": {**WISHES.loss_scaling, "mixed_float16": LossScaling.static(64.0)}},
            "mixed_float16: dynamic loss scaling on n1; mixed_float16: static loss scaling at 64 on n2",
        ),
        (
            {"cpu": ("mixed_bfloat16",), "tf32": False},
            "TF32 allowed, float32 on a CPU on n1; TF32 off, mixed_bfloat16 on a CPU on n2",
        ),
    ],
    ids=["preference", "preference on a CPU", "TF32", "loss scaling", "two things"],
)
def test_nodes_whose_policies_want_different_things_do_not_agree(wishes: dict[str, Any], says: str) -> None:
    """What all of them want is not repeated."""
    plan = merge([a100("n1"), wishing(a100("n2"), **wishes)])
    assert not plan.agreed
    assert plan.problems[0].startswith(f"what the policies want differs between the nodes: {says}. Give all of them")
    assert merge([a100("n1"), wishing(a100("n2"), **wishes)], wishes=WISHES).agreed


def test_a_preference_given_here_goes_before_the_nodes_own() -> None:
    different = wishing(a100("n2"), prefer=("mixed_float16",))
    plan = merge([a100("n1"), different], prefer=("float32",))
    assert (plan.agreed, plan.dtype_policy, plan.prefer) == (True, "float32", ("float32",))


def test_wishes_given_here_go_before_the_nodes_own() -> None:
    wishes = msgspec.structs.replace(
        WISHES,
        prefer=("mixed_float16",),
        loss_scaling={**WISHES.loss_scaling, "mixed_float16": LossScaling.static(64.0)},
        tf32=False,
        memory=Memory(growth=False),
    )
    plan = merge([a100("n1")], wishes=wishes)
    assert (plan.dtype_policy, plan.loss_scaling) == ("mixed_float16", LossScaling.static(64.0))
    assert (plan.tf32, plan.memory) == (False, Memory(growth=False))


def test_memory_may_differ_and_the_most_careful_counts() -> None:
    plan = merge(
        [
            wishing(a100("n1"), memory=Memory(growth=False, limit_mib=9000)),
            wishing(a100("n2"), memory=Memory(growth=True, limit_mib=8000, allocator="cuda_malloc_async")),
        ]
    )
    assert plan.memory == Memory(growth=True, limit_mib=8000, allocator="default")
    assert "memory settings differ" in plan.notes[0].text


def test_an_unreadable_record_is_named_and_the_plan_negative() -> None:
    broken = [UnreadableRecord(where=f"n{number}.json", reason="cut off") for number in range(25)]
    plan = merge([a100("n1"), *broken])
    assert not plan.agreed
    assert len(plan.unreadable) == 20
    assert plan.problems[0] == "n0.json: cut off"
    assert plan.problems[-1] == "5 more records cannot be read"


def test_two_different_records_of_one_node_conflict_and_two_equal_ones_do_not() -> None:
    assert merge([a100("n1"), a100("n1")]).agreed
    plan = merge(
        [a100("n1"), t4("n1"), t4("n2"), a100("n2"), a100("n3", verdict="unknown", problem="NVML"), a100("n3")]
    )
    assert plan.problems[:2] == (
        "two different records of one node, n[1-2]: they differ in policies, gpus; leave the older one out",
        "two different records of one node, n3: they differ in verdict, problem; leave the older one out",
    )


def test_several_tasks_of_one_node_are_several_records_of_one_node() -> None:
    plan = merge([a100("n1", task="worker-0"), t4("n1", task="worker-1")])
    assert (plan.node_count, plan.record_count, plan.limited_by) == (1, 2, "n1:worker-1")
    assert plan.extent == "2 workers on n1"


def test_records_of_several_jobs_are_refused_where_nobody_said_which() -> None:
    with pytest.raises(InputError, match=r"several jobs \(slurm job 42; slurm job 43\)"):
        merge([a100("n1", job=job("42")), a100("n2", job=job("43"))])


@pytest.mark.parametrize("other", [job("41"), job(restart=1), job(restart=0, id_="42x")])
def test_records_of_another_job_or_start_are_left_aside_and_counted(other: Any) -> None:
    plan = merge([a100("n1", job=job()), t4("n2", job=other), t4("n3", job=other)], job=job(step=None))
    assert (plan.hosts, plan.dtype_policy) == (("n1",), "mixed_bfloat16")
    assert plan.notes == (NodeNote(nodes="", text=f"2 records were left aside, of {other}"),)


@pytest.mark.parametrize("order", [1, -1])
def test_only_the_last_step_of_a_job_counts(order: int) -> None:
    records = [t4("n1", job=job(step="2")), t4("n2", job=job(step="2")), a100("n1", job=job(step="10"))]
    plan = merge(records[::order], job=job(step=None), expect="n[1-2]")
    assert (plan.job.step, plan.hosts, plan.missing) == ("10", ("n1",), "n2")
    assert plan.notes[-1].text == "2 records were left aside, of slurm job 42, step 2"


def test_the_plan_says_what_its_nodes_say() -> None:
    note = ("HWP501: memory is in use",)
    plan = merge([a100("n1", notes=note), a100("n2"), a100("n3", notes=note)])
    assert plan.notes == (NodeNote(nodes="n[1,3]", text="HWP501: memory is in use"),)


def test_a_plan_is_the_same_in_whatever_order_the_records_come() -> None:
    records = [a100(f"n{number}") for number in range(9)] + [t4(f"t{number}") for number in range(9)]
    assert merge(records) == merge(records[::-1])


def many(count: int) -> Iterator[NodeRecord]:
    for number in range(count):
        yield t4(f"n{number:05}") if number % 1000 == 7 else a100(f"n{number:05}")


def peak_bytes(records: Iterable[NodeRecord]) -> tuple[Plan, int]:
    tracemalloc.start()
    plan = merge(records)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return plan, peak


def test_records_are_not_kept() -> None:
    plan, peak = peak_bytes(many(5000))
    assert plan.limited_by == "n[00007,01007,02007,03007,04007]"
    # A name in a few places costs some hundred bytes; a record costs several thousand.
    assert peak < 5000 * 1000


def test_a_plan_of_many_nodes_comes_back_from_json() -> None:
    plan = merge(many(3000), expect="n[00000-03000]")
    assert plan.missing == "n03000"
    assert read_plan(plan_to_json(plan)) == plan
