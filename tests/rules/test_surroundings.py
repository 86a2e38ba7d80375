"""Healthy machines of every kind: what is said there, exactly. A false alarm is worse than silence."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest

from hwprobe.findings import Severity
from hwprobe.gpu import Gpu, GpuMemory, Health, MigInstance
from hwprobe.policy import Policy
from hwprobe.preflight import assess
from hwprobe.report import DeviceNode, Distribution, Driver, Keras, Report, TensorFlow, TensorFlowDevice
from tests.reports import (
    A100,
    CPU_ONLY,
    GTX_1660_TI,
    H100,
    RTX_4090,
    T4,
    cpu_only,
    gpu,
    hidden,
    mig,
    report,
    source,
    tensorflow_wheel,
)
from tests.rules.facts import ABSENT, NO_DRIVER, NODES, failed, nodes, pci, with_libraries

GIB = 2**30
IN_DOCKER = {"container": "docker", "device_nodes": NODES, "pci_devices": (pci(), pci(bus=2))}
GPU_IMAGE = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
HEALTHY = Health(
    ecc_enabled=True,
    ecc_uncorrected_volatile=0,
    remapped_rows_pending=False,
    remapped_rows_failed=False,
    fabric_state="completed",
    fabric_status_code=0,
)
BOTH_KERAS = Keras(version="3.15.1", tf_keras_version="2.21.0", backend="tensorflow", backend_origin="default")
METAL = TensorFlow(
    version="2.18.1",
    is_cuda_build=False,
    is_rocm_build=False,
    plugins=(Distribution(name="tensorflow-metal", version="1.2.0"),),
    devices=(TensorFlowDevice(name="GPU:0", description="METAL"),),
)
ROCM = TensorFlow(
    version="2.18.1",
    is_cuda_build=False,
    is_rocm_build=True,
    devices=(TensorFlowDevice(name="GPU:0", description="AMD Instinct MI300X"),),
)
ORIN = gpu("Orin (nvgpu)", "8.7", memory=GpuMemory(kind="unified"), multiprocessors=16, uuid=None)
NGC_FOR_JETSON = tensorflow_wheel(
    "2.17.1", compute_capabilities=("sm_72", "sm_87"), cuda_version="12.6", cudnn_version="9", libraries=()
)
SLICE = MigInstance(
    uuid="MIG-a0000000-0000-0000-0000-000000000000",
    name="NVIDIA A100-SXM4-80GB MIG 1g.10gb",
    visible=True,
    memory=GpuMemory(total_bytes=int(9.5 * GIB), free_bytes=int(9.5 * GIB), kind="dedicated"),
)
BUSY_PARENT = msgspec.structs.replace(
    A100, memory=GpuMemory(total_bytes=80 * GIB, free_bytes=4 * GIB, kind="dedicated"), multiprocessors=None
)
WITHHELD = Gpu(visible=False, error="no permission", error_code=4)
OTHER = Gpu(kind="other", visible=True, tensorflow_name="GPU:0", name="a GPU")
INTEL = pci("46A6", vendor="8086", driver="i915")
WINDOWS = {"system": "Windows", "machine": "AMD64", "pci_devices": None, "cpu_flags": None}
WSL_NODES = nodes("dxg")


def healthy(device: Gpu) -> Gpu:
    return msgspec.structs.replace(device, health=HEALTHY, compute_mode="default", virtualization="none")


def other_gpu(tensorflow: TensorFlow, **host: object) -> Report:
    """A GPU that only TensorFlow knows."""
    return report(gpus=[OTHER], tensorflow=tensorflow, driver=None, sources=NO_DRIVER, lists=[0], host=host)


class Place(NamedTuple):
    """A healthy surrounding, and all that may be said there: id to severity."""

    facts: Report
    dtype_policy: str
    says: dict[str, Severity]


INFO, WARNING = Severity.INFO, Severity.WARNING

PLACES = {
    "a container with a T4": Place(
        report(gpus=[healthy(T4)], tensorflow=with_libraries(), host=IN_DOCKER, environment=GPU_IMAGE),
        "mixed_float16",
        {},
    ),
    "a container with an A100": Place(
        report(gpus=[healthy(A100)], tensorflow=with_libraries(), host=IN_DOCKER, environment=GPU_IMAGE),
        "mixed_bfloat16",
        {"HWP406": INFO},
    ),
    "a container with eight H100, tf_keras beside Keras": Place(
        report(gpus=[healthy(H100)] * 8, tensorflow=with_libraries(), host=IN_DOCKER, keras=BOTH_KERAS),
        "mixed_bfloat16",
        {"HWP406": INFO, "HWP407": INFO, "HWP219": INFO},
    ),
    "a T4 under a driver of an older minor": Place(
        report(gpus=[healthy(T4)], tensorflow=with_libraries(), driver="535.104.05"), "mixed_float16", {}
    ),
    "a desktop whose display takes some memory": Place(
        report(
            gpus=[
                msgspec.structs.replace(
                    RTX_4090, memory=GpuMemory(total_bytes=24 * GIB, free_bytes=21 * GIB, kind="dedicated")
                )
            ],
            host={"pci_devices": (pci("2684"), INTEL), "device_nodes": NODES},
        ),
        "mixed_bfloat16",
        {"HWP406": INFO},
    ),
    "a laptop without an NVIDIA GPU": Place(
        cpu_only(host={"pci_devices": (INTEL,), "device_nodes": ()}), "float32", {"HWP314": INFO}
    ),
    "a laptop with tensorflow-cpu": Place(cpu_only(tensorflow=CPU_ONLY), "float32", {}),
    "a CPU job on a GPU node, hidden on purpose": Place(
        report(gpus=[hidden(T4)], tensorflow=with_libraries("libcudnn.so.9"), environment={"CUDA_VISIBLE_DEVICES": ""}),
        "float32",
        {"HWP301": WARNING},
    ),
    "a CPU job on a node whose CUDA is broken": Place(
        report(
            gpus=[hidden(T4)],
            tensorflow=CPU_ONLY,
            sources={"cuda": failed(999, "CUDA_ERROR_UNKNOWN")},
            host={"device_nodes": nodes("nvidia0", "nvidiactl")},
            environment={"CUDA_VISIBLE_DEVICES": "-1"},
        ),
        "float32",
        {"HWP301": WARNING},
    ),
    "driver packages on a machine without a GPU": Place(
        report(
            driver=Driver(nvml_library="/usr/lib/libnvidia-ml.so.570.1", cuda_library="/usr/lib/libcuda.so.570.1"),
            sources={
                "nvml": failed(9, "NVML_ERROR_DRIVER_NOT_LOADED"),
                "cuda": failed(100, "CUDA_ERROR_NO_DEVICE"),
            },
        ),
        "float32",
        {},
    ),
    "a CPU pod on a GPU node": Place(
        report(
            driver=Driver(kernel_version="550.90.07"),
            sources=NO_DRIVER,
            host={"pci_devices": (pci(), pci(bus=2)), "device_nodes": (), "container": "kubernetes"},
            environment={"KUBERNETES_SERVICE_HOST": "set"},
        ),
        "float32",
        {"HWP306": INFO},
    ),
    "the same with tensorflow-cpu": Place(
        report(
            driver=Driver(kernel_version="550.90.07"),
            tensorflow=CPU_ONLY,
            sources=NO_DRIVER,
            host={"pci_devices": (pci(), pci(bus=2)), "device_nodes": (), "container": "kubernetes"},
            environment={"KUBERNETES_SERVICE_HOST": "set"},
        ),
        "float32",
        {"HWP306": INFO},
    ),
    "a container on a host without NVIDIA GPUs": Place(
        cpu_only(host={"container": "docker", "device_nodes": (), "pci_devices": ()}, environment=GPU_IMAGE),
        "float32",
        {},
    ),
    "a Slurm job with one of eight GPUs, the others withheld": Place(
        report(
            gpus=[healthy(T4), *[WITHHELD] * 7],
            host={"scheduler": "slurm", "device_nodes": NODES, "pci_devices": tuple(pci(bus=bus) for bus in range(8))},
            environment={"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "3", "SLURM_LOCALID": "0"},
        ),
        "mixed_float16",
        {},
    ),
    "a Slurm job with one of eight GPUs, the others only hidden": Place(
        report(
            gpus=[hidden(healthy(T4)), healthy(T4), *[hidden(healthy(T4))] * 6],
            host={"scheduler": "slurm"},
            environment={"CUDA_VISIBLE_DEVICES": "1"},
        ),
        "mixed_float16",
        {},
    ),
    "a Slurm job where each task has its own GPU": Place(
        report(
            gpus=[healthy(T4)],
            host={"scheduler": "slurm"},
            environment={"CUDA_VISIBLE_DEVICES": "0", "SLURM_LOCALID": "3"},
        ),
        "mixed_float16",
        {"HWP311": INFO},
    ),
    "WSL2 with a GeForce": Place(
        report(
            gpus=[RTX_4090],
            driver=Driver(version="566.36", cuda_version="12.7", cuda_library="/usr/lib/wsl/lib/libcuda.so.1"),
            host={"wsl": True, "device_nodes": WSL_NODES, "pci_devices": ()},
        ),
        "mixed_bfloat16",
        {"HWP406": INFO},
    ),
    "WSL2 on a laptop whose only GPU is Intel's": Place(
        cpu_only(host={"wsl": True, "device_nodes": WSL_NODES, "pci_devices": ()}), "float32", {"HWP109": INFO}
    ),
    "Windows with a GeForce": Place(
        report(gpus=[GTX_1660_TI], tensorflow=CPU_ONLY, host=WINDOWS),
        "float32",
        {"HWP203": WARNING, "HWP401": INFO},
    ),
    "Windows without an NVIDIA GPU": Place(cpu_only(tensorflow=CPU_ONLY, host=WINDOWS), "float32", {}),
    "a Mac with tensorflow-metal": Place(
        other_gpu(METAL, system="Darwin", machine="arm64", pci_devices=None, cpu_flags=None),
        "float32",
        {"HWP313": INFO},
    ),
    "a Jetson with NVIDIA's wheel and no NVML": Place(
        report(
            gpus=[ORIN],
            tensorflow=NGC_FOR_JETSON,
            driver=Driver(cuda_version="12.6", cuda_library="/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1"),
            sources={"nvml": ABSENT},
            host={
                "machine": "aarch64",
                "tegra": "NVIDIA Jetson AGX Orin Developer Kit",
                "device_nodes": nodes("nvmap", "nvhost-gpu"),
                "memory_total_bytes": 62 * GIB,
                "memory_available_bytes": 50 * GIB,
            },
        ),
        "mixed_bfloat16",
        {"HWP406": INFO, "HWP505": INFO},
    ),
    "a MIG slice in Kubernetes on a busy board": Place(
        report(
            gpus=[mig(BUSY_PARENT, SLICE)],
            tensorflow=with_libraries(),
            host={"container": "kubernetes", "device_nodes": NODES, "pci_devices": (pci(), pci(bus=2))},
            environment={"KUBERNETES_SERVICE_HOST": "set", "NVIDIA_VISIBLE_DEVICES": SLICE.uuid or ""},
        ),
        "mixed_bfloat16",
        {"HWP406": INFO},
    ),
    "an AMD GPU with a build for ROCm": Place(
        other_gpu(ROCM, pci_devices=(pci("74A1", vendor="1002", driver="amdgpu"),), device_nodes=()),
        "float32",
        {"HWP313": INFO},
    ),
    "a training script, where only CUDA and TensorFlow were asked": Place(
        report(
            gpus=[msgspec.structs.replace(A100, memory=GpuMemory(total_bytes=80 * GIB))],
            driver=Driver(cuda_version="12.8"),
            sources={"nvml": source("skipped", "CUDA and TensorFlow told everything in this process")},
            tensorflow=tensorflow_wheel(libraries=()),
            host={"mapped_libraries": ("/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06",)},
        ),
        "mixed_bfloat16",
        {"HWP406": INFO},
    ),
    "a notebook in an environment of its own": Place(
        report(
            gpus=[T4],
            host={"notebook": True, "prefix": "/envs/project"},
            environment={"CONDA_PREFIX": "/opt/jupyterhub"},
        ),
        "mixed_float16",
        {},
    ),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_a_healthy_place_hears_nothing_else(place: Place) -> None:
    check = assess(place.facts, Policy())
    assert {finding.id: finding.severity for finding in check.findings} == place.says
    assert check.decision is not None
    assert (check.verdict, check.decision.dtype_policy) == ("ready", place.dtype_policy)


ADVICE_FOR_LINUX_DRIVERS = ("modprobe", "apt install", "driver package", "nvidia-smi")


@pytest.mark.parametrize(
    "name",
    [
        "a Mac with tensorflow-metal",
        "an AMD GPU with a build for ROCm",
        "Windows without an NVIDIA GPU",
        "WSL2 on a laptop whose only GPU is Intel's",
        "a laptop without an NVIDIA GPU",
    ],
)
def test_nobody_is_told_to_install_a_driver_that_is_not_for_him(name: str) -> None:
    check = assess(PLACES[name].facts, Policy())
    told = "\n".join(step for finding in check.findings for step in (finding.message, *finding.fix))
    assert not [words for words in ADVICE_FOR_LINUX_DRIVERS if words in told]


def test_nodes_that_another_user_may_open_are_no_alarm() -> None:
    others = DeviceNode(path="/dev/nvidia7", mode="0600", owner="root", group="root", accessible=False)
    facts = report(gpus=[T4], host={"device_nodes": (*NODES, others)})
    assert assess(facts, Policy()).findings == ()
