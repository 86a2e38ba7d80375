"""Sick and unusual GPUs: drivers that disagree, lost GPUs, fabric, Jetson, compute modes, other makers."""

from __future__ import annotations

import msgspec
import pytest

from hwprobe.gpu import Gpu, GpuMemory
from hwprobe.policy import CheckWish, Policy
from hwprobe.preflight import check
from hwprobe.report import Distribution, Driver, Report, TensorFlow, TensorFlowDevice
from tests.cases.table import ERROR, FAIL, INFO, OK, WARN, WARNING, Case, Cases, cases, hold, judged
from tests.reports import GB10, H100, KERAS_3, RTX_3090, T4, V100, cpu_only, gpu, report, tensorflow_wheel, using
from tests.rules.facts import (
    ABSENT,
    CUDA_UNKNOWN,
    IN_POD,
    NO_DRIVER,
    NODES,
    POD,
    WINDOWS,
    failed,
    nodes,
    pci,
    without_cuda,
)

GIB = 2**30
L40S = gpu("NVIDIA L40S", "8.9", memory_gib=45, pci_device_id="26B9", multiprocessors=142)
GRID_T4 = msgspec.structs.replace(T4, name="GRID T4-4Q", virtualization="vgpu")
GH200 = gpu("NVIDIA GH200 480GB", "9.0", pci_device_id="2342", multiprocessors=132)
ORIN = gpu("Orin (nvgpu)", "8.7", memory=GpuMemory(kind="unified"), multiprocessors=16)
LOST = Gpu(visible=False, error="the GPU has fallen off the bus", error_code=15)
MISMATCH = {
    "nvml": failed(18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
    "cuda": failed(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
}
MISMATCHED = Driver(kernel_version="550.90.07", nvml_library_version="550.107.02")
ROCM = TensorFlow(
    version="2.18.1",
    is_cuda_build=False,
    is_rocm_build=True,
    devices=(TensorFlowDevice(name="GPU:0", description="AMD Radeon RX 9070 XT"),),
)
RADEON = {"pci_devices": (pci("7550", vendor="1002", driver="amdgpu"),)}


def other_gpu(tensorflow: TensorFlow, **host: object) -> Report:
    """A GPU that only TensorFlow knows."""
    listed = Gpu(kind="other", visible=True, tensorflow_name="GPU:0")
    return report(gpus=[listed], tensorflow=tensorflow, driver=None, sources=NO_DRIVER, lists=[0], host=host)


def plugged(name: str) -> TensorFlow:
    return TensorFlow(
        version="2.18.1",
        is_cuda_build=False,
        is_rocm_build=False,
        plugins=(Distribution(name=name, version="1.2.0"),),
        devices=(TensorFlowDevice(name="GPU:0"),),
    )


TABLE: Cases = {
    "C040": (
        Case(
            "the compat libcuda of an image on a GeForce",
            "NVIDIA/nvidia-docker#1515",
            without_cuda(
                RTX_3090,
                cuda=failed(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
                driver=Driver(version="525.147.05", cuda_library="/usr/local/cuda/compat/libcuda.so.1"),
                host={"container": "docker", "device_nodes": NODES},
                environment={"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/usr/local/cuda/lib64"},
            ),
            FAIL,
            {"HWP110": ERROR},
            says=("/usr/local/cuda/compat/libcuda.so.1", "export LD_LIBRARY_PATH=/usr/local/cuda/lib64 "),
            never=("HWP111", "HWP102"),
        ),
    ),
    "C041": (
        Case(
            "a running container lost its GPUs",
            "NVIDIA/nvidia-docker#1730; NVIDIA/nvidia-container-toolkit#48",
            report(
                driver=Driver(kernel_version="550.90.07"),
                sources={"nvml": failed(999, "NVML_ERROR_UNKNOWN"), "cuda": CUDA_UNKNOWN},
                host={"container": "docker", "device_nodes": NODES, "pci_devices": (pci(),)},
            ),
            FAIL,
            {"HWP107": ERROR},
            says=("this container has lost its GPUs", "docker restart"),
            never=("HWP111",),
            require="gpus>=1",
        ),
    ),
    "C042": (
        Case(
            "libraries were upgraded under a running module",
            "NVIDIA/nvidia-docker#584, #365",
            report(driver=MISMATCHED, sources=MISMATCH, host={"device_nodes": NODES, "pci_devices": (pci(),)}),
            FAIL,
            {"HWP102": ERROR},
            says=("550.90.07", "550.107.02", "restart the node"),
            never=("pip install", "HWP107", "HWP111"),
            require="gpus>=1",
        ),
    ),
    "C043": (
        Case(
            "one of four fell off the bus",
            "XuehaiPan/nvitop#139; rossumai/nvgpu#6; leptonai/gpud#604",
            report(gpus=[RTX_3090, RTX_3090, LOST, RTX_3090]),
            FAIL,
            {"HWP120": ERROR},
            "mixed_bfloat16",
            says=("the GPU at NVML index 2 does not answer", "take the node out of service"),
        ),
    ),
    "C047": (
        Case(
            "an old pynvml in the way",
            "XuehaiPan/nvitop#44, #23; wookayin/gpustat#105, #153",
            report(
                gpus=[V100],
                driver=Driver(
                    version="570.124.06", foreign_pynvml="/env/site-packages/pynvml.py (nvidia-ml-py3 7.352.0)"
                ),
            ),
            WARN,
            {"HWP221": WARNING},
            "mixed_float16",
            says=("nvidia-ml-py3 7.352.0", "pip uninstall pynvml nvidia-ml-py3"),
        ),
    ),
    "C048": (
        Case(
            "no fabric manager on an HGX node",
            "jax-ml/jax#24866",
            without_cuda(*[H100] * 8, cuda=failed(802, "CUDA_ERROR_SYSTEM_NOT_READY")),
            FAIL,
            {"HWP111": ERROR},
            says=("fabric manager", "nvidia-fabricmanager"),
            require="gpus>=1",
        ),
        Case(
            "the fabric is still coming up, as NVML says itself",
            "aws-deep-learning-ami#33",
            without_cuda(
                msgspec.structs.replace(H100, health=msgspec.structs.replace(H100.health, fabric_state="in_progress")),
                cuda=failed(802, "CUDA_ERROR_SYSTEM_NOT_READY"),
            ),
            FAIL,
            {"HWP127": ERROR},
            says=("is in progress",),
            never=("HWP111",),
        ),
    ),
    "C082": (
        Case(
            "bfloat16 gains nothing on a Radeon",
            "ROCm/tensorflow-upstream#3067",
            other_gpu(ROCM, wsl=True, **RADEON),
            OK,
            {"HWP313": INFO},
            says=("through ROCm", "float32 by default"),
            never=("HWP1", "HWP2"),
        ),
    ),
    "C102": (
        Case(
            "GB10 under a build without code for it",
            "llamastash#60; NVIDIA/k8s-dra-driver-gpu#1073",
            report(
                gpus=[GB10],
                driver="580.126.09",
                host={"memory_total_bytes": 122 * GIB, "memory_available_bytes": 119 * GIB},
            ),
            FAIL,
            {"HWP211": ERROR, "HWP505": INFO},
            says=("of 122 GiB, of which 119 GiB are available",),
            never=("HWP504",),
        ),
        Case(
            "GB10 with the wheel for aarch64",
            "llamastash#60",
            report(gpus=[GB10], tensorflow=tensorflow_wheel(is_cuda_build=False), host={"machine": "aarch64"}),
            FAIL,
            {"HWP204": ERROR, "HWP505": INFO},
        ),
    ),
    "C104": (
        Case(
            "a Jetson without NVML",
            "vllm-project/vllm#9728; XuehaiPan/nvitop#78",
            report(
                gpus=[ORIN],
                tensorflow=tensorflow_wheel("2.16.2", compute_capabilities=("sm_72", "sm_87")),
                driver=Driver(cuda_version="12.6"),
                sources={"nvml": ABSENT},
                host={"machine": "aarch64", "tegra": "NVIDIA Jetson AGX Orin", "device_nodes": nodes("nvmap")},
            ),
            OK,
            {"HWP505": INFO},
            "mixed_bfloat16",
            never=("HWP1", "No GPU"),
        ),
        Case(
            "the same with a TensorFlow of before bfloat16",
            "CUDA.jl#2542",
            report(
                gpus=[ORIN],
                tensorflow=tensorflow_wheel("2.12.1", compute_capabilities=("sm_72", "sm_87")),
                driver=Driver(cuda_version="11.4"),
                sources={"nvml": ABSENT},
                host={"machine": "aarch64", "tegra": "NVIDIA Jetson AGX Orin", "device_nodes": nodes("nvmap")},
            ),
            OK,
            {"HWP505": INFO, "HWP405": INFO},
            "mixed_float16",
        ),
    ),
    "C105": (
        Case(
            "a Jetson whose NVML tells a name and nothing else",
            "XuehaiPan/nvitop#168; jetson_stats#698",
            report(
                gpus=[ORIN],
                tensorflow=tensorflow_wheel("2.17.1", compute_capabilities=("sm_87",)),
                driver=Driver(version="540.4.0", kernel_version="540.4.0", cuda_version="12.6"),
                host={
                    "machine": "aarch64",
                    "tegra": "NVIDIA Jetson Orin Nano",
                    "device_nodes": nodes("nvmap", "nvidia0"),
                },
            ),
            OK,
            {"HWP505": INFO},
            "mixed_bfloat16",
            never=("HWP1",),
        ),
    ),
    "C106": (
        Case(
            "GH200 whose memory the host uses as a cache",
            "vllm-project/vllm#39361",
            report(gpus=[using(GH200, 60, 96)], host={"machine": "aarch64"}),
            OK,
            {"HWP506": INFO},
            "mixed_bfloat16",
            never=("HWP504",),
        ),
    ),
    "C110": (
        Case(
            "prohibited",
            "tensorflow/tensorflow#45450, #62351",
            report(gpus=[msgspec.structs.replace(V100, compute_mode="prohibited")]),
            FAIL,
            {"HWP123": ERROR},
            "mixed_float16",
            says=("sudo nvidia-smi -i 0 -c DEFAULT",),
        ),
        Case(
            "exclusive",
            "NVIDIA/DIGITS#2005",
            report(gpus=[msgspec.structs.replace(V100, compute_mode="exclusive_process")]),
            WARN,
            {"HWP123": WARNING},
            "mixed_float16",
        ),
        Case(
            "a vGPU profile",
            "tensorflow/tensorflow#48558",
            report(gpus=[GRID_T4]),
            OK,
            {"HWP128": INFO},
            "mixed_float16",
            says=("licence",),
        ),
    ),
    "C111": (
        Case(
            "a build for ROCm",
            "ROCm/tensorflow-upstream PR 2859",
            other_gpu(ROCM, **RADEON),
            OK,
            {"HWP313": INFO},
            never=("HWP1", "HWP2", "nvidia"),
        ),
    ),
    "C112": (
        Case(
            "Metal",
            "tensorflow/tensorflow#51705",
            other_gpu(plugged("tensorflow-metal"), system="Darwin", machine="arm64", pci_devices=None),
            OK,
            {"HWP313": INFO},
            says=("through tensorflow-metal",),
            never=("HWP202", "HWP1"),
        ),
        Case(
            "DirectML",
            "tensorflow/tensorflow#60241",
            other_gpu(plugged("tensorflow-directml-plugin"), **WINDOWS),
            OK,
            {"HWP313": INFO},
            never=("HWP202", "HWP203"),
        ),
    ),
    "C116": (
        Case(
            "a stub for linking on the library path",
            "XuehaiPan/nvitop#78",
            report(
                driver=Driver(nvml_library="/usr/local/cuda/lib64/stubs/libnvidia-ml.so.1"),
                sources={"nvml": failed(12, "NVML_ERROR_LIBRARY_NOT_FOUND"), "cuda": ABSENT},
                host={"pci_devices": (pci(driver="nouveau"),), "device_nodes": nodes("nvidia0")},
                environment={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"},
            ),
            FAIL,
            {"HWP106": ERROR},
            says=("for linking only and no driver", "without the folder that ends in /stubs"),
        ),
    ),
    "C117": (
        Case(
            "the host's packages and the operator's driver disagree",
            "NVIDIA/k8s-device-plugin (restarts after host upgrades)",
            report(driver=MISMATCHED, sources=MISMATCH, host=POD, environment=IN_POD),
            FAIL,
            {"HWP102": ERROR},
            says=("drain it until then",),
        ),
    ),
    "C123": (
        Case(
            "three of four are left",
            "NVIDIA/NVSentinel#684, #155",
            report(gpus=[L40S] * 3, host={"pci_devices": tuple(pci("26B9", bus=bus) for bus in (1, 2, 3, 4))}),
            FAIL,
            {"HWP122": ERROR},
            "mixed_bfloat16",
            says=("the PCI bus has 4 NVIDIA GPUs and NVML counts 3", "00000000:04:00.0"),
            require="gpus==4",
        ),
        Case(
            "in a job only the expected number tells",
            "pytorch/pytorch#98036",
            report(gpus=[L40S] * 3, host={"scheduler": "kubernetes", "container": "kubernetes"}),
            OK,
            {"HWP407": INFO},
            "mixed_bfloat16",
            require="gpus==4",
        ),
    ),
}


@cases(TABLE)
def test_case(case: Case) -> None:
    hold(case)


@pytest.mark.parametrize(("fail_on", "status"), [("drain", 1), ("never", 0)])
def test_c117_a_preflight_can_drain_the_node_for_it(fail_on: str, status: int) -> None:
    case = TABLE["C117"][0]._replace(policy=Policy(check=CheckWish(fail_on=fail_on)))  # type: ignore[arg-type]
    assert judged(case).exit_status == status
    primary = judged(case).primary
    assert primary is not None
    assert primary.action == "drain"


def test_c117_no_gpu_at_all_drains_nothing() -> None:
    drain = Policy(check=CheckWish(fail_on="drain"))
    assert check(report=cpu_only(keras=KERAS_3), policy=drain).exit_status == 0
