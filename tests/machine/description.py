"""Writes the text that the stand-in libraries read. `stand_ins/machine.c` is the other side of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from tests.machine import gpus as boards
from tests.machine.gpus import Fault, Gpu, Instance
from tests.machine.workshop import functions

STAND_INS = ("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.12", "libcudnn.so.9")


def describe(facts: Mapping[str, object], faults: Iterable[Fault], gpus: Iterable[Gpu]) -> str:
    """The whole description, GPUs in NVML's order."""
    lines = [f"{key} {value}" for key, value in facts.items()] + _fault_lines(faults)
    for gpu in gpus:
        lines += _gpu_lines(gpu)
    return "\n".join(lines) + "\n"


def cuda_number(version: str) -> int:
    """12020 for `12.2`."""
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def cudnn_number(version: str) -> int:
    """90300 for `9.3.0`, 8907 for `8.9.7`."""
    major, minor, patch = map(int, version.split("."))
    return major * (10000 if major >= 9 else 1000) + minor * 100 + patch


def _is_known(pattern: str) -> bool:
    """Whether a fault's name means a function that some stand-in has."""
    stem = pattern.rstrip("*")
    known = frozenset().union(*(functions(soname) for soname in STAND_INS))
    if pattern.endswith("*"):
        return any(name.startswith(stem) for name in known)
    return any(stem in (name, name.split("_v")[0]) for name in known)


def _fault_lines(faults: Iterable[Fault]) -> list[str]:
    lines = []
    for kind, function, number in faults:
        assert _is_known(function), f"the stand-ins have no function {function}"
        lines.append(f"{kind} {'nvmlInit*' if function == 'nvmlInit' else function} {number}")
    return lines


def _number(value: str | int | None, names: Mapping[str, int] | None = None) -> int:
    """A fact as the stand-ins read it: -1 for "not supported"."""
    if value is None:
        return -1
    return names[value] if names and isinstance(value, str) else int(value)


def _gpu_lines(gpu: Gpu) -> list[str]:
    facts = {field.name: getattr(gpu, field.name) for field in dataclasses.fields(gpu)}
    for translated in ("compute_capability", "pci_bus_id", "instances", "processes", "faults"):
        del facts[translated]
    facts["pci_domain"], facts["pci_bus"], facts["pci_device"] = gpu.pci_address
    facts["capability_major"], facts["capability_minor"] = gpu.compute_capability
    facts["pci_device_id"] = int(gpu.pci_device_id, 16)
    if gpu.speed is None:
        facts["speed"] = gpu.multiprocessors * gpu.clock_mhz
    if gpu.architecture is None:
        facts["architecture"] = boards.architecture_of(gpu.compute_capability)
    facts["brand"] = boards.BRANDS[gpu.brand]
    facts["compute_mode"] = _number(gpu.compute_mode, boards.COMPUTE_MODES)
    facts["virtualization"] = _number(gpu.virtualization, boards.VIRTUALIZATION)
    facts["driver_model"] = _number(gpu.driver_model, boards.DRIVER_MODELS)
    facts["fabric_state"] = _number(gpu.fabric_state, boards.FABRIC_STATES)
    lines = ["gpu", *(f"  {key} {value if isinstance(value, str) else _number(value)}" for key, value in facts.items())]
    lines += [f"  process {pid} {memory}" for pid, memory in gpu.processes]
    lines += [f"  {line}" for line in _fault_lines(gpu.faults)]
    for each in gpu.instances:
        lines += _instance_lines(gpu, each)
    return lines


def _instance_lines(gpu: Gpu, instance: Instance) -> list[str]:
    facts = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    del facts["profile"], facts["faults"]
    lines = ["  mig", f"    name {gpu.name} MIG {instance.profile}"]
    lines += [f"    {key} {value}" for key, value in facts.items()]
    lines += [f"    gpu_slices {instance.slices}", f"    compute_slices {instance.slices}"]
    return lines + [f"    {line}" for line in _fault_lines(instance.faults)]
