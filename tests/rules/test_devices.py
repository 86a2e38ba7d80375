"""HWP120 to HWP128: GPUs that are lost, missing, restricted or worn."""

from __future__ import annotations

from typing import Any

import msgspec

from hwprobe.findings import Action, Severity
from hwprobe.gpu import Gpu, Health
from tests.reports import A100, GTX_1080_TI, H100, T4, cpu_only, hidden, lost, report, source
from tests.rules.facts import ABSENT, SECOND_UUID, UUID, failed, pci, unasked, without_cuda
from tests.rules.table import Fires, Row, Table, check, rows

CHOSEN = {"CUDA_VISIBLE_DEVICES": "0"}
NOT_READY = failed(802, "CUDA_ERROR_SYSTEM_NOT_READY")


def refused(code: int, reason: str) -> Gpu:
    """A GPU whose handle NVML refuses: nothing else is known of it."""
    return Gpu(visible=False, error=reason, error_code=code)


def ailing(gpu: Gpu, **facts: Any) -> Gpu:
    return msgspec.structs.replace(gpu, health=Health(**facts))


def in_mode(gpu: Gpu, mode: str) -> Gpu:
    return msgspec.structs.replace(gpu, compute_mode=mode)


TABLE: Table = {
    "HWP120": (
        Row(
            "one of two is lost",
            report(gpus=[lost(A100), A100]),
            Fires(
                Severity.ERROR,
                Action.DRAIN,
                UUID,
                ("NVML index 0, does not answer: GPU is lost",),
                ("dmesg | grep -i xid", "take the node out of service"),
            ),
        ),
        Row(
            "one that gave no name",
            report(gpus=[A100, refused(15, "the GPU has fallen off the bus")]),
            Fires(Severity.ERROR, Action.DRAIN, SECOND_UUID, ("the GPU at NVML index 1 does not answer",)),
        ),
        Row("all answer", report(gpus=[A100, T4]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
    ),
    "HWP121": (
        Row(
            "no power",
            report(gpus=[A100, refused(8, "external power cables are not attached")]),
            Fires(Severity.ERROR, Action.ADMIN, SECOND_UUID, ("cables are not attached",), ("nvidia-smi -L",)),
        ),
        Row(
            "none may be read",
            report(gpus=[refused(4, "no permission"), refused(4, "no permission")]),
            Fires(Severity.ERROR, Action.ADMIN, UUID, ("no permission",), times=2),
        ),
        Row("the others of a node belong to other jobs", report(gpus=[T4, refused(4, "no permission")]), "pass"),
        Row("all can be read", report(gpus=[T4]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
        Row("explained by a lost one", report(gpus=[lost(A100), refused(8, "no power")]), "skip"),
    ),
    "HWP122": (
        Row(
            "one of three dropped out",
            report(gpus=[A100, A100], host={"pci_devices": tuple(pci(bus=bus) for bus in (1, 2, 3))}),
            Fires(
                Severity.ERROR,
                Action.DRAIN,
                "00000000:03:00.0",
                ("the PCI bus has 3 NVIDIA GPUs and NVML counts 2", "00000000:03:00.0 (device 20B2)"),
                ("lspci -d 10de:", "dmesg"),
            ),
        ),
        Row(
            "an old display card that this driver no longer runs",
            report(gpus=[A100], host={"pci_devices": (pci(), pci("1287", driver=None, bus=2))}, driver="580.95.05"),
            Fires(
                Severity.INFO, Action.ADMIN, "00000000:02:00.0", ("driver 580 no longer runs", "R470"), ("branch 470",)
            ),
        ),
        Row("all are counted", report(gpus=[A100], host={"pci_devices": (pci(),)}), "pass"),
        Row(
            "a container is given part of them",
            report(gpus=[A100], host={"pci_devices": (pci(), pci(bus=2)), "container": "docker"}),
            "not_applicable",
        ),
        Row(
            "so is a job",
            report(gpus=[A100], host={"pci_devices": (pci(), pci(bus=2)), "scheduler": "slurm"}),
            "not_applicable",
        ),
        Row("the bus cannot be read", report(gpus=[A100], host={"pci_devices": None}), "not_applicable"),
        Row("NVML was not asked", report(gpus=[A100], sources={"nvml": source("skipped", "not needed")}), "skip"),
        Row(
            "one is handed to a virtual machine",
            report(gpus=[A100], host={"pci_devices": (pci(), pci(bus=2, driver="vfio-pci"))}),
            "pass",
        ),
    ),
    "HWP123": (
        Row(
            "prohibited",
            report(gpus=[in_mode(T4, "prohibited")]),
            Fires(
                Severity.ERROR, Action.ADMIN, UUID, ("prohibited: no process",), ("sudo nvidia-smi -i 0 -c DEFAULT",)
            ),
        ),
        Row(
            "a display card is prohibited beside one that computes",
            report(gpus=[hidden(in_mode(GTX_1080_TI, "prohibited")), A100]),
            Fires(Severity.INFO, Action.ADMIN, UUID, ("prohibited",)),
        ),
        Row(
            "exclusive",
            report(gpus=[in_mode(T4, "exclusive_process")]),
            Fires(Severity.WARNING, Action.ADMIN, UUID, ("one process at a time",)),
        ),
        Row(
            "exclusive inside a job",
            report(gpus=[in_mode(T4, "exclusive_process")], host={"scheduler": "slurm"}, environment=CHOSEN),
            Fires(Severity.INFO, Action.ADMIN, UUID, ("one process at a time",)),
        ),
        Row("default", report(gpus=[in_mode(T4, "default")]), "pass"),
        Row("not read", report(gpus=[T4]), "not_applicable"),
    ),
    "HWP124": (
        Row(
            "three errors",
            report(gpus=[ailing(A100, ecc_uncorrected_volatile=3)]),
            Fires(Severity.ERROR, Action.DRAIN, UUID, ("had 3 uncorrected memory errors",), ("ECC", "drain the node")),
        ),
        Row(
            "on somebody else's GPU",
            report(gpus=[A100, hidden(ailing(A100, ecc_uncorrected_volatile=1))], environment=CHOSEN),
            Fires(Severity.INFO, Action.DRAIN, SECOND_UUID, ("had 1 uncorrected memory error since",)),
        ),
        Row("none", report(gpus=[ailing(A100, ecc_uncorrected_volatile=0)]), "pass"),
        Row("a board that does not count", report(gpus=[T4]), "not_applicable"),
    ),
    "HWP125": (
        Row(
            "rows",
            report(gpus=[ailing(A100, remapped_rows_pending=True, remapped_rows_failed=False)]),
            Fires(Severity.WARNING, Action.ADMIN, UUID, ("row remappings wait for a reset",), ("--gpu-reset",)),
        ),
        Row(
            "pages",
            report(gpus=[ailing(T4, retired_pages_pending=True)]),
            Fires(Severity.WARNING, Action.ADMIN, UUID, ("page retirements wait",)),
        ),
        Row("nothing", report(gpus=[ailing(A100, remapped_rows_pending=False)]), "pass"),
        Row("a board that does not tell", report(gpus=[T4]), "not_applicable"),
    ),
    "HWP126": (
        Row(
            "a row is lost for good",
            report(gpus=[ailing(A100, remapped_rows_failed=True)]),
            Fires(Severity.ERROR, Action.DRAIN, UUID, ("could not be remapped",), ("replace the board",)),
        ),
        Row("none", report(gpus=[ailing(A100, remapped_rows_failed=False)]), "pass"),
        Row("a board that does not remap", report(gpus=[T4]), "not_applicable"),
    ),
    "HWP127": (
        Row(
            "still joining, and CUDA waits",
            without_cuda(ailing(H100, fabric_state="in_progress"), cuda=NOT_READY),
            Fires(Severity.ERROR, Action.RETRY, UUID, ("is in progress",), ("nvidia-fabricmanager",)),
        ),
        Row(
            "failed",
            without_cuda(ailing(H100, fabric_state="completed", fabric_status_code=5), cuda=NOT_READY),
            Fires(Severity.ERROR, Action.DRAIN, UUID, ("failed with status 5",)),
        ),
        Row(
            "not started, and CUDA does not need it",
            report(gpus=[ailing(H100, fabric_state="not_started")]),
            Fires(Severity.WARNING, Action.RETRY, UUID, ("is not started",)),
        ),
        Row("completed", report(gpus=[ailing(H100, fabric_state="completed", fabric_status_code=0)]), "pass"),
        Row("a board without one", report(gpus=[ailing(T4, fabric_state="not_supported")]), "not_applicable"),
        Row("not read", report(gpus=[T4]), "not_applicable"),
    ),
    "HWP128": (
        Row(
            "a vGPU",
            report(gpus=[msgspec.structs.replace(T4, name="GRID T4-4Q", virtualization="vgpu")]),
            Fires(Severity.INFO, Action.ADMIN, UUID, ("GRID T4-4Q", "licence"), ("grep -i license",)),
        ),
        Row("passed through whole", report(gpus=[msgspec.structs.replace(T4, virtualization="passthrough")]), "pass"),
        Row("not read", report(gpus=[T4]), "not_applicable"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)


def test_missing_nvml_leaves_the_count_open() -> None:
    facts = report(gpus=[unasked(A100)], sources={"nvml": ABSENT}, host={"pci_devices": (pci(), pci(bus=2))})
    check("HWP122", Row("no NVML", facts, "skip"))
