"""HWP211, HWP212 and HWP223: whether this TensorFlow has code for each GPU."""

from __future__ import annotations

from hwprobe.capability import ComputeCapability
from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.gpu import Gpu
from hwprobe.knowledge.architectures import architecture_of
from hwprobe.knowledge.kernels import KernelCode
from hwprobe.knowledge.tensorflow import newest_release
from hwprobe.knowledge.versions import cuda_release
from hwprobe.report import Host, Report, TensorFlow
from hwprobe.rules.boards import newest_wheel_for, pip_install_last
from hwprobe.rules.cuda_build import cuda_build
from hwprobe.rules.verdict import Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import kernel_code, visible_devices_value

FIRST_WITH_AMPERE = 11
"""CUDA major that can build for 8.0 and newer."""

NO_CODE_FOR_GPU = Rule(
    id="HWP211",
    name="no-code-for-gpu",
    title="This TensorFlow has no code for the GPU",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether the machine code in this TensorFlow build runs on each GPU: an sm_XY of the same major and a "
        "minor not above the GPU's, or PTX that the driver can compile for it.",
        matters="TensorFlow lists such a GPU and prints at most a warning; the first kernel fails "
        "(CUDA_ERROR_INVALID_PTX, no kernel image is available). Nothing can be computed on it.",
        fix="For a GPU newer than the build (Blackwell) take a build that carries its code: NVIDIA's container or a "
        "build of your own. For one older than the build take the last release that had its code: 2.16 for 5.x, 2.14 "
        "for 3.5 and 3.7. Beside other GPUs, hide it with CUDA_VISIBLE_DEVICES.",
        reference="tensorflow/tensorflow#89272, #90291, #101746; TensorFlow 2.17.0 release notes",
    ),
)


def every_gpu_has_code(case: Case) -> Verdict:
    """HWP211."""
    report = case.report
    found = _built_and_gpus(report)
    if isinstance(found, NotApplicable | Skipped):
        return found
    tensorflow, gpus = found
    codeless = [(gpu, code) for gpu in gpus if (code := kernel_code(gpu, tensorflow)) and code.kind == "none"]
    others = [gpu for gpu in gpus if gpu not in [without for without, _ in codeless]]
    return tuple(_no_code_problem(gpu, code, report, others) for gpu, code in codeless)


def _no_code_problem(gpu: Gpu, code: KernelCode, report: Report, others: list[Gpu]) -> Problem:
    tensorflow, host = report.tensorflow, report.host
    assert gpu.compute_capability is not None
    assert tensorflow is not None
    listed = gpu.tensorflow_name is not None
    # TensorFlow leaves what is older than 3.5 aside by itself, so that the others are not held up by it.
    harmless = tensorflow.devices is not None and not listed and any(other.tensorflow_name for other in others)
    hide = f"export CUDA_VISIBLE_DEVICES={visible_devices_value(others) or '-1'}"
    return Problem(
        subject=gpu.subject,
        message=f"TensorFlow {tensorflow.version} "
        + (f"lists {gpu.label} and has no code for it" if listed else f"has no code for {gpu.label}")
        + f": {code.reason}",
        evidence={
            "compute_capability": str(gpu.compute_capability),
            "built_for": list(tensorflow.compute_capabilities or ()),
        },
        fix=(
            *_other_build(gpu.compute_capability, host),
            f"{hide}   # until then, on {'the other GPUs' if others else 'the CPU'}",
        ),
        severity=Severity.INFO if harmless else None,
    )


def _other_build(capability: ComputeCapability, host: Host) -> tuple[str, ...]:
    wheel = newest_wheel_for(capability)
    if wheel == newest_release():
        return ("pip install --upgrade 'tensorflow[and-cuda]'   # its wheels have code for this GPU",)
    if wheel is not None:
        return (pip_install_last(wheel, "with code for this GPU", host),)
    newer = capability >= ComputeCapability(10, 0)
    what = "nvcr.io/nvidia/tensorflow, or a build of your own" if newer else "a build of your own"
    return (f"no wheel of the package index has code for it; use {what}",)


GPU_NEWER_THAN_CUDA = Rule(
    id="HWP223",
    name="gpu-newer-than-cuda",
    title="The GPU is newer than the CUDA in this TensorFlow",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP211",),
    explanation=Explanation(
        checks="Whether the CUDA release that this TensorFlow was built with knows the GPU's architecture. From CUDA "
        "11 on the build's own list of architectures says more (HWP211, HWP212).",
        matters="CUDA 10 on Ampere hangs for many minutes, fails with an invalid kernel image, or silently computes "
        "wrong numbers.",
        fix="Take a TensorFlow built with a newer CUDA: 2.4 (CUDA 11.0) or newer for Ampere.",
        reference="tensorflow/tensorflow#43718, #44959, #48787; alexanderkroner/saliency#25",
    ),
)


def cuda_knows_every_gpu(case: Case) -> Verdict:
    """HWP223."""
    report = case.report
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    gpus = [gpu for gpu in _gpus(report) if gpu.compute_capability is not None]
    if not gpus:
        return NotApplicable(reason="no visible NVIDIA GPU whose capability is known")
    built = cuda_release(tensorflow.cuda_version) if tensorflow.cuda_version is not None else None
    if built is None:
        return Skipped(reason="the CUDA release that this TensorFlow was built with could not be read")
    problems = []
    for gpu in gpus:
        assert gpu.compute_capability is not None
        first = architecture_of(gpu.compute_capability).first_toolkit
        needed = cuda_release(first) if first is not None else None
        if needed is not None and built < needed and built[0] < FIRST_WITH_AMPERE:
            problems.append(
                Problem(
                    subject=gpu.subject,
                    message=f"{gpu.label} needs CUDA {first} or newer and TensorFlow {tensorflow.version} is built "
                    f"with CUDA {tensorflow.cuda_version}: it hangs, fails, or computes wrong numbers",
                    evidence={"built_with": tensorflow.cuda_version, "needed": first},
                    fix=_other_build(gpu.compute_capability, report.host),
                )
            )
    return tuple(problems)


COMPILED_AT_FIRST_USE = Rule(
    id="HWP212",
    name="compiled-at-first-use",
    title="Kernels are compiled for the GPU at first use",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP207",),
    explanation=Explanation(
        checks="Whether a GPU runs only through the PTX of this TensorFlow build, compiled at first use.",
        matters="It works, but the first start takes long (TensorFlow itself speaks of 30 minutes), which a job's time "
        "limit can kill, again and again, if the cache is not kept.",
        fix="Take a newer TensorFlow that carries machine code for the GPU, or keep the compilation cache: "
        "`export CUDA_CACHE_PATH=/a/folder/that/lasts CUDA_CACHE_MAXSIZE=4294967296`.",
        reference="tensorflow/tensorflow#60739, #62320; CUDA Programming Guide, environment variables",
    ),
)


def no_gpu_needs_compilation(case: Case) -> Verdict:
    """HWP212."""
    found = _built_and_gpus(case.report)
    if isinstance(found, NotApplicable | Skipped):
        return found
    tensorflow, gpus = found
    environment = case.report.host.environment
    compiled = [(gpu, code) for gpu in gpus if (code := kernel_code(gpu, tensorflow)) and code.kind == "jit"]
    kept = environment.get("CUDA_CACHE_PATH") and environment.get("CUDA_CACHE_MAXSIZE", "").isdigit()
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"TensorFlow {tensorflow.version} has no machine code for {gpu.label}: {code.reason}"
            + (", once, since CUDA_CACHE_PATH keeps it" if kept else ""),
            evidence={
                "compute_capability": str(gpu.compute_capability),
                "built_for": list(tensorflow.compute_capabilities or ()),
                "CUDA_CACHE_PATH": environment.get("CUDA_CACHE_PATH"),
            },
            fix=("export CUDA_CACHE_PATH=/a/folder/that/lasts CUDA_CACHE_MAXSIZE=4294967296",),
            severity=Severity.INFO if kept else None,
        )
        for gpu, code in compiled
    )


def _built_and_gpus(report: Report) -> tuple[TensorFlow, list[Gpu]] | NotApplicable | Skipped:
    """A TensorFlow whose architectures are known, and the GPUs that it will meet."""
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    gpus = _gpus(report)
    if not gpus:
        return NotApplicable(reason="no visible NVIDIA GPU")
    if tensorflow.compute_capabilities is None:
        return Skipped(reason="the architectures that this TensorFlow has code for could not be read")
    return tensorflow, gpus


def _gpus(report: Report) -> list[Gpu]:
    """The GPUs that CUDA gives this process, listed by TensorFlow or not: what a missing library hides comes back."""
    return [gpu for gpu in report.devices if gpu.kind == "nvidia" and gpu.visible and gpu.error is None]


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(NO_CODE_FOR_GPU, every_gpu_has_code),
    RuleCheck(GPU_NEWER_THAN_CUDA, cuda_knows_every_gpu),
    RuleCheck(COMPILED_AT_FIRST_USE, no_gpu_needs_compilation),
)
