"""HWP109 to HWP112, HWP129 and HWP130: libcuda, and a CUDA that starts and gives every GPU."""

from __future__ import annotations

import msgspec

from hwprobe.findings import Action, Severity
from hwprobe.gpu import Gpu
from hwprobe.report import Distribution, Driver, Report
from tests.reports import A100, H100, T4, cpu_only, hidden, lost, mig, report, source, tensorflow_wheel
from tests.rules.facts import (
    ABSENT,
    CUDA_UNKNOWN,
    NO_DRIVER,
    NODES,
    SECOND_UUID,
    UUID,
    failed,
    nodes,
    pci,
    unasked,
    without_cuda,
)
from tests.rules.table import Fires, Row, Table, check, rows

KERNEL_ONLY = Driver(kernel_version="550.90.07")
DXG = {"wsl": True, "device_nodes": nodes("dxg")}
WITH_WHEELS = tensorflow_wheel(wheels=(Distribution(name="nvidia-cudnn-cu12", version="9.3.0.75"),))
COMPAT = "/usr/local/cuda/compat/libcuda.so.1"
NO_DEVICE = failed(100, "CUDA_ERROR_NO_DEVICE")
NOT_READY = failed(802, "CUDA_ERROR_SYSTEM_NOT_READY")


def with_fabric(gpu: Gpu, state: str) -> Gpu:
    return msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, fabric_state=state))


def taken_from_tensorflow(facts: Report) -> Report:
    """As after `tf.config.set_visible_devices`: CUDA gives the first GPU, and the script does not use it."""
    first, *others = facts.devices
    return msgspec.structs.replace(
        facts, devices=(msgspec.structs.replace(first, visible=False, tensorflow_name=None), *others)
    )


def without_nvml(facts: Report, uuid: str) -> Report:
    """A report in which NVML does not show one of the GPUs."""
    devices = (msgspec.structs.replace(gpu, nvml_index=None) if gpu.uuid == uuid else gpu for gpu in facts.devices)
    return msgspec.structs.replace(facts, devices=tuple(devices))


TABLE: Table = {
    "HWP109": (
        Row(
            "a driver without it",
            report(gpus=[unasked(T4)], lists=(), sources={"cuda": ABSENT}),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("libcuda.so.1 cannot be loaded",), ("libcuda1",)),
        ),
        Row(
            "a container with part of the driver",
            report(
                gpus=[unasked(T4)],
                lists=(),
                sources={"cuda": ABSENT},
                host={"container": "docker", "device_nodes": NODES},
            ),
            Fires(Severity.ERROR, Action.ADMIN, "driver", (), ("docker run --gpus all",)),
        ),
        Row(
            "WSL with an environment made for GPUs",
            cpu_only(tensorflow=WITH_WHEELS, host=DXG),
            Fires(
                Severity.ERROR,
                Action.USER,
                "driver",
                ("/usr/lib/wsl/lib",),
                ("update the NVIDIA driver on Windows", "ls /usr/lib/wsl/lib"),
            ),
        ),
        Row(
            "WSL with a GPU of unknown make",
            cpu_only(host=DXG),
            Fires(Severity.INFO, Action.USER, "driver", ("where the GPU is NVIDIA's",)),
        ),
        Row("it is there", report(gpus=[T4]), "pass"),
        Row("no driver", cpu_only(), "not_applicable"),
        Row("WSL without any GPU", cpu_only(host={"wsl": True, "device_nodes": ()}), "not_applicable"),
        Row(
            "a container without a GPU shows the host's module",
            report(driver=KERNEL_ONLY, sources=NO_DRIVER, host={"container": "docker", "device_nodes": ()}),
            "not_applicable",
        ),
    ),
    "HWP110": (
        Row(
            "a compat library on a GeForce",
            report(
                driver=Driver(kernel_version="525.147.05", cuda_library=COMPAT),
                sources={"nvml": ABSENT, "cuda": failed(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE")},
                environment={"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/usr/lib"},
            ),
            Fires(Severity.ERROR, Action.USER, "driver", ("(804)", COMPAT), ("export LD_LIBRARY_PATH=/usr/lib ",)),
        ),
        Row("it starts", report(gpus=[T4]), "pass"),
        Row("no libcuda", cpu_only(), "not_applicable"),
        Row("no answer", without_cuda(T4, cuda=source("timeout", "30 s")), "skip"),
    ),
    "HWP111": (
        Row(
            "999 beside a healthy NVML",
            without_cuda(T4, host={"device_nodes": NODES}),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("CUDA_ERROR_UNKNOWN (999)", "nvidia_uvm", "NVML, which needs less of the driver, answers"),
                ("sudo modprobe nvidia_uvm",),
            ),
        ),
        Row(
            "its library is damaged, of which dmesg knows nothing",
            without_cuda(T4, cuda=source("failed", "the loader says: /lib/libcuda.so.1: file too short")),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("file too short",), ("install the NVIDIA driver anew",)),
        ),
        Row(
            "the fabric manager does not run",
            without_cuda(H100, cuda=NOT_READY),
            Fires(Severity.ERROR, Action.DRAIN, "driver", ("(802)", "fabric manager"), ("nvidia-fabricmanager",)),
        ),
        Row(
            "busy or unlicensed",
            without_cuda(T4, cuda=failed(46, "CUDA_ERROR_DEVICE_UNAVAILABLE")),
            Fires(Severity.ERROR, Action.RETRY, "driver", ("exclusive mode",), ("nvidia-smi -q -d COMPUTE",)),
        ),
        Row(
            "no device although there is one",
            without_cuda(T4, cuda=NO_DEVICE),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("CUDA finds no device although a driver is there",)),
        ),
        Row(
            "an error that nobody knows",
            without_cuda(T4, cuda=failed(101, "CUDA_ERROR_INVALID_DEVICE")),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("CUDA_ERROR_INVALID_DEVICE (101)",), ("dmesg",)),
        ),
        Row(
            "WSL loaded a Linux driver's libcuda",
            without_cuda(
                T4,
                cuda=NO_DEVICE,
                host={"wsl": True},
                driver=Driver(cuda_library="/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                "driver",
                ("/usr/lib/x86_64-linux-gnu/libcuda.so.1 was loaded", "/usr/lib/wsl/lib"),
                ("export LD_LIBRARY_PATH=/usr/lib/wsl/lib",),
            ),
        ),
        Row("it starts", report(gpus=[T4]), "pass"),
        Row("no libcuda", cpu_only(), "not_applicable"),
        Row(
            "its package is installed on a machine without a GPU",
            report(driver=Driver(), sources={"nvml": ABSENT, "cuda": NO_DEVICE}),
            "not_applicable",
        ),
        Row(
            "the variable leaves none",
            without_cuda(T4, cuda=NO_DEVICE, environment={"CUDA_VISIBLE_DEVICES": "7"}),
            "not_applicable",
        ),
        Row(
            "the GPUs are hidden on purpose",
            without_cuda(T4, environment={"CUDA_VISIBLE_DEVICES": ""}),
            "not_applicable",
        ),
        Row("no answer", without_cuda(T4, cuda=source("timeout", "30 s")), "skip"),
        Row("a lost GPU explains it", without_cuda(lost(A100), T4), "skip"),
        Row(
            "an unfinished fabric explains it",
            without_cuda(with_fabric(H100, "in_progress"), cuda=NOT_READY),
            "skip",
        ),
    ),
    "HWP112": (
        Row(
            "no answer",
            without_cuda(T4, cuda=source("timeout", "no answer within 30 s")),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("no answer within 30 s",), ("dmesg",)),
        ),
        Row("an answer", report(gpus=[T4]), "pass"),
        Row("no libcuda", cpu_only(), "not_applicable"),
        Row("not asked", report(gpus=[T4], sources={"cuda": source("skipped", "described")}), "skip"),
        Row(
            "NVML does not answer either",
            report(gpus=[T4], sources=dict.fromkeys(("nvml", "cuda"), source("timeout", "30 s"))),
            "skip",
        ),
    ),
    "HWP129": (
        Row(
            "the only GPU is withheld",
            report(gpus=[hidden(T4)]),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                UUID,
                ("Tesla T4 (7.5), NVML index 0", "it gives 0"),
                ("nvidia-smi -q -i 0",),
            ),
        ),
        Row(
            "one of two is withheld",
            report(gpus=[hidden(T4), T4]),
            Fires(Severity.WARNING, Action.ADMIN, UUID, ("it gives 1",)),
        ),
        Row("both are given", report(gpus=[T4, A100]), "pass"),
        Row("a script took one from its TensorFlow", taken_from_tensorflow(report(gpus=[T4, A100])), "pass"),
        Row(
            "a variable chooses",
            report(gpus=[hidden(T4)], environment={"CUDA_VISIBLE_DEVICES": "-1"}),
            "not_applicable",
        ),
        Row(
            "an MPS daemon chooses",
            report(gpus=[hidden(T4), T4], environment={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}),
            "not_applicable",
        ),
        Row("MIG without instances is another matter", report(gpus=[mig(A100)]), "skip"),
        Row("a lost GPU is another matter", report(gpus=[lost(A100)]), "skip"),
        Row("NVML was not asked", report(gpus=[T4], sources={"nvml": source("skipped", "not needed")}), "skip"),
        Row("no GPU", report(), "not_applicable"),
        Row(
            "a GPU that no process may use",
            report(gpus=[T4, msgspec.structs.replace(hidden(A100), compute_mode="prohibited")]),
            "pass",
        ),
    ),
    "HWP130": (
        Row(
            "one of two",
            without_nvml(report(gpus=[T4, A100]), SECOND_UUID),
            Fires(
                Severity.INFO,
                Action.ADMIN,
                SECOND_UUID,
                ("CUDA gives NVIDIA A100-SXM4-80GB (8.0) (CUDA 1), which NVML does not show; it shows 1",),
                ("nvidia-smi -L",),
            ),
        ),
        Row("both are shown", report(gpus=[T4, A100]), "pass"),
        Row("a hidden GPU is not CUDA's", report(gpus=[T4, hidden(A100)]), "pass"),
        Row("CUDA gives none", report(gpus=[hidden(T4)]), "not_applicable"),
        Row("NVML was not asked", report(gpus=[T4], sources={"nvml": source("skipped", "not needed")}), "skip"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)


def test_a_gpu_on_the_bus_is_reason_enough_to_expect_cuda() -> None:
    facts = report(
        driver=KERNEL_ONLY, sources={"nvml": ABSENT, "cuda": CUDA_UNKNOWN}, host={"pci_devices": (pci(),)}, lists=()
    )
    check("HWP111", Row("on the bus", facts, Fires(Severity.ERROR, Action.ADMIN, "driver", ("(999)",))))
