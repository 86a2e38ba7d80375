"""What the tables add to a report, and what they leave alone."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict, replace

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu, GpuMemory
from hwprobe.knowledge.annotate import annotate, annotate_gpu
from hwprobe.report import Host, Report, Sources
from hwprobe.source import Source, SourceStatus

ADDED = {"architecture", "architecture_known", "tensor_cores", "tensor_cores_reason"}


def report_of(*gpus: Gpu) -> Report:
    ok = Source(status=SourceStatus.OK)
    return Report(
        devices=gpus,
        driver=None,
        tensorflow=None,
        keras=None,
        host=Host(system="Linux", machine="x86_64", python="3.12.0"),
        sources=Sources(nvml=ok, cuda=ok, tensorflow_build=ok, tensorflow_runtime=ok, host=ok),
    )


def gpu_of(name: str, capability: str, pci_device_id: str | None = None) -> Gpu:
    return Gpu(name=name, pci_device_id=pci_device_id, compute_capability=ComputeCapability.parse(capability))


@pytest.mark.parametrize(
    ("gpu", "architecture", "known", "cores"),
    [
        (gpu_of("Tesla T4", "7.5", "1EB8"), "Turing", True, ("float16",)),
        (gpu_of("NVIDIA GeForce GTX 1660 Ti", "7.5", "2182"), "Turing", True, ()),
        (gpu_of("NVIDIA T1200 Laptop GPU", "7.5"), "Turing", True, ()),
        (gpu_of("Tesla P100-PCIE-16GB", "6.0"), "Pascal", True, ()),
        (gpu_of("NVIDIA A100-SXM4-80GB", "8.0"), "Ampere", True, ("float16", "bfloat16", "tf32")),
        (gpu_of("NVIDIA R100", "14.0"), "Blackwell", False, ("float16", "bfloat16", "tf32", "fp8", "fp4")),
        (gpu_of("Tesla C2050", "2.0"), "before Kepler", False, ()),
        (Gpu(name="no capability"), None, False, None),
    ],
)
def test_architecture_and_tensor_cores_are_filled_in(
    gpu: Gpu, architecture: str | None, known: bool, cores: tuple[str, ...] | None
) -> None:
    (found,) = annotate(report_of(gpu)).devices

    assert (found.architecture, found.architecture_known, found.tensor_cores) == (architecture, known, cores)


def test_a_board_without_its_tensor_cores_says_why_and_others_say_nothing() -> None:
    reason = annotate_gpu(gpu_of("NVIDIA GeForce GTX 1660 Ti", "7.5", "2182")).tensor_cores_reason

    assert reason is not None
    assert "TU116" in reason
    assert annotate_gpu(gpu_of("Tesla T4", "7.5", "1EB8")).tensor_cores_reason is None


def test_a_gpu_of_another_maker_is_left_alone() -> None:
    gpu = Gpu(name="gfx1100", kind="other", tensorflow_name="GPU:0")

    assert annotate_gpu(gpu) is gpu


def test_what_an_older_hwprobe_wrote_is_judged_anew() -> None:
    stale = replace(gpu_of("Tesla T4", "7.5"), architecture="Volta", tensor_cores=(), tensor_cores_reason="a mistake")

    assert annotate_gpu(stale) == annotate_gpu(gpu_of("Tesla T4", "7.5"))


def test_nothing_else_changes() -> None:
    gpu = replace(
        gpu_of("NVIDIA A30", "8.0", "20B7"), uuid="GPU-1", nvml_index=3, visible=True, memory=GpuMemory(total_bytes=24)
    )
    before, after = report_of(gpu), annotate(report_of(gpu))

    assert replace(after, devices=before.devices) == before
    changed = {key for key, value in asdict(after.devices[0]).items() if value != asdict(gpu)[key]}
    assert changed <= ADDED


def test_annotating_twice_is_annotating_once() -> None:
    once = annotate(report_of(gpu_of("Tesla T4", "7.5"), gpu_of("NVIDIA GeForce GTX 1650", "7.5", "1F82")))

    assert annotate(once) == once
