"""HWP211 to HWP215 and HWP223: code for the GPUs, and the GPUs that TensorFlow lists."""

from __future__ import annotations

import msgspec

from hwprobe.findings import Action, Severity
from tests.reports import (
    A100,
    GTX_980,
    H100,
    P100,
    RTX_3090,
    RTX_5090,
    T4,
    V100,
    cpu_only,
    gpu,
    hidden,
    report,
    source,
    tensorflow_wheel,
)
from tests.rules.facts import ABSENT, NODES, SECOND_UUID, UUID, with_libraries
from tests.rules.table import Fires, Row, Table, check, rows

GT_1030 = gpu("NVIDIA GeForce GT 1030", "6.1", memory_gib=2, pci_device_id="1D01", multiprocessors=3)
GTX_680 = gpu("NVIDIA GeForce GTX 680", "3.0", memory_gib=2, pci_device_id="1180", multiprocessors=8)
CUDA_13 = tensorflow_wheel("2.21.0", cuda_version="13.0", compute_capabilities=("sm_75", "sm_80", "compute_90"))
OWN_BUILD = tensorflow_wheel(compute_capabilities=("sm_80", "sm_120"), compute_capabilities_origin="fatbin")
CUDA_10 = tensorflow_wheel("2.3.0", cuda_version="10.1", compute_capabilities=None)
UNKNOWN_CODE = tensorflow_wheel(compute_capabilities=None)
CACHE = {"CUDA_CACHE_PATH": "/scratch/cache", "CUDA_CACHE_MAXSIZE": "4294967296"}
DLOPEN = "Cannot dlopen some GPU libraries. Skipping registering GPU devices..."

TABLE: Table = {
    "HWP211": (
        Row(
            "Blackwell under the newest wheel",
            report(gpus=[RTX_5090]),
            Fires(
                Severity.ERROR,
                Action.USER,
                UUID,
                ("TensorFlow 2.21.0 lists NVIDIA GeForce RTX 5090 (12.0) and has no code for it", "known to fail"),
                ("nvcr.io/nvidia/tensorflow", "export CUDA_VISIBLE_DEVICES=-1   # until then, on the CPU"),
            ),
        ),
        Row(
            "Maxwell under a wheel that dropped it",
            report(gpus=[GTX_980]),
            Fires(
                Severity.ERROR,
                Action.USER,
                UUID,
                ("5.2 is older than 6.0",),
                ("pip install 'tensorflow[and-cuda]<2.17'",),
            ),
        ),
        Row(
            "Volta under CUDA 13",
            report(gpus=[V100], tensorflow=CUDA_13),
            Fires(
                Severity.ERROR,
                Action.USER,
                UUID,
                ("7.0 is older than 7.5",),
                ("pip install --upgrade 'tensorflow[and-cuda]'",),
            ),
        ),
        Row(
            "beside another GPU",
            report(gpus=[RTX_5090, A100]),
            Fires(
                Severity.ERROR,
                Action.USER,
                UUID,
                (),
                (f"CUDA_VISIBLE_DEVICES={SECOND_UUID}   # until then, on the other",),
            ),
        ),
        Row(
            "one that TensorFlow leaves aside by itself, beside others",
            report(gpus=[A100, GTX_680], lists=[0]),
            Fires(Severity.INFO, Action.USER, SECOND_UUID, ("has no code for NVIDIA GeForce GTX 680",)),
        ),
        Row(
            "foreseen while a library is missing",
            report(gpus=[RTX_5090], lists=(), tensorflow=with_libraries("libcudnn.so.9")),
            Fires(Severity.ERROR, Action.USER, UUID, ("has no code for NVIDIA GeForce RTX 5090 (12.0): ",)),
        ),
        Row("native code", report(gpus=[A100, T4, H100]), "pass"),
        Row("a build with code for it", report(gpus=[RTX_5090], tensorflow=OWN_BUILD), "pass"),
        Row("a GPU that is hidden", report(gpus=[A100, hidden(RTX_5090)]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
        Row("its architectures are not known", report(gpus=[T4], tensorflow=UNKNOWN_CODE), "skip"),
    ),
    "HWP212": (
        Row(
            "an H100 under 2.14",
            report(gpus=[H100], tensorflow="2.14.1"),
            Fires(
                Severity.WARNING,
                Action.USER,
                UUID,
                ("2.14.1 has no machine code for NVIDIA H100", "compiles the PTX of compute_80"),
                ("export CUDA_CACHE_PATH=",),
            ),
        ),
        Row(
            "with a cache that lasts",
            report(gpus=[H100], tensorflow="2.14.1", environment=CACHE),
            Fires(Severity.INFO, Action.USER, UUID, ("once, since CUDA_CACHE_PATH keeps it",)),
        ),
        Row("native code", report(gpus=[H100]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
        Row("its architectures are not known", report(gpus=[H100], tensorflow=UNKNOWN_CODE), "skip"),
        Row(
            "the driver cannot compile it anyway",
            report(gpus=[H100], tensorflow="2.15.1", driver="525.60.13"),
            "skip",
        ),
    ),
    "HWP213": (
        Row(
            "three multiprocessors beside forty",
            report(gpus=[T4, GT_1030], lists=[0]),
            Fires(
                Severity.WARNING,
                Action.USER,
                SECOND_UUID,
                ("leaves NVIDIA GeForce GT 1030 (6.1) aside: 3 multiprocessors, and it asks for 8",),
                (f"export CUDA_VISIBLE_DEVICES={UUID}", "TF_MIN_GPU_MULTIPROCESSOR_COUNT=3"),
            ),
        ),
        Row(
            "a floor by variable",
            report(gpus=[T4, A100], lists=[1], environment={"TF_MIN_GPU_MULTIPROCESSOR_COUNT": "80"}),
            Fires(Severity.WARNING, Action.USER, UUID, ("it asks for 80",)),
        ),
        Row("alone it is taken", report(gpus=[GT_1030]), "pass"),
        Row("large ones", report(gpus=[T4, P100]), "pass"),
        Row("TensorFlow lists it after all", report(gpus=[T4, GT_1030]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
        Row("not read", report(gpus=[msgspec.structs.replace(T4, multiprocessors=None)]), "skip"),
    ),
    "HWP214": (
        Row(
            "none of one",
            report(gpus=[T4], lists=(), tensorflow=tensorflow_wheel(messages=(DLOPEN,))),
            Fires(
                Severity.ERROR,
                Action.USER,
                UUID,
                ("CUDA gives this process Tesla T4 (7.5) (CUDA 0)", "it lists 0 of 1", DLOPEN),
                ("TF_CPP_MIN_LOG_LEVEL=0 python",),
            ),
        ),
        Row(
            "one of two",
            report(gpus=[T4, A100], lists=[1]),
            Fires(Severity.WARNING, Action.USER, UUID, ("it lists 1 of 2",)),
        ),
        Row("both", report(gpus=[T4, A100]), "pass"),
        Row("the filter explains it", report(gpus=[T4, GT_1030], lists=[0]), "pass"),
        Row("missing code explains it", report(gpus=[A100, GTX_680], lists=[0]), "pass"),
        Row(
            "a missing library explains it",
            report(gpus=[T4], lists=(), tensorflow=with_libraries("libcudnn.so.9")),
            "skip",
        ),
        Row(
            "a container without NVML explains it",
            report(
                gpus=[T4],
                lists=(),
                sources={"nvml": ABSENT},
                host={"container": "docker", "device_nodes": NODES},
                environment={"NVIDIA_DRIVER_CAPABILITIES": "compute"},
            ),
            "skip",
        ),
        Row("no GPU", cpu_only(), "not_applicable"),
        Row(
            "TensorFlow was not asked",
            report(gpus=[T4], sources={"tensorflow_runtime": source("skipped", "--fast")}),
            "skip",
        ),
    ),
    "HWP215": (
        Row(
            "it does not import",
            report(gpus=[T4], sources={"tensorflow_runtime": source("failed", "ImportError: numpy.core failed")}),
            Fires(Severity.ERROR, Action.USER, "tensorflow", ("numpy.core failed",), ('python -c "import tensorflow',)),
        ),
        Row(
            "it hangs",
            report(gpus=[T4], sources={"tensorflow_runtime": source("timeout", "no answer within 30 s")}),
            Fires(
                Severity.ERROR, Action.RETRY, "tensorflow", ("no answer within 30 s",), ("hwprobe check --timeout 120",)
            ),
        ),
        Row("it answers", report(gpus=[T4]), "pass"),
        Row("no TensorFlow", cpu_only(tensorflow=None), "skip"),
        Row("another backend", cpu_only(sources={"tensorflow_runtime": source("absent", "none")}), "not_applicable"),
        Row("not asked", report(sources={"tensorflow_runtime": source("skipped", "--fast")}), "skip"),
        Row(
            "CUDA takes its process along, and TensorFlow's",
            report(
                gpus=[T4],
                sources={
                    "cuda": source("failed", "the child process died by SIGABRT without an answer"),
                    "tensorflow_runtime": source(
                        "failed", "the child process died by SIGABRT without an answer; its last words: Fatal"
                    ),
                },
            ),
            "skip",
        ),
        Row(
            "TensorFlow dies of something else than CUDA",
            report(
                gpus=[T4],
                sources={
                    "cuda": source("failed", "unknown error", code=999, error="CUDA_ERROR_UNKNOWN"),
                    "tensorflow_runtime": source("failed", "ImportError: numpy.core failed"),
                },
            ),
            Fires(Severity.ERROR, Action.USER, "tensorflow", ("numpy.core failed",)),
        ),
        Row(
            "NVML hangs, and TensorFlow with it",
            report(
                gpus=[T4],
                sources={"nvml": source("timeout", "30 s"), "tensorflow_runtime": source("timeout", "30 s")},
            ),
            "skip",
        ),
    ),
    "HWP223": (
        Row(
            "Ampere under CUDA 10",
            report(gpus=[RTX_3090], tensorflow=CUDA_10),
            Fires(
                Severity.ERROR,
                Action.USER,
                UUID,
                ("needs CUDA 11.1 or newer", "built with CUDA 10.1", "wrong numbers"),
                ("pip install --upgrade 'tensorflow[and-cuda]'",),
            ),
        ),
        Row("Volta under CUDA 10", report(gpus=[V100], tensorflow=CUDA_10), "pass"),
        Row("H100 under CUDA 11.2 is served by PTX", report(gpus=[H100], tensorflow="2.12.1"), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
        Row("build_info.py is silent", report(gpus=[T4], tensorflow=tensorflow_wheel(cuda_version=None)), "skip"),
        Row("missing code explains it", report(gpus=[RTX_5090]), "skip"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)
