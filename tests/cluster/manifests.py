"""What an API server would check in a manifest, for tests without one.

kubernetes-validate holds Kubernetes' own schemas. They name no values for fields such as `action`, know no rule between
two fields, and no custom kinds: those stand here, from the public API references of Kubernetes 1.31 ("Pod failure
policy"), JobSet v1alpha2 and TFJob v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

LABEL = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}

POD_FAILURE_RULE = {
    "type": "object",
    "required": ["action"],
    "additionalProperties": False,
    "properties": {
        "action": {"enum": ["FailJob", "FailIndex", "Ignore", "Count"]},
        "onExitCodes": {
            "type": "object",
            "required": ["operator", "values"],
            "additionalProperties": False,
            "properties": {
                "containerName": LABEL,
                "operator": {"enum": ["In", "NotIn"]},
                "values": {
                    "type": "array",
                    "minItems": 1,
                    "uniqueItems": True,
                    # The API server refuses 0 with the operator In.
                    "items": {"type": "integer", "minimum": 1, "maximum": 255},
                },
            },
        },
        "onPodConditions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "additionalProperties": False,
                "properties": {"type": {"type": "string"}, "status": {"enum": ["True", "False", "Unknown"]}},
            },
        },
    },
    "oneOf": [{"required": ["onExitCodes"]}, {"required": ["onPodConditions"]}],
}

JOBSET = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "metadata": {"type": "object", "required": ["name"], "properties": {"name": LABEL}},
        "spec": {
            "type": "object",
            "required": ["replicatedJobs"],
            "additionalProperties": False,
            "properties": {
                "network": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "enableDNSHostnames": {"type": "boolean"},
                        "subdomain": LABEL,
                        "publishNotReadyAddresses": {"type": "boolean"},
                    },
                },
                "failurePolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "maxRestarts": {"type": "integer", "minimum": 0},
                        "restartStrategy": {"enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]},
                        "rules": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["name", "action"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
                                    "action": {
                                        "enum": [
                                            "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts",
                                        ]
                                    },
                                    "onJobFailureReasons": {
                                        "type": "array",
                                        "items": {
                                            "enum": [
                                                "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes",
                                                "MaxFailedIndexesExceeded", "PodFailurePolicy",
                                            ]
                                        },
                                    },
                                    "targetReplicatedJobs": {"type": "array", "items": LABEL},
                                },
                            },
                        },
                    },
                },
                "replicatedJobs": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["name", "template"],
                        "additionalProperties": False,
                        "properties": {
                            "name": LABEL,
                            "groupName": LABEL,
                            "replicas": {"type": "integer", "minimum": 0},
                            "dependsOn": {"type": "array"},
                            "template": {"type": "object", "required": ["spec"]},
                        },
                    },
                },
            },
        },
    },
}  # fmt: skip

_REPLICAS = {
    "type": "object",
    "required": ["template"],
    "additionalProperties": False,
    "properties": {
        "replicas": {"type": "integer", "minimum": 0},
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "template": {"type": "object", "required": ["spec"]},
    },
}

TFJOB = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "kind": {"const": "TFJob"},
        "metadata": {"type": "object", "required": ["name"], "properties": {"name": LABEL}},
        "spec": {
            "type": "object",
            "required": ["tfReplicaSpecs"],
            "additionalProperties": False,
            "properties": {
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                        "backoffLimit": {"type": "integer", "minimum": 0},
                        "ttlSecondsAfterFinished": {"type": "integer", "minimum": 0},
                        "activeDeadlineSeconds": {"type": "integer", "minimum": 1},
                        "schedulingPolicy": {"type": "object"},
                        "suspend": {"type": "boolean"},
                    },
                },
                "successPolicy": {"enum": ["", "AllWorkers"]},
                "enableDynamicWorker": {"type": "boolean"},
                "tfReplicaSpecs": {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": False,
                    "properties": dict.fromkeys(("Chief", "Master", "Worker", "PS", "Evaluator"), _REPLICAS),
                },
            },
        },
    },
}


def problems(text: str, version: str = "1.34") -> list[str]:
    """Everything that is wrong with the manifests of a text."""
    return [problem for document in yaml.safe_load_all(text) for problem in _problems(document, version)]


def pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Pod specs of a Job, JobSet or TFJob."""
    spec = document["spec"]
    if document["kind"] == "Job":
        yield spec["template"]["spec"]
    elif document["kind"] == "JobSet":
        for replicated in spec["replicatedJobs"]:
            yield replicated["template"]["spec"]["template"]["spec"]
    elif document["kind"] == "TFJob":
        for replicas in spec["tfReplicaSpecs"].values():
            yield replicas["template"]["spec"]


def _problems(document: dict[str, Any], version: str) -> Iterator[str]:
    kind = document["kind"]
    if kind == "JobSet":
        yield from _by_schema(document, JOBSET)
        for replicated in document["spec"]["replicatedJobs"]:
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **replicated["template"]}
            yield from _problems(job, version)
        return
    if kind == "TFJob":
        yield from _by_schema(document, TFJOB)
        for replicas in document["spec"]["tfReplicaSpecs"].values():
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **replicas["template"]}
            yield from _by_kubernetes(pod, version)
            if "tensorflow" not in [container["name"] for container in pod["spec"]["containers"]]:
                yield "TFJob: no container is called tensorflow"
    else:
        yield from _by_kubernetes(document, version)
    if kind == "Job":
        yield from _job_rules(document)
    for pod in pods(document):
        yield from _pod_rules(pod)


def _by_schema(document: Any, schema: dict[str, Any]) -> Iterator[str]:
    for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
        yield f"{error.json_path}: {error.message}"


def _by_kubernetes(document: dict[str, Any], version: str) -> Iterator[str]:
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield str(error)


def _job_rules(job: dict[str, Any]) -> Iterator[str]:
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    if spec.get("completionMode") not in ("Indexed", "NonIndexed", None):
        yield f"completionMode: {spec['completionMode']}"
    if spec.get("completionMode") == "Indexed" and "completions" not in spec:
        yield "completions: required with the mode Indexed"
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield "restartPolicy: a Job takes Never or OnFailure"
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return
    if pod.get("restartPolicy") != "Never":
        yield "podFailurePolicy: only with restartPolicy Never"
    names = [container["name"] for container in (*pod.get("initContainers", ()), *pod["containers"])]
    for rule in policy["rules"]:
        yield from _by_schema(rule, POD_FAILURE_RULE)
        container = rule.get("onExitCodes", {}).get("containerName")
        if container is not None and container not in names:
            yield f"podFailurePolicy: no container is called {container}"
        if rule["action"] == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield "podFailurePolicy: FailIndex needs backoffLimitPerIndex"


def _pod_rules(pod: dict[str, Any]) -> Iterator[str]:
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        if container.get("terminationMessagePolicy") not in ("File", "FallbackToLogsOnError", None):
            yield f"terminationMessagePolicy: {container['terminationMessagePolicy']}"
        for port in container.get("ports", ()):
            if not 0 < port["containerPort"] < 65536:
                yield f"containerPort: {port['containerPort']}"
            if len(port["name"]) > 15:
                yield f"ports: the name {port['name']} has more than 15 characters"
