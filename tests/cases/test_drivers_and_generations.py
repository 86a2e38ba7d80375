"""TensorFlow sees no GPU for its driver, its device nodes, or a generation that the build has no code for."""

from __future__ import annotations

import msgspec

from hwprobe.render.formats import write
from hwprobe.report import Distribution, Driver
from tests.cases.table import ERROR, FAIL, INFO, OK, WARN, WARNING, Case, Cases, cases, hold, judged
from tests.reports import (
    H100,
    RTX_3090,
    RTX_5090,
    SINCE_2_17,
    T4,
    V100,
    built_with,
    cpu_only,
    gpu,
    report,
    tensorflow_wheel,
)
from tests.rules.facts import failed, nodes, pci, unasked, without_cuda

RTX_3070 = gpu("NVIDIA GeForce RTX 3070", "8.6", memory_gib=8, pci_device_id="2484", multiprocessors=46)
RTX_8000 = gpu("Quadro RTX 8000", "7.5", memory_gib=48, pci_device_id="1E30", multiprocessors=72)
THOR = gpu("NVIDIA Thor", "11.0", memory_gib=None, multiprocessors=20)
K80 = gpu("Tesla K80", "3.7", memory_gib=11, pci_device_id="102D", multiprocessors=13)
GTX_780M = gpu("GeForce GTX 780M", "3.0", memory_gib=4, pci_device_id="119F", multiprocessors=8)

TABLE: Cases = {
    "C007": (
        Case(
            "only XLA_GPU is there",
            "tensorflow/tensorflow#38990",
            report(gpus=[V100], lists=(), tensorflow=built_with("10.1", "2.1.0", libraries=())),
            FAIL,
            {"HWP214": ERROR},
            says=("does not list it; it lists 0 of 1",),
        ),
    ),
    "C008": (
        Case(
            "nvidia-uvm is broken after a suspend",
            "tensorflow/tensorflow#394, #53341",
            without_cuda(T4, host={"device_nodes": nodes("nvidia0", "nvidiactl", "nvidia-uvm")}),
            FAIL,
            {"HWP111": ERROR},
            says=("modprobe nvidia_uvm", "NVML, which needs less of the driver, answers"),
            require="gpus>=1",
        ),
        Case(
            "nvidia-uvm was never made in the container",
            "pop-os/default-settings#64; pytorch/pytorch#88639",
            without_cuda(T4, host={"device_nodes": nodes("nvidia0", "nvidiactl"), "container": "lxc"}),
            FAIL,
            {"HWP103": ERROR},
            says=("/dev/nvidia-uvm",),
        ),
    ),
    "C009": (
        Case(
            "a Linux libcuda in front of that of WSL",
            "tensorflow/tensorflow#60429; microsoft/WSL#9272",
            without_cuda(
                gpu("NVIDIA GeForce RTX 2070", "7.5", memory_gib=8),
                cuda=failed(100, "CUDA_ERROR_NO_DEVICE"),
                driver=Driver(version="531.68", cuda_library="/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
                host={"wsl": True, "container": "docker", "device_nodes": nodes("dxg")},
            ),
            FAIL,
            {"HWP111": ERROR},
            says=("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/wsl/lib"),
            never=("apt install", "modprobe"),
        ),
    ),
    "C011": (
        Case(
            "a driver of before CUDA 11, and the device is listed all the same",
            "tensorflow/tensorflow#31319, #37978, #21832",
            report(
                gpus=[K80],
                tensorflow=tensorflow_wheel("2.10.1", cuda_version="11.2", compute_capabilities=("sm_35",)),
                driver="410.72",
            ),
            FAIL,
            {"HWP206": ERROR},
            says=("driver 410.72 is older than 450.80.02", "CUDA 11.2"),
            require="gpus>=2",
        ),
    ),
    "C012": (
        Case(
            "nvidia-smi shows a newer CUDA than TensorFlow loads, which is as it should be",
            "tensorflow/tensorflow#48127, #44883",
            report(
                gpus=[RTX_8000],
                tensorflow=tensorflow_wheel("2.4.1", cuda_version="11.0", compute_capabilities=("sm_70", "sm_75")),
                driver=Driver(version="460.32.03", kernel_version="460.32.03", cuda_version="11.2"),
            ),
            OK,
            {},
            "mixed_float16",
            never=("HWP",),
        ),
    ),
    "C015": (
        Case(
            "an RTX 5090 under a wheel of 2.19",
            "tensorflow/tensorflow#89272, #90291, #97387, #99592",
            report(gpus=[RTX_5090], tensorflow=tensorflow_wheel("2.19.0", compute_capabilities=SINCE_2_17)),
            FAIL,
            {"HWP211": ERROR},
            says=("lists NVIDIA GeForce RTX 5090 (12.0) and has no code for it", "nvcr.io/nvidia/tensorflow"),
            require="gpus>=1",
        ),
    ),
    "C017": (
        Case(
            "an H100 that a wheel of 2.14 serves by PTX",
            "tensorflow/tensorflow#60739",
            report(gpus=[H100], tensorflow="2.14.1"),
            WARN,
            {"HWP212": WARNING},
            "mixed_bfloat16",
            says=("CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE"),
            never=("HWP211",),
        ),
    ),
    "C018": (
        Case(
            "Ampere under CUDA 10.1",
            "tensorflow/tensorflow#43718, #44959, #45089",
            report(gpus=[RTX_3090], tensorflow=built_with("10.1", "2.3.0")),
            FAIL,
            {"HWP223": ERROR},
            says=("needs CUDA 11.1 or newer",),
        ),
    ),
    "C019": (
        Case(
            "Ampere under CUDA 10.0: wrong numbers without an error",
            "alexanderkroner/saliency#25",
            report(gpus=[RTX_3090], tensorflow=built_with("10.0", "1.15.0")),
            FAIL,
            {"HWP223": ERROR},
            says=("computes wrong numbers",),
        ),
    ),
    "C020": (
        # The thread saw it hang and finish; C018 and C019 saw the same pair fail and compute wrong numbers, so it is an
        # error. That the check runs no operation that could hang is C062.
        Case(
            "Ampere under CUDA 10.1 looks dead for minutes",
            "tensorflow/tensorflow#48787, #44936",
            report(gpus=[RTX_3070], tensorflow=built_with("10.1", "2.4.1"), driver="460.32.03"),
            FAIL,
            {"HWP223": ERROR},
            says=("it hangs",),
        ),
    ),
    "C021": (
        Case(
            "a GPU below the floor of every wheel",
            "tensorflow/tensorflow#46653, #17445",
            report(
                gpus=[GTX_780M],
                lists=(),
                tensorflow=tensorflow_wheel(
                    "2.4.1", cuda_version="11.0", compute_capabilities=("sm_35", "sm_50", "compute_80")
                ),
            ),
            FAIL,
            {"HWP211": ERROR},
            says=("3.0 is older than 3.5",),
            never=("HWP214",),
            require="gpus>=1",
        ),
        Case(
            "the same beside a GPU that computes",
            "tensorflow/tensorflow#112",
            report(gpus=[T4, GTX_780M], lists=[0]),
            OK,
            {"HWP211": INFO},
            "mixed_float16",
        ),
    ),
    "C024": (
        Case(
            "Volta under a build with CUDA 13",
            "pytorch/pytorch#190385",
            report(
                gpus=[V100],
                tensorflow=tensorflow_wheel(cuda_version="13.0", compute_capabilities=("sm_75", "sm_80", "compute_90")),
                driver="580.95.05",
            ),
            FAIL,
            {"HWP211": ERROR},
            says=("7.0 is older than 7.5",),
        ),
    ),
    "C108": (
        Case(
            "no libcuda under WSL2",
            "tensorflow/tensorflow#45882",
            cpu_only(
                tensorflow=tensorflow_wheel(wheels=(Distribution(name="nvidia-cudnn-cu12", version="9.3.0.75"),)),
                host={"wsl": True, "kernel": "5.15.167.4-microsoft-standard-WSL2", "device_nodes": nodes("dxg")},
            ),
            FAIL,
            {"HWP109": ERROR},
            says=("/usr/lib/wsl/lib", "update the NVIDIA driver on Windows"),
            never=("apt install", "libcuda1", "driver package"),
            require="gpus>=1",
        ),
    ),
    "C121": (
        Case(
            "a headless host where nobody has made the nodes yet",
            "tensorflow/tensorflow#23935, #7653",
            without_cuda(
                gpu("GeForce GTX 1060 6GB", "6.1", memory_gib=6),
                host={"device_nodes": nodes("nvidia0", "nvidiactl"), "pci_devices": (pci("1C03"),)},
            ),
            FAIL,
            {"HWP103": ERROR},
            says=("nvidia-modprobe", "nvidia-persistenced"),
        ),
    ),
    "C126": (
        Case(
            "Thor under a build for 8.0 and 9.0",
            "strands-labs/robots#2908",
            report(gpus=[THOR], tensorflow=tensorflow_wheel(compute_capabilities=("sm_80", "sm_90"))),
            FAIL,
            {"HWP211": ERROR},
            says=("nothing in sm_80, sm_90 runs on 11.0",),
        ),
    ),
}


@cases(TABLE)
def test_case(case: Case) -> None:
    hold(case)


def test_c012_both_cudas_are_shown_under_names_of_their_own() -> None:
    text = write(judged(TABLE["C012"][0]), "text")
    assert "TensorFlow 2.4.1 (CUDA 11.0, cuDNN 8)" in text
    assert "driver 460.32.03 (CUDA up to 11.2)" in text


def test_c008_a_healthy_nvml_is_not_a_healthy_gpu() -> None:
    facts = msgspec.structs.replace(TABLE["C008"][0].facts, devices=(unasked(T4),))
    check = judged(TABLE["C008"][0]._replace(facts=facts))
    assert check.verdict == "not_ready"
