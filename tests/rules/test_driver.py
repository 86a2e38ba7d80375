"""HWP101 to HWP108: from the PCI bus to a driver and an NVML that start."""

from __future__ import annotations

from hwprobe.findings import Action, Severity
from hwprobe.report import Driver, Report
from tests.reports import A100, CPU_ONLY, T4, cpu_only, report, source
from tests.rules.facts import ABSENT, CUDA_UNKNOWN, NO_DRIVER, NODES, failed, nodes, pci, without_cuda
from tests.rules.table import Fires, Row, Table, check, rows

KERNEL_ONLY = Driver(kernel_version="550.90.07")
IN_DOCKER = {"container": "docker", "device_nodes": NODES}
STUB = "/usr/local/cuda/lib64/stubs/libnvidia-ml.so.1"


def stubbed(**host: object) -> Report:
    driver = Driver(nvml_library=STUB)
    nvml = failed(12, "NVML_ERROR_LIBRARY_NOT_FOUND")
    facts = cpu_only(host=host, environment={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs:/opt/lib"})
    return report(
        driver=driver,
        host=host,
        environment=facts.host.environment,
        sources={"nvml": nvml, "cuda": ABSENT},
    )


MISMATCH = Driver(kernel_version="550.90.07", nvml_library_version="550.107.02")

TABLE: Table = {
    "HWP101": (
        Row(
            "a GPU on the bus and no module",
            cpu_only(host={"pci_devices": (pci(driver=None),)}),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("1 NVIDIA GPU on the PCI bus (00000000:01:00.0)", "no NVIDIA kernel module"),
                ("sudo modprobe nvidia",),
            ),
        ),
        Row(
            "nouveau drives it",
            cpu_only(host={"pci_devices": (pci(driver="nouveau"),)}),
            Fires(Severity.WARNING, Action.ADMIN, "driver", ("the kernel drives it with nouveau",)),
        ),
        Row(
            "two are passed on to virtual machines",
            cpu_only(host={"pci_devices": (pci(driver="vfio-pci"), pci(driver="vfio-pci", bus=2))}),
            Fires(Severity.INFO, Action.ADMIN, "driver", ("2 NVIDIA GPUs", "the kernel drives them with vfio-pci")),
        ),
        Row(
            "a K80, which only an old branch runs",
            cpu_only(host={"pci_devices": (pci("102D", driver=None),)}),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("the last driver branch for this GPU is R470",), ("470",)),
        ),
        Row("the module is loaded", report(gpus=[A100], host={"pci_devices": (pci(),)}), "pass"),
        Row("no NVIDIA GPU on the bus", cpu_only(host={"pci_devices": (pci(vendor="8086"),)}), "not_applicable"),
        Row(
            "a container without a GPU on a host with one",
            cpu_only(host={"pci_devices": (pci(driver=None),), "container": "docker", "device_nodes": ()}),
            "not_applicable",
        ),
        Row("the bus cannot be read", cpu_only(host={"pci_devices": None}), "skip"),
        Row(
            "the GPUs are hidden on purpose",
            cpu_only(host={"pci_devices": (pci(driver=None),)}, environment={"CUDA_VISIBLE_DEVICES": "-1"}),
            "not_applicable",
        ),
        Row("WSL has no such module", cpu_only(host={"wsl": True, "pci_devices": (pci(),)}), "not_applicable"),
    ),
    "HWP102": (
        Row(
            "NVML says so",
            report(driver=MISMATCH, sources={"nvml": failed(18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"), "cuda": ABSENT}),
            Fires(
                Severity.ERROR,
                Action.DRAIN,
                "driver",
                ("kernel module is 550.90.07", "libraries are 550.107.02"),
                ("restart the node",),
            ),
        ),
        Row(
            "CUDA says so",
            without_cuda(A100, cuda=failed(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), driver=KERNEL_ONLY),
            Fires(Severity.ERROR, Action.DRAIN, "driver", ("550.90.07", "of another one")),
        ),
        Row(
            "neither starts and the versions differ",
            report(driver=MISMATCH, sources={"nvml": source("failed", "crashed"), "cuda": CUDA_UNKNOWN}),
            Fires(Severity.ERROR, Action.DRAIN, "driver", ("550.107.02",)),
        ),
        Row("a driver that answers", report(gpus=[A100]), "pass"),
        Row("versions differ and NVML answers all the same", report(gpus=[A100], driver=MISMATCH), "pass"),
        Row(
            "a forward-compatibility libcuda is newer on purpose",
            report(
                driver=Driver(
                    kernel_version="535.104.05",
                    cuda_library="/usr/local/cuda/compat/libcuda.so.555.42.02",
                    cuda_library_version="555.42.02",
                ),
                sources={"nvml": ABSENT, "cuda": failed(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE")},
            ),
            "skip",
        ),
        Row("no version was read", report(driver=KERNEL_ONLY, sources=NO_DRIVER), "skip"),
        Row("no driver", cpu_only(), "not_applicable"),
    ),
    "HWP103": (
        Row(
            "nvidia-uvm is missing",
            without_cuda(A100, host={"device_nodes": nodes("nvidia0", "nvidiactl")}),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("/dev/nvidia-uvm, which CUDA opens, does not exist",),
                ("sudo nvidia-modprobe -c 0 -u", "nvidia-persistenced"),
            ),
        ),
        Row(
            "all are missing",
            without_cuda(A100, host={"device_nodes": ()}),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("/dev/nvidiactl and /dev/nvidia-uvm and /dev/nvidia0", "do not exist"),
            ),
        ),
        Row(
            "one is missing in a container",
            without_cuda(A100, host={"container": "lxc", "device_nodes": nodes("nvidia0", "nvidiactl")}),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("/dev/nvidia-uvm",), ("on the host: ", "container anew")),
        ),
        Row("all are there", without_cuda(A100, host={"device_nodes": NODES}), "pass"),
        Row("CUDA starts without them being read", report(gpus=[A100], host={"device_nodes": ()}), "not_applicable"),
        Row("/dev cannot be read", without_cuda(A100, host={"device_nodes": None}), "skip"),
        Row(
            "CUDA was not asked",
            without_cuda(A100, cuda=source("timeout", "30 s"), host={"device_nodes": ()}),
            "skip",
        ),
        Row(
            "a Jetson has other nodes",
            without_cuda(A100, host={"tegra": "NVIDIA Jetson AGX Orin", "device_nodes": nodes("nvmap")}),
            "not_applicable",
        ),
    ),
    "HWP104": (
        Row(
            "this user is not in the group",
            without_cuda(
                A100,
                host={
                    "device_nodes": nodes(
                        "nvidia0", "nvidiactl", "nvidia-uvm", mode="0660", group="video", accessible=False
                    )
                },
            ),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("may not open /dev/nvidia0 (0660, root:video)", "/dev/nvidia-uvm"),
                ("sudo usermod -aG video $USER",),
            ),
        ),
        Row(
            "nor in a container",
            without_cuda(
                A100,
                host={
                    "container": "docker",
                    "device_nodes": (
                        *nodes("nvidia0", "nvidia-uvm"),
                        *nodes("nvidiactl", group="44", accessible=False),
                    ),
                },
            ),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("/dev/nvidiactl",), ("--group-add 44",)),
        ),
        Row("everybody may", without_cuda(A100, host={"device_nodes": NODES}), "pass"),
        Row(
            "only the node for displays is refused",
            without_cuda(A100, host={"device_nodes": (*NODES, *nodes("nvidia-modeset", accessible=False))}),
            "pass",
        ),
        Row("CUDA starts", report(gpus=[A100], host={"device_nodes": NODES}), "not_applicable"),
        Row("/dev cannot be read", without_cuda(A100, host={"device_nodes": None}), "skip"),
    ),
    "HWP105": (
        Row(
            "TensorFlow 2.21 lists nothing without it",
            report(gpus=[T4], lists=(), sources={"nvml": ABSENT}),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("libnvidia-ml cannot be loaded", "lists no GPU without it"),
                ("libnvidia-ml1",),
            ),
        ),
        Row(
            "an older TensorFlow does without",
            report(gpus=[T4], tensorflow="2.17.1", sources={"nvml": ABSENT}),
            Fires(Severity.WARNING, Action.ADMIN, "driver", ("hwprobe knows less",)),
        ),
        Row(
            "in a container nobody asked for part of the driver",
            report(gpus=[T4], lists=(), sources={"nvml": ABSENT}, host=IN_DOCKER),
            Fires(Severity.ERROR, Action.ADMIN, "driver", (), ("NVIDIA_DRIVER_CAPABILITIES=compute,utility",)),
        ),
        Row(
            "under WSL it is Windows that brings it",
            report(gpus=[T4], lists=(), sources={"nvml": ABSENT}, host={"wsl": True}),
            Fires(Severity.ERROR, Action.ADMIN, "driver", (), ("update the NVIDIA driver on Windows",)),
        ),
        Row("it is there", report(gpus=[T4]), "pass"),
        Row("no driver", cpu_only(), "not_applicable"),
        Row("libcuda is missing too", report(driver=KERNEL_ONLY, sources=NO_DRIVER), "not_applicable"),
        Row(
            "a Jetson has none",
            report(gpus=[T4], sources={"nvml": ABSENT}, host={"tegra": "NVIDIA Jetson Xavier NX"}),
            "not_applicable",
        ),
    ),
    "HWP106": (
        Row(
            "the stub of NVML on a machine with a GPU",
            stubbed(pci_devices=(pci(driver=None),)),
            Fires(
                Severity.ERROR,
                Action.USER,
                "driver",
                (f"{STUB} was loaded", "no driver"),
                ("export LD_LIBRARY_PATH=/opt/lib ",),
            ),
        ),
        Row(
            "where software is built, without a GPU",
            stubbed(),
            Fires(Severity.WARNING, Action.USER, "driver", (STUB,)),
        ),
        Row(
            "the driver's own libraries",
            report(
                gpus=[T4],
                driver=Driver(nvml_library="/usr/lib/libnvidia-ml.so.1", cuda_library="/usr/lib/libcuda.so.1"),
            ),
            "pass",
        ),
        Row("none was loaded", cpu_only(), "not_applicable"),
    ),
    "HWP107": (
        Row(
            "the driver blocks it",
            report(
                driver=KERNEL_ONLY,
                host={"pci_devices": (pci(),), "device_nodes": NODES},
                sources={"nvml": failed(17, "NVML_ERROR_OPERATING_SYSTEM"), "cuda": CUDA_UNKNOWN},
            ),
            Fires(
                Severity.ERROR, Action.ADMIN, "driver", ("NVML_ERROR_OPERATING_SYSTEM (17)",), ("nvidia-smi", "dmesg")
            ),
        ),
        Row(
            "its library is damaged, of which dmesg knows nothing",
            report(
                driver=KERNEL_ONLY,
                host={"pci_devices": (pci(),), "device_nodes": NODES},
                sources={"nvml": source("failed", "the loader says: /lib/libnvidia-ml.so.1: file too short")},
            ),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("file too short",), ("install the NVIDIA driver anew",)),
        ),
        Row(
            "a container has lost its GPUs",
            report(
                driver=KERNEL_ONLY,
                host={"pci_devices": (pci(),), **IN_DOCKER},
                sources={"nvml": failed(999, "NVML_ERROR_UNKNOWN"), "cuda": CUDA_UNKNOWN},
            ),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("has lost its GPUs",), ("docker restart",)),
        ),
        Row(
            "only the Python binding is broken",
            report(
                gpus=[T4],
                sources={"nvml": source("failed", "nvidia-ml-py cannot be imported: No module named 'pynvml'")},
            ),
            Fires(
                Severity.WARNING, Action.USER, "pynvml", ("hwprobe knows less",), ("--force-reinstall nvidia-ml-py",)
            ),
        ),
        Row("it starts", report(gpus=[T4]), "pass"),
        Row(
            "its packages are installed on a machine without a GPU",
            report(driver=Driver(), sources={"nvml": failed(9, "NVML_ERROR_DRIVER_NOT_LOADED"), "cuda": ABSENT}),
            "not_applicable",
        ),
        Row("there is none", cpu_only(), "not_applicable"),
        Row("it was not asked", report(gpus=[T4], sources={"nvml": source("skipped", "not needed")}), "skip"),
    ),
    "HWP108": (
        Row(
            "no answer",
            report(gpus=[T4], sources={"nvml": source("timeout", "no answer within 30 s", seconds=30.0)}),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("no answer within 30 s",), ("hwprobe check --timeout 120",)),
        ),
        Row("an answer", report(gpus=[T4]), "pass"),
        Row("no NVML", cpu_only(), "not_applicable"),
        Row("not asked", report(gpus=[T4], sources={"nvml": source("skipped", "not needed")}), "skip"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)


def test_a_cpu_build_beside_a_broken_driver_is_no_reason_to_blame_the_driver_twice() -> None:
    facts = cpu_only(tensorflow=CPU_ONLY, host={"pci_devices": (pci(driver=None),)})
    check("HWP202", Row("explained by the missing module", facts, "skip"))
