"""TensorFlow sees no GPU for its packages: wheels, CUDA libraries, plug-ins, other frameworks, environments."""

from __future__ import annotations

from typing import Any

from hwprobe.report import Distribution, Driver, SharedLibrary, TensorFlow
from tests.cases.table import ERROR, FAIL, INFO, OK, WARN, WARNING, Case, Cases, cases, hold, judged
from tests.reports import (
    CPU_ONLY,
    RTX_3090,
    SINCE_2_17,
    T4,
    T1200,
    V100,
    built_with,
    cpu_only,
    gpu,
    hidden,
    report,
    tensorflow_wheel,
)
from tests.rules.facts import LIBRARIES, SITE_PACKAGES, WINDOWS, nodes, pci, with_libraries

RTX_5080 = gpu("NVIDIA GeForce RTX 5080 Laptop GPU", "12.0", memory_gib=16, pci_device_id="2C59", multiprocessors=60)
WHEEL_2_16_1 = with_libraries(
    *LIBRARIES,
    found={name: f"{SITE_PACKAGES}/nvidia/some/lib/{name}" for name in LIBRARIES},
    version="2.16.1",
    cuda_version="12.3",
    compute_capabilities=("sm_50", "sm_60", "sm_70", "sm_80", "compute_90"),
    wheels=(Distribution(name="nvidia-cudnn-cu12", version="8.9.7.29"),),
)
AND_CUDA = ("nvidia-cublas-cu12<13.0,>=12.5.3.2", "nvidia-cudnn-cu12<10.0,>=9.3.0.75")
TENSORFLOW_2_20: dict[str, Any] = {"version": "2.20.0", "compute_capabilities": SINCE_2_17}


def with_cudnn(version: str) -> TensorFlow:
    library = SharedLibrary(soname="libcudnn.so.9", loads=True, path="/usr/lib/libcudnn.so.9", version=version)
    return tensorflow_wheel(libraries=(library,))


TABLE: Cases = {
    "C001": (
        Case(
            "wheels that TensorFlow 2.16.1 does not search",
            "tensorflow/tensorflow#63362",
            report(gpus=[RTX_3090], lists=(), tensorflow=WHEEL_2_16_1, driver="550.54.14"),
            FAIL,
            {"HWP209": ERROR},
            says=("pip install 'tensorflow[and-cuda]<2.21'", "export LD_LIBRARY_PATH=", "libcudnn.so.9"),
            never=("HWP1", "HWP208", "install CUDA", "driver"),
            require="gpus>=1",
        ),
    ),
    "C002": (
        Case(
            "an environment without the CUDA packages, beside one with them",
            "tensorflow/tensorflow#110956",
            report(
                gpus=[gpu("NVIDIA A100 80GB PCIe", "8.0", memory_gib=80)],
                lists=(),
                tensorflow=with_libraries(*LIBRARIES, and_cuda=AND_CUDA, **TENSORFLOW_2_20),
            ),
            FAIL,
            {"HWP208": ERROR},
            says=("not installed in this environment: nvidia-cublas-cu12, nvidia-cudnn-cu12", "[and-cuda]==2.20.0"),
            never=("HWP1", "HWP206"),
            require="gpus>=1",
        ),
        Case(
            "the other environment of the same machine",
            "tensorflow/tensorflow#110956",
            report(
                gpus=[gpu("NVIDIA A100 80GB PCIe", "8.0", memory_gib=80)],
                tensorflow=with_libraries(and_cuda=AND_CUDA, **TENSORFLOW_2_20),
            ),
            OK,
            {"HWP406": INFO},
            "mixed_bfloat16",
            never=("HWP2",),
        ),
    ),
    "C003": (
        Case(
            "a module system lost cuDNN alone",
            "tensorflow/tensorflow#66987",
            report(gpus=[V100], lists=(), tensorflow=with_libraries("libcudnn.so.9")),
            FAIL,
            {"HWP208": ERROR},
            says=("libcudnn.so.9 does not load", "cannot open shared object file", "no file of that name was found"),
            never=("libcublas", "libcudart"),
        ),
    ),
    "C004": (
        Case(
            "TensorFlow 2.16 on native Windows",
            "tensorflow/tensorflow#60156, #64536, #58729",
            report(
                gpus=[gpu("NVIDIA GeForce RTX 3050 Ti Laptop GPU", "8.6", memory_gib=4)],
                tensorflow=TensorFlow(version="2.16.1", is_cuda_build=False, is_rocm_build=False),
                host=WINDOWS,
            ),
            WARN,
            {"HWP203": WARNING},
            says=("wsl --install",),
            never=("HWP202", "HWP206", "HWP208", "cuDNN", "PATH"),
            require="gpus>=1",
        ),
    ),
    "C005": (
        Case(
            "the aarch64 wheel on a Grace node",
            "tensorflow/tensorflow#121157",
            report(
                gpus=[gpu("NVIDIA GH200 480GB", "9.0", memory_gib=96)],
                tensorflow=tensorflow_wheel(
                    "2.20.0",
                    is_cuda_build=False,
                    compute_capabilities=None,
                    wheels=(Distribution(name="nvidia-cudnn-cu12", version="9.3.0.75"),),
                ),
                driver="580.159.03",
                host={"machine": "aarch64"},
            ),
            FAIL,
            {"HWP204": ERROR},
            says=("do not change that", "nvcr.io/nvidia/tensorflow"),
            never=("HWP202", "pip install"),
            require="gpus>=1",
        ),
    ),
    "C006": (
        Case(
            "CUDA 10.2 is installed where the wheel wants 10.1",
            "tensorflow/tensorflow#37510, #35866, #38090",
            report(
                gpus=[V100] * 8,
                lists=(),
                tensorflow=built_with(
                    "10.1",
                    "2.1.0",
                    libraries=(
                        SharedLibrary(
                            soname="libcudart.so.10.1",
                            loads=False,
                            error="cannot open shared object file",
                            other_versions=("/usr/local/cuda-10.2/lib64/libcudart.so.10.2",),
                        ),
                    ),
                ),
                driver=Driver(version="440.33.01", kernel_version="440.33.01", cuda_version="10.2"),
            ),
            FAIL,
            {"HWP208": ERROR},
            says=("libcudart.so.10.1", "libcudart.so.10.2", "install CUDA 10.1"),
            never=("nvidia-smi",),
        ),
    ),
    "C010": (
        Case(
            "torch has loaded its cuDNN first",
            "tensorflow/tensorflow#27487; pytorch/pytorch#20844",
            report(
                gpus=[gpu("NVIDIA GeForce RTX 2080", "7.5", memory_gib=8)],
                host={"mapped_libraries": ("/env/site-packages/torch/lib/libcudnn.so.9",)},
            ),
            WARN,
            {"HWP220": WARNING},
            "mixed_float16",
            says=("torch has loaded", "import tensorflow   # before import torch"),
        ),
        Case(
            "and it is older than TensorFlow needs",
            "tensorflow/docs#2251",
            report(
                gpus=[gpu("NVIDIA GeForce RTX 2080", "7.5", memory_gib=8)],
                host={"mapped_libraries": ("/env/site-packages/torch/lib/libcudnn.so.9.1.0",)},
            ),
            FAIL,
            {"HWP220": ERROR},
            "mixed_float16",
        ),
    ),
    "C013": (
        Case(
            "cuDNN 9.1 under TensorFlow 2.21",
            "tensorflow/tensorflow#60913; Kaggle/docker-python#1435; googlecolab/colabtools#2626",
            report(gpus=[T4], tensorflow=with_cudnn("9.1.0")),
            FAIL,
            {"HWP210": ERROR},
            "mixed_float16",
            says=("cuDNN 9.1.0", "built with 9.3", "the first convolution fails"),
        ),
    ),
    "C014": (
        Case(
            "two faults at once: Blackwell, and cuDNN 8 beside a TensorFlow that opens 9",
            "tensorflow/tensorflow#101746",
            report(
                gpus=[RTX_5080],
                lists=(),
                tensorflow=with_libraries("libcudnn.so.9", **TENSORFLOW_2_20),
                driver="581.29",
            ),
            FAIL,
            {"HWP211": ERROR, "HWP208": ERROR},
            says=("nvcr.io/nvidia/tensorflow", "libcudnn.so.9 does not load"),
        ),
    ),
    "C113": (
        Case(
            "torch works on a Windows laptop and TensorFlow does not",
            "NVlabs/sionna#792",
            report(
                gpus=[T1200],
                tensorflow=CPU_ONLY,
                driver="572.61",
                host={**WINDOWS, "frameworks": (Distribution(name="torch", version="2.7.1"),)},
            ),
            WARN,
            {"HWP203": WARNING, "HWP401": INFO},
            says=("torch 2.7.1 brings a CUDA of its own", "wsl --install"),
            require="gpus>=1",
        ),
        Case(
            "the same board under WSL2",
            "NVlabs/sionna#792",
            report(gpus=[T1200], driver="572.61", host={"wsl": True, "device_nodes": nodes("dxg")}),
            OK,
            {"HWP401": INFO},
        ),
    ),
    "C119": (
        Case(
            "a notebook kernel of another environment",
            "tensorflow/tensorflow#60790, #62994",
            report(
                gpus=[gpu("NVIDIA GeForce RTX 4070 Ti", "8.9", memory_gib=12)],
                lists=(),
                tensorflow=with_libraries("libcudnn.so.9"),
                host={"notebook": True, "prefix": "/envs/base"},
                environment={"CONDA_PREFIX": "/envs/tf"},
            ),
            FAIL,
            {"HWP208": ERROR, "HWP312": WARNING},
            says=("/envs/base", "/envs/tf/bin/python -m ipykernel install"),
        ),
    ),
    "C122": (
        Case(
            "an Intel Arc whose plug-in lists nothing",
            "intel/intel-extension-for-tensorflow#61",
            cpu_only(
                tensorflow=tensorflow_wheel(
                    is_cuda_build=False,
                    plugins=(Distribution(name="intel-extension-for-tensorflow", version="2.15.0.1"),),
                ),
                host={"pci_devices": (pci("56A0", vendor="8086", driver="xe"),)},
            ),
            OK,
            {"HWP314": INFO},
            says=("CUDA messages in TensorFlow's log do not matter", "intel-extension-for-tensorflow"),
            never=("NVIDIA driver",),
        ),
    ),
}


@cases(TABLE)
def test_case(case: Case) -> None:
    hold(case)


def test_c010_a_gpu_that_is_hidden_is_no_reason_to_look_at_cudnn() -> None:
    case = TABLE["C010"][0]
    facts = report(
        gpus=[hidden(T4)],
        host={"mapped_libraries": case.facts.host.mapped_libraries},
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )
    assert "HWP220" not in {finding.id for finding in judged(case._replace(facts=facts)).findings}
