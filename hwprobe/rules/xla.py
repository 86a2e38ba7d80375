"""HWP222: the files that XLA needs beside TensorFlow."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import TensorFlow
from hwprobe.rules.cuda_build import cuda_build
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict

FIRST_WITHOUT_FALLBACK = Version("2.17.dev0")
"""Before, XLA let the driver compile where it found no ptxas."""

XLA_TOOLS_MISSING = Rule(
    id="HWP222",
    name="xla-tools-missing",
    title="XLA will not find libdevice or ptxas",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP208", "HWP209"),
    explanation=Explanation(
        checks="Whether XLA would find libdevice.10.bc, and from TensorFlow 2.17 on ptxas or nvJitLink: in the "
        "nvidia-cuda-nvcc wheel, a CUDA folder, or where XLA_FLAGS points.",
        matters="Keras 3 compiles with XLA by itself as soon as a GPU is listed, and so do the new optimizers of "
        "Keras 2. Without these files the first training step fails.",
        fix="`pip install nvidia-cuda-nvcc-cu12`, or `export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda`, or "
        "compile models with `jit_compile=False`.",
        reference='tensorflow/tensorflow#58681, #56927, #60790; "No PTX compilation provider is available" in '
        "TensorFlow 2.17 and newer",
    ),
)


def xla_finds_its_tools(case: Case) -> Verdict:
    """HWP222."""
    report = case.report
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    if report.host.system != "Linux":
        return NotApplicable(reason="looked for on Linux only")
    if tensorflow.location is None and tensorflow.libdevice is None:
        return Skipped(reason="the files beside TensorFlow were not looked at")
    missing = [] if tensorflow.libdevice is not None else ["libdevice.10.bc"]
    if tensorflow.ptxas is None and _needs_ptxas(tensorflow):
        missing.append("ptxas")
    if not missing:
        return PASS
    return (
        Problem(
            subject="libraries",
            message=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} nowhere that XLA looks: compiled "
            "training steps (Keras 3 on a GPU) will fail",
            evidence={"missing": missing, "XLA_FLAGS": report.host.environment.get("XLA_FLAGS")},
            fix=(
                "pip install nvidia-cuda-nvcc-cu12",
                "or export XLA_FLAGS=--xla_gpu_cuda_data_dir=/usr/local/cuda",
                "or model.compile(..., jit_compile=False)",
            ),
        ),
    )


def _needs_ptxas(tensorflow: TensorFlow) -> bool:
    if any("nvjitlink" in one.name for one in tensorflow.wheels):
        return False
    try:
        return Version(tensorflow.version or "") >= FIRST_WITHOUT_FALLBACK
    except InvalidVersion:
        return False


RULES: tuple[RuleCheck, ...] = (RuleCheck(XLA_TOOLS_MISSING, xla_finds_its_tools),)
