"""What to choose, what it brings, and how memory is taken."""

from __future__ import annotations

import msgspec
import pytest

from hwprobe.cli.every_rule import every_rule
from hwprobe.configuration import Memory
from hwprobe.decide import Request, decide
from hwprobe.errors import UnsupportedError
from hwprobe.gpu import GpuMemory
from hwprobe.policy import Policy
from hwprobe.preflight import check
from hwprobe.report import Keras
from tests.cases.table import ERROR, FAIL, INFO, OK, WARN, WARNING, Case, Cases, cases, hold
from tests.reports import A100, GTX_1080_TI, GTX_1660_TI, KERAS_3, P100, T4, T1200, V100, cpu_only, gpu, report

GIB = 2**30
RTX_2070 = gpu(
    "NVIDIA GeForce RTX 2070",
    "7.5",
    memory=GpuMemory(total_bytes=8 * GIB, free_bytes=int(7.2 * GIB), kind="dedicated"),
    pci_device_id="1F02",
    multiprocessors=36,
)
RTX_2080_TI = gpu("NVIDIA GeForce RTX 2080 Ti", "7.5", memory_gib=11, pci_device_id="1E04", multiprocessors=68)
TITAN_RTX = gpu("NVIDIA TITAN RTX", "7.5", memory_gib=24, pci_device_id="1E02", multiprocessors=72)
A10 = gpu("NVIDIA A10", "8.6", memory_gib=22.5, pci_device_id="2236", multiprocessors=72)
MX450 = gpu("NVIDIA GeForce MX450", "7.5", memory_gib=2, pci_device_id="1F97", multiprocessors=14)
WHEELS_OF_2_4 = ("sm_35", "sm_50", "sm_60", "sm_70", "sm_75", "compute_80")


def set_to(policy: str) -> Keras:
    """A Keras that this process loaded and gave a policy before hwprobe came."""
    return msgspec.structs.replace(KERAS_3, dtype_policy=policy)


def older(version: str) -> object:
    from tests.reports import tensorflow_wheel

    return tensorflow_wheel(version, cuda_version="11.2", compute_capabilities=WHEELS_OF_2_4)


TABLE: Cases = {
    "C059": (
        Case(
            "no GPU where the script assumes one",
            "arya46/VQA-Flask-App#7",
            cpu_only(),
            OK,
            {},
            never=("HWP",),
            require="gpus>=1",
        ),
    ),
    "C061": (
        Case(
            "TensorFlow would fill a card of 8 GiB",
            "tensorflow/tensorflow#24496, #27144, #29632",
            report(gpus=[RTX_2070]),
            WARN,
            {"HWP507": WARNING},
            "mixed_float16",
            says=("all of which TensorFlow would take", "growth = true"),
            policy=Policy(memory=Memory(growth=False)),
        ),
        Case(
            "with growth, which is the default, it does not",
            "tensorflow/tensorflow#24496",
            report(gpus=[RTX_2070]),
            OK,
            {},
            "mixed_float16",
            never=("HWP5",),
        ),
    ),
    "C073": (
        Case(
            "two replicas, loss scaling and XLA",
            "keras-team/keras#21366",
            report(gpus=[T4, T4]),
            OK,
            {"HWP407": INFO},
            "mixed_float16",
            says=("jit_compile=False",),
        ),
    ),
    "C076": (
        Case(
            "NaN under MirroredStrategy that is not of mixed precision",
            "tensorflow/tensorflow#90686, #87432",
            report(gpus=[A100, A100], tensorflow="2.17.1", keras=Keras(version="3.4.1", backend="tensorflow")),
            OK,
            {"HWP407": INFO},
            "mixed_bfloat16",
            says=("a NaN there need not come from mixed precision",),
        ),
    ),
    "C077": (
        Case(
            "an A100 under a TensorFlow without bfloat16 kernels",
            "tensorflow/tensorflow#47362, #58347",
            report(gpus=[A100], tensorflow=older("2.9.1")),  # type: ignore[arg-type]
            OK,
            {"HWP405": INFO},
            "mixed_float16",
            says=("TensorFlow 2.9.1 lacks the kernels",),
        ),
    ),
    "C078": (
        Case(
            "bfloat16 that would silently run on the CPU",
            "tensorflow/tensorflow#59050, #55738",
            report(gpus=[A10], tensorflow=older("2.11.1")),  # type: ignore[arg-type]
            OK,
            {"HWP405": INFO},
            "mixed_float16",
            says=("TensorFlow 2.11.1 lacks the kernels",),
        ),
    ),
    "C080": (
        Case("a T4", "openxla/xla#12429", report(gpus=[T4]), OK, {}, "mixed_float16"),
        Case("a V100", "huggingface/accelerate#1693", report(gpus=[V100]), OK, {}, "mixed_float16"),
    ),
    "C081": (
        Case(
            "a CPU without AMX",
            "pytorch/torchtune#715",
            cpu_only(),
            OK,
            {},
            never=("HWP4",),
            require="gpus>=1",
        ),
        Case(
            "a CPU with AMX",
            "Lightning-AI/pytorch-lightning PR 10033",
            cpu_only(host={"cpu_flags": ("amx_bf16",)}),
            OK,
            {"HWP411": INFO},
            says=("hwprobe check --policy cpu-bfloat16",),
        ),
    ),
    "C083": (
        Case(
            "mixed_float16 was set and no GPU computes",
            "tensorflow/tensorflow#45441, #41783",
            cpu_only(keras=set_to("mixed_float16")),
            WARN,
            {"HWP404": WARNING},
            says=("slower than float32",),
        ),
    ),
    "C084": (
        Case(
            "GTX 1660 Ti",
            "tensorflow/tensorflow#44191; NVIDIA/apex#806",
            report(gpus=[GTX_1660_TI]),
            OK,
            {"HWP401": INFO},
            says=("has no Tensor Cores",),
        ),
        Case("T1200, which is no T4", "LeelaChessZero/lc0#1670", report(gpus=[T1200]), OK, {"HWP401": INFO}),
        Case("MX450", "ggml-org/llama.cpp#4682", report(gpus=[MX450]), OK, {"HWP401": INFO}),
        Case("Tesla T4", "tensorflow/tensorflow#44191", report(gpus=[T4]), OK, {}, "mixed_float16", never=("HWP401",)),
        Case(
            "TITAN RTX",
            "tensorflow/tensorflow#44191",
            report(gpus=[TITAN_RTX]),
            OK,
            {},
            "mixed_float16",
            never=("HWP401",),
        ),
    ),
    "C085": (
        Case(
            "6.1", "NVIDIA/apex#76", report(gpus=[GTX_1080_TI]), OK, {"HWP402": INFO}, says=("1/64 of float32's rate",)
        ),
        Case(
            "6.0",
            "tiny-cuda-nn#30",
            report(gpus=[P100]),
            OK,
            {"HWP402": INFO},
            says=("halve the memory of activations",),
        ),
    ),
    "C086": (
        Case(
            "float32 has Tensor Cores already",
            "tensorflow/docs#2140; tensorflow/tensorflow#34406",
            report(gpus=[A100]),
            OK,
            {"HWP406": INFO},
            "mixed_bfloat16",
            says=("TensorFloat-32", "less in small models"),
        ),
    ),
    "C089": (
        Case(
            "a small model on an RTX 2080 Ti: less memory, and no speed",
            "tensorflow/tensorflow#40397",
            report(gpus=[RTX_2080_TI]),
            OK,
            {},
            "mixed_float16",
            never=("faster", "HWP"),
        ),
    ),
    "C091": (
        Case(
            "pure float16",
            "keras-team/keras#11832, #9582; tensorflow/tensorflow#38457",
            report(gpus=[V100], keras=set_to("float16")),
            FAIL,
            {"HWP409": ERROR},
            "mixed_float16",
            says=('set_global_policy("mixed_float16")',),
        ),
    ),
    "C096": (
        Case(
            "two Keras in one environment, the legacy one in front",
            "keras-team/keras-hub#1295",
            report(gpus=[T4], keras=Keras(version="3.15.1", tf_keras_version="2.21.0", legacy=True)),
            OK,
            {"HWP219": INFO},
            "mixed_float16",
            says=("Keras 3.15.1 and tf_keras 2.21.0", "tf.keras is tf_keras"),
        ),
    ),
    "C097": (
        Case(
            "KERAS_BACKEND=jax on the whole cluster",
            "keras-team/keras#18448",
            report(
                gpus=[T4],
                keras=Keras(version="3.15.1", backend="jax", backend_origin="environment"),
                environment={"KERAS_BACKEND": "jax"},
            ),
            WARN,
            {"HWP218": WARNING},
            "mixed_float16",
            says=("memory settings do not", "export KERAS_BACKEND=tensorflow"),
        ),
    ),
}


@cases(TABLE)
def test_case(case: Case) -> None:
    hold(case)


def test_c061_the_error_that_looks_like_a_broken_cudnn_is_explained_where_memory_is() -> None:
    pages = {rule.id: str(rule.explanation) for rule in every_rule()}
    assert {id_ for id_, page in pages.items() if "CUDNN_STATUS_INTERNAL_ERROR" in page} == {"HWP504", "HWP507"}


def test_c066_the_page_about_ones_own_loop_tells_the_two_kerases_apart() -> None:
    page = next(rule.explanation.fix for rule in every_rule() if rule.id == "HWP620")
    keras_3, _, keras_2 = page.partition("Keras 2")
    assert "scale_loss(loss)" in keras_3
    assert "get_scaled_loss" not in keras_3
    assert "get_unscaled_gradients" in keras_2


@pytest.mark.parametrize("device", [T4, V100], ids=["T4", "V100"])
def test_c080_bfloat16_that_the_hardware_lacks_is_refused_and_never_swapped(device: object) -> None:
    facts = report(gpus=[device])  # type: ignore[list-item]
    with pytest.raises(UnsupportedError, match="no bfloat16 in its Tensor Cores"):
        decide(facts, Policy(), Request(dtype_policy="mixed_bfloat16"))
    refused = check(report=facts, policy="default", dtype_policy="mixed_bfloat16")
    assert (refused.exit_status, refused.primary and refused.primary.id) == (1, "HWP950")


def test_c101_two_nodes_of_a_job_would_choose_differently_on_their_own() -> None:
    alone = [decide(report(gpus=[device]), Policy()).dtype_policy for device in (V100, P100)]
    assert alone == ["mixed_float16", "float32"]
