"""What a bench says about a device, and which policy a measurement chooses."""

from typing import Any

import msgspec
import pytest

from hwprobe.bench.facts import Bench, KernelName, Mode, Ratio, is_wrong
from hwprobe.bench.measured import apply_measurement
from hwprobe.bench.rules import RULES, judge_bench
from hwprobe.configuration import Decision, DeviceUsability, LossScaling, Usable
from hwprobe.errors import InputError
from hwprobe.findings import Action, Rule, Severity
from hwprobe.serialize import from_json, to_json
from tests.bench.benches import bench, measurement


def _ids(measured: Bench, dtype_policy: str | None = None) -> set[tuple[str, str]]:
    return {(finding.id, finding.severity.value) for finding in judge_bench(measured, dtype_policy)}


def _with(measured: Bench, kernel: KernelName, mode: Mode, **facts: Any) -> Bench:
    return msgspec.structs.replace(
        measured,
        measurements=tuple(
            msgspec.structs.replace(seen, **facts) if (seen.kernel, seen.mode) == (kernel, mode) else seen
            for seen in measured.measurements
        ),
    )


def test_a_device_that_runs_everything_gets_no_finding() -> None:
    assert judge_bench(bench(float16=2.5, bfloat16=2.4)) == ()


def test_a_missing_kernel_is_an_error_for_the_policy_that_needs_it_and_news_for_another() -> None:
    assert _ids(bench(float16=2.0, without="bfloat16")) == {("HWP450", "error")}
    assert _ids(bench(float16=2.0, without="bfloat16"), "mixed_bfloat16") == {("HWP450", "error")}
    assert _ids(bench(float16=2.0, without="bfloat16"), "mixed_float16") == {("HWP450", "info")}


def test_a_missing_kernel_is_named_with_tensorflows_words() -> None:
    message = judge_bench(bench(without="bfloat16"))[0].message
    assert "on GPU:0 Tesla T4 (7.5) does not run in bfloat16: convolution (NotFoundError: no kernel)" in message


def test_a_kernel_that_ran_on_the_cpu_is_missing() -> None:
    assert _ids(_with(bench(float16=2.0, bfloat16=2.0), "matmul", "float16", ran_on="CPU:0")) == {("HWP450", "error")}


@pytest.mark.parametrize(
    "facts", [{"relative_error": 0.5}, {"non_finite": 3}, {"relative_error": None, "non_finite": 1}]
)
def test_a_wrong_result_is_an_error(facts: dict[str, Any]) -> None:
    measured = _with(bench(float16=2.0, bfloat16=2.0), "matmul", "float16", **facts)
    assert _ids(measured) == {("HWP451", "error")}
    assert measured.policy_ratio("mixed_float16") is None


def test_a_wrong_result_in_float32_takes_the_node_out_of_service() -> None:
    finding = judge_bench(_with(bench(float16=2.0, bfloat16=2.0), "matmul", "float32", relative_error=0.5))[0]
    assert finding.action is Action.DRAIN
    assert "out of service" in finding.fix[0]


@pytest.mark.parametrize(
    ("mode", "error", "wrong"),
    [
        ("float32", 1e-6, False),
        ("float32", 1e-3, True),
        ("tf32", 1e-3, False),
        ("float16", 3e-3, False),
        ("float16", 0.05, True),
        ("bfloat16", 0.01, False),
        ("bfloat16", 0.2, True),
    ],
)
def test_each_mode_may_be_off_by_its_rounding(mode: Mode, error: float, wrong: bool) -> None:
    assert is_wrong(measurement("matmul", mode, relative_error=error)) is wrong


def test_a_policy_that_is_slower_here_is_a_warning_with_its_ratio() -> None:
    finding = judge_bench(bench(float16=0.4, bfloat16=2.0))[0]
    assert (finding.id, finding.severity) == ("HWP452", Severity.WARNING)
    assert "mixed_float16 runs at 0.40 of the speed of float32 on GPU:0 Tesla T4 (7.5)" in finding.message


def test_a_policy_that_is_slower_only_now_and_then_is_not_accused() -> None:
    measured = bench(float16=0.9, bfloat16=2.0)
    for kernel in ("matmul", "convolution", "attention", "optimizer"):
        measured = _with(measured, kernel, "float16", ratio=Ratio(median=0.9, low=0.5, high=1.3))
    assert judge_bench(measured) == ()


def test_a_slow_optimizer_step_alone_accuses_no_policy() -> None:
    measured = bench(float16=0.94, bfloat16=2.0)
    for kernel in ("matmul", "convolution", "attention"):
        measured = _with(measured, kernel, "float16", ratio=Ratio(median=0.94, low=0.8, high=1.1))
    slow = Ratio(median=0.5, low=0.5, high=0.5)
    assert judge_bench(_with(measured, "optimizer", "float16", ratio=slow)) == ()


def test_the_slower_policy_that_nobody_wants_is_not_mentioned() -> None:
    assert judge_bench(bench(float16=0.4, bfloat16=2.0), "mixed_bfloat16") == ()


def test_the_finding_is_about_the_device() -> None:
    measured = bench(float16=0.4, uuid="GPU-11112222-3333-4444-5555-666677778888")
    assert judge_bench(measured)[0].subject == "GPU-11112222-3333-4444-5555-666677778888"


def test_the_policy_ratio_is_the_geometric_mean_of_the_work() -> None:
    measured = _with(bench(float16=2.0), "optimizer", "float16", ratio=Ratio(median=0.1, low=0.1, high=0.1))
    assert measured.policy_ratio("mixed_float16") == pytest.approx(2.0)
    assert measured.policy_ratio("float32") == 1.0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_explains_itself(rule: Rule) -> None:
    assert all(len(text) > 10 for text in msgspec.structs.astuple(rule.explanation))
    assert "HWP450" <= rule.id <= "HWP459"


def _decision(policy: str = "mixed_float16", *devices: tuple[str, str], **facts: Any) -> Decision:
    usable = Usable(usable=True, reason="")
    labels = devices or (("GPU-1", "Tesla T4 (7.5)"),)
    return Decision(
        **{
            "dtype_policy": policy,
            "loss_scaling": LossScaling.dynamic() if policy == "mixed_float16" else LossScaling.none(),
            "rejected": {"mixed_bfloat16": "no Tensor Cores for it"},
            "reasons": ("the table says so",),
            "usability": tuple(
                DeviceUsability(subject=subject, label=label, policies={policy: usable}) for subject, label in labels
            ),
            **facts,
        }
    )


def test_a_measurement_that_agrees_changes_nothing() -> None:
    answer = apply_measurement(_decision(), bench(float16=2.5, bfloat16=0.7))
    assert not answer.differs
    assert answer.decision == _decision()
    assert "mixed_float16 runs at 2.50 times the speed of float32" in answer.reason


def test_a_policy_that_is_measured_faster_replaces_the_tables_choice() -> None:
    answer = apply_measurement(_decision(), bench(float16=0.6, bfloat16=0.5))
    assert answer.differs
    assert answer.decision.dtype_policy == "float32"
    assert answer.decision.loss_scaling == LossScaling.none()
    assert "mixed_float16 0.60" in answer.decision.rejected["mixed_float16"]
    assert answer.decision.memory == _decision().memory


def test_a_better_mixed_float16_brings_its_loss_scaling() -> None:
    answer = apply_measurement(_decision("float32", rejected={"mixed_float16": "slow"}), bench(float16=2.0))
    assert answer.decision.dtype_policy == "mixed_float16"
    assert answer.decision.loss_scaling == LossScaling.dynamic()
    assert answer.decision.rejected.keys() == {"float32"}


def test_a_gain_within_the_margin_is_none() -> None:
    assert not apply_measurement(_decision("mixed_bfloat16"), bench(float16=2.05, bfloat16=2.0)).differs
    assert apply_measurement(_decision("mixed_bfloat16"), bench(float16=2.2, bfloat16=2.0)).differs


def test_a_policy_with_a_missing_kernel_is_not_chosen_however_fast() -> None:
    answer = apply_measurement(_decision("mixed_bfloat16"), bench(float16=1.5, bfloat16=3.0, without="bfloat16"))
    assert answer.decision.dtype_policy == "mixed_float16"
    assert answer.ratios["mixed_bfloat16"] is None


def test_on_two_devices_the_slower_one_counts() -> None:
    decision = _decision("mixed_float16", ("GPU-1", "Tesla T4 (7.5)"), ("GPU-2", "Tesla P40 (6.1)"))
    slow = bench(float16=0.3, bfloat16=0.3, description="Tesla P40", compute_capability="6.1")
    answer = apply_measurement(decision, [bench(float16=2.5), slow])
    assert answer.decision.dtype_policy == "float32"
    assert answer.ratios["mixed_float16"] == pytest.approx(0.3)


def test_a_device_that_nobody_measured_keeps_the_tables_choice() -> None:
    decision = _decision("mixed_float16", ("GPU-1", "Tesla T4 (7.5)"), ("GPU-2", "Tesla P40 (6.1)"))
    answer = apply_measurement(decision, bench(float16=0.1))
    assert not answer.differs
    assert answer.reason == "Tesla P40 (6.1) was not measured: the table's choice stands"


def test_one_bench_stands_for_boards_of_the_same_kind() -> None:
    decision = _decision("mixed_float16", ("GPU-1", "Tesla T4 (7.5)"), ("GPU-2", "Tesla T4 (7.5)"))
    assert apply_measurement(decision, bench(float16=0.5)).differs


def test_a_measurement_of_another_device_is_refused() -> None:
    with pytest.raises(InputError, match=r"the measurement is of NVIDIA A100, .* Tesla T4"):
        apply_measurement(_decision(), bench(description="NVIDIA A100"))
    with pytest.raises(InputError, match="no measurement"):
        apply_measurement(_decision(), [])


def test_a_bench_with_a_uuid_is_matched_by_it() -> None:
    decision = _decision("mixed_float16", ("GPU-1", "Tesla T4 (7.5)"))
    assert apply_measurement(decision, bench(float16=0.5, uuid="GPU-1")).differs
    with pytest.raises(InputError):
        apply_measurement(decision, bench(float16=0.5, uuid="GPU-2"))


def test_a_cpu_is_matched_as_one() -> None:
    decision = _decision("float32", ("CPU", "AMD EPYC"))
    measured = bench(bfloat16=2.0, device="CPU:0", description="CPU (x86_64)", compute_capability=None)
    assert apply_measurement(decision, measured).decision.dtype_policy == "mixed_bfloat16"


def test_a_bench_survives_json() -> None:
    full = bench(without="float16", uuid="GPU-1", quick=True, baseline="tf32", seconds=1.5)
    assert from_json(to_json(full), Bench) == full
