"""The labels of a Kubernetes node: what GPU Feature Discovery says, in every form in which kubectl gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hwprobe.errors import InputError
from hwprobe.offline.labels import is_labels, report_of_labels
from hwprobe.preflight import check
from hwprobe.report import Report

T4 = {
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "nvidia.com/cuda.driver-version.full": "535.104.05",
    "nvidia.com/cuda.driver-version.major": "535",
    "nvidia.com/cuda.driver-version.minor": "104",
    "nvidia.com/cuda.driver-version.revision": "05",
    "nvidia.com/cuda.runtime-version.full": "12.2",
    "nvidia.com/gpu.compute.major": "7",
    "nvidia.com/gpu.compute.minor": "5",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.family": "turing",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/mig.capable": "false",
    "nvidia.com/mig.strategy": "single",
}
A100 = {
    **T4,
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/mig.capable": "true",
}
SINGLE = {
    **A100,
    "nvidia.com/gpu.count": "14",
    "nvidia.com/gpu.memory": "4864",
    "nvidia.com/gpu.multiprocessors": "14",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
}
MIXED = {
    **A100,
    "nvidia.com/gpu.count": "1",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig-1g.5gb.count": "2",
    "nvidia.com/mig-1g.5gb.memory": "4864",
    "nvidia.com/mig-3g.20gb.count": "1",
    "nvidia.com/mig-3g.20gb.memory": "19968",
    "nvidia.com/mig-3g.20gb.multiprocessors": "42",
}


def node(labels: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-node-1", "labels": labels}, "spec": {}}


def report(labels: object, **options: str) -> Report:
    return report_of_labels(json.dumps(labels), origin="k8s-labels.json", **options)


def without(labels: dict[str, str], *endings: str) -> dict[str, str]:
    return {name: value for name, value in labels.items() if not name.endswith(endings)}


class TestWhole:
    def test_every_label_that_counts_arrives(self) -> None:
        facts = report(T4)
        assert [gpu.name for gpu in facts.devices] == ["Tesla T4"] * 2
        gpu = facts.devices[0]
        assert (str(gpu.compute_capability), gpu.memory.total_bytes, gpu.visible) == ("7.5", 15360 * 2**20, True)
        assert facts.driver is not None
        assert (facts.driver.version, facts.driver.cuda_version) == ("535.104.05", "12.2")
        assert (facts.host.system, facts.host.machine, facts.origin) == ("Linux", "x86_64", "k8s-labels.json")
        assert facts.sources.cuda.reason == "not part of the labels"

    @pytest.mark.parametrize(
        "form",
        [T4, node(T4), {"kind": "List", "items": [node(T4)]}, {"kind": "NodeList", "items": [node(T4)]}],
        ids=["the labels alone", "a node", "a list of one", "a node list of one"],
    )
    def test_every_form_that_kubectl_gives(self, form: object) -> None:
        assert report(form) == report(T4)
        assert is_labels(form)

    def test_the_decision_needs_no_more(self) -> None:
        result = check(report=report(T4, tensorflow="2.17"))
        assert result.decision is not None
        assert (result.decision.dtype_policy, result.verdict) == ("mixed_float16", "ready")


DRIVERS = {
    "in full": (T4, "535.104.05"),
    "in parts": (without(T4, "driver-version.full"), "535.104.05"),
    "in the parts of older releases": (
        {
            **without(T4, "full", "driver-version.major", "driver-version.minor", "driver-version.revision"),
            "nvidia.com/cuda.driver.major": "450",
            "nvidia.com/cuda.driver.minor": "80",
            "nvidia.com/cuda.driver.rev": "02",
        },
        "450.80.02",
    ),
    "of two parts, as on Windows": (
        {**without(T4, "full", "revision"), "nvidia.com/cuda.driver-version.revision": ""},
        "535.104",
    ),
    "not at all": (without(T4, "full", "major", "minor", "revision"), None),
}


@pytest.mark.parametrize(("labels", "version"), DRIVERS.values(), ids=DRIVERS)
def test_the_driver(labels: dict[str, str], version: str | None) -> None:
    driver = report(labels).driver
    assert driver is not None
    assert driver.version == version


class TestBoards:
    def test_without_a_capability_the_product_tells_it(self) -> None:
        (gpu, _) = report(without(T4, "compute.major", "compute.minor")).devices
        assert str(gpu.compute_capability) == "7.5"

    def test_a_product_that_nobody_knows_keeps_its_label(self) -> None:
        (gpu, _) = report({**T4, "nvidia.com/gpu.product": "NVIDIA-RX-9"}).devices
        assert (gpu.name, str(gpu.compute_capability)) == ("NVIDIA RX 9", "7.5")

    def test_a_product_that_nobody_knows_without_a_capability_is_unknown(self) -> None:
        labels = without({**T4, "nvidia.com/gpu.product": "NVIDIA-RX-9"}, "compute.major", "compute.minor")
        result = check(report=report(labels))
        assert result.decision is not None
        assert "unknown" in result.decision.rejected["mixed_bfloat16"]

    def test_a_board_without_tensor_cores_is_known_by_its_product(self) -> None:
        result = check(report=report({**T4, "nvidia.com/gpu.product": "NVIDIA-GeForce-GTX-1660-Ti"}))
        assert result.decision is not None
        assert result.decision.dtype_policy == "float32"

    def test_shared_gpus_are_counted_once_and_it_says_that_they_are_shared(self) -> None:
        shared = {**T4, "nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "10"}
        facts = report(shared)
        assert [gpu.name for gpu in facts.devices] == ["Tesla T4"] * 2
        assert facts.assumptions[-1].startswith("each GPU is shared by up to 10 pods")

    def test_without_a_count_it_is_one_and_it_says_so(self) -> None:
        facts = report(without(T4, "gpu.count"))
        assert len(facts.devices) == 1
        assert facts.assumptions[-1] == "the node has one GPU, since there is no label nvidia.com/gpu.count"

    def test_a_board_with_an_arm_cpu_gets_the_wheel_for_arm(self) -> None:
        facts = report({**without(T4, "arch"), "nvidia.com/gpu.product": "NVIDIA-GH200-480GB"})
        assert facts.host.machine == "aarch64"
        assert "HWP204" in [finding.id for finding in check(report=facts).findings]

    def test_no_size_is_unknown_and_not_zero(self) -> None:
        assert report(without(T4, "gpu.memory")).devices[0].memory.total_bytes is None
        assert report({**T4, "nvidia.com/gpu.memory": "0"}).devices[0].memory.total_bytes is None

    def test_a_chip_that_shares_the_hosts_memory(self) -> None:
        labels = {**without(T4, "gpu.memory"), "nvidia.com/gpu.product": "NVIDIA-GB10"}
        assert report(labels).devices[0].memory.kind == "unified"


class TestMig:
    def test_a_profile_with_an_attribute_names_its_board_too(self) -> None:
        labels = {**without(SINGLE, "compute.major", "compute.minor"), "nvidia.com/gpu.count": "1"}
        (gpu,) = report({**labels, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me"}).devices
        assert (gpu.name, str(gpu.compute_capability)) == ("NVIDIA H100 80GB HBM3", "9.0")
        assert gpu.mig is not None
        assert [one.name for one in gpu.mig.instances] == ["MIG 1g.10gb.me"]

    def test_of_the_strategy_single_the_product_names_the_instances(self) -> None:
        (gpu,) = report(SINGLE).devices
        assert gpu.name == "NVIDIA A100-SXM4-40GB"
        assert gpu.memory.total_bytes is None
        assert gpu.mig is not None
        assert len(gpu.mig.instances) == 14
        first, second = gpu.mig.instances[:2]
        assert (first.name, first.visible, first.memory.total_bytes, first.multiprocessors) == (
            "MIG 1g.5gb",
            True,
            4864 * 2**20,
            14,
        )
        assert second.visible is None

    def test_of_the_strategy_mixed_every_profile_has_labels_of_its_own(self) -> None:
        (gpu,) = report(MIXED).devices
        assert gpu.mig is not None
        assert [(one.name, one.memory.total_bytes) for one in gpu.mig.instances] == [
            ("MIG 1g.5gb", 4864 * 2**20),
            ("MIG 1g.5gb", 4864 * 2**20),
            ("MIG 3g.20gb", 19968 * 2**20),
        ]

    def test_a_set_up_that_its_strategy_cannot_describe_is_asked_back(self) -> None:
        with pytest.raises(InputError, match="do not fit its strategy"):
            report({**T4, "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID", "nvidia.com/gpu.count": "0"})


REFUSED = {
    "no JSON": ("{", "k8s-labels.json"),
    "a list": ("[]", "labels is no map of labels"),
    "a number": ("7", "labels is no map of labels"),
    "two nodes": (json.dumps({"kind": "List", "items": [node(T4), node(T4)]}), "it holds 2 nodes"),
    "no nodes": (json.dumps({"kind": "List", "items": []}), "it holds 0 nodes"),
    "a list that is none": (json.dumps({"kind": "List", "items": "x"}), "it holds 0 nodes"),
    "a node without labels": (json.dumps({"kind": "Node", "metadata": {}}), "metadata.labels is no map"),
    "a node without metadata": (json.dumps({"kind": "Node", "metadata": 1}), "metadata.labels is no map"),
    "a label that is no text": (
        json.dumps({**T4, "nvidia.com/gpu.count": 2}),
        "nvidia.com/gpu.count is '2' and not text",
    ),
    "a node without a GPU": (json.dumps(node({"kubernetes.io/os": "linux"})), "no label nvidia.com/gpu.product"),
    "a count that is no number": (
        json.dumps({**T4, "nvidia.com/gpu.count": "two"}),
        "the label nvidia.com/gpu.count is 'two', expected a number up to 1024",
    ),
    "more GPUs than a node has": (json.dumps({**T4, "nvidia.com/gpu.count": "9999"}), "a number up to 1024"),
    "a capability beyond reason": (json.dumps({**T4, "nvidia.com/gpu.compute.major": "1000"}), "a number up to 99"),
    "a size beyond reason": (json.dumps({**T4, "nvidia.com/gpu.memory": "9" * 30}), "nvidia.com/gpu.memory"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_asked_back(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        report_of_labels(text, origin="k8s-labels.json")
    assert str(caught.value).startswith("k8s-labels.json")
    assert says in str(caught.value)


@pytest.mark.parametrize("document", [[], 7, None, {}, {"schema": "hwprobe.check/1"}, {"items": []}])
def test_other_documents_are_no_labels(document: object) -> None:
    assert not is_labels(document)
