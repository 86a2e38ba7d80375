"""`--require`: which requirement is not met, and by how much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.decide import decide
from hwprobe.errors import InputError
from hwprobe.policy import Policy
from hwprobe.preflight import assess
from hwprobe.report import Report
from hwprobe.requirements import parse_requirements, parse_size, unmet_requirements
from tests.reports import A100, CPU_ONLY, GB10, P100, RTX_5090, T4, cpu_only, gpu, lost, report

L4 = gpu("NVIDIA L4", "8.9", memory_gib=23034 / 1024)


def unmet(text: str, facts: Report) -> list[str]:
    decision = decide(facts, Policy())
    return [one.message for one in unmet_requirements(parse_requirements([text]), facts, decision)]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("gpus>=2", report(gpus=[T4, T4])),
        ("gpus==0", cpu_only()),
        ("gpus<1", report(gpus=[A100], tensorflow=CPU_ONLY)),
        ("compute_capability>=8.0", report(gpus=[A100, L4])),
        ("compute_capability!=8.0", report(gpus=[T4])),
        ("memory>=40GiB", report(gpus=[A100])),
        ("memory >= 16 GB", report(gpus=[T4])),
        ("memory>=24GiB", report(gpus=[L4])),
        ("memory>=80GiB", report(gpus=[gpu("NVIDIA H100 80GB HBM3", "9.0", memory_gib=81559 / 1024)])),
        ("memory<=16GiB", report(gpus=[T4])),
        ("tensor_cores", report(gpus=[T4, A100])),
        ("dtype_policy=mixed_bfloat16", report(gpus=[A100])),
        ("dtype_policy!=float32", report(gpus=[T4])),
        ("tensorflow>=2.16", report()),
        ("driver>=535.104.05", report(gpus=[T4], driver="1000.10.01")),
        ("driver>=535.104.05", report(gpus=[T4], driver="535.104.05")),
        ("gpus>=1, tensor_cores,memory>=8GiB", report(gpus=[T4])),
    ],
)
def test_a_requirement_that_holds_is_silent(text: str, facts: Report) -> None:
    assert unmet(text, facts) == []


@pytest.mark.parametrize(
    ("text", "facts", "says"),
    [
        ("gpus>=2", report(gpus=[T4]), "1 usable for TensorFlow; 1 missing"),
        ("gpus==8", report(gpus=[A100, lost(A100)]), "1 usable for TensorFlow, of 2 that the machine shows; 7 missing"),
        ("gpus>=1", report(gpus=[RTX_5090]), "0 usable for TensorFlow, of 1"),
        ("gpus<=1", report(gpus=[T4, T4]), "1 too many"),
        ("compute_capability>=8.0", report(gpus=[A100, T4]), "Tesla T4 (7.5) has 7.5"),
        ("compute_capability>=8.0", cpu_only(), "no usable GPU"),
        ("memory>=40GiB", report(gpus=[T4]), "15.0 GiB, 25.0 GiB less"),
        ("memory>=17GiB", report(gpus=[T4]), "2.0 GiB less"),
        ("memory>=40GiB", report(gpus=[gpu("NVIDIA GB10", "8.0", memory_gib=None)]), "could not be read"),
        ("tensor_cores", report(gpus=[P100]), "no Tensor Cores"),
        ("dtype_policy=mixed_bfloat16", report(gpus=[T4]), "mixed_float16 (Tesla T4 (7.5): no bfloat16"),
        ("tensorflow>=2.22", report(), "TensorFlow is 2.21.0"),
        ("tensorflow>=2.16", report(tensorflow=None), "no version of TensorFlow was read"),
        ("driver>=535.104.05", report(gpus=[T4], driver="61.10.01"), "the NVIDIA driver is 61.10.01"),
        ("driver>=535.104.05", cpu_only(), "no version of the NVIDIA driver was read"),
    ],
)
def test_a_requirement_that_does_not_hold_says_by_how_much(text: str, facts: Report, says: str) -> None:
    (message,) = unmet(text, facts)
    assert says in message


@pytest.mark.parametrize(("text", "who"), [("driver>=999", "admin"), ("tensorflow>=9", "user"), ("gpus>=9", "user")])
def test_who_has_to_act_on_what_is_lacking(text: str, who: str) -> None:
    check = assess(report(gpus=[T4]), Policy(), requirements=parse_requirements([text]))
    assert check.primary is not None
    assert (check.primary.id, check.primary.action.value) == ("HWP950", who)


def test_unified_memory_counts_as_the_hosts() -> None:
    gb10 = report(
        gpus=[GB10],
        tensorflow="2.21.0",
        host={"memory_total_bytes": 122 * 2**30},
    )
    # No code in the wheel: not usable, whatever its memory.
    assert "no usable GPU" in unmet("memory>=100GiB", gb10)[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not understood"),
        ("gpu>=1", "expected one of gpus>=N"),
        ("gpus", "lacks a comparison"),
        ("gpus>=", "lacks a comparison"),
        ("gpus>=two", "'two' is not a whole number"),
        ("memory>=40", "not a size with its unit"),
        ("compute_capability>=8", "not a compute capability"),
        ("dtype_policy=bf16", "one of mixed_bfloat16, mixed_float16, float32"),
        ("dtype_policy>=float32", "compared with = or != only"),
        ("tensor_cores=yes", "stands alone"),
        ("tensorflow>=new", "not a version"),
        ("driver=>535", "'>535' is not a driver version"),
    ],
)
def test_what_is_not_understood_names_the_accepted_forms(text: str, says: str) -> None:
    with pytest.raises(InputError, match="requirement") as refused:
        parse_requirements([text])
    assert says in str(refused.value)


@given(st.text(max_size=60))
def test_no_text_makes_a_traceback(text: str) -> None:
    try:
        parsed = parse_requirements([text])
    except InputError:
        return
    facts = report(gpus=[T4])
    unmet_requirements(parsed, facts, decide(facts, Policy()))


@pytest.mark.parametrize(
    ("text", "size"), [("1KiB", 1024), ("1.5 GB", 1_500_000_000), ("40gib", 40 * 2**30), ("7B", 7)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
