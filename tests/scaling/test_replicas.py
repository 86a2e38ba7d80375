"""Two replicas, one of them with an infinite gradient."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.ports import free_ports

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def cases() -> Any:
    result = subprocess.run(
        [sys.executable, "-m", "tests.scaling.replicas"],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


GOOD_STEP_ALONE = [[0.5, 0.25], [0.5, 0.25]]


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize(("kind", "scale"), [("dynamic", 2.0**14), ("static=64", 64.0)])
def test_ours_skips_on_all_replicas_when_any_is_bad(cases: Any, kind: str, scale: float, bad: int) -> None:
    case = cases[f"{kind}, bad replica {bad}"]
    assert case["weights"] == GOOD_STEP_ALONE
    assert case["scale"] == scale
    assert case["counters"] == [1, 0]


def test_keras_own_obeys_the_first_replica_alone(cases: Any) -> None:
    assert cases["stock, bad replica 0"]["weights"] == GOOD_STEP_ALONE
    lost = cases["stock, bad replica 1"]
    assert lost["weights"][0][0] == float("-inf")
    assert lost["scale"] == 2.0**15


def test_fit_with_an_embedding_goes_on_after_a_batch_that_is_bad_on_one_replica(cases: Any) -> None:
    case = cases["fit, dynamic"]
    assert case["finite"]
    assert case["prediction"] == pytest.approx(1.0, abs=0.2)


def test_fit_with_keras_own_scaler_is_lost(cases: Any) -> None:
    assert not cases["fit, stock"]["finite"]


@pytest.mark.parametrize("setting", ["clipping", "averaging"])
def test_settings_of_the_optimizer_inside_work_as_without_scaling(cases: Any, setting: str) -> None:
    assert cases[f"{setting}, wrapped"] == pytest.approx(cases[f"{setting}, plain"], rel=1e-5)


@pytest.mark.parametrize("setting", ["accumulation", "overwriting by the average"])
def test_what_keras_itself_cannot_do_on_several_replicas_is_no_matter_of_the_scaler(cases: Any, setting: str) -> None:
    assert (cases[f"{setting}, plain"], cases[f"{setting}, wrapped"]) == ("merge_call", "merge_call")


def test_two_workers_agree_that_a_step_is_skipped_when_one_of_them_is_bad() -> None:
    ports = [str(port) for port in free_ports(2)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.scaling.workers", str(worker), "dynamic", *ports],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        for worker in range(2)
    ]
    try:
        answers = [worker.communicate(timeout=900) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for (output, errors), worker in zip(answers, workers, strict=True):
        assert worker.returncode == 0, errors
        assert json.loads(output.splitlines()[-1]) == {"weights": [0.5, 0.25], "skipped": 1}
