"""HWP401 to HWP411: what the hardware means for 16 bits."""

from __future__ import annotations

import msgspec

from hwprobe.findings import Action, Severity
from hwprobe.policy import Policy, Precision
from hwprobe.report import Keras
from tests.reports import (
    A100,
    CPU_ONLY,
    GTX_1080_TI,
    GTX_1660_TI,
    H100,
    KERAS_3,
    P100,
    RTX_4090,
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
from tests.rules.facts import SECOND_UUID, UUID
from tests.rules.table import Fires, Row, Table, check, rows

P1000 = gpu("Quadro P1000", "6.1", memory_gib=4, pci_device_id="1CB1", multiprocessors=5)
TX2 = gpu("NVIDIA Tegra X2", "6.2", memory_gib=8)
MIXED_FLOAT16 = msgspec.structs.replace(KERAS_3, dtype_policy="mixed_float16")
MIXED_BFLOAT16 = msgspec.structs.replace(KERAS_3, dtype_policy="mixed_bfloat16")
FLOAT16 = msgspec.structs.replace(KERAS_3, dtype_policy="float16")
FLOAT32 = msgspec.structs.replace(KERAS_3, dtype_policy="float32")
LEGACY = Keras(version="3.15.1", tf_keras_version="2.21.0", legacy=True)
KERAS_2 = Keras(version="2.15.0", backend="tensorflow")
ON_JAX = Keras(version="3.15.1", backend="jax")
AMX = {"cpu_flags": ("amx_bf16",), "cpu_model": "Intel(R) Xeon(R) Platinum 8481C"}
FLOAT32_SITE = Policy(precision=Precision(prefer=("float32",)))
CPU_BFLOAT16 = Policy(precision=Precision(cpu=("mixed_bfloat16", "float32")))
NO_TF32 = Policy(precision=Precision(tf32=False))

TABLE: Table = {
    "HWP401": (
        Row(
            "GTX 1660 Ti",
            report(gpus=[GTX_1660_TI]),
            Fires(Severity.INFO, Action.NONE, UUID, ("NVIDIA GeForce GTX 1660 Ti (7.5) has no Tensor Cores",)),
        ),
        Row("T1200", report(gpus=[T1200]), Fires(Severity.INFO, Action.NONE, UUID, ("T1200 Laptop GPU",))),
        Row("Tesla T4", report(gpus=[T4]), "pass"),
        Row("another capability", report(gpus=[A100]), "not_applicable"),
        Row("hidden", report(gpus=[hidden(GTX_1660_TI)]), "not_applicable"),
    ),
    "HWP402": (
        Row("6.1", report(gpus=[GTX_1080_TI]), Fires(Severity.INFO, Action.NONE, UUID, ("1/64 of float32's rate",))),
        Row("6.0", report(gpus=[P100]), Fires(Severity.INFO, Action.NONE, UUID, ("halve the memory of activations",))),
        Row("6.2", report(gpus=[TX2]), Fires(Severity.INFO, Action.NONE, UUID, ("gains no speed",))),
        Row("Volta", report(gpus=[V100]), "pass"),
        Row("no GPU", cpu_only(), "not_applicable"),
    ),
    "HWP403": (
        Row(
            "a T4 beside an A100: bfloat16 is lost",
            report(gpus=[A100, T4]),
            Fires(
                Severity.INFO,
                Action.USER,
                SECOND_UUID,
                ("1 of 2 visible GPUs could use mixed_bfloat16; Tesla T4 (7.5) cannot",),
                (f"export CUDA_VISIBLE_DEVICES={UUID}   # hides Tesla T4 (7.5)",),
            ),
        ),
        Row(
            "a Pascal card beside an RTX 4090: 16 bits are lost",
            report(gpus=[RTX_4090, P1000]),
            Fires(Severity.WARNING, Action.USER, SECOND_UUID, ("Quadro P1000 (6.1) cannot: no Tensor Cores",)),
        ),
        Row("two alike", report(gpus=[T4, T4]), "pass"),
        Row("the site wants float32 anyway", report(gpus=[A100, T4]), "pass", FLOAT32_SITE),
        Row("one GPU", report(gpus=[A100]), "not_applicable"),
        Row("the other is hidden", report(gpus=[A100, hidden(T4)]), "not_applicable"),
        Row("the other has no code at all", report(gpus=[A100, RTX_5090]), "skip"),
    ),
    "HWP404": (
        Row(
            "float16 on a CPU",
            cpu_only(keras=MIXED_FLOAT16),
            Fires(
                Severity.WARNING,
                Action.USER,
                "keras",
                ("mixed_float16 and no GPU computes",),
                ("hwprobe.auto_configure()",),
            ),
        ),
        Row(
            "bfloat16 without AMX",
            cpu_only(keras=MIXED_BFLOAT16),
            Fires(Severity.WARNING, Action.USER, "keras", ("mixed_bfloat16",)),
        ),
        Row("bfloat16 with AMX", cpu_only(keras=MIXED_BFLOAT16, host=AMX), "pass"),
        Row("float32", cpu_only(keras=FLOAT32), "pass"),
        Row("a GPU computes", report(gpus=[T4], keras=MIXED_FLOAT16), "not_applicable"),
        Row("no policy was set", cpu_only(), "not_applicable"),
    ),
    "HWP405": (
        Row(
            "an A100 under 2.12",
            report(gpus=[A100], tensorflow="2.12.1"),
            Fires(
                Severity.INFO,
                Action.USER,
                "tensorflow",
                ("TensorFlow 2.12.1 lacks the kernels",),
                ("pip install --upgrade",),
            ),
        ),
        Row("2.14", report(gpus=[A100], tensorflow="2.14.1"), "pass"),
        Row("a T4 has no bfloat16", report(gpus=[T4], tensorflow="2.12.1"), "not_applicable"),
        Row("no TensorFlow", report(gpus=[A100], tensorflow=None), "not_applicable"),
        Row("no version", report(gpus=[A100], tensorflow=tensorflow_wheel(version=None)), "skip"),
    ),
    "HWP406": (
        Row(
            "an A100",
            report(gpus=[A100]),
            Fires(
                Severity.INFO,
                Action.NONE,
                "precision",
                ("TensorFloat-32", "up to twice the speed of float32 from mixed_bfloat16"),
            ),
        ),
        Row(
            "an A100 under 2.12",
            report(gpus=[A100], tensorflow="2.12.1"),
            Fires(Severity.INFO, Action.NONE, "precision", ("mixed_float16",)),
        ),
        Row("a T4 has none", report(gpus=[T4]), "pass"),
        Row("an H100 beside a V100", report(gpus=[H100, V100]), "pass"),
        Row("switched off by the site", report(gpus=[A100]), "pass", NO_TF32),
        Row("float32 is chosen", report(gpus=[A100]), "pass", FLOAT32_SITE),
        Row("no GPU", cpu_only(), "not_applicable"),
    ),
    "HWP407": (
        Row(
            "two GPUs and Keras 3",
            report(gpus=[A100, A100]),
            Fires(
                Severity.INFO,
                Action.USER,
                "keras",
                ("2 GPUs and Keras 3.15.1", "need not come from mixed precision"),
                ("hwprobe.wrap_optimizer(optimizer)", "jit_compile=False"),
            ),
        ),
        Row("tf_keras", report(gpus=[A100, A100], keras=LEGACY), "pass"),
        Row("Keras 2", report(gpus=[A100, A100], tensorflow="2.15.1", keras=KERAS_2), "pass"),
        Row("one GPU", report(gpus=[A100]), "not_applicable"),
        Row("on JAX", report(gpus=[A100, A100], keras=ON_JAX), "not_applicable"),
    ),
    "HWP409": (
        Row(
            "float16",
            report(gpus=[T4], keras=FLOAT16),
            Fires(
                Severity.ERROR,
                Action.USER,
                "keras",
                ("was float16, which keeps the weights in 16 bits too",),
                ('set_global_policy("mixed_float16")',),
            ),
        ),
        Row("mixed_float16", report(gpus=[T4], keras=MIXED_FLOAT16), "pass"),
        Row("no policy was set", report(gpus=[T4]), "not_applicable"),
        Row("no Keras", report(gpus=[T4], keras=None), "not_applicable"),
    ),
    "HWP411": (
        Row(
            "a CPU with AMX",
            cpu_only(tensorflow=CPU_ONLY, host=AMX),
            Fires(
                Severity.INFO,
                Action.USER,
                "CPU",
                ("Platinum 8481C has AMX for bfloat16, which policy default leaves unused",),
                ("hwprobe check --policy cpu-bfloat16",),
            ),
        ),
        Row("the policy uses it", cpu_only(host=AMX), "pass", CPU_BFLOAT16),
        Row("no AMX", cpu_only(), "pass"),
        Row("a GPU computes", report(gpus=[T4], host=AMX), "not_applicable"),
        Row("its flags cannot be read", cpu_only(host={"cpu_flags": None}), "skip"),
    ),
}


@rows(TABLE)
def test_rule(id_: str, row: Row) -> None:
    check(id_, row)
