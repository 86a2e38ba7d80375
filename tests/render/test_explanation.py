"""`hwprobe explain` without an id: each device, what is usable and why not, what would change it."""

from __future__ import annotations

import io

import pytest

from hwprobe.policy import Policy, Precision
from hwprobe.preflight import Check, assess
from hwprobe.render.explanation import write_explanation
from hwprobe.report import Report
from tests.reports import A100, RTX_5090, T4, cpu_only, gpu, hidden, lost, report
from tests.rules.facts import SECOND_UUID, UUID, with_libraries

PREFER_FLOAT32 = Policy(name="site", precision=Precision(prefer=("float32",)))


def explained(facts: Report, policy: Policy | None = None) -> str:
    site = policy or Policy()
    stream = io.StringIO()
    write_explanation(assess(facts, site), site, stream)
    return stream.getvalue()


CASES = {
    "ready": (
        report(gpus=[A100]),
        ["mixed_bfloat16 without loss scaling", "nothing: it is what policy default prefers"],
    ),
    "limited": (
        report(gpus=[A100, T4]),
        [
            "limited by Tesla T4 (7.5)",
            "not taken:\n  mixed_bfloat16: Tesla T4 (7.5): no bfloat16",
            f"NVIDIA A100-SXM4-80GB (8.0)  {UUID}\n  mixed_bfloat16  yes",
            f"Tesla T4 (7.5)  {SECOND_UUID}\n  mixed_bfloat16  no ",
            "for mixed_bfloat16: hide Tesla T4 (7.5), which leaves NVIDIA A100-SXM4-80GB (8.0)\n    export CUDA_VIS",
            f"CUDA_VISIBLE_DEVICES={UUID}\n",
        ],
    ),
    "no code": (
        report(gpus=[RTX_5090]),
        ["not ready: ", "decision: float32", "[HWP211]", "a build of TensorFlow with code for sm_120"],
    ),
    "a missing library": (
        report(gpus=[T4], lists=(), tensorflow=with_libraries("libcudnn.so.9")),
        [
            "CPU\n  mixed_bfloat16  no",
            f"Tesla T4 (7.5)  {UUID}\n  not used: visible, and TensorFlow does not list it",
            "what is wrong:\n  libcudnn.so.9 does not load",
            "for HWP208 A shared library that TensorFlow opens is missing:\n    pip install",
        ],
    ),
    "hidden and lost": (
        report(gpus=[A100, hidden(T4), lost(T4)], environment={"CUDA_VISIBLE_DEVICES": "0"}),
        ["not used: not visible\n", "not used: GPU is lost [HWP120]"],
    ),
    "a CPU": (
        cpu_only(),
        ["float32: no usable GPU, computing on the CPU", "CPU\n  mixed_bfloat16  no       the CPU has no AMX"],
    ),
}


@pytest.mark.parametrize(("facts", "says"), CASES.values(), ids=CASES.keys())
def test_the_decision_is_explained(facts: Report, says: list[str]) -> None:
    text = explained(facts)
    for part in says:
        assert part in text
    assert "policy default (from: default)" in text
    assert "what would change it:\n  " in text


def test_a_step_is_named_once() -> None:
    text = explained(report(gpus=[A100, gpu("Quadro P1000", "6.1", pci_device_id="1CB1", multiprocessors=10)]))
    assert text.count("export CUDA_VISIBLE_DEVICES=") == 1


def test_a_site_that_prefers_float32_has_what_it_wants() -> None:
    assert "nothing: it is what policy site prefers" in explained(report(gpus=[A100]), PREFER_FLOAT32)


def test_a_name_from_a_driver_cannot_move_the_cursor() -> None:
    assert "\x1b" not in explained(report(gpus=[gpu("NVIDIA \x1b[2J", "8.0")]))


def test_a_wrong_input_is_one_line() -> None:
    stream = io.StringIO()
    write_explanation(Check(hwprobe="0.1.0", verdict="unknown", error="no such policy"), Policy(), stream)
    assert stream.getvalue() == "error: no such policy\n"
