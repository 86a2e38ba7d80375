"""The labels that GPU Feature Discovery gives to a Kubernetes node, as a report.

Label names: NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery and internal/lm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from msgspec.structs import replace

from hwprobe.capability import ComputeCapability
from hwprobe.errors import InputError
from hwprobe.gpu import Gpu, GpuMemory, Mig, MigInstance
from hwprobe.knowledge.gpu_names import Match, find
from hwprobe.offline.description import Platform, arm_host, describe
from hwprobe.offline.nvidia_smi import MAX_TEXT
from hwprobe.offline.wheel import Wish, build_of
from hwprobe.probe.nvml_codes import UNIFIED_NAMES
from hwprobe.report import Driver, Report
from hwprobe.serialize import from_json

MAX_GPUS = 1024
GPU = "nvidia.com/gpu"
ASK = "kubectl get node NODE -o json > k8s-labels.json"

_PROFILE = re.compile(r"nvidia\.com/mig-(?P<profile>\d{1,2}g\.\d{1,4}gb[\w.+-]*)\.count")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_SYSTEMS = {"linux": "Linux", "windows": "Windows"}


def report_of_labels(text: str, *, origin: str, tensorflow: str | None = None) -> Report:
    """Make the report of a Kubernetes node from its labels.

    Args:
        text: JSON: a node as `kubectl get node NODE -o json` gives it, or its labels alone.
        origin: The file, for messages and for the report.
        tensorflow: Version of TensorFlow to judge by; None for the newest release.

    Raises:
        InputError: It is no node, the node has no label of a GPU, or a label has another form; the message names it.
    """
    labels = _Labels(_labels(from_json(text, Any, where=origin), origin), origin)
    product = labels.text(f"{GPU}.product")
    if product is None:
        raise InputError(
            f"{origin}: there is no label {GPU}.product: the node has no NVIDIA GPU, or GPU Feature Discovery does not "
            "run on it. For a node without one use --target 'no gpu'"
        )
    if product.endswith("-MIG-INVALID"):
        raise InputError(
            f"{origin}: {GPU}.product is {product!r}: the MIG devices of this node do not fit its strategy, and its "
            "labels do not say what a pod would get"
        )
    match = find(product) if len(product) <= MAX_TEXT else Match(product, ())
    platform = Platform(
        system=_SYSTEMS.get(labels.text("kubernetes.io/os") or "", "Linux"),
        machine=_MACHINES.get(labels.text("kubernetes.io/arch") or "") or arm_host(match.boards),
    )
    build = build_of(Wish(tensorflow), platform, "--tensorflow")
    gpus = _gpus(labels, product, match)
    return describe(
        "labels",
        origin,
        gpus=gpus,
        driver=Driver(version=_driver(labels), cuda_version=_cuda(labels), device_count=len(gpus)),
        platform=platform,
        tensorflow=build.tensorflow,
        assumptions=(*build.assumptions, *_notes(labels, gpus)),
    )


def is_labels(document: object) -> bool:
    """Whether a JSON document is a node, a list of nodes, or a map of labels.

    Args:
        document: The document as plain data.
    """
    if not isinstance(document, dict):
        return False
    return document.get("kind") in ("Node", "List", "NodeList") or any(
        isinstance(key, str) and key.startswith("nvidia.com/") for key in document
    )


class _Labels:
    """Labels by name, with errors that name the label."""

    def __init__(self, labels: Mapping[str, str], origin: str) -> None:
        self.all = labels
        self.origin = origin

    def text(self, name: str) -> str | None:
        return self.all.get(name) or None

    def number(self, name: str, *, most: int = 2**31) -> int | None:
        said = self.text(name)
        if said is None:
            return None
        if not (said.isascii() and said.isdigit()) or len(said) > 12 or int(said) > most:
            self.refuse(name, f"a number up to {most}")
        return int(said)

    def refuse(self, name: str, expected: str) -> NoReturn:
        raise InputError(f"{self.origin}: the label {name} is {self.all[name][:60]!r}, expected {expected}")


def _labels(document: Any, origin: str) -> dict[str, str]:
    if isinstance(document, dict) and document.get("kind") in ("List", "NodeList"):
        items = document.get("items")
        if not isinstance(items, list) or len(items) != 1:
            count = len(items) if isinstance(items, list) else 0
            raise InputError(f"{origin}: it holds {count} nodes, and one is needed: {ASK}")
        document = items[0]
    place = "labels"
    if isinstance(document, dict) and document.get("kind") == "Node":
        metadata = document.get("metadata")
        document = metadata.get("labels") if isinstance(metadata, dict) else None
        place = "metadata.labels"
    if not isinstance(document, dict):
        raise InputError(f"{origin}: {place} is no map of labels. Make it with: {ASK}")
    for name, value in document.items():
        if not isinstance(value, str):
            raise InputError(
                f"{origin}: the label {name[:80]} is {str(value)[:40]!r} and not text. Make it with: {ASK}"
            )
    return document


def _gpus(labels: _Labels, product: str, match: Match) -> list[Gpu]:
    count = labels.number(f"{GPU}.count", most=MAX_GPUS)
    board = match.board
    gpu = Gpu(
        name=board.name if board is not None else match.text.replace("-", " "),
        visible=True,
        compute_capability=_capability(labels, match),
        memory=_memory(labels, GPU, product),
    )
    if match.mig is not None:
        # The strategy `single`: count and memory are those of the MIG devices, on a number of boards that is not told.
        instance = _instance(labels, match.mig, GPU, product)
        gpu = replace(gpu, memory=GpuMemory(kind=gpu.memory.kind), mig=_mig([instance] * (count or 1)))
        return [replace(gpu, nvml_index=0)]
    instances = _mixed(labels, product)
    if instances:
        return [replace(gpu, nvml_index=0, mig=_mig(instances))]
    return [replace(gpu, nvml_index=index) for index in range(count if count is not None else 1)]


def _mixed(labels: _Labels, product: str) -> list[MigInstance]:
    """The MIG devices of the strategy `mixed`, each kind under a name of its own."""
    instances: list[MigInstance] = []
    for name in sorted(labels.all):
        match = _PROFILE.fullmatch(name)
        if match is not None:
            count = labels.number(name, most=MAX_GPUS) or 0
            instances += [_instance(labels, match["profile"], name.removesuffix(".count"), product)] * count
    return instances[:MAX_GPUS]


def _instance(labels: _Labels, profile: str, resource: str, product: str) -> MigInstance:
    return MigInstance(
        name=f"MIG {profile}",
        multiprocessors=labels.number(f"{resource}.multiprocessors"),
        memory=_memory(labels, resource, product),
    )


def _mig(instances: list[MigInstance]) -> Mig:
    """A process computes on one MIG device, and nothing says on which: the first stands for it."""
    return Mig(enabled=True, instances=(replace(instances[0], visible=True), *instances[1:]))


def _memory(labels: _Labels, resource: str, product: str) -> GpuMemory:
    mib = labels.number(f"{resource}.memory")
    if not UNIFIED_NAMES.isdisjoint(product.split("-")):
        return GpuMemory(total_bytes=mib * 2**20 if mib else None, kind="unified")
    return GpuMemory(total_bytes=mib * 2**20, kind="dedicated") if mib else GpuMemory()


def _capability(labels: _Labels, match: Match) -> ComputeCapability | None:
    major = labels.number(f"{GPU}.compute.major", most=99)
    minor = labels.number(f"{GPU}.compute.minor", most=99)
    if major is not None and minor is not None:
        return ComputeCapability(major, minor)
    known = {board.capability for board in match.boards}
    return known.pop() if len(known) == 1 else None


def _driver(labels: _Labels) -> str | None:
    full = labels.text("nvidia.com/cuda.driver-version.full")
    if full is not None:
        return full
    return _joined(labels, "nvidia.com/cuda.driver-version", ("major", "minor", "revision")) or _joined(
        labels, "nvidia.com/cuda.driver", ("major", "minor", "rev")
    )


def _cuda(labels: _Labels) -> str | None:
    full = labels.text("nvidia.com/cuda.runtime-version.full")
    if full is not None:
        return full
    return _joined(labels, "nvidia.com/cuda.runtime-version", ("major", "minor")) or _joined(
        labels, "nvidia.com/cuda.runtime", ("major", "minor")
    )


def _joined(labels: _Labels, name: str, parts: tuple[str, ...]) -> str | None:
    values = [value for part in parts if (value := labels.text(f"{name}.{part}")) is not None]
    return ".".join(values) if len(values) >= 2 else None


def _notes(labels: _Labels, gpus: list[Gpu]) -> list[str]:
    notes = ["every GPU of the node is of the kind that its labels name, and a pod may use all of them"]
    if any(gpu.mig is not None for gpu in gpus):
        notes[0] = "a process computes on one MIG device, and a pod may ask for more"
    if labels.text(f"{GPU}.count") is None:
        notes.append(f"the node has one GPU, since there is no label {GPU}.count")
    replicas = labels.number(f"{GPU}.replicas")
    if replicas is not None and replicas > 1:
        notes.append(f"each GPU is shared by up to {replicas} pods, so not all of its memory is free")
    return notes
