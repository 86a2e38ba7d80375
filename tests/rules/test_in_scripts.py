"""In a training script: one line with the one first cause, the same text from `require`, and never silence."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hwprobe.auto
from hwprobe.configuration import Applied
from hwprobe.decide import Request
from hwprobe.policy import Policy
from hwprobe.preflight import assess, raise_unmet
from hwprobe.report import Report
from hwprobe.requirements import parse_requirements
from tests.machine import A100, RTX_5090, T4, Case, Machine, python_in_forks
from tests.reports import CPU_ONLY, cpu_only, report
from tests.reports import T4 as T4_FACTS
from tests.rules.facts import NODES, distributions, pci, with_libraries

SCRIPT = """
import json
import hwprobe
applied = hwprobe.auto_configure(quiet=QUIET)
print("told:" + json.dumps({
    "primary": [finding.id for finding in applied.findings if finding.primary],
    "dtype_policy": applied.decision.dtype_policy,
}))
"""
REQUIRES = """
import json
import hwprobe
try:
    ASK
except hwprobe.RequirementError as error:
    print("told:" + json.dumps({"type": type(error).__name__, "text": str(error)}))
"""

WARNING = "hwprobe: warning: "


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """Variables by which XLA finds libdevice and ptxas, which TensorFlow's wheel alone does not bring."""
    (tmp_path / "nvvm/libdevice").mkdir(parents=True)
    (tmp_path / "nvvm/libdevice/libdevice.10.bc").write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ptxas").write_text("")
    (tmp_path / "bin/ptxas").chmod(0o755)
    return {"XLA_FLAGS": f"--xla_gpu_cuda_data_dir={tmp_path}"}


def told(output: str) -> dict[str, Any]:
    line = next(line for line in output.splitlines() if line.startswith("told:"))
    answer = json.loads(line.removeprefix("told:"))
    assert isinstance(answer, dict)
    return answer


def warnings(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith(WARNING)]


BROKEN = [
    ("a missing cuDNN", {"gpus": [T4], "missing": ["libcudnn.so.9"]}, "HWP208", "libcudnn.so.9 does not load"),
    ("no libnvidia-ml", {"gpus": [T4], "missing": ["libnvidia-ml.so.1"]}, "HWP105", "lists no GPU without it"),
    ("no libcuda", {"gpus": [T4], "missing": ["libcuda.so.1"]}, "HWP109", "libcuda.so.1 cannot be loaded"),
]


@pytest.mark.parametrize(("facts", "id_", "says"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_script_on_a_machine_that_lacks_a_library_is_told_once(
    facts: dict[str, Any], id_: str, says: str, machine: Callable[..., Machine], tools: dict[str, str]
) -> None:
    m = machine(**facts)
    quiet, asks = python_in_forks(
        [
            Case(m, SCRIPT.replace("QUIET", "True"), tools),
            Case(m, REQUIRES.replace("ASK", 'hwprobe.auto_configure(require="gpus>=1")'), tools),
        ]
    )
    assert told(quiet.stdout) == {"primary": [id_], "dtype_policy": "float32"}
    (line,) = warnings(quiet.stderr)
    assert says in line
    assert line.endswith(f"[{id_}; hwprobe explain {id_}]")
    refusal = told(asks.stdout)
    assert refusal["type"] == "RequirementError"
    assert refusal["text"].startswith("gpus>=1 is not met: 0 usable for TensorFlow")
    assert f"[{id_}]" in refusal["text"]
    assert says in refusal["text"]


def test_scripts_on_machines_with_all_libraries(machine: Callable[..., Machine], tools: dict[str, str]) -> None:
    healthy, broken = machine(gpus=[T4, A100]), machine(gpus=[T4], cu_init=999)
    lost, blackwell = machine(gpus=[T4], nvml_init=999, cu_init=999), machine(gpus=[RTX_5090])
    loud, quiet = SCRIPT.replace("QUIET", "False"), SCRIPT.replace("QUIET", "True")
    hidden = {**tools, "CUDA_VISIBLE_DEVICES": ""}
    cases = [
        (Case(healthy, quiet, tools), None, []),
        (Case(healthy, loud, tools), None, ["limited by Tesla T4 (7.5)"]),
        (Case(broken, quiet, tools), "HWP111", ["CUDA_ERROR_UNKNOWN (999)"]),
        (Case(broken, loud, tools), "HWP111", ["float32: no usable GPU, computing on the CPU", "(999)"]),
        (Case(lost, quiet, tools), "HWP107", ["NVML_ERROR_UNKNOWN"]),
        (Case(blackwell, quiet, tools), "HWP211", ["has no code for it"]),
        (Case(healthy, quiet, hidden), "HWP301", ['CUDA_VISIBLE_DEVICES="" hides']),
    ]
    ends = python_in_forks([case for case, _, _ in cases])
    for (_, id_, says), end in zip(cases, ends, strict=True):
        assert end.returncode == 0, end.stderr
        assert told(end.stdout)["primary"] == ([] if id_ is None else [id_])
        lines = [line for line in end.stderr.splitlines() if line.startswith("hwprobe: ")]
        assert len(lines) == len(says), lines
        assert all(words in line for words, line in zip(says, lines, strict=True))
        assert len(warnings(end.stderr)) == (0 if id_ is None else 1)


def test_require_raises_the_text_that_the_command_shows(machine: Callable[..., Machine]) -> None:
    m = machine(gpus=[T4], missing=["libcudnn.so.9"])
    asked = m.python(REQUIRES.replace("ASK", 'hwprobe.require("gpus>=1", "tensor_cores")'), timeout=240)
    text = told(asked.stdout)["text"]
    shown = m.run(
        [sys.executable, "-m", "hwprobe", "check", "--require", "gpus>=1", "--require", "tensor_cores"], timeout=240
    )
    assert shown.returncode == 1
    messages = [line.removeprefix("cause: ").rpartition(" [")[0] or line for line in text.splitlines()]
    assert len(messages) == 5
    assert all(message.strip() in shown.stdout for message in messages), (messages, shown.stdout)


ALL_HOLDS = """
import json
import hwprobe
required = hwprobe.require("gpus==2", "driver>=535", "dtype_policy=mixed_float16")
answer = {"required": required.verdict, "policy": required.decision.dtype_policy}
print("told:" + json.dumps({**answer, "checked": hwprobe.check(fast=True).verdict}))
"""


def test_require_gives_the_check_where_all_holds(machine: Callable[..., Machine]) -> None:
    done = machine(gpus=[T4, A100]).python(ALL_HOLDS, timeout=240)
    assert done.returncode == 0, done.stderr
    assert told(done.stdout) == {"required": "ready", "policy": "mixed_float16", "checked": "ready"}


CPU_BUILD = with_libraries(is_cuda_build=False, distributions=distributions("tensorflow-cpu"))
ON_PAPER = [
    ("a CPU build beside a GPU", report(gpus=[T4_FACTS], tensorflow=CPU_BUILD, lists=()), ["HWP202"]),
    (
        "Windows",
        report(gpus=[T4_FACTS], tensorflow=CPU_ONLY, lists=(), host={"system": "Windows", "pci_devices": None}),
        ["HWP203"],
    ),
    ("no driver for the GPU on the bus", cpu_only(host={"pci_devices": (pci(driver=None),)}), ["HWP101"]),
    (
        "a container that was given none",
        cpu_only(host={"pci_devices": (pci(),), "container": "docker", "device_nodes": ()}),
        ["HWP306"],
    ),
    (
        "a pod that asked for none",
        cpu_only(host={"pci_devices": (pci(),), "container": "kubernetes", "device_nodes": ()}),
        [],
    ),
    ("no GPU at all", cpu_only(), []),
    ("a GPU that computes", report(gpus=[T4_FACTS], host={"device_nodes": NODES}), []),
]


@pytest.mark.parametrize(("facts", "ids"), [row[1:] for row in ON_PAPER], ids=[row[0] for row in ON_PAPER])
def test_a_gpu_that_is_not_used_costs_one_line_and_calm_costs_none(
    facts: Report, ids: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    check = assess(facts, Policy())
    assert check.decision is not None
    applied = Applied(decision=check.decision, steps=(), findings=check.findings, thread="MainThread", process_id=1)
    hwprobe.auto._say(applied, True)
    lines = warnings(capsys.readouterr().err)
    assert len(lines) == len(ids)
    assert all(f"[{id_}; hwprobe explain {id_}]" in line for id_, line in zip(ids, lines, strict=True))


@pytest.mark.parametrize("origin", ["argument", "plan"])
def test_another_dtype_policy_than_the_one_asked_for_costs_one_line(
    origin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Request(dtype_policy="mixed_bfloat16", allow_fallback=True)
    check = assess(report(gpus=[T4_FACTS]), Policy(), request=asked)
    assert check.decision is not None
    decision = msgspec.structs.replace(check.decision, origin=origin)
    if origin == "plan":
        decision = msgspec.structs.replace(decision, rejected={}, reasons=("the plan of 4 nodes",))
    applied = Applied(decision=decision, steps=(), findings=check.findings, thread="MainThread", process_id=1)
    hwprobe.auto._say(applied, True, "mixed_bfloat16")
    (line,) = warnings(capsys.readouterr().err)
    assert "mixed_bfloat16 was asked for, and mixed_float16 taken, as allowed: " in line
    assert ("the plan of 4 nodes" if origin == "plan" else "Tesla T4 (7.5): no bfloat16") in line
    hwprobe.auto._say(applied, True, "mixed_float16")
    hwprobe.auto._say(applied, True)
    assert warnings(capsys.readouterr().err) == []


def test_a_calm_place_becomes_a_refusal_with_its_cause_where_a_gpu_is_required() -> None:
    facts = ON_PAPER[4][1]
    refused = assess(facts, Policy(), requirements=parse_requirements(["gpus>=1"]))
    with pytest.raises(hwprobe.RequirementError, match=r"given none.*\[HWP306\]"):
        raise_unmet(refused)


def test_a_cause_is_named_only_where_gpus_are_what_is_missing() -> None:
    facts = report(gpus=[T4_FACTS], host={"scheduler": "slurm"})
    old = assess(facts, Policy(), requirements=parse_requirements(["tensorflow>=9.9"]))
    assert (old.primary and old.primary.id) == "HWP950"
    few = assess(facts, Policy(), requirements=parse_requirements(["gpus>=4"]))
    assert (few.primary and few.primary.id) == "HWP308"
