"""Which GPUs a process gets: variables, mixed boards, MIG, containers, schedulers, sick and unusual GPUs."""

from __future__ import annotations

import msgspec
import pytest

from hwprobe.gpu import Gpu, GpuMemory, MigInstance
from hwprobe.policy import CheckWish, Policy
from hwprobe.preflight import check
from hwprobe.render.formats import write
from hwprobe.render.text import memory_text
from hwprobe.report import Distribution, Driver, Report, TensorFlow, TensorFlowDevice
from tests.cases.table import ERROR, FAIL, INFO, OK, WARN, WARNING, Case, Cases, cases, hold, judged
from tests.reports import A100, GB10, H100, KERAS_3, T4, V100, cpu_only, gpu, hidden, mig, report, tensorflow_wheel
from tests.rules.facts import (
    ABSENT,
    CUDA_UNKNOWN,
    NO_DRIVER,
    NODES,
    SECOND_UUID,
    UUID,
    failed,
    in_cuda_order,
    nodes,
    pci,
    without_cuda,
)

GIB = 2**30
VARIABLE = "CUDA_VISIBLE_DEVICES"
GTX_1050 = gpu("NVIDIA GeForce GTX 1050", "6.1", memory_gib=2, pci_device_id="1C81", multiprocessors=5)
RTX_2070 = gpu("NVIDIA GeForce RTX 2070", "7.5", memory_gib=8, pci_device_id="1F02", multiprocessors=36)
RTX_2080_TI = gpu("NVIDIA GeForce RTX 2080 Ti", "7.5", memory_gib=11, pci_device_id="1E04", multiprocessors=68)
RTX_3090 = gpu("NVIDIA GeForce RTX 3090", "8.6", memory_gib=24, pci_device_id="2204", multiprocessors=82)
A4000 = gpu("NVIDIA RTX A4000", "8.6", memory_gib=16, pci_device_id="24B0", multiprocessors=48)
P1000 = gpu("Quadro P1000", "6.1", memory_gib=4, pci_device_id="1CB1", multiprocessors=5)
A10 = gpu("NVIDIA A10", "8.6", memory_gib=22.5, pci_device_id="2236", multiprocessors=72)
L40S = gpu("NVIDIA L40S", "8.9", memory_gib=45, pci_device_id="26B9", multiprocessors=142)
GRID_T4 = msgspec.structs.replace(T4, name="GRID T4-4Q", virtualization="vgpu")
GH200 = gpu("NVIDIA GH200 480GB", "9.0", pci_device_id="2342", multiprocessors=132)
ORIN = gpu("Orin (nvgpu)", "8.7", memory=GpuMemory(kind="unified"), multiprocessors=16)
LOST = Gpu(visible=False, error="the GPU has fallen off the bus", error_code=15)
SLURM = {"scheduler": "slurm"}
POD = {"container": "kubernetes", "device_nodes": NODES}
IN_POD = {"KUBERNETES_SERVICE_HOST": "set"}
WINDOWS = {"system": "Windows", "machine": "AMD64", "pci_devices": None}
MISMATCH = {
    "nvml": failed(18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
    "cuda": failed(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
}
MISMATCHED = Driver(kernel_version="550.90.07", nvml_library_version="550.107.02")


def using(device: Gpu, free_gib: float, total_gib: float) -> Gpu:
    memory = GpuMemory(total_bytes=int(total_gib * GIB), free_bytes=int(free_gib * GIB), kind="dedicated")
    return msgspec.structs.replace(device, memory=memory)


def slice_of(letter: str, *, visible: bool, memory_gib: float | None = 9.5) -> MigInstance:
    size = None if memory_gib is None else int(memory_gib * GIB)
    return MigInstance(
        uuid=f"MIG-{letter * 8}-0000-0000-0000-000000000000",
        name="NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        gpu_instance_id=7,
        compute_instance_id=0,
        memory=GpuMemory(total_bytes=size, free_bytes=size, kind="dedicated"),
        visible=visible,
    )


ONE, TWO, THREE = slice_of("a", visible=True), slice_of("b", visible=False), slice_of("c", visible=False)


def by_variable(value: str, *seen: bool) -> Report:
    """Two like GPUs, of which CUDA gives those that the variable names."""
    gpus = [T4 if visible else hidden(T4) for visible in seen]
    return report(gpus=gpus, environment={VARIABLE: value})


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


ROCM = TensorFlow(
    version="2.18.1",
    is_cuda_build=False,
    is_rocm_build=True,
    devices=(TensorFlowDevice(name="GPU:0", description="AMD Radeon RX 9070 XT"),),
)
RADEON = {"pci_devices": (pci("7550", vendor="1002", driver="amdgpu"),)}

TABLE: Cases = {
    "C025": (
        Case(
            "index 0 is another card than nvidia-smi's",
            "tensorflow/tensorflow#32881, #152",
            in_cuda_order(report(gpus=[GTX_1050, RTX_3090], environment={VARIABLE: "0"}), 1),
            WARN,
            {"HWP303": WARNING},
            "mixed_bfloat16",
            says=("RTX 3090 (8.6), which nvidia-smi numbers 1", "export CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        ),
    ),
    "C026": (
        Case(
            "two of eight, renumbered from 0",
            "tensorflow/tensorflow#50300, #5480, #21358",
            in_cuda_order(
                report(gpus=[RTX_2080_TI] * 8, environment={VARIABLE: "5,6", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
                5,
                6,
            ),
            OK,
            {"HWP407": INFO},
            "mixed_float16",
            never=("HWP3",),
        ),
    ),
    "C027": (
        Case(
            "-1 hides all",
            "Planet-AI-GmbH/tfaip#8",
            by_variable("-1", False, False),
            WARN,
            {"HWP301": WARNING},
            says=("unset CUDA_VISIBLE_DEVICES",),
            never=("driver", "HWP302"),
            require="gpus>=1",
        ),
        Case(
            "so does an empty value",
            "CUDA Programming Guide, environment variables",
            by_variable("", False, False),
            WARN,
            {"HWP301": WARNING},
            require="gpus>=1",
        ),
        Case(
            "a list ends at its first bad entry",
            "Planet-AI-GmbH/tfaip#8",
            by_variable("0,-1,1", True, False),
            WARN,
            {"HWP302": WARNING},
            "mixed_float16",
            says=("1 GPU remains visible",),
        ),
        Case(
            "an index that is out of range",
            "CUDA Programming Guide, environment variables",
            by_variable("3", False, False),
            FAIL,
            {"HWP302": ERROR},
            says=("there are 2 GPUs, numbered from 0",),
        ),
        Case(
            "a GPU named twice empties the list",
            "CUDA Programming Guide, environment variables",
            by_variable("0,0", False, False),
            FAIL,
            {"HWP302": ERROR},
            says=("the same device twice",),
        ),
        Case(
            "the beginning of a UUID is enough",
            "CUDA Programming Guide, environment variables",
            by_variable("GPU-00000000", True, False),
            OK,
            {},
            "mixed_float16",
            never=("HWP",),
        ),
    ),
    "C029": (
        Case(
            "Slurm's word for a job without GPUs",
            "ray-project/ray#7014",
            report(gpus=[hidden(V100)] * 4, host=SLURM, environment={VARIABLE: "NoDevFiles"}),
            WARN,
            {"HWP308": WARNING},
            says=("given no GPU", "#SBATCH --gres=gpu:1"),
            never=("HWP302", "driver"),
            require="gpus>=1",
        ),
    ),
    "C030": (
        Case(
            "TensorFlow leaves the card with five multiprocessors aside",
            "tensorflow/tensorflow#32489, #32569, #3430",
            report(gpus=[RTX_2070, GTX_1050], lists=[0]),
            WARN,
            {"HWP213": WARNING},
            "mixed_float16",
            says=("NVIDIA GeForce GTX 1050 (6.1) aside: 5 multiprocessors", "TF_MIN_GPU_MULTIPROCESSOR_COUNT=5"),
            never=("HWP214",),
        ),
    ),
    "C032": (
        Case(
            "a weak card decides for a strong one",
            "onnxruntime#17546",
            report(gpus=[A4000, P1000]),
            WARN,
            {"HWP403": WARNING, "HWP402": INFO},
            says=(f"export CUDA_VISIBLE_DEVICES={UUID}   # hides Quadro P1000 (6.1)",),
        ),
    ),
    "C033": (
        Case(
            "A10 beside T4",
            "NVIDIA/nvidia-container-toolkit#1227",
            report(gpus=[A10, A10, T4, T4]),
            OK,
            {"HWP403": INFO},
            "mixed_float16",
            says=("Tesla T4 (7.5) cannot",),
        ),
    ),
    "C034": (
        Case(
            "three MIG instances for one process",
            "pytorch/pytorch#130181, #102715; NVIDIA/k8s-device-plugin#446",
            report(
                gpus=[mig(A100, ONE, TWO, THREE)],
                environment={VARIABLE: ",".join(str(one.uuid) for one in (ONE, TWO, THREE))},
            ),
            WARN,
            {"HWP305": WARNING},
            "mixed_bfloat16",
            says=("3 MIG instances were given to this process and CUDA lets it use 1", f"{VARIABLE}={ONE.uuid} python"),
        ),
    ),
    "C036": (
        Case(
            "NVML refuses the parent's memory and tells the instance's",
            "XuehaiPan/nvitop#5",
            report(
                gpus=[
                    msgspec.structs.replace(
                        mig(A100, ONE),
                        memory=GpuMemory(),
                        errors={"memory": "no permission (NVML_ERROR_NO_PERMISSION)"},
                    )
                ],
                host={"container": "docker", "device_nodes": NODES},
            ),
            OK,
            {"HWP406": INFO},
            "mixed_bfloat16",
            never=("HWP5", "HWP1"),
        ),
    ),
    "C037": (
        Case(
            "the old name of an instance",
            "vllm-project/vllm#6582",
            report(gpus=[mig(A100, ONE)], environment={VARIABLE: f"MIG-{UUID}/7/0"}),
            OK,
            {"HWP406": INFO},
            "mixed_bfloat16",
            never=("HWP3",),
        ),
        Case(
            "its new name",
            "pytorch/serve#1237",
            report(gpus=[mig(A100, ONE)], environment={VARIABLE: str(ONE.uuid)}),
            OK,
            {"HWP406": INFO},
            "mixed_bfloat16",
            never=("HWP3",),
        ),
        Case(
            "a whole GPU by UUID",
            "vllm-project/vllm#6582",
            report(gpus=[hidden(T4), T4], environment={VARIABLE: SECOND_UUID}),
            OK,
            {},
            "mixed_float16",
            never=("HWP",),
        ),
        Case(
            "a UUID that nobody has",
            "vllm-project/vllm#6582",
            report(gpus=[hidden(T4)], environment={VARIABLE: "GPU-ffffffff-0000-0000-0000-000000000000"}),
            FAIL,
            {"HWP302": ERROR},
            says=("no GPU has a UUID that begins so",),
        ),
    ),
    "C038": (
        Case(
            "every rank of a launcher sees the first of two instances",
            "tensorflow/tensorflow#57385",
            report(
                gpus=[mig(A100, ONE, TWO)],
                host={"container": "docker", "device_nodes": NODES},
                environment={"NVIDIA_VISIBLE_DEVICES": "0:0,0:1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
            ),
            FAIL,
            {"HWP311": ERROR, "HWP305": WARNING},
            "mixed_bfloat16",
            says=("local rank 1 and 1 visible GPU", "every rank sees the same MIG instance"),
        ),
    ),
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
    "C049": (
        Case(
            "a pod that asked for no GPU sees all",
            "NVIDIA/k8s-device-plugin#87, #61, #195",
            report(gpus=[using(A100, 50, 80)] * 8, host=POD, environment={**IN_POD, "NVIDIA_VISIBLE_DEVICES": "all"}),
            WARN,
            {"HWP307": WARNING},
            "mixed_bfloat16",
            says=("all 8 GPUs of the node, which others may be using", "NVIDIA_VISIBLE_DEVICES=void"),
        ),
    ),
    "C050": (
        Case(
            "another pod has taken the shared GPU's memory",
            "NVIDIA/k8s-device-plugin#90",
            report(gpus=[using(T4, 0.4, 15)], host=POD, environment=IN_POD),
            FAIL,
            {"HWP504": ERROR},
            "mixed_float16",
            says=("0.4 of 15.0 GiB are free; something else uses the rest",),
        ),
    ),
    "C052": (
        Case(
            "a Slurm job on a node without GPUs",
            "tensorflow/tensorflow#56894",
            cpu_only(host=SLURM, environment={"SLURM_JOB_ID": "set"}),
            OK,
            {},
            never=("HWP",),
            require="gpus>=1",
        ),
        Case(
            "a Slurm job that asked for none on a node with some",
            "tensorflow/tensorflow#56894",
            report(gpus=[V100] * 4, host=SLURM),
            WARN,
            {"HWP308": WARNING},
            "mixed_float16",
            says=("it sees 4 of the node's GPUs all the same",),
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


def test_c026_the_table_shows_which_gpu_is_which() -> None:
    lines = write(judged(TABLE["C026"][0]), "text").splitlines()
    rows = [line.split()[:3] for line in lines if "RTX 2080 Ti" in line and " visible" in line and "not" not in line]
    assert rows == [["5", "0", "GPU:0"], ["6", "1", "GPU:1"]]


def test_c034_the_memory_that_counts_is_the_instances() -> None:
    unmet = judged(TABLE["C034"][0], "memory>=40GiB")
    assert unmet.exit_status == 1
    assert "9.5 GiB" in next(finding.message for finding in unmet.findings if finding.id == "HWP950")
    assert judged(TABLE["C034"][0], "memory>=8GiB").exit_status == 0


def test_c036_what_was_told_is_shown_and_what_could_not_be_read_is_unknown() -> None:
    told = judged(TABLE["C036"][0])
    assert "9.5 of 9.5 GiB" in write(told, "text")
    assert told.report is not None
    (parent,) = told.report.devices
    assert parent.memory.total_bytes is None
    hidden_instance = msgspec.structs.replace(ONE, visible=False)
    unknown = msgspec.structs.replace(parent, mig=msgspec.structs.replace(parent.mig, instances=(hidden_instance,)))
    assert memory_text(unknown, told.report) == "unknown"


def test_c050_memory_grows_where_it_is_shared() -> None:
    decision = judged(TABLE["C050"][0]).decision
    assert decision is not None
    assert decision.memory.growth


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
