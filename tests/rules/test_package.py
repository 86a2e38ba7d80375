"""HWP201 to HWP205, HWP218, HWP219, HWP221 and HWP224: the packages of this environment."""

from __future__ import annotations

from hwprobe.findings import Action, Severity
from hwprobe.report import Distribution, Driver, Keras
from tests.reports import A100, CPU_ONLY, T4, T1200, cpu_only, hidden, report, source, tensorflow_wheel
from tests.rules.facts import ABSENT, NO_DRIVER, WINDOWS, distributions, pci
from tests.rules.table import Fires, Row, Table, check, rows

CPU_BUILD = tensorflow_wheel(is_cuda_build=False, distributions=distributions("tensorflow-cpu"))
UNREAD = tensorflow_wheel(is_cuda_build=None)
ROCM = tensorflow_wheel(is_cuda_build=False, is_rocm_build=True)
PLUGIN = tensorflow_wheel(
    is_cuda_build=False, plugins=(Distribution(name="tensorflow-directml-plugin", version="0.4.0"),)
)
OLD_WINDOWS = tensorflow_wheel("2.10.1", is_cuda_build=False)
ARM = {"machine": "aarch64"}
JAX = Keras(version="3.15.1", backend="jax", backend_origin="environment")
BOTH = Keras(version="3.15.1", tf_keras_version="2.21.0", backend="tensorflow")
STUBS = (
    Distribution(name="tensorflow", version="2.15.1", in_effect=False, ships_code=False),
    Distribution(name="tensorflow-intel", version="2.15.1", in_effect=True, ships_code=True),
)

TABLE: Table = {
    "HWP201": (
        Row(
            "none, beside an NVIDIA GPU",
            report(gpus=[T4], tensorflow=None, host={"prefix": "/env"}),
            Fires(
                Severity.ERROR,
                Action.USER,
                "tensorflow",
                ("no TensorFlow in this Python environment (/env)",),
                ("pip install 'tensorflow[and-cuda]'",),
            ),
        ),
        Row(
            "none, without a GPU",
            cpu_only(tensorflow=None),
            Fires(Severity.ERROR, Action.USER, "tensorflow", (), ("pip install tensorflow",)),
        ),
        Row("there is one", cpu_only(), "pass"),
        Row("Keras runs on JAX", cpu_only(tensorflow=None, keras=JAX), "not_applicable"),
        Row(
            "the packages cannot be read",
            cpu_only(tensorflow=None, sources={**NO_DRIVER, "tensorflow_build": source("failed", "no permission")}),
            "skip",
        ),
    ),
    "HWP202": (
        Row(
            "tensorflow-cpu beside a GPU",
            report(gpus=[A100], tensorflow=CPU_BUILD),
            Fires(
                Severity.ERROR,
                Action.USER,
                "tensorflow",
                ("2.21.0 (tensorflow-cpu) is built without CUDA",),
                ("pip uninstall tensorflow-cpu", "pip install 'tensorflow[and-cuda]'"),
            ),
        ),
        Row("a build with CUDA", report(gpus=[A100]), "pass"),
        Row("no NVIDIA GPU", cpu_only(tensorflow=CPU_BUILD), "not_applicable"),
        Row("a build for ROCm", report(gpus=[A100], tensorflow=ROCM), "not_applicable"),
        Row("a plug-in uses the GPU", report(gpus=[A100], tensorflow=PLUGIN), "not_applicable"),
        Row(
            "the GPUs are hidden on purpose",
            report(gpus=[hidden(A100)], tensorflow=CPU_BUILD, environment={"CUDA_VISIBLE_DEVICES": ""}),
            "not_applicable",
        ),
        Row(
            "a pod without a GPU on a node with one",
            report(
                driver=Driver(kernel_version="550.90.07"),
                tensorflow=CPU_BUILD,
                sources=NO_DRIVER,
                host={"pci_devices": (pci(),), "container": "kubernetes", "device_nodes": ()},
            ),
            "not_applicable",
        ),
        Row(
            "nouveau drives the only GPU",
            cpu_only(tensorflow=CPU_BUILD, host={"pci_devices": (pci(driver="nouveau"),)}),
            "not_applicable",
        ),
        Row("on Windows that is HWP203's", report(gpus=[T1200], tensorflow=CPU_ONLY, host=WINDOWS), "not_applicable"),
        Row("Keras runs on JAX", report(gpus=[A100], tensorflow=CPU_BUILD, keras=JAX), "not_applicable"),
        Row("no TensorFlow", report(gpus=[A100], tensorflow=None), "not_applicable"),
        Row("build_info.py cannot be read", report(gpus=[A100], tensorflow=UNREAD), "skip"),
    ),
    "HWP203": (
        Row(
            "2.21 on Windows",
            report(
                gpus=[T1200],
                tensorflow=CPU_ONLY,
                host={**WINDOWS, "frameworks": (Distribution(name="torch", version="2.9.0"),)},
            ),
            Fires(
                Severity.WARNING,
                Action.USER,
                "tensorflow",
                ("2.21.0 on native Windows has no CUDA in it", "torch 2.9.0 brings a CUDA of its own"),
                ("wsl --install",),
            ),
        ),
        Row("2.10 on Windows", report(gpus=[T1200], tensorflow=OLD_WINDOWS, host=WINDOWS), "pass"),
        Row("Linux", report(gpus=[T1200], tensorflow=CPU_BUILD), "not_applicable"),
        Row("Windows without an NVIDIA GPU", cpu_only(tensorflow=CPU_ONLY, host=WINDOWS), "not_applicable"),
        Row("DirectML", report(gpus=[T1200], tensorflow=PLUGIN, host=WINDOWS), "not_applicable"),
        Row(
            "a version that is none",
            report(gpus=[T1200], tensorflow=tensorflow_wheel(version="unknown", is_cuda_build=False), host=WINDOWS),
            "skip",
        ),
    ),
    "HWP204": (
        Row(
            "the wheel with CUDA packages beside it",
            report(
                gpus=[A100],
                tensorflow=tensorflow_wheel(
                    is_cuda_build=False, wheels=(Distribution(name="nvidia-cudnn-cu12", version="9.3.0.75"),)
                ),
                host=ARM,
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                "tensorflow",
                ("for aarch64 is built without CUDA", "the 1 nvidia-* packages beside it do not change that"),
                ("nvcr.io/nvidia/tensorflow",),
            ),
        ),
        Row("a build with CUDA", report(gpus=[A100], host=ARM), "pass"),
        Row("x86_64", report(gpus=[A100], tensorflow=CPU_BUILD), "not_applicable"),
        Row("a Mac", cpu_only(tensorflow=CPU_ONLY, host={"system": "Darwin", "machine": "arm64"}), "not_applicable"),
        Row("the processor is not known", report(gpus=[A100], tensorflow=CPU_BUILD, host={"machine": None}), "skip"),
    ),
    "HWP205": (
        Row(
            "the CPU package was unpacked last, beside a GPU",
            report(
                gpus=[T4],
                tensorflow=tensorflow_wheel(
                    is_cuda_build=False,
                    distributions=distributions("tensorflow", "tensorflow-cpu", effective="tensorflow-cpu"),
                ),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                "tensorflow",
                ("installed over each other", "those of tensorflow-cpu, which has no CUDA in it"),
                ("pip uninstall tensorflow tensorflow-cpu",),
            ),
        ),
        Row(
            "without a GPU it is untidy",
            cpu_only(tensorflow=tensorflow_wheel(distributions=distributions("tensorflow", "tf-nightly"))),
            Fires(Severity.WARNING, Action.USER, "tensorflow", ("whose files are in effect could not be told",)),
        ),
        Row("one package", cpu_only(tensorflow=tensorflow_wheel(distributions=distributions("tensorflow"))), "pass"),
        Row("a stub that requires the other", cpu_only(tensorflow=tensorflow_wheel(distributions=STUBS)), "pass"),
        Row("no TensorFlow", cpu_only(tensorflow=None), "not_applicable"),
    ),
    "HWP218": (
        Row(
            "JAX by variable",
            report(gpus=[T4], keras=JAX),
            Fires(
                Severity.WARNING,
                Action.USER,
                "keras",
                ("Keras runs on jax (from KERAS_BACKEND)", "memory settings do not"),
                ("export KERAS_BACKEND=tensorflow",),
            ),
        ),
        Row("TensorFlow", report(gpus=[T4]), "pass"),
        Row("no Keras", report(gpus=[T4], keras=None), "not_applicable"),
        Row(
            "tf_keras knows no other backend",
            report(gpus=[T4], keras=Keras(tf_keras_version="2.21.0", backend="jax")),
            "not_applicable",
        ),
    ),
    "HWP219": (
        Row(
            "both",
            cpu_only(keras=BOTH),
            Fires(Severity.INFO, Action.NONE, "keras", ("Keras 3.15.1 and tf_keras 2.21.0", "tf.keras is Keras 3")),
        ),
        Row("Keras 3 alone", cpu_only(), "pass"),
        Row("tf_keras beside Keras 2", cpu_only(keras=Keras(version="2.15.0", tf_keras_version="2.15.0")), "pass"),
        Row("no Keras", cpu_only(keras=None), "not_applicable"),
    ),
    "HWP221": (
        Row(
            "an old fork",
            report(
                gpus=[T4], driver=Driver(version="570.124.06", foreign_pynvml="/env/pynvml/__init__.py (pynvml 11.5.3)")
            ),
            Fires(
                Severity.WARNING,
                Action.USER,
                "pynvml",
                ("loads /env/pynvml/__init__.py (pynvml 11.5.3)",),
                ("pip uninstall pynvml", "--force-reinstall nvidia-ml-py"),
            ),
        ),
        Row("NVIDIA's own", report(gpus=[T4]), "pass"),
        Row("no driver", cpu_only(), "not_applicable"),
    ),
    "HWP224": (
        Row(
            "asked for and not there",
            cpu_only(
                keras=Keras(version="3.15.1", legacy=True, backend="tensorflow"),
                environment={"TF_USE_LEGACY_KERAS": "1"},
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                "keras",
                ("tf_keras, which is not installed", "the first use of tf.keras fails"),
                ("pip install 'tf_keras==2.21.*'", "unset TF_USE_LEGACY_KERAS"),
            ),
        ),
        Row("it is there", cpu_only(keras=Keras(version="3.15.1", tf_keras_version="2.21.0", legacy=True)), "pass"),
        Row("nobody asks", cpu_only(), "not_applicable"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)


def test_a_cpu_package_over_the_other_is_named_once() -> None:
    owners = distributions("tensorflow", "tensorflow-cpu", effective="tensorflow-cpu")
    facts = report(gpus=[T4], tensorflow=tensorflow_wheel(is_cuda_build=False, distributions=owners))
    check("HWP202", Row("explained by HWP205", facts, "skip"))


def test_without_nvml_the_binding_is_no_question() -> None:
    check("HWP221", Row("absent", report(driver=None, sources={"nvml": ABSENT, "cuda": ABSENT}), "not_applicable"))
