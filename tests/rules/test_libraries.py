"""HWP206 to HWP210, HWP220 and HWP222: driver, libraries, cuDNN and XLA's files against the CUDA of TensorFlow."""

from __future__ import annotations

from hwprobe.findings import Action, Severity
from hwprobe.report import Distribution, Driver, Keras, SharedLibrary, TensorFlow
from tests.reports import A100, CPU_ONLY, H100, T4, cpu_only, hidden, report, tensorflow_wheel
from tests.rules.facts import LIBRARIES, SITE_PACKAGES, distributions, with_libraries
from tests.rules.table import Fires, Row, Table, check, rows

CUDNN = "libcudnn.so.9"
CUDNN_WHEEL = f"{SITE_PACKAGES}/nvidia/cudnn/lib/{CUDNN}"
CUSOLVER = "libcusolver.so.11"
CUSOLVER_WHEEL = f"{SITE_PACKAGES}/nvidia/cusolver/lib/{CUSOLVER}"
TORCH = {"frameworks": (Distribution(name="torch", version="2.9.0"),)}
FROM_TORCH = "/env/lib/python3.11/site-packages/torch/lib/libcudnn.so.9"
JAX = Keras(version="3.15.1", backend="jax", backend_origin="environment")
NO_PTXAS = tensorflow_wheel("2.21.0", ptxas=None)


def with_cudnn(version: str | None, tensorflow: str = "2.21.0", **facts: object) -> TensorFlow:
    library = SharedLibrary(soname=CUDNN, loads=True, path=f"/cuda/lib64/{CUDNN}", version=version)
    return tensorflow_wheel(tensorflow, **{"libraries": (library,), **facts})


def with_files(**files: object) -> TensorFlow:
    return tensorflow_wheel("2.21.0", **{"location": f"{SITE_PACKAGES}/tensorflow", **files})


def by_ceiling(cuda: str) -> Driver:
    """What is known of a driver that only CUDA was asked about, as in a training script."""
    return Driver(kernel_version="450.80.02", cuda_version=cuda)


TABLE: Table = {
    "HWP206": (
        Row(
            "450 under CUDA 12",
            report(gpus=[T4], driver="450.80.02"),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("driver 450.80.02 is older than 525.60.13", "CUDA 12.5.1 in TensorFlow 2.21.0"),
                (
                    "update the NVIDIA driver to 525.60.13",
                    "or pip install 'tensorflow[and-cuda]<2.15'   # the last release that this driver runs",
                    ": built for CUDA 11.8",
                ),
            ),
        ),
        Row(
            "with a Python that is too new for the older release",
            report(gpus=[T4], driver="450.80.02", host={"python": "3.12.1"}),
            Fires(Severity.ERROR, Action.ADMIN, "driver", (), ("<2.15", "11.8; its wheels are for Python 3.9 to 3.11")),
        ),
        Row(
            "on an H100, for which a driver has to compile: 2.12 to 2.14 hold PTX that is too new for this one",
            report(gpus=[H100], driver="515.65.01"),
            Fires(Severity.ERROR, Action.ADMIN, "driver", (), ("'tensorflow<2.12'", "built for CUDA 11.2")),
        ),
        Row(
            "older than every release of the table",
            report(gpus=[T4], driver="418.226.00"),
            Fires(Severity.ERROR, Action.ADMIN, "driver", (), ("or build TensorFlow for an older CUDA: no wheel",)),
        ),
        Row(
            "under WSL with Windows' numbers",
            report(gpus=[T4], driver="472.50", host={"wsl": True}),
            Fires(Severity.ERROR, Action.ADMIN, "driver", ("472.50 is older than 527.41",)),
        ),
        Row(
            "by the CUDA that it supports",
            report(gpus=[T4], driver=by_ceiling("11.4")),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                ("the driver, which supports CUDA up to 11.4, is older",),
                ("'tensorflow[and-cuda]<2.15'",),
            ),
        ),
        Row("any driver from the first of CUDA 12 on", report(gpus=[T4], driver="525.60.13"), "pass"),
        Row("numbers are compared as numbers", report(gpus=[T4], driver="1000.10.01"), "pass"),
        Row("by ceiling within one major", report(gpus=[T4], driver=by_ceiling("12.0")), "pass"),
        Row("no version was read", report(gpus=[T4], driver=Driver(kernel_version="570.1")), "skip"),
        Row("build_info.py is silent", report(gpus=[T4], tensorflow=tensorflow_wheel(cuda_version=None)), "skip"),
        Row("no NVIDIA GPU", cpu_only(), "not_applicable"),
        Row("a build without CUDA", report(gpus=[T4], tensorflow=CPU_ONLY), "not_applicable"),
        Row("Keras runs on JAX", report(gpus=[T4], driver="450.80.02", keras=JAX), "not_applicable"),
    ),
    "HWP207": (
        Row(
            "an H100 that has nothing but PTX",
            report(gpus=[H100], tensorflow="2.15.1", driver="525.60.13"),
            Fires(
                Severity.ERROR,
                Action.ADMIN,
                "driver",
                (
                    "cannot compile PTX of CUDA 12.2 (from 535.54.03 on)",
                    "NVIDIA H100 80GB HBM3 (9.0) has no other code",
                ),
                ("update the NVIDIA driver to 535.54.03",),
            ),
        ),
        Row(
            "XLA has no ptxas",
            report(gpus=[T4], tensorflow=NO_PTXAS, driver="535.104.05"),
            Fires(
                Severity.WARNING,
                Action.USER,
                "driver",
                ("XLA finds no ptxas that would do it",),
                ("pip install nvidia-cuda-nvcc-cu12",),
            ),
        ),
        Row("XLA has one, so that an older driver is fine", report(gpus=[T4], driver="535.104.05"), "pass"),
        Row("the driver of the release", report(gpus=[T4], tensorflow=NO_PTXAS, driver="555.42.06"), "pass"),
        Row("no version was read", report(gpus=[T4], driver=Driver(kernel_version="570.1")), "skip"),
        Row("no NVIDIA GPU", cpu_only(), "not_applicable"),
    ),
    "HWP208": (
        Row(
            "cuDNN alone",
            report(gpus=[T4], lists=(), tensorflow=with_libraries(CUDNN)),
            Fires(
                Severity.ERROR,
                Action.USER,
                CUDNN,
                ("libcudnn.so.9 does not load", "cannot open shared object file", "no file of that name was found"),
                ("pip install 'tensorflow[and-cuda]==2.21.0'",),
            ),
        ),
        Row(
            "all of them are one finding",
            report(
                gpus=[T4],
                lists=(),
                tensorflow=with_libraries(
                    *LIBRARIES,
                    and_cuda=("nvidia-cudnn-cu12<10.0,>=9.3.0.75", "nvidia-cufft-cu12>=11", "nvidia-nccl-cu12>=2.27"),
                ),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                "libraries",
                ("libcudart.so.12", CUDNN, "not installed in this environment: nvidia-cudnn-cu12, nvidia-cufft-cu12"),
            ),
        ),
        Row(
            "a file lies where the loader does not look",
            report(
                gpus=[T4],
                lists=(),
                tensorflow=with_libraries(CUDNN, found={CUDNN: f"/opt/cudnn/lib/{CUDNN}"}),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                CUDNN,
                (f"there is /opt/cudnn/lib/{CUDNN}",),
                ("export LD_LIBRARY_PATH=/opt/cudnn/lib:$LD_LIBRARY_PATH",),
            ),
        ),
        Row(
            "a file that the loader came to and cannot use",
            report(
                gpus=[T4],
                lists=(),
                tensorflow=with_libraries(
                    CUDNN,
                    error=f"/opt/cudnn/lib/{CUDNN}: file too short",
                    found={CUDNN: f"/opt/cudnn/lib/{CUDNN}"},
                ),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                CUDNN,
                (f"was found and does not load: /opt/cudnn/lib/{CUDNN}: file too short",),
                (f"ls -lL /opt/cudnn/lib/{CUDNN}", "pip install 'tensorflow[and-cuda]==2.21.0'"),
            ),
        ),
        Row(
            "a wheel's file that is damaged",
            report(
                gpus=[T4],
                lists=(),
                tensorflow=with_libraries(
                    CUDNN,
                    error=f"{CUDNN_WHEEL}: invalid ELF header",
                    found={CUDNN: CUDNN_WHEEL},
                    wheels=(Distribution(name="nvidia-cudnn-cu12", version="9.3.0.75"),),
                ),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                CUDNN,
                ("invalid ELF header",),
                ("pip install --force-reinstall --no-deps 'nvidia-cudnn-cu12==9.3.0.75'",),
            ),
        ),
        Row(
            "an old TensorFlow has no such extra",
            report(
                gpus=[T4],
                lists=(),
                tensorflow=tensorflow_wheel(
                    "2.12.1",
                    libraries=(
                        SharedLibrary(
                            soname="libcudart.so.11.0",
                            loads=False,
                            error="no such file",
                            other_versions=("/usr/local/cuda/lib64/libcudart.so.12",),
                        ),
                        SharedLibrary(soname="libcudnn.so.8", loads=False, error="no such file"),
                    ),
                ),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                "libraries",
                ("of another version there is /usr/local/cuda/lib64/libcudart.so.12",),
                ("install CUDA 11.8 and cuDNN 8.6", "LD_LIBRARY_PATH"),
            ),
        ),
        Row("all load", report(gpus=[T4], tensorflow=with_libraries()), "pass"),
        Row(
            "the GPUs are hidden on purpose",
            report(gpus=[hidden(T4)], tensorflow=with_libraries(CUDNN), environment={"CUDA_VISIBLE_DEVICES": "-1"}),
            "not_applicable",
        ),
        Row("no NVIDIA GPU", cpu_only(tensorflow=with_libraries(CUDNN)), "not_applicable"),
        Row(
            "not tried",
            report(gpus=[T4], tensorflow=tensorflow_wheel(libraries=(SharedLibrary(soname=CUDNN),))),
            "skip",
        ),
        Row(
            "explained by HWP209",
            report(gpus=[T4], lists=(), tensorflow=with_libraries(CUDNN, found={CUDNN: CUDNN_WHEEL})),
            "skip",
        ),
    ),
    "HWP209": (
        Row(
            "the wheels are installed and not searched",
            report(
                gpus=[T4],
                lists=(),
                tensorflow=with_libraries(CUDNN, found={CUDNN: CUDNN_WHEEL}, version="2.16.1"),
            ),
            Fires(
                Severity.ERROR,
                Action.USER,
                "libraries",
                (f"{CUDNN}: installed by the nvidia-* wheels", "2.16.1 does not find it"),
                (
                    f"export LD_LIBRARY_PATH={SITE_PACKAGES}/nvidia/cudnn/lib:$LD_LIBRARY_PATH",
                    "or pip install 'tensorflow[and-cuda]<2.21'   # the last release that finds all of them",
                ),
            ),
        ),
        Row(
            "the newest release, which overlooks one of them",
            report(gpus=[T4], lists=(), tensorflow=with_libraries(CUSOLVER, found={CUSOLVER: CUSOLVER_WHEEL})),
            Fires(
                Severity.ERROR,
                Action.USER,
                "libraries",
                (f"{CUSOLVER}: installed by the nvidia-* wheels", "2.21.0 does not find it"),
                ("nvidia/cusolver/lib:$LD_LIBRARY_PATH", "or pip install 'tensorflow[and-cuda]<2.21'"),
            ),
        ),
        Row("all load", report(gpus=[T4], tensorflow=with_libraries()), "pass"),
        Row(
            "another is really missing",
            report(gpus=[T4], lists=(), tensorflow=with_libraries("libcufft.so.11")),
            "pass",
        ),
        Row("no NVIDIA GPU", cpu_only(), "not_applicable"),
        Row("not tried", report(gpus=[T4], tensorflow=tensorflow_wheel(libraries=())), "skip"),
    ),
    "HWP210": (
        Row(
            "9.1 where 9.3 is needed",
            report(gpus=[T4], tensorflow=with_cudnn("9.1.0"), host=TORCH),
            Fires(
                Severity.ERROR,
                Action.USER,
                CUDNN,
                ("cuDNN 9.1.0 (/cuda/lib64/libcudnn.so.9)", "built with 9.3", "torch 2.9.0"),
                ("pip install --upgrade 'nvidia-cudnn-cu12>=9.3,<10'",),
            ),
        ),
        Row("newer", report(gpus=[T4], tensorflow=with_cudnn("9.10.2")), "pass"),
        Row("the same", report(gpus=[T4], tensorflow=with_cudnn("9.3.0")), "pass"),
        Row(
            "a build of one's own with an older cuDNN",
            report(gpus=[T4], tensorflow=with_cudnn("8.9.7", cudnn_version="8")),
            "pass",
        ),
        Row("its version is not known", report(gpus=[T4], tensorflow=with_cudnn(None)), "skip"),
        Row("no NVIDIA GPU", cpu_only(), "not_applicable"),
    ),
    "HWP220": (
        Row(
            "torch was imported first",
            report(gpus=[T4], host={"mapped_libraries": (FROM_TORCH,)}),
            Fires(
                Severity.WARNING,
                Action.USER,
                CUDNN,
                (f"torch has loaded {FROM_TORCH}", "built with cuDNN 9.3"),
                ("import tensorflow   # before import torch",),
            ),
        ),
        Row(
            "and its version is in the name",
            report(gpus=[T4], host={"mapped_libraries": (f"{FROM_TORCH}.1.0",)}),
            Fires(Severity.ERROR, Action.USER, CUDNN, ("libcudnn.so.9.1.0",)),
        ),
        Row("TensorFlow's own", report(gpus=[T4], host={"mapped_libraries": (CUDNN_WHEEL,)}), "pass"),
        Row(
            "another major is another library",
            report(gpus=[T4], host={"mapped_libraries": ("/env/torch/lib/libcudnn.so.8",)}),
            "not_applicable",
        ),
        Row("nothing is loaded", report(gpus=[T4], host={"mapped_libraries": ()}), "not_applicable"),
        Row("not read", report(gpus=[T4]), "skip"),
    ),
    "HWP222": (
        Row(
            "no libdevice",
            report(gpus=[T4], tensorflow=with_files(libdevice=None)),
            Fires(
                Severity.WARNING,
                Action.USER,
                "libraries",
                ("libdevice.10.bc is nowhere that XLA looks",),
                ("pip install nvidia-cuda-nvcc-cu12", "jit_compile=False"),
            ),
        ),
        Row(
            "no ptxas either",
            report(gpus=[T4], tensorflow=with_files(libdevice=None, ptxas=None)),
            Fires(Severity.WARNING, Action.USER, "libraries", ("libdevice.10.bc and ptxas are nowhere",)),
        ),
        Row("both", report(gpus=[T4], tensorflow=with_files()), "pass"),
        Row(
            "nvJitLink does without ptxas",
            report(
                gpus=[T4],
                tensorflow=with_files(
                    ptxas=None, wheels=(Distribution(name="nvidia-nvjitlink-cu12", version="12.5.82"),)
                ),
            ),
            "pass",
        ),
        Row("before 2.17 the driver did", report(gpus=[T4], tensorflow=tensorflow_wheel("2.16.2", ptxas=None)), "pass"),
        Row("no NVIDIA GPU", cpu_only(), "not_applicable"),
        Row("not looked at", report(gpus=[T4], tensorflow=tensorflow_wheel(libdevice=None)), "skip"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)


def test_what_hides_behind_a_cpu_package_is_no_question_of_libraries() -> None:
    tensorflow = with_libraries(CUDNN, is_cuda_build=False, distributions=distributions("tensorflow-cpu"))
    check("HWP208", Row("a CPU build", report(gpus=[A100], tensorflow=tensorflow), "not_applicable"))
