"""HWP301 to HWP308 and HWP311: what variables, MIG, containers and schedulers give to a process."""

from __future__ import annotations

import msgspec

from hwprobe.findings import Action, Severity
from hwprobe.gpu import MigInstance
from hwprobe.report import Driver, Report
from tests.reports import A100, T4, cpu_only, hidden, mig, report, source
from tests.rules.facts import ABSENT, NO_DRIVER, NODES, SECOND_UUID, UUID, in_cuda_order, pci
from tests.rules.table import Fires, Row, Table, check, rows

VARIABLE = "CUDA_VISIBLE_DEVICES"
KERNEL_ONLY = Driver(kernel_version="550.90.07")
POD = {"container": "kubernetes", "device_nodes": NODES}
SLURM = {"scheduler": "slurm"}
FIRST = MigInstance(
    uuid="MIG-a0000000-0000-0000-0000-000000000000", gpu_instance_id=1, compute_instance_id=0, visible=True
)
SECOND = MigInstance(
    uuid="MIG-b0000000-0000-0000-0000-000000000000", gpu_instance_id=2, compute_instance_id=0, visible=False
)


def without_gpu(container: str, *, host: object = None, **environment: str) -> Report:
    """A container on a host with a GPU, into which none was handed."""
    facts = {"container": container, "device_nodes": (), "pci_devices": (pci(),)}
    return report(driver=KERNEL_ONLY, sources=NO_DRIVER, host={**facts, **(host or {})}, environment=environment)  # type: ignore[dict-item]


def without(capability: str, given: str) -> Report:
    """A container whose image asks for part of the driver."""
    cuda = {"cuda": ABSENT} if capability == "compute" else {"nvml": ABSENT}
    gpu = msgspec.structs.replace(T4, visible=None if capability == "compute" else True)
    return report(
        gpus=[gpu],
        lists=(),
        sources=cuda,
        host={"container": "docker", "device_nodes": NODES},
        environment={"NVIDIA_DRIVER_CAPABILITIES": given},
    )


TABLE: Table = {
    "HWP301": (
        Row(
            "empty",
            report(gpus=[hidden(T4)], environment={VARIABLE: ""}),
            Fires(Severity.WARNING, Action.USER, VARIABLE, ('CUDA_VISIBLE_DEVICES="" hides Tesla T4',), ("unset ",)),
        ),
        Row(
            "-1",
            report(gpus=[hidden(T4), hidden(A100)], environment={VARIABLE: "-1"}),
            Fires(Severity.WARNING, Action.USER, VARIABLE, ("hides the 2 GPUs",)),
        ),
        Row(
            "NVML, which would name them, is not here",
            report(
                driver=KERNEL_ONLY,
                sources=NO_DRIVER,
                host={"pci_devices": (pci(),), "device_nodes": NODES},
                environment={VARIABLE: "-1"},
            ),
            Fires(Severity.WARNING, Action.USER, VARIABLE, ('"-1" hides the GPUs of this machine',), ("unset ",)),
        ),
        Row(
            "a board without a driver would not compute anyway",
            cpu_only(host={"pci_devices": (pci(driver=None),)}, environment={VARIABLE: "-1"}),
            "not_applicable",
        ),
        Row("names one", report(gpus=[T4], environment={VARIABLE: "0"}), "pass"),
        Row("not set", report(gpus=[T4]), "not_applicable"),
        Row("set where there is nothing to hide", cpu_only(environment={VARIABLE: ""}), "not_applicable"),
    ),
    "HWP302": (
        Row(
            "an index that is no GPU's",
            report(gpus=[hidden(T4), hidden(T4)], environment={VARIABLE: "3"}),
            Fires(
                Severity.ERROR,
                Action.USER,
                VARIABLE,
                ("'3' ends the list", "there are 2 GPUs, numbered from 0", "0 GPUs remain"),
                ("nvidia-smi -L", f"export {VARIABLE}={UUID},{SECOND_UUID}"),
            ),
        ),
        Row(
            "a list that ends in the middle",
            report(gpus=[T4, hidden(T4)], environment={VARIABLE: "0,-1,1"}),
            Fires(Severity.WARNING, Action.USER, VARIABLE, ("'-1' ends the list", "1 GPU remains visible")),
        ),
        Row(
            "the same GPU twice",
            report(gpus=[hidden(T4)], environment={VARIABLE: "0,0"}),
            Fires(Severity.ERROR, Action.USER, VARIABLE, ("the same device twice",)),
        ),
        Row(
            "a UUID that nobody has",
            report(gpus=[hidden(T4)], environment={VARIABLE: "GPU-ffffffff"}),
            Fires(Severity.ERROR, Action.USER, VARIABLE, ("no GPU has a UUID that begins so",)),
        ),
        Row(
            "an index of the whole node inside a job",
            report(gpus=[hidden(T4)], environment={VARIABLE: "5"}, host=SLURM),
            Fires(Severity.ERROR, Action.USER, VARIABLE, ("there is 1 GPU",), (f"export {VARIABLE}=0 ",)),
        ),
        Row(
            "Slurm's word outside of Slurm",
            report(gpus=[hidden(T4)], environment={VARIABLE: "NoDevFiles"}),
            Fires(Severity.ERROR, Action.USER, VARIABLE, ("Slurm's word for a job without GPUs",)),
        ),
        Row("a UUID's beginning", report(gpus=[T4, hidden(T4)], environment={VARIABLE: "GPU-00000000"}), "pass"),
        Row(
            "Slurm's word in a job is HWP308's",
            report(gpus=[hidden(T4)], environment={VARIABLE: "NoDevFiles"}, host=SLURM),
            "pass",
        ),
        Row("CUDA knows better", report(gpus=[T4], environment={VARIABLE: "1"}), "pass"),
        Row("hides all on purpose", report(gpus=[hidden(T4)], environment={VARIABLE: "-1"}), "not_applicable"),
        Row("not set", report(gpus=[T4]), "not_applicable"),
        Row(
            "NVML was not asked",
            report(gpus=[T4], environment={VARIABLE: "3"}, sources={"nvml": source("skipped", "not needed")}),
            "skip",
        ),
    ),
    "HWP303": (
        Row(
            "CUDA puts the faster one first",
            in_cuda_order(report(gpus=[T4, A100]), 1, 0),
            Fires(
                Severity.INFO,
                Action.USER,
                SECOND_UUID,
                ("CUDA's first GPU is NVIDIA A100-SXM4-80GB (8.0), which nvidia-smi numbers 1",),
                ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", f"CUDA_VISIBLE_DEVICES={SECOND_UUID},{UUID}"),
            ),
        ),
        Row(
            "an index that names another GPU, which the other order would give",
            in_cuda_order(report(gpus=[T4, A100], environment={VARIABLE: "0"}), 1),
            Fires(
                Severity.WARNING,
                Action.USER,
                SECOND_UUID,
                ("CUDA_VISIBLE_DEVICES selects by index",),
                (
                    f"export CUDA_VISIBLE_DEVICES={SECOND_UUID}   # the same as now: NVIDIA A100-SXM4-80GB (8.0)",
                    "or export CUDA_DEVICE_ORDER=PCI_BUS_ID   # the same indices then give Tesla T4 (7.5)",
                ),
            ),
        ),
        Row("the same order", report(gpus=[A100, T4]), "pass"),
        Row("two of one kind", in_cuda_order(report(gpus=[T4, T4]), 1, 0), "pass"),
        Row("chosen by UUID", in_cuda_order(report(gpus=[T4, A100], environment={VARIABLE: SECOND_UUID}), 1), "pass"),
        Row("one GPU", report(gpus=[T4]), "not_applicable"),
        Row("no GPU", cpu_only(), "not_applicable"),
    ),
    "HWP304": (
        Row(
            "no instance",
            report(gpus=[mig(A100)]),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                UUID,
                ("MIG mode without an instance",),
                ("sudo nvidia-smi mig -cgi", "sudo nvidia-smi -i 0 -mig 0"),
            ),
        ),
        Row(
            "no instance, beside a GPU that computes",
            report(gpus=[mig(A100), T4]),
            Fires(Severity.WARNING, Action.ADMIN, UUID, ("MIG mode without an instance",)),
        ),
        Row("an instance", report(gpus=[mig(A100, FIRST)]), "pass"),
        Row("MIG is off", report(gpus=[A100]), "not_applicable"),
    ),
    "HWP305": (
        Row(
            "two by variable",
            report(gpus=[mig(A100, FIRST, SECOND)], environment={VARIABLE: f"{FIRST.uuid},{SECOND.uuid}"}),
            Fires(
                Severity.WARNING,
                Action.USER,
                "MIG",
                ("2 MIG instances were given to this process and CUDA lets it use 1",),
                (f"{VARIABLE}={FIRST.uuid} python train.py",),
            ),
        ),
        Row(
            "two by a container",
            report(gpus=[mig(A100, FIRST, SECOND)], host=POD),
            Fires(Severity.WARNING, Action.USER, "MIG", ("2 MIG instances",), (f"{VARIABLE}={SECOND.uuid}",)),
        ),
        Row("one", report(gpus=[mig(A100, FIRST)], environment={VARIABLE: str(FIRST.uuid)}), "pass"),
        Row("one in a container", report(gpus=[mig(A100, FIRST)], host=POD), "pass"),
        Row("those of a host are everybody's", report(gpus=[mig(A100, FIRST, SECOND)]), "not_applicable"),
        Row("no MIG", report(gpus=[A100]), "not_applicable"),
        Row(
            "CUDA was not asked",
            report(gpus=[mig(A100, FIRST, SECOND)], host=POD, sources={"cuda": source("timeout", "30 s")}),
            "skip",
        ),
    ),
    "HWP306": (
        Row(
            "docker run without --gpus",
            without_gpu("docker"),
            Fires(
                Severity.WARNING,
                Action.USER,
                "container",
                ("this container was given none", "/dev/nvidia*"),
                ("docker run --gpus all",),
            ),
        ),
        Row("podman", without_gpu("podman"), Fires(Severity.WARNING, Action.USER, "container", (), ("podman run",))),
        Row("apptainer", without_gpu("apptainer"), Fires(Severity.WARNING, Action.USER, "container", (), ("--nv",))),
        Row(
            "a pod that asked for none",
            without_gpu("kubernetes", NVIDIA_VISIBLE_DEVICES="all"),
            Fires(Severity.INFO, Action.USER, "container", ("given none",), ("nvidia.com/gpu: 1",)),
        ),
        Row(
            "a pod whose GPU was not handed over",
            without_gpu("kubernetes", NVIDIA_VISIBLE_DEVICES=UUID),
            Fires(
                Severity.WARNING, Action.USER, "container", (f"NVIDIA_VISIBLE_DEVICES={UUID}", "none was handed over")
            ),
        ),
        Row(
            "a GPU image in Docker on WSL",
            cpu_only(
                host={"wsl": True, "container": "docker", "device_nodes": ()},
                environment={"NVIDIA_VISIBLE_DEVICES": "all"},
            ),
            Fires(Severity.INFO, Action.USER, "container", ("image is made for NVIDIA GPUs",), ("--gpus all",)),
        ),
        Row(
            "without compute",
            without("compute", "utility"),
            Fires(
                Severity.ERROR,
                Action.USER,
                "container",
                ("leaves out compute, and with it libcuda",),
                ("NVIDIA_DRIVER_CAPABILITIES=compute,utility",),
            ),
        ),
        Row(
            "without utility",
            without("utility", "compute,video"),
            Fires(Severity.ERROR, Action.USER, "container", ("libnvidia-ml",), ("=compute,utility,video",)),
        ),
        Row(
            "all of it",
            report(
                gpus=[T4],
                host={"container": "docker", "device_nodes": NODES},
                environment={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
            ),
            "pass",
        ),
        Row("not in a container", report(gpus=[T4]), "not_applicable"),
        Row(
            "a container on a host without NVIDIA GPUs",
            cpu_only(host={"container": "docker", "device_nodes": ()}),
            "not_applicable",
        ),
        Row("/dev cannot be read", cpu_only(host={"container": "docker"}), "skip"),
    ),
    "HWP307": (
        Row(
            "eight past the device plugin",
            report(gpus=[A100] * 8, host=POD, environment={"NVIDIA_VISIBLE_DEVICES": "all"}),
            Fires(Severity.WARNING, Action.USER, "container", ("all 8 GPUs of the node",), ("nvidia.com/gpu: 8",)),
        ),
        Row(
            "two of four, which the plugin gave",
            report(
                gpus=[A100] * 2,
                host={**POD, "pci_devices": tuple(pci(bus=bus) for bus in range(1, 5))},
                environment={"NVIDIA_VISIBLE_DEVICES": "all"},
            ),
            "pass",
        ),
        Row("by UUID", report(gpus=[A100] * 2, host=POD, environment={"NVIDIA_VISIBLE_DEVICES": UUID}), "pass"),
        Row("not in a pod", report(gpus=[A100] * 2), "not_applicable"),
    ),
    "HWP308": (
        Row(
            "Slurm's word",
            report(gpus=[hidden(T4)], host=SLURM, environment={VARIABLE: "NoDevFiles"}),
            Fires(Severity.WARNING, Action.USER, "slurm", ("given no GPU", "NoDevFiles"), ("#SBATCH --gres=gpu:1",)),
        ),
        Row(
            "nothing asked for, and all of the node in sight",
            report(gpus=[T4] * 4, host=SLURM, environment={"SLURM_GPUS_ON_NODE": "0"}),
            Fires(Severity.WARNING, Action.USER, "slurm", ("it sees 4 of the node's GPUs all the same",)),
        ),
        Row("one of eight", report(gpus=[T4, *[hidden(T4)] * 7], host=SLURM, environment={VARIABLE: "0"}), "pass"),
        Row("allotted by another variable", report(gpus=[T4], host=SLURM, environment={"SLURM_JOB_GPUS": "3"}), "pass"),
        Row("a node without GPUs", cpu_only(host=SLURM), "not_applicable"),
        Row("not in a job", report(gpus=[T4]), "not_applicable"),
    ),
    "HWP311": (
        Row(
            "each task sees one GPU",
            report(gpus=[T4], host=SLURM, environment={VARIABLE: "0", "SLURM_LOCALID": "3"}),
            Fires(
                Severity.INFO, Action.USER, "SLURM_LOCALID", ("local rank 3 and 1 visible GPU:",), ("tf.config.list",)
            ),
        ),
        Row(
            "all ranks share one MIG instance",
            report(gpus=[mig(A100, FIRST, SECOND)], environment={"OMPI_COMM_WORLD_LOCAL_RANK": "1"}),
            Fires(
                Severity.ERROR,
                Action.USER,
                "OMPI_COMM_WORLD_LOCAL_RANK",
                ("every rank sees the same MIG instance",),
                (f"{VARIABLE}=MIG-",),
            ),
        ),
        Row("a GPU for each rank", report(gpus=[T4, T4], environment={"SLURM_LOCALID": "1"}), "pass"),
        Row("no launcher", report(gpus=[T4]), "not_applicable"),
        Row("no GPU", cpu_only(environment={"SLURM_LOCALID": "1"}), "not_applicable"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)
