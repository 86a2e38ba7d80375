"""Report and wishes in, decision out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hwprobe.configuration import LossScaling, Memory
from hwprobe.decide import Request, decide
from hwprobe.errors import UnsupportedError
from hwprobe.gpu import Gpu
from hwprobe.policy import DeviceOverride, LossScalingWish, Policy, Precision
from hwprobe.report import Keras, Report, TensorFlow
from tests.reports import (
    A100,
    CPU_ONLY,
    GB10,
    GTX_980,
    GTX_1080_TI,
    GTX_1660_TI,
    H100,
    P100,
    RTX_4090,
    RTX_5090,
    T4,
    T1200,
    V100,
    cpu_only,
    gpu,
    hidden,
    lost,
    report,
    source,
    tensorflow_wheel,
)

DYNAMIC, NONE = LossScaling.dynamic(), LossScaling.none()


@pytest.mark.parametrize(
    ("gpus", "tensorflow", "dtype_policy", "loss_scaling"),
    [
        pytest.param([T4], "2.21.0", "mixed_float16", DYNAMIC, id="T4: Tensor Cores for float16 only"),
        pytest.param([V100], "2.21.0", "mixed_float16", DYNAMIC, id="V100"),
        pytest.param([A100], "2.21.0", "mixed_bfloat16", NONE, id="A100"),
        pytest.param([H100], "2.21.0", "mixed_bfloat16", NONE, id="H100, native through compute_90"),
        pytest.param([H100], "2.15.1", "mixed_bfloat16", NONE, id="H100 under 2.15, compiled at first use"),
        pytest.param([RTX_4090], "2.21.0", "mixed_bfloat16", NONE, id="RTX 4090"),
        pytest.param([A100], "2.12.1", "mixed_float16", DYNAMIC, id="A100 under 2.12, which lacks bfloat16 kernels"),
        pytest.param([GTX_1660_TI], "2.21.0", "float32", NONE, id="GTX 1660 Ti: 7.5 without Tensor Cores"),
        pytest.param([T1200], "2.21.0", "float32", NONE, id="T1200 is not a T4"),
        pytest.param([P100], "2.21.0", "float32", NONE, id="P100"),
        pytest.param([GTX_1080_TI], "2.21.0", "float32", NONE, id="GTX 1080 Ti"),
        pytest.param([RTX_5090], "2.21.0", "float32", NONE, id="RTX 5090: no code in the wheel"),
        pytest.param([GTX_980], "2.21.0", "float32", NONE, id="GTX 980: older than the wheel"),
        pytest.param([GTX_980], "2.16.2", "float32", NONE, id="GTX 980 under 2.16, which has its code"),
        pytest.param([GB10], "2.21.0", "float32", NONE, id="GB10: no code in the wheel"),
        pytest.param([T4, A100], "2.21.0", "mixed_float16", DYNAMIC, id="T4 beside A100"),
        pytest.param([A100, P100], "2.21.0", "float32", NONE, id="P100 beside A100"),
        pytest.param([hidden(T4), A100], "2.21.0", "mixed_bfloat16", NONE, id="a hidden T4 does not count"),
        pytest.param([A100, lost(A100)], "2.21.0", "mixed_bfloat16", NONE, id="a lost GPU does not count"),
        pytest.param([], "2.21.0", "float32", NONE, id="no GPU"),
    ],
)
def test_each_machine_gets_what_fits_it(
    gpus: list[Gpu], tensorflow: str, dtype_policy: str, loss_scaling: LossScaling
) -> None:
    decision = decide(report(gpus=gpus, tensorflow=tensorflow), Policy())
    assert (decision.dtype_policy, decision.loss_scaling) == (dtype_policy, loss_scaling)


def test_a_build_with_code_for_blackwell_is_judged_by_its_own_list() -> None:
    own_build = tensorflow_wheel("2.21.0", compute_capabilities=("sm_90", "sm_120", "compute_120"))
    assert decide(report(gpus=[RTX_5090], tensorflow=own_build), Policy()).dtype_policy == "mixed_bfloat16"


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        pytest.param(
            report(gpus=[A100], tensorflow=tensorflow_wheel("2.22.0rc0", compute_capabilities=None)),
            "could not be read",
            id="a build that does not say what it has code for",
        ),
        pytest.param(report(gpus=[A100], tensorflow=None), "no TensorFlow is installed", id="no TensorFlow"),
        pytest.param(
            report(gpus=[gpu("NVIDIA Mystery", None)]), "compute capability could not be read", id="no capability"
        ),
    ],
)
def test_unknown_counts_as_no_and_says_so(facts: Report, says: str) -> None:
    decision = decide(facts, Policy())
    assert decision.dtype_policy == "float32"
    assert "unknown, which counts as no" in decision.rejected["mixed_bfloat16"]
    assert says in decision.rejected["mixed_bfloat16"]


@pytest.mark.parametrize(
    ("facts", "where"),
    [
        pytest.param(report(gpus=[A100], tensorflow=CPU_ONLY), "CPU", id="a TensorFlow without CUDA"),
        pytest.param(report(gpus=[A100], lists=[]), "CPU", id="TensorFlow lists none"),
        pytest.param(
            report(
                gpus=[A100],
                tensorflow=tensorflow_wheel(libraries=()),
                sources={"tensorflow_runtime": source("skipped", "--fast")},
            ),
            "GPU",
            id="TensorFlow was not asked and nothing speaks against it",
        ),
    ],
)
def test_the_decision_is_for_what_tensorflow_will_compute_on(facts: Report, where: str) -> None:
    decision = decide(facts, Policy())
    assert decision.dtype_policy == ("float32" if where == "CPU" else "mixed_bfloat16")
    assert [device.subject == "CPU" for device in decision.usability] == [where == "CPU"]


def test_the_limiting_device_is_named_and_the_rejected_policy_has_its_reason() -> None:
    facts = report(gpus=[A100, T4])
    decision = decide(facts, Policy())
    assert decision.limited_by == (facts.devices[1].uuid,)
    assert "Tesla T4 (7.5)" in decision.rejected["mixed_bfloat16"]
    assert "A100" not in decision.rejected["mixed_bfloat16"]


def test_amx_counts_only_where_the_site_asks_for_bfloat16_on_a_cpu() -> None:
    amx = cpu_only(host={"cpu_flags": ("amx_bf16",)})
    wish = Policy(precision=Precision(cpu=("mixed_bfloat16", "float32")))
    assert decide(amx, Policy()).dtype_policy == "float32"
    assert decide(amx, wish).dtype_policy == "mixed_bfloat16"
    assert decide(cpu_only(), wish).dtype_policy == "float32"
    assert decide(cpu_only(host={"cpu_flags": None}), wish).dtype_policy == "float32"


def test_another_backend_of_keras_is_not_judged_by_tensorflows_build() -> None:
    jax = Keras(version="3.15.1", backend="jax", backend_origin="environment")
    no_tensorflow: TensorFlow | None = None
    assert decide(report(gpus=[A100], tensorflow=no_tensorflow, keras=jax), Policy()).dtype_policy == "mixed_bfloat16"
    assert decide(report(gpus=[T4], tensorflow=no_tensorflow, keras=jax), Policy()).dtype_policy == "mixed_float16"
    for_the_cpu = tensorflow_wheel(is_cuda_build=False, compute_capabilities=None)
    lists_none = report(gpus=[A100], tensorflow=for_the_cpu, lists=[], keras=jax)
    assert decide(lists_none, Policy()).dtype_policy == "mixed_bfloat16"
    assert decide(report(gpus=[A100], tensorflow=for_the_cpu, lists=[]), Policy()).dtype_policy == "float32"


class TestRequests:
    def test_a_wanted_policy_that_fits_is_taken(self) -> None:
        decision = decide(report(gpus=[A100]), Policy(), Request(dtype_policy="mixed_float16"))
        assert (decision.dtype_policy, decision.origin, decision.rejected) == ("mixed_float16", "argument", {})

    def test_a_wanted_policy_that_does_not_fit_is_an_error_that_says_why(self) -> None:
        with pytest.raises(UnsupportedError, match=r"mixed_bfloat16 .* Tesla T4 \(7.5\): no bfloat16"):
            decide(report(gpus=[T4]), Policy(), Request(dtype_policy="mixed_bfloat16"))

    def test_with_a_fallback_allowed_it_steps_down_and_says_so(self) -> None:
        decision = decide(report(gpus=[T4]), Policy(), Request(dtype_policy="mixed_bfloat16", allow_fallback=True))
        assert decision.dtype_policy == "mixed_float16"
        assert "Tesla T4" in decision.rejected["mixed_bfloat16"]
        said = "mixed_bfloat16 was asked for and is not usable here; a fallback was allowed"
        assert said in decision.reasons
        met = decide(report(gpus=[A100]), Policy(), Request(dtype_policy="mixed_bfloat16", allow_fallback=True))
        assert said not in met.reasons

    def test_float16_on_a_cpu_is_refused(self) -> None:
        with pytest.raises(UnsupportedError, match="slower than float32 on every CPU"):
            decide(cpu_only(), Policy(), Request(dtype_policy="mixed_float16"))

    @pytest.mark.parametrize(
        ("device", "wanted", "given"),
        [
            pytest.param(T4, LossScaling.static(1024), LossScaling.static(1024), id="static is taken when asked for"),
            pytest.param(T4, NONE, NONE, id="none is taken when asked for"),
            pytest.param(A100, DYNAMIC, NONE, id="bfloat16 needs none"),
            pytest.param(P100, LossScaling.static(8), NONE, id="float32 needs none"),
        ],
    )
    def test_loss_scaling(self, device: Gpu, wanted: LossScaling, given: LossScaling) -> None:
        assert decide(report(gpus=[device]), Policy(), Request(loss_scaling=wanted)).loss_scaling == given

    def test_memory_growth_goes_before_the_policy(self) -> None:
        site = Policy(memory=Memory(growth=True, limit_mib=4096))
        assert decide(report(gpus=[T4]), site, Request(memory_growth=False)).memory == Memory(
            growth=False, limit_mib=4096
        )


class TestPolicies:
    def test_a_site_may_prefer_float16(self) -> None:
        site = Policy(precision=Precision(prefer=("mixed_float16", "float32")))
        assert decide(report(gpus=[A100]), site).dtype_policy == "mixed_float16"

    @pytest.mark.parametrize(
        ("wish", "given"),
        [
            (LossScalingWish(), DYNAMIC),
            (LossScalingWish(initial_scale=4096.0, growth_steps=500), LossScaling.dynamic(4096, 500)),
            (LossScalingWish(mode="static", initial_scale=256.0), LossScaling.static(256)),
            (LossScalingWish(mode="dynamic", growth_steps=10), LossScaling.dynamic(2**15, 10)),
            (LossScalingWish(mode="none"), NONE),
        ],
    )
    def test_a_site_may_set_loss_scaling(self, wish: LossScalingWish, given: LossScaling) -> None:
        assert decide(report(gpus=[T4]), Policy(loss_scaling=wish)).loss_scaling == given

    def test_an_override_allows_or_denies_for_a_board(self) -> None:
        allow = DeviceOverride(name="Tesla P100*", allow=("mixed_float16",), reason="halves activation memory")
        deny = DeviceOverride(name="*A100*", deny=("mixed_bfloat16",), reason="our loss needs 10 bits")
        assert decide(report(gpus=[P100]), Policy(devices=(allow,))).dtype_policy == "mixed_float16"
        assert decide(report(gpus=[A100]), Policy(devices=(deny,))).dtype_policy == "mixed_float16"

    def test_an_override_cannot_make_a_gpu_without_code_compute(self) -> None:
        allow = DeviceOverride(name="*5090*", allow=("mixed_bfloat16",), reason="we believe in it")
        assert decide(report(gpus=[RTX_5090]), Policy(devices=(allow,))).dtype_policy == "float32"

    @pytest.mark.parametrize("origin", ["argument", "environment", "file", "default"])
    def test_what_won_is_part_of_the_result(self, origin: Any) -> None:
        assert decide(report(gpus=[T4]), msgspec.structs.replace(Policy(), origin=origin)).origin == origin
