"""TensorFlow sees no GPU, or the wrong one: packages, libraries, drivers, generations of GPUs."""

from __future__ import annotations

import msgspec

from hwprobe.report import Distribution, Driver, SharedLibrary, TensorFlow
from tests.cases.table import ERROR, FAIL, INFO, OK, WARN, WARNING, Case, Cases, cases, hold, judged
from tests.reports import (
    CPU_ONLY,
    H100,
    RTX_5090,
    T4,
    T1200,
    V100,
    cpu_only,
    gpu,
    hidden,
    report,
    tensorflow_wheel,
)
from tests.rules.facts import (
    LIBRARIES,
    SITE_PACKAGES,
    failed,
    nodes,
    pci,
    unasked,
    with_libraries,
    without_cuda,
)

GENERATION_2018 = ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")
RTX_3090 = gpu("NVIDIA GeForce RTX 3090", "8.6", memory_gib=24, pci_device_id="2204", multiprocessors=82)
RTX_3070 = gpu("NVIDIA GeForce RTX 3070", "8.6", memory_gib=8, pci_device_id="2484", multiprocessors=46)
RTX_5080 = gpu("NVIDIA GeForce RTX 5080 Laptop GPU", "12.0", memory_gib=16, pci_device_id="2C59", multiprocessors=60)
RTX_8000 = gpu("Quadro RTX 8000", "7.5", memory_gib=48, pci_device_id="1E30", multiprocessors=72)
THOR = gpu("NVIDIA Thor", "11.0", memory_gib=None, multiprocessors=20)
K80 = gpu("Tesla K80", "3.7", memory_gib=11, pci_device_id="102D", multiprocessors=13)
GTX_780M = gpu("GeForce GTX 780M", "3.0", memory_gib=4, pci_device_id="119F", multiprocessors=8)
GTX_1660 = gpu("NVIDIA GeForce GTX 1660", "7.5", memory_gib=6, pci_device_id="2184", multiprocessors=22)

CUDNN_8 = f"{SITE_PACKAGES}/nvidia/cudnn/lib/libcudnn.so.8"
WHEEL_2_16_1 = with_libraries(
    *LIBRARIES,
    found={name: f"{SITE_PACKAGES}/nvidia/some/lib/{name}" for name in LIBRARIES},
    version="2.16.1",
    cuda_version="12.3",
    compute_capabilities=("sm_50", "sm_60", "sm_70", "sm_80", "compute_90"),
    wheels=(Distribution(name="nvidia-cudnn-cu12", version="8.9.7.29"),),
)
AND_CUDA = ("nvidia-cublas-cu12<13.0,>=12.5.3.2", "nvidia-cudnn-cu12<10.0,>=9.3.0.75")
TENSORFLOW_2_20 = {"version": "2.20.0", "compute_capabilities": GENERATION_2018}
WINDOWS = {"system": "Windows", "machine": "AMD64", "pci_devices": None}


def built_with(cuda: str, version: str, **facts: object) -> TensorFlow:
    """A TensorFlow of before build_info.py named architectures."""
    return tensorflow_wheel(version, **{"cuda_version": cuda, "compute_capabilities": None, **facts})


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
    "C015": (
        Case(
            "an RTX 5090 under a wheel of 2.19",
            "tensorflow/tensorflow#89272, #90291, #97387, #99592",
            report(gpus=[RTX_5090], tensorflow=tensorflow_wheel("2.19.0", compute_capabilities=GENERATION_2018)),
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
    from hwprobe.render.formats import write

    text = write(judged(TABLE["C012"][0]), "text")
    assert "TensorFlow 2.4.1 (CUDA 11.0, cuDNN 8)" in text
    assert "driver 460.32.03 (CUDA up to 11.2)" in text


def test_c010_a_gpu_that_is_hidden_is_no_reason_to_look_at_cudnn() -> None:
    case = TABLE["C010"][0]
    facts = report(
        gpus=[hidden(T4)],
        host={"mapped_libraries": case.facts.host.mapped_libraries},
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )
    assert "HWP220" not in {finding.id for finding in judged(case._replace(facts=facts)).findings}


def test_c008_a_healthy_nvml_is_not_a_healthy_gpu() -> None:
    facts = msgspec.structs.replace(TABLE["C008"][0].facts, devices=(unasked(T4),))
    check = judged(TABLE["C008"][0]._replace(facts=facts))
    assert check.verdict == "not_ready"
