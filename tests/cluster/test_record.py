"""What a node says about itself."""

from __future__ import annotations

import msgspec
import pytest

from hwprobe.cluster.job import Job
from hwprobe.cluster.record import NodeRecord, Versions, node_record, policy_use, wishes_of
from hwprobe.configuration import DTYPE_POLICIES, DeviceUsability, LossScaling, Memory, Usable
from hwprobe.decide import Request, decide
from hwprobe.errors import InputError
from hwprobe.findings import Action, Finding, Severity
from hwprobe.policy import LossScalingWish, Policy, Precision
from hwprobe.serialize import from_builtins, from_json, to_builtins, to_json
from tests.cluster.records import t4
from tests.reports import A100, T4, report

ENVIRONMENT = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}


def record_of(*, gpus: tuple[object, ...], policy: Policy | None = None, **facts: object) -> NodeRecord:
    site = policy or Policy()
    found = report(gpus=gpus)  # type: ignore[arg-type]
    return node_record(found, decide(found, site), site, environment=ENVIRONMENT, **facts)  # type: ignore[arg-type]


def test_a_node_with_two_kinds_of_gpu_can_use_what_both_can() -> None:
    record = record_of(gpus=(T4, A100, A100))
    assert record.policies.mixed_float16.usable is True
    assert record.policies.mixed_bfloat16.usable is False
    assert record.policies.mixed_bfloat16.reason.startswith("Tesla T4 (7.5): no bfloat16")
    assert [(kind.label, kind.count) for kind in record.gpus] == [
        ("NVIDIA A100-SXM4-80GB (8.0)", 2),
        ("Tesla T4 (7.5)", 1),
    ]
    assert (record.gpu_count, record.on_cpu) == (3, False)


def test_a_record_names_job_node_and_versions() -> None:
    record = record_of(gpus=(T4,))
    assert (record.host, record.task, record.job) == ("n1", None, Job(scheduler="slurm", id="42", step="0"))
    assert record.versions.tensorflow == "2.21.0"
    assert (record.versions.python, record.versions.keras) == ("3.11.7", "3.15.1")
    assert record.driver == "570.124.06"


def test_a_node_without_gpus_says_so() -> None:
    record = record_of(gpus=())
    assert record.on_cpu
    assert record.gpus == ()
    assert record.policies.float32.usable is True


def test_equal_nodes_say_the_same_but_for_their_names() -> None:
    first, second = record_of(gpus=(T4, T4)), record_of(gpus=(T4, T4))
    assert first == second
    assert "GPU-" not in to_json(first)


@pytest.mark.parametrize(
    ("answers", "usable", "says"),
    [
        ((True, True), True, "yes"),
        ((True, False), False, "second: no"),
        ((None, True), None, "first: unknown"),
        ((None, False), False, "second: no"),
        ((), None, "no device was judged"),
    ],
)
def test_no_outweighs_unknown_and_unknown_outweighs_yes(
    answers: tuple[bool | None, ...], usable: bool | None, says: str
) -> None:
    words = {True: "yes", False: "no", None: "unknown"}
    devices = [
        DeviceUsability(
            subject=label,
            label=label,
            policies=dict.fromkeys(
                ("mixed_bfloat16", "mixed_float16", "float32"), Usable(usable=answer, reason=words[answer])
            ),
        )
        for label, answer in zip(("first", "second"), answers, strict=False)
    ]
    assert policy_use(devices).mixed_float16 == Usable(usable=usable, reason=says)


def test_a_request_becomes_the_only_preference_unless_a_fallback_is_allowed() -> None:
    asked = Request(dtype_policy="mixed_float16", loss_scaling=LossScaling.static(64.0), memory_growth=False)
    wishes = wishes_of(Policy(), asked)
    assert wishes.prefer == wishes.cpu == ("mixed_float16",)
    assert wishes.loss_scaling["mixed_float16"] == LossScaling.static(64.0)
    assert wishes.memory == Memory(growth=False)
    lenient = wishes_of(Policy(), msgspec.structs.replace(asked, allow_fallback=True))
    assert lenient.prefer == ("mixed_float16", "mixed_bfloat16", "float32")


def test_a_policy_s_wishes_are_carried_along() -> None:
    policy = Policy(
        precision=Precision(prefer=("mixed_float16", "float32"), tf32=False),
        loss_scaling=LossScalingWish(mode="dynamic", initial_scale=1024.0),
        memory=Memory(limit_mib=8000),
        name="lab",
    )
    wishes = record_of(gpus=(T4,), policy=policy).wishes
    assert (wishes.prefer, wishes.tf32, wishes.policy) == (("mixed_float16", "float32"), False, "lab")
    assert wishes.loss_scaling["mixed_float16"].initial_scale == 1024.0
    assert wishes.loss_scaling["mixed_bfloat16"] == LossScaling.none()
    assert wishes.memory.limit_mib == 8000


def finding(severity: Severity, *, primary: bool = False, title: str = "A GPU is lost") -> Finding:
    return Finding(
        id="HWP104",
        severity=severity,
        action=Action.DRAIN,
        primary=primary,
        subject="GPU-1",
        title=title,
        message="GPU-1 is lost",
    )


def test_a_node_that_is_not_ready_names_its_first_cause() -> None:
    findings = (finding(Severity.WARNING, title="A warning"), finding(Severity.ERROR, primary=True))
    record = record_of(gpus=(T4,), findings=findings, verdict="not_ready")
    assert (record.verdict, record.problem) == ("not_ready", "HWP104: A GPU is lost")
    assert record.notes == ("HWP104: A warning", "HWP104: A GPU is lost")
    assert record_of(gpus=(T4,), verdict="unknown").problem is not None


def test_a_requirement_that_is_not_met_says_which() -> None:
    """It is the job's own, so all nodes of one kind say it in the same words."""
    unmet = msgspec.structs.replace(
        finding(Severity.ERROR, primary=True, title="A requirement is not met"),
        evidence={"required": "gpus>=8", "found": "7"},
    )
    record = record_of(gpus=(T4,), findings=(unmet,), verdict="not_ready")
    assert record.problem == "HWP104: A requirement is not met (gpus>=8, found 7)"


def test_a_ready_node_has_notes_and_no_problem() -> None:
    record = record_of(gpus=(T4,), findings=(finding(Severity.WARNING), finding(Severity.INFO, title="Quiet")))
    assert (record.problem, record.notes) == (None, ("HWP104: A GPU is lost",))


def test_every_field_comes_back_from_json() -> None:
    record = t4(
        "n1",
        task="worker-3",
        job=Job(scheduler="slurm", id="42", step="7", restart=2),
        verdict="not_ready",
        problem="HWP104: a GPU is lost",
        on_cpu=True,
        driver=None,
        versions=Versions(hwprobe="9", python="3.10.1", tensorflow="2.12.1", keras="2.12.0", tf_keras="2.16.0"),
        notes=("one", "two"),
    )
    assert from_json(to_json(record), NodeRecord) == record


@pytest.mark.parametrize("host", ["", "a b", "../n1", "n1\n", "x" * 254])
def test_a_record_with_an_impossible_host_is_refused(host: str) -> None:
    text = to_json(t4("n1")).replace('"host":"n1"', f'"host":{to_json(host)}')
    with pytest.raises(InputError, match="host"):
        from_json(text, NodeRecord)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prefer", []),
        ("prefer", ["float8"]),
        ("loss_scaling", {}),
        ("loss_scaling", {"mixed_float16": {"mode": "none"}}),
        ("loss_scaling", {key: {"mode": "static"} for key in DTYPE_POLICIES}),
        ("loss_scaling", {key: {"mode": "static", "initial_scale": -1.0} for key in DTYPE_POLICIES}),
        ("loss_scaling", {key: {"mode": "dynamic", "initial_scale": 8.0} for key in DTYPE_POLICIES}),
        ("loss_scaling", {key: {"mode": "dynamic", "initial_scale": 8.0, "growth_steps": 0} for key in DTYPE_POLICIES}),
        ("memory", {"limit_mib": 0}),
        ("tf32", "yes"),
    ],
)
def test_a_record_whose_wishes_cannot_be_met_is_refused(key: str, value: object) -> None:
    data = to_builtins(t4("n1"))
    data["wishes"][key] = value
    with pytest.raises(InputError, match=key):
        from_builtins(data, NodeRecord)


@pytest.mark.parametrize(
    ("key", "value"), [("id", "a\x1b[31m"), ("id", ""), ("id", "x" * 129), ("scheduler", "Slurm!"), ("restart", -1)]
)
def test_a_record_of_an_impossible_job_is_refused(key: str, value: object) -> None:
    data = to_builtins(t4("n1"))
    data["job"][key] = value
    with pytest.raises(InputError, match=f"job.{key}"):
        from_builtins(data, NodeRecord)
