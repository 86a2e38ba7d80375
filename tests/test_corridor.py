"""What each machine must get, from the real TensorFlow and nvidia-ml-py on a machine of ours to the exit status.

Two ways in, one table: `hwprobe check` in a shell and `hwprobe.auto_configure()` in a script.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.machine import (
    A100,
    GB10,
    GTX_980,
    GTX_1660_TI,
    H100,
    P100,
    RTX_4090,
    RTX_5090,
    T4,
    T1200,
    V100,
    Machine,
)
from tests.schema import valid

TWO_CALLS = """
import json, sys
import hwprobe
first = hwprobe.auto_configure(quiet=True)
second = hwprobe.auto_configure(quiet=True)
import tensorflow as tf
from tensorflow.python.eager import context
gpus = tf.config.list_physical_devices("GPU")
print(json.dumps({
    "dtype_policy": first.decision.dtype_policy,
    "loss_scaling": first.decision.loss_scaling.mode,
    "keras": tf.keras.mixed_precision.global_policy().name,
    "growth": [tf.config.experimental.get_memory_growth(gpu) for gpu in gpus],
    "initialized": context.context()._initialized,
    "again": sorted({step.status for step in second.steps}),
    "same": first.decision == second.decision,
    "complete": first.complete and second.complete,
    "in_force": bool(hwprobe.verify()),
}))
"""


class Row(NamedTuple):
    """One machine and what it must get."""

    facts: dict[str, Any]
    dtype_policy: str
    loss_scaling: str
    exit_status: int
    ids: tuple[str, ...] = ()
    says: str = ""
    variables: dict[str, str] = {}


ROWS = {
    "CPU only": Row({"gpus": [], "driver": None}, "float32", "none", 0),
    "Tesla T4": Row({"gpus": [T4]}, "mixed_float16", "dynamic", 0),
    "Tesla V100": Row({"gpus": [V100]}, "mixed_float16", "dynamic", 0),
    "A100": Row({"gpus": [A100]}, "mixed_bfloat16", "none", 0),
    "H100": Row({"gpus": [H100]}, "mixed_bfloat16", "none", 0),
    "RTX 4090": Row({"gpus": [RTX_4090]}, "mixed_bfloat16", "none", 0),
    "T4 and A100": Row(
        {"gpus": [T4, A100]}, "mixed_float16", "dynamic", 0, ("HWP403",), "export CUDA_VISIBLE_DEVICES=GPU-"
    ),
    "T4 and A100, the A100 by CUDA index": Row(
        {"gpus": [T4, A100]}, "mixed_bfloat16", "none", 0, variables={"CUDA_VISIBLE_DEVICES": "0"}
    ),
    "GTX 1660 Ti": Row({"gpus": [GTX_1660_TI]}, "float32", "none", 0, says="no Tensor Cores"),
    "T1200": Row({"gpus": [T1200]}, "float32", "none", 0, says="no Tensor Cores"),
    "P100": Row({"gpus": [P100]}, "float32", "none", 0, says="no Tensor Cores"),
    "RTX 5090": Row({"gpus": [RTX_5090]}, "float32", "none", 1, ("HWP211",), "has no code for it"),
    "GTX 980": Row({"gpus": [GTX_980]}, "float32", "none", 1, ("HWP211",), "older than"),
    "GB10": Row({"gpus": [GB10]}, "float32", "none", 1, ("HWP211",), '"kind": "unified"'),
    "A100, MIG on, no instances": Row(
        {"gpus": [A100.mig_on()]}, "float32", "none", 1, ("HWP304",), "in MIG mode without an instance"
    ),
    "two A100, one lost": Row({"gpus": [A100, A100.lost()]}, "mixed_bfloat16", "none", 1, ("HWP120",)),
    "cuInit 802": Row({"gpus": [H100], "cu_init": 802}, "float32", "none", 1, ("HWP111",), "nvidia-fabricmanager"),
}


def check(m: Machine, *options: str, **variables: Any) -> tuple[int, dict[str, Any], str]:
    done = m.run([sys.executable, "-m", "hwprobe", "check", "--format", "json", *options], timeout=240, **variables)
    return done.returncode, valid(done.stdout), done.stderr


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in ROWS.items()])
def test_check_gives_each_machine_what_fits_it(row: Row, machine: Callable[..., Machine]) -> None:
    status, answer, _ = check(machine(**row.facts), **row.variables)
    decision = answer["decision"]
    assert (decision["dtype_policy"], decision["loss_scaling"]["mode"], status) == (
        row.dtype_policy,
        row.loss_scaling,
        row.exit_status,
    ), answer["findings"]
    found = [finding["id"] for finding in answer["findings"]]
    assert [id_ for id_ in row.ids if id_ not in found] == []
    assert sum(finding["primary"] for finding in answer["findings"]) in ((1,) if row.exit_status else (0, 1))
    assert row.says in json.dumps(answer)
    assert answer["verdict"] == ("not_ready" if row.exit_status else "ready")


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in ROWS.items()])
def test_auto_configure_gives_the_same(row: Row, machine: Callable[..., Machine]) -> None:
    done = machine(**row.facts).python(TWO_CALLS, timeout=240, **row.variables)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["dtype_policy"], answer["loss_scaling"], answer["keras"]) == (
        row.dtype_policy,
        row.loss_scaling,
        row.dtype_policy,
    )
    assert answer["growth"] == [True] * len(answer["growth"])
    assert answer["initialized"] is False
    assert set(answer["again"]) <= {"unchanged", "skipped"}
    assert (answer["same"], answer["complete"], answer["in_force"]) == (True, True, True)


def test_a_gpu_is_chosen_by_uuid_too_and_the_other_is_shown_as_not_visible(machine: Callable[..., Machine]) -> None:
    m = machine(gpus=[T4, A100])
    status, answer, _ = check(m, CUDA_VISIBLE_DEVICES=m.gpus[1].uuid)
    assert (status, answer["decision"]["dtype_policy"]) == (0, "mixed_bfloat16")
    t4, a100 = answer["report"]["devices"]
    assert (t4["name"], t4["visible"], t4["cuda_index"], t4["tensorflow_name"]) == ("Tesla T4", False, None, None)
    assert (a100["visible"], a100["cuda_index"], a100["tensorflow_name"]) == (True, 0, "GPU:0")


def test_the_lost_gpu_is_named_and_the_other_is_still_reported(machine: Callable[..., Machine]) -> None:
    m = machine(gpus=[A100, A100.lost()])
    _, answer, _ = check(m)
    healthy, missing = answer["report"]["devices"]
    assert healthy["error"] is None
    assert healthy["tensorflow_name"] == "GPU:0"
    assert "lost" in missing["error"].lower()
    (finding,) = [one for one in answer["findings"] if one["id"] == "HWP120"]
    assert finding["action"] == "drain"


def test_mig_without_instances_gives_no_advice_about_drivers(machine: Callable[..., Machine]) -> None:
    _, answer, _ = check(machine(gpus=[A100.mig_on()]))
    assert "driver" not in json.dumps(answer["findings"]).lower()


def test_the_fabric_manager_is_a_reason_to_drain(machine: Callable[..., Machine]) -> None:
    _, answer, _ = check(machine(gpus=[H100], cu_init=802))
    (primary,) = [one for one in answer["findings"] if one["primary"]]
    assert (primary["id"], primary["action"]) == ("HWP111", "drain")


def test_a_hanging_nvml_ends_within_the_limit(machine: Callable[..., Machine]) -> None:
    status, answer, _ = check(machine(gpus=[A100], hang=["nvmlInit"]), "--timeout", "20")
    assert answer["report"]["sources"]["nvml"]["status"] == "timeout"
    assert status in (1, 3)
    assert "HWP108" in [finding["id"] for finding in answer["findings"]]
