"""HWP312 to HWP314 and HWP901 to HWP904: surroundings, and the limits of hwprobe itself."""

from __future__ import annotations

import datetime

from hwprobe.findings import Action, Severity
from hwprobe.gpu import Gpu
from hwprobe.knowledge.tensorflow import releases
from hwprobe.preflight import today
from hwprobe.report import Distribution
from tests.reports import A100, CPU_ONLY, T4, cpu_only, gpu, report, tensorflow_wheel
from tests.rules.facts import UUID, pci, with_libraries
from tests.rules.table import Fires, Row, Table, check, rows

NEXT_YEAR = f"{max(row.checked for row in releases()).year + 2}-01-01"
FUTURE = gpu("NVIDIA R100", "14.0", pci_device_id="3333")
FUTURE_TENSORFLOW = tensorflow_wheel(
    "2.99.0", compute_capabilities=("sm_80",), compute_capabilities_origin="fatbin", cuda_version=None
)
METAL = tensorflow_wheel(is_cuda_build=False, plugins=(Distribution(name="tensorflow-metal", version="1.2.0"),))
ROCM = tensorflow_wheel(is_cuda_build=False, is_rocm_build=True)
ITEX = tensorflow_wheel(
    is_cuda_build=False, plugins=(Distribution(name="intel-extension-for-tensorflow", version="2.15.0"),)
)
OTHER = Gpu(kind="other", visible=True, tensorflow_name="GPU:0")
NOTEBOOK = {"notebook": True, "prefix": "/envs/base"}
ACTIVATED = {"CONDA_PREFIX": "/envs/tf"}
WITHOUT_CUDNN = with_libraries("libcudnn.so.9")

TABLE: Table = {
    "HWP312": (
        Row(
            "the kernel of another environment finds no GPU",
            report(gpus=[T4], lists=(), tensorflow=WITHOUT_CUDNN, host=NOTEBOOK, environment=ACTIVATED),
            Fires(
                Severity.WARNING,
                Action.USER,
                "notebook",
                ("the Python of /envs/base, while /envs/tf is activated",),
                ("/envs/tf/bin/python -m ipykernel install --user --name tf",),
            ),
        ),
        Row(
            "the kernel of the activated one",
            report(gpus=[T4], lists=(), host={**NOTEBOOK, "prefix": "/envs/tf"}, environment=ACTIVATED),
            "pass",
        ),
        Row(
            "another environment whose TensorFlow works",
            report(gpus=[T4], host=NOTEBOOK, environment=ACTIVATED),
            "not_applicable",
        ),
        Row("a notebook on a CPU", cpu_only(host=NOTEBOOK, environment=ACTIVATED), "not_applicable"),
        Row("no notebook", report(gpus=[T4], lists=()), "not_applicable"),
    ),
    "HWP313": (
        Row(
            "Metal",
            report(gpus=[OTHER], tensorflow=METAL, driver=None, lists=[0]),
            Fires(Severity.INFO, Action.NONE, UUID, ("through tensorflow-metal", "float32 by default")),
        ),
        Row(
            "ROCm",
            report(gpus=[OTHER], tensorflow=ROCM, driver=None, lists=[0]),
            Fires(Severity.INFO, Action.NONE, UUID, ("through ROCm",), ("hwprobe bench",)),
        ),
        Row("NVIDIA's", report(gpus=[T4]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
    ),
    "HWP314": (
        Row(
            "an Intel laptop",
            cpu_only(host={"pci_devices": (pci("46A6", vendor="8086", driver="i915"),)}),
            Fires(Severity.INFO, Action.NONE, "PCI bus", ("are Intel's: no NVIDIA GPU",)),
        ),
        Row(
            "an Intel GPU and its plug-in, which lists nothing",
            cpu_only(tensorflow=ITEX, host={"pci_devices": (pci("56A0", vendor="0x8086"),)}),
            Fires(Severity.INFO, Action.NONE, "PCI bus", ("installed plug-ins: intel-extension-for-tensorflow",)),
        ),
        Row("an NVIDIA GPU", report(gpus=[T4], host={"pci_devices": (pci(), pci(vendor="8086", bus=2))}), "pass"),
        Row("NVIDIA's on the bus of a container without it", cpu_only(host={"pci_devices": (pci(),)}), "pass"),
        Row("a server's own display chip", cpu_only(host={"pci_devices": (pci(vendor="1a03"),)}), "not_applicable"),
        Row("the bus cannot be read", cpu_only(host={"pci_devices": None}), "not_applicable"),
    ),
    "HWP901": (
        Row(
            "a capability of the future",
            report(gpus=[FUTURE]),
            Fires(
                Severity.WARNING,
                Action.USER,
                UUID,
                ("NVIDIA R100 (14.0) is not in hwprobe's tables", "it is judged as Blackwell"),
                ("pip install --upgrade tf-hwprobe",),
            ),
        ),
        Row("known ones", report(gpus=[T4, A100]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
        Row("not NVIDIA's", report(gpus=[OTHER], tensorflow=ROCM, driver=None), "not_applicable"),
    ),
    "HWP902": (
        Row(
            "a TensorFlow of the future",
            report(gpus=[T4], tensorflow=FUTURE_TENSORFLOW),
            Fires(
                Severity.INFO,
                Action.USER,
                "tensorflow",
                ("2.99.0 is not in hwprobe's tables", "read from its libraries"),
                ("pip install --upgrade tf-hwprobe",),
            ),
        ),
        Row("a known one", cpu_only(), "pass"),
        Row("no TensorFlow", cpu_only(tensorflow=None), "not_applicable"),
        Row("no version", cpu_only(tensorflow=tensorflow_wheel(version=None)), "not_applicable"),
    ),
    "HWP903": (
        Row(
            "two years on",
            cpu_only(),
            Fires(
                Severity.INFO, Action.USER, "hwprobe", ("were last checked on",), ("pip install --upgrade tf-hwprobe",)
            ),
            today=NEXT_YEAR,
        ),
        Row("today", cpu_only(), "pass"),
    ),
    "HWP904": (
        Row(
            "beside the other package",
            cpu_only(host={"foreign_hwprobe": Distribution(name="hwprobe", version="0.0.1b2")}),
            Fires(
                Severity.WARNING,
                Action.USER,
                "hwprobe",
                ("the unrelated distribution hwprobe 0.0.1b2",),
                ("pip uninstall hwprobe", "pip install --force-reinstall tf-hwprobe"),
            ),
        ),
        Row("alone", cpu_only(), "pass"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)


def test_a_cpu_build_without_gpus_has_nothing_to_be_told() -> None:
    check("HWP902", Row("known", cpu_only(tensorflow=CPU_ONLY), "pass"))


def test_the_age_of_the_tables_is_counted_by_this_machines_clock() -> None:
    before = datetime.date.today().isoformat()
    assert before <= today() <= datetime.date.today().isoformat()
