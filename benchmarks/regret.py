"""How good the default policy is on published throughputs.

For every row of `speedups.tsv` (one model on one piece of hardware, in a wide and in a 16-bit precision): the
throughput of what hwprobe would choose, over the better of the two. 1 is right; below 1 something is lost.

The choice is made for a TensorFlow that has code for the GPU: whether a wheel has some is another question than which
precision fits. The rows are what people published, most of them vendors, most of them of models that gain; so the mean
is also taken by hardware class, each class counting once.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hwprobe.capability import ComputeCapability
from hwprobe.decide import decide
from hwprobe.gpu import Gpu
from hwprobe.knowledge.annotate import annotate
from hwprobe.knowledge.tensorflow import newest_release
from hwprobe.policy import Policy
from hwprobe.policy_reader import read_policy
from hwprobe.report import Host, Report, Sources, TensorFlow
from hwprobe.source import Source, SourceStatus

TABLE = Path(__file__).with_name("speedups.tsv")

_TF32 = "the wide side runs in TF32, on Tensor Cores too"
_RECOMMENDER = f"probably bound by look-ups in embeddings and by its input; {_TF32}"
_AUDIO = f"within 3 % of the wide side; from 8.0 on {_TF32}"
WHY_SLOWER = {
    "Conv2D test net 112x112": "TensorFlow 2.4 with the cuDNN of its time had a float16 convolution that is slow in "
    "this shape on 7.5; only timing the model finds that: `hwprobe compare`",
    "EfficientDet": "one user's report whose cause was not found; timing the model would show it: `hwprobe compare`",
    "small convnet": "timed under TensorFlow 2.11, which has no bfloat16 kernels on GPUs: there hwprobe chooses "
    "mixed_float16, and this table takes the newest release",
    "WideAndDeep": _RECOMMENDER,
    "NCF": _RECOMMENDER,
    "GNMT": f"recurrent, many small products; {_TF32}",
    "UNet_Industrial": "probably the batch of two on each of eight GPUs",
    "transformer": "pure float16 and not mixed precision",
    "tacotron2": _AUDIO,
    "waveglow": _AUDIO,
}
"""Model to the reason, as far as it is known, why its 16-bit side is slower where hwprobe chooses 16 bits."""


class Published(NamedTuple):
    """One published comparison."""

    source: str
    model: str
    gpu: str
    hardware: str
    kind: str
    narrow_precision: str
    wide: float
    narrow: float


class Choice(NamedTuple):
    """What hwprobe chooses for a row."""

    row: Published
    dtype_policy: str
    reason: str

    @property
    def is_comparable(self) -> bool:
        """Whether the row times what was chosen. From 8.0 on float16 stands for bfloat16: both run at one rate."""
        return not (self.dtype_policy == "mixed_float16" and self.row.narrow_precision.startswith("bf16"))

    @property
    def share(self) -> float:
        """Throughput of the choice over the better of the two."""
        chosen = self.row.wide if self.dtype_policy == "float32" else self.row.narrow
        return chosen / max(self.row.wide, self.row.narrow)

    @property
    def hardware_class(self) -> str:
        """Rows of one class have the same compute capability and the same choice."""
        return f"{self.row.hardware}{' without Tensor Cores' if 'no Tensor Cores' in self.reason else ''}"


def published() -> Iterator[Published]:
    """The rows of the table whose hardware is named by one capability."""
    with TABLE.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield Published(
                row["source"],
                row["model"],
                row["gpu"],
                row["compute_capability"],
                row["kind"],
                row["narrow"],
                float(row["wide_throughput"]),
                float(row["narrow_throughput"]),
            )


def choose(row: Published, policy: Policy) -> Choice:
    """Let hwprobe decide for the hardware of a row."""
    decision = decide(_report(row), policy)
    rejected = decision.rejected.get("mixed_float16") or decision.rejected.get("mixed_bfloat16") or ""
    reason = rejected if decision.dtype_policy == "float32" else decision.reasons[0]
    return Choice(row, decision.dtype_policy, reason)


def _report(row: Published) -> Report:
    ok = Source(status=SourceStatus.OK)
    flags = ("amx_bf16",) if "amx_bf16" in row.hardware else ()
    gpus = () if row.hardware.startswith("CPU") else (_gpu(row),)
    report = Report(
        devices=gpus,
        driver=None,
        tensorflow=_tensorflow(gpus),
        keras=None,
        host=Host(system="Linux", machine="x86_64", python="3.11", cpu_flags=flags),
        sources=Sources(nvml=ok, cuda=ok, tensorflow_build=ok, tensorflow_runtime=ok, host=ok),
    )
    return annotate(report)


def _gpu(row: Published) -> Gpu:
    if row.hardware.startswith("AMD"):
        return Gpu(name=row.gpu, kind="other", visible=True)
    # One row is a mean over boards of 7.0 and 7.5; the weaker stands for both.
    capability = ComputeCapability.parse(row.hardware.split("-")[-1])
    name = row.gpu if row.gpu.startswith(("Tesla", "Quadro", "NVIDIA")) else f"NVIDIA GeForce {row.gpu}"
    return Gpu(name=name, compute_capability=capability, visible=True)


def _tensorflow(gpus: Iterable[Gpu]) -> TensorFlow:
    own = [f"sm_{gpu.compute_capability.major}{gpu.compute_capability.minor}" for gpu in gpus if gpu.compute_capability]
    release = newest_release()
    return TensorFlow(version=f"{release.version}.0", is_cuda_build=True, compute_capabilities=tuple(own))


def report_lines(policy_name: str = "default") -> Iterator[str]:
    """The result as Markdown."""
    policy = read_policy(policy_name)
    choices = [choice for row in published() if (choice := choose(row, policy)).is_comparable]
    training = [choice for choice in choices if choice.row.kind == "training"]
    classes: dict[str, list[Choice]] = {}
    for choice in training:
        classes.setdefault(choice.hardware_class, []).append(choice)
    means = {name: statistics.mean(choice.share for choice in group) for name, group in classes.items()}
    yield f"{len(training)} published training comparisons, policy `{policy_name}`; 1.000 is the better of the two."
    yield ""
    yield f"- mean over rows {statistics.mean(choice.share for choice in training):.3f}"
    yield f"- mean over hardware classes {statistics.mean(means.values()):.3f}"
    worst = min(training, key=lambda choice: choice.share)
    yield f"- worst row {worst.share:.3f}: {worst.row.model} on {worst.row.gpu}"
    yield ""
    yield "| hardware | rows | choice | mean | worst |"
    yield "|---|---|---|---|---|"
    for name in sorted(classes):
        group = classes[name]
        chosen = ", ".join(sorted({choice.dtype_policy for choice in group}))
        yield f"| {name} | {len(group)} | {chosen} | {means[name]:.3f} | {min(one.share for one in group):.3f} |"
    yield ""
    slower = sorted(
        (one for one in choices if one.row.narrow < one.row.wide and one.dtype_policy != "float32"), key=_share
    )
    yield f"In {len(slower)} of {len(choices)} rows (matrix products included) the choice is slower than float32:"
    yield ""
    yield "| share | model | hardware | choice | why it is slower, as far as known | source |"
    yield "|---|---|---|---|---|---|"
    for one in slower:
        row = one.row
        why = WHY_SLOWER[row.model]
        yield f"| {one.share:.3f} | {row.model} | {row.gpu} | {one.dtype_policy} | {why} | {row.source} |"
    yield ""
    yield from _cpu_lines(choices)


def _cpu_lines(by_default: Iterable[Choice]) -> Iterator[str]:
    """What a site gets on CPUs that asks for bfloat16 there."""
    asked = read_policy("cpu-bfloat16")
    yield "On CPUs the default is float32 unless the site's policy asks for bfloat16 there, as `cpu-bfloat16` does:"
    yield ""
    yield "| model | CPU | default | share | cpu-bfloat16 | share |"
    yield "|---|---|---|---|---|---|"
    for choice in by_default:
        row = choice.row
        if row.hardware.startswith("CPU") and row.narrow_precision.startswith("bf16"):
            other = choose(row, asked)
            yield (
                f"| {row.model} | {row.gpu.removeprefix('CPU ')} | {choice.dtype_policy} | {choice.share:.3f} "
                f"| {other.dtype_policy} | {other.share:.3f} |"
            )


def _share(choice: Choice) -> float:
    return choice.share


def main() -> None:
    """Print the result."""
    print("\n".join(report_lines()))


if __name__ == "__main__":
    main()
