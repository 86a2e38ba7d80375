"""Every manifest that is printed is one that an API server takes, and does what its comments say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hwprobe.cluster.template import fill
from hwprobe.cluster.workers import find_workers
from tests.cluster.presence import need

MANIFESTS = ["kubernetes-job", "kubernetes-jobset", "kubeflow-tfjob"]


@pytest.fixture(autouse=True, scope="module")
def validator() -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        need("not installed: kubernetes-validate")


def problems(text: str, version: str = "1.34") -> list[str]:
    from tests.cluster import manifests

    return manifests.problems(text, version)


def pod(name: str, **values: str) -> dict[str, Any]:
    from tests.cluster import manifests

    *_, document = yaml.safe_load_all(fill(name, values))
    (spec,) = manifests.pods(document)
    return spec


@pytest.mark.parametrize("version", ["1.31", "1.34"])
@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("values", [{}, {"workers": "1", "gpus": "1", "secret": "agreement", "job": "true"}])
def test_a_manifest_is_valid(name: str, version: str, values: dict[str, str]) -> None:
    assert problems(fill(name, values), version) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("kubernetes-job", "completions: 4", "completionz: 4", "completionz"),
        ("kubernetes-job", "completions: 4", 'completions: "4"', "integer"),
        ("kubernetes-job", "Indexed", "indexed", "completionMode: indexed"),
        ("kubernetes-job", "restartPolicy: Never", "restartPolicy: OnFailure", "only with restartPolicy Never"),
        ("kubernetes-job", "action: FailJob", "action: Fail", "'Fail' is not one of"),
        ("kubernetes-job", "action: FailJob", "action: FailIndex", "needs backoffLimitPerIndex"),
        ("kubernetes-job", "containerName: preflight", "containerName: probe", "no container is called probe"),
        ("kubernetes-job", "values: [1, 2]", "values: [0, 1]", "less than the minimum"),
        ("kubernetes-job", "FallbackToLogsOnError", "Logs", "terminationMessagePolicy: Logs"),
        ("kubernetes-jobset", "action: FailJobSet", "action: FailJob", "'FailJob' is not one of"),
        ("kubernetes-jobset", "[PodFailurePolicy]", "[Preflight]", "'Preflight' is not one of"),
        ("kubernetes-jobset", "enableDNSHostnames", "enableDnsHostnames", "enableDnsHostnames"),
        ("kubernetes-jobset", "restartPolicy: Never", "restartPolicy: OnFailure", "only with restartPolicy Never"),
        ("kubeflow-tfjob", "name: tensorflow", "name: trainer", "no container is called tensorflow"),
        ("kubeflow-tfjob", "restartPolicy: Never", "restartPolicy: never", "'never' is not one of"),
        ("kubeflow-tfjob", "    Worker:", "    Workers:", "Workers"),
        ("kubeflow-tfjob", "cleanPodPolicy: None", "cleanPodPolicy: Never", "'Never' is not one of"),
    ],
)
def test_the_validation_sees_a_mistake(name: str, old: str, new: str, says: str) -> None:
    text = fill(name, {})
    assert old in text
    assert any(says in problem for problem in problems(text.replace(old, new)))


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_preflight_sees_what_the_trainer_gets(name: str) -> None:
    spec = pod(name, gpus="3", image="registry.example/mine:2")
    (preflight,), (trainer,) = spec["initContainers"], spec["containers"]
    assert preflight["image"] == trainer["image"] == "registry.example/mine:2"
    assert preflight["resources"] == trainer["resources"] == {"limits": {"nvidia.com/gpu": 3}}
    assert "restartPolicy" not in preflight


@pytest.mark.parametrize("name", ["kubernetes-job", "kubernetes-jobset"])
def test_every_exit_status_of_the_check_has_its_rule(name: str) -> None:
    from hwprobe.preflight import EXIT_STATUS

    *_, document = yaml.safe_load_all(fill(name, {}))
    spec = document["spec"]
    job = spec if name == "kubernetes-job" else spec["replicatedJobs"][0]["template"]["spec"]
    by_status = {
        status: rule["action"]
        for rule in job["podFailurePolicy"]["rules"]
        for status in rule.get("onExitCodes", {}).get("values", ())
    }
    assert by_status == {1: "FailJob", 2: "FailJob", 3: "Count"}
    assert {0, 2, *by_status} == {2, *EXIT_STATUS.values()}


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_preflight_ends_as_the_check_does_and_leaves_its_message(name: str, status: int, tmp_path: Path) -> None:
    (preflight,) = pod(name, gpus="2")["initContainers"]
    (tmp_path / "hwprobe").write_text(f'#!/bin/sh\necho "$@"\nexit {status}\n')
    (tmp_path / "hwprobe").chmod(0o755)
    message = tmp_path / "termination-log"
    message.write_text("")
    shell, flag, script = preflight["command"]
    environment = {variable["name"]: variable["value"] for variable in preflight["env"]}
    assert preflight["terminationMessagePath"] == "/dev/termination-log"
    done = subprocess.run(
        [shell, flag, script.replace("/dev/termination-log", str(message))],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    assert message.read_text() == done.stdout == "check --require gpus>=2 --format termination\n"


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("kubernetes-job", ["night-0.night:2345", "night-1.night:2345", "night-2.night:2345"]),
        ("kubernetes-jobset", [f"night-worker-0-{index}.night:2345" for index in range(3)]),
    ],
)
def test_a_worker_gets_its_tf_config_and_runs_the_command(name: str, addresses: list[str]) -> None:
    (trainer,) = pod(name, job="night", workers="3", port="2345", command="env")["containers"]
    environment = {variable["name"]: variable["value"] for variable in trainer["env"] if "value" in variable}
    done = subprocess.run(
        [*trainer["command"], *trainer["args"]],
        env={"PATH": "/usr/bin:/bin", "JOB_COMPLETION_INDEX": "2", **environment},
        capture_output=True,
        text=True,
    )
    variables = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert json.loads(variables["TF_CONFIG"])["cluster"] == {"worker": addresses}
    workers = find_workers(variables)
    assert workers is not None
    assert (workers.task, workers.count) == ("worker-2", 3)


def test_the_service_finds_the_job_s_pods_before_they_are_ready() -> None:
    service, job = yaml.safe_load_all(fill("kubernetes-job", {"job": "night", "port": "2345"}))
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_secret_is_handed_to_the_trainer(name: str) -> None:
    (trainer,) = pod(name, secret="agreement")["containers"]
    reference = {"secretKeyRef": {"name": "agreement", "key": "secret"}}
    assert {"name": "HWPROBE_SECRET", "valueFrom": reference} in trainer["env"]
