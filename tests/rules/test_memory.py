"""HWP501 to HWP508: how TensorFlow takes memory, and what there is of it."""

from __future__ import annotations

import msgspec

from hwprobe.configuration import Memory
from hwprobe.findings import Action, Severity
from hwprobe.gpu import Gpu, GpuMemory, MigInstance
from hwprobe.policy import Policy
from hwprobe.report import Driver
from tests.reports import A100, GB10, GTX_980, GTX_1660_TI, T4, cpu_only, gpu, hidden, mig, report, tensorflow_wheel
from tests.rules.facts import UUID
from tests.rules.table import Fires, Row, Table, check, rows

GIB = 2**30
FORCE = "TF_FORCE_GPU_ALLOW_GROWTH"
NO_GROWTH = Policy(memory=Memory(growth=False))
CAPPED = Policy(memory=Memory(growth=False, limit_mib=4096))
CAPPED_AND_GROWING = Policy(memory=Memory(limit_mib=4096))
ASYNC = Policy(memory=Memory(allocator="cuda_malloc_async"))
K80 = gpu("Tesla K80", "3.7", memory_gib=11, pci_device_id="102D", multiprocessors=13)
WITH_K80_CODE = tensorflow_wheel("2.12.1")


def using(device: Gpu, free_gib: float, total_gib: float) -> Gpu:
    memory = GpuMemory(total_bytes=int(total_gib * GIB), free_bytes=int(free_gib * GIB), kind="dedicated")
    return msgspec.structs.replace(device, memory=memory)


def slice_of(free_gib: float, total_gib: float, *, visible: bool = True) -> MigInstance:
    memory = GpuMemory(total_bytes=int(total_gib * GIB), free_bytes=int(free_gib * GIB), kind="dedicated")
    return MigInstance(uuid=f"MIG-{free_gib}", name="NVIDIA A100 MIG 1g.10gb", memory=memory, visible=visible)


GH200 = gpu("NVIDIA GH200 480GB", "9.0", pci_device_id="2342", multiprocessors=132)
BUSY_PARENT = using(A100, 5, 80)

TABLE: Table = {
    "HWP501": (
        Row(
            "the variable switches it off",
            report(gpus=[T4], environment={FORCE: "false"}),
            Fires(
                Severity.WARNING,
                Action.USER,
                "memory",
                (f"{FORCE}=false overrides memory growth on, which policy default asks for",),
                (f"unset {FORCE}",),
            ),
        ),
        Row(
            "the variable switches it on",
            report(gpus=[T4], environment={FORCE: "true"}),
            Fires(Severity.WARNING, Action.USER, "memory", ("overrides memory growth off",)),
            NO_GROWTH,
        ),
        Row("both say the same", report(gpus=[T4], environment={FORCE: "true"}), "pass"),
        Row("a value that is ignored is HWP502's", report(gpus=[T4], environment={FORCE: "0"}), "pass"),
        Row("not set", report(gpus=[T4]), "not_applicable"),
        Row("no GPU", cpu_only(environment={FORCE: "false"}), "not_applicable"),
    ),
    "HWP502": (
        Row(
            "1",
            report(gpus=[T4], environment={FORCE: "1"}),
            Fires(Severity.WARNING, Action.USER, "memory", (f"{FORCE}=1 is ignored",), (f"export {FORCE}=true",)),
        ),
        Row(
            "False",
            report(gpus=[T4], environment={FORCE: "False"}),
            Fires(Severity.WARNING, Action.USER, "memory", ("is ignored",), (f"export {FORCE}=false",)),
        ),
        Row("true", report(gpus=[T4], environment={FORCE: "true"}), "pass"),
        Row("not set", report(gpus=[T4]), "not_applicable"),
        Row("no GPU", cpu_only(environment={FORCE: "1"}), "not_applicable"),
    ),
    "HWP503": (
        Row(
            "a cap without growth",
            report(gpus=[T4]),
            Fires(
                Severity.INFO,
                Action.USER,
                "memory",
                ("limits GPU memory to 4096 MiB without growth",),
                ("hwprobe policy show",),
            ),
            CAPPED,
        ),
        Row("a cap with growth", report(gpus=[T4]), "pass", CAPPED_AND_GROWING),
        Row("no cap", report(gpus=[T4]), "not_applicable"),
        Row("no GPU", cpu_only(), "not_applicable", CAPPED),
    ),
    "HWP504": (
        Row(
            "a third is free",
            report(gpus=[using(T4, 5, 15)]),
            Fires(Severity.WARNING, Action.USER, UUID, ("Tesla T4 (7.5): 5.0 of 15.0 GiB are free",), ("nvidia-smi",)),
        ),
        Row(
            "next to nothing is free",
            report(gpus=[using(T4, 0.4, 15)]),
            Fires(Severity.ERROR, Action.USER, UUID, ("0.4 of 15.0 GiB are free; something else uses the rest",)),
        ),
        Row(
            "this process itself may hold it",
            report(gpus=[using(T4, 0.4, 15)], host={"mapped_libraries": ("/cuda/lib64/libcudart.so.12",)}),
            Fires(Severity.INFO, Action.USER, UUID, ("this process or another one uses the rest",)),
        ),
        Row(
            "a MIG instance in use",
            report(gpus=[mig(A100, slice_of(2, 9.5))]),
            Fires(Severity.WARNING, Action.USER, "MIG-2", ("MIG 1g.10gb: 2.0 of 9.5 GiB",)),
        ),
        Row("most is free", report(gpus=[using(T4, 14, 15)]), "pass"),
        Row("other instances of the board are in use", report(gpus=[mig(BUSY_PARENT, slice_of(9.5, 9.5))]), "pass"),
        Row("a hidden GPU is in use", report(gpus=[hidden(using(T4, 0.4, 15)), T4]), "pass"),
        Row("the host's cache is HWP506's", report(gpus=[using(GH200, 10, 96)]), "not_applicable"),
        Row("unified memory", report(gpus=[GB10]), "not_applicable"),
        Row("not read", report(gpus=[msgspec.structs.replace(T4, memory=GpuMemory())]), "not_applicable"),
    ),
    "HWP505": (
        Row(
            "GB10",
            report(gpus=[GB10], host={"memory_total_bytes": 122 * GIB, "memory_available_bytes": 119 * GIB}),
            Fires(
                Severity.INFO,
                Action.NONE,
                UUID,
                ("NVIDIA GB10 (12.1) shares the host's memory of 122 GiB, of which 119 GiB are available",),
            ),
        ),
        Row(
            "GB10 where the host is silent",
            report(gpus=[GB10]),
            Fires(Severity.INFO, Action.NONE, UUID, ("could not be read",)),
        ),
        Row("a board with its own", report(gpus=[T4]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
    ),
    "HWP506": (
        Row(
            "GH200 with a third free",
            report(gpus=[using(GH200, 32, 96)]),
            Fires(Severity.INFO, Action.NONE, UUID, ("33% of its memory is free", "gives way")),
        ),
        Row("GH200 with most free", report(gpus=[using(GH200, 90, 96)]), "pass"),
        Row("another board", report(gpus=[T4]), "not_applicable"),
    ),
    "HWP507": (
        Row(
            "6 GiB without growth",
            report(gpus=[GTX_1660_TI]),
            Fires(Severity.WARNING, Action.USER, UUID, ("GTX 1660 Ti (7.5) has 6.0 GiB",), ("growth = true",)),
            NO_GROWTH,
        ),
        Row("6 GiB with growth", report(gpus=[GTX_1660_TI]), "pass"),
        Row("6 GiB with a cap", report(gpus=[GTX_1660_TI]), "pass", CAPPED),
        Row("15 GiB", report(gpus=[T4]), "not_applicable", NO_GROWTH),
    ),
    "HWP508": (
        Row(
            "Kepler",
            report(gpus=[K80], tensorflow=WITH_K80_CODE),
            Fires(
                Severity.ERROR,
                Action.USER,
                "memory",
                ("Tesla K80 (3.7) is older than 6.0", "end the process"),
                ("unset TF_GPU_ALLOCATOR",),
            ),
            ASYNC,
        ),
        Row(
            "an old driver, by variable",
            report(
                gpus=[T4],
                driver=Driver(version="450.80.02", cuda_version="11.0"),
                environment={"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
            ),
            Fires(Severity.ERROR, Action.USER, "memory", ("supports CUDA 11.0, not 11.2",)),
        ),
        Row("a T4 with a new driver", report(gpus=[T4]), "pass", ASYNC),
        Row("nobody asks", report(gpus=[GTX_980]), "not_applicable"),
        Row("no GPU", cpu_only(), "not_applicable", ASYNC),
        Row("the driver does not say", report(gpus=[T4], driver=Driver(version="570.1")), "skip", ASYNC),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)
