"""Which GPUs a process gets: variables, mixed boards, MIG, containers, schedulers."""

from __future__ import annotations

import msgspec

from hwprobe.gpu import GpuMemory, MigInstance
from hwprobe.render.formats import write
from hwprobe.render.text import memory_text
from hwprobe.report import Report
from tests.cases.table import ERROR, FAIL, INFO, OK, WARN, WARNING, Case, Cases, cases, hold, judged
from tests.reports import A100, RTX_3090, T4, V100, cpu_only, gpu, hidden, mig, report, using
from tests.rules.facts import IN_POD, NODES, POD, SECOND_UUID, UUID, in_cuda_order

GIB = 2**30
VARIABLE = "CUDA_VISIBLE_DEVICES"
GTX_1050 = gpu("NVIDIA GeForce GTX 1050", "6.1", memory_gib=2, pci_device_id="1C81", multiprocessors=5)
RTX_2070 = gpu("NVIDIA GeForce RTX 2070", "7.5", memory_gib=8, pci_device_id="1F02", multiprocessors=36)
RTX_2080_TI = gpu("NVIDIA GeForce RTX 2080 Ti", "7.5", memory_gib=11, pci_device_id="1E04", multiprocessors=68)
A4000 = gpu("NVIDIA RTX A4000", "8.6", memory_gib=16, pci_device_id="24B0", multiprocessors=48)
P1000 = gpu("Quadro P1000", "6.1", memory_gib=4, pci_device_id="1CB1", multiprocessors=5)
A10 = gpu("NVIDIA A10", "8.6", memory_gib=22.5, pci_device_id="2236", multiprocessors=72)
SLURM = {"scheduler": "slurm"}


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
    assert parent.mig is not None
    hidden_instance = msgspec.structs.replace(ONE, visible=False)
    unknown = msgspec.structs.replace(parent, mig=msgspec.structs.replace(parent.mig, instances=(hidden_instance,)))
    assert memory_text(unknown, told.report) == "unknown"


def test_c050_memory_grows_where_it_is_shared() -> None:
    decision = judged(TABLE["C050"][0]).decision
    assert decision is not None
    assert decision.memory.growth
