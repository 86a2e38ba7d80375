"""HWP501 to HWP503, HWP507 and HWP508: how TensorFlow is told to take GPU memory."""

from __future__ import annotations

from hwprobe.capability import ComputeCapability
from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.versions import cuda_release
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import devices_that_compute

FORCE_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_SET_GROWTH = (
    "hwprobe policy show > site.toml",
    "set growth = true in [memory] of that file, and name it with --policy",
)

GROWTH_OVERRIDDEN = Rule(
    id="HWP501",
    name="growth-overridden",
    title="The environment overrides memory growth",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether TF_FORCE_GPU_ALLOW_GROWTH contradicts the memory growth that the policy asks for.",
        matters="The variable wins over tf.config in both directions, while tf.config goes on to report what was set "
        "through it. TensorFlow then takes nearly all memory at the first tensor, or does not when it should.",
        fix="`unset TF_FORCE_GPU_ALLOW_GROWTH`, or set it to what the policy says.",
        reference="tensorflow/core/common_runtime/gpu/gpu_device.cc; first allocation measured with TensorFlow 2.21",
    ),
)


def environment_agrees_with_growth(case: Case) -> Verdict:
    """HWP501."""
    value = case.report.host.environment.get(FORCE_GROWTH)
    if value is None or not devices_that_compute(case.report):
        return NotApplicable(reason=f"{FORCE_GROWTH} is not set, or no GPU will compute")
    wanted = case.policy.memory.growth
    # TensorFlow accepts these two spellings only; anything else is HWP502's subject.
    if {"true": True, "false": False}.get(value, wanted) is wanted:
        return PASS
    return (
        Problem(
            subject="memory",
            message=f"TF_FORCE_GPU_ALLOW_GROWTH={value} overrides memory growth {'on' if wanted else 'off'}, "
            f"which policy {case.policy.label} asks for",
            evidence={"TF_FORCE_GPU_ALLOW_GROWTH": value, "growth": wanted},
            fix=("unset TF_FORCE_GPU_ALLOW_GROWTH",),
        ),
    )


FORCE_GROWTH_NOT_UNDERSTOOD = Rule(
    id="HWP502",
    name="force-growth-not-understood",
    title="TF_FORCE_GPU_ALLOW_GROWTH has a value that TensorFlow ignores",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether TF_FORCE_GPU_ALLOW_GROWTH is `true` or `false`.",
        matters="TensorFlow accepts these two spellings only. `1`, `True` or `yes` are ignored with one line in its "
        "log, and nearly all GPU memory is taken at the first tensor.",
        fix="`export TF_FORCE_GPU_ALLOW_GROWTH=true`",
        reference="tensorflow/core/common_runtime/gpu/gpu_device.cc; first allocation measured with TensorFlow 2.21",
    ),
)


def force_growth_is_understood(case: Case) -> Verdict:
    """HWP502."""
    value = case.report.host.environment.get(FORCE_GROWTH)
    if value is None or not devices_that_compute(case.report):
        return NotApplicable(reason=f"{FORCE_GROWTH} is not set, or no GPU will compute")
    if value in ("true", "false"):
        return PASS
    meant = "true" if value.strip().lower() in ("1", "true", "yes", "on", "y") else "false"
    return (
        Problem(
            subject="memory",
            message=f"TF_FORCE_GPU_ALLOW_GROWTH={value} is ignored: TensorFlow accepts true and false, in these "
            "spellings",
            evidence={"TF_FORCE_GPU_ALLOW_GROWTH": value},
            fix=(f"export TF_FORCE_GPU_ALLOW_GROWTH={meant}",),
        ),
    )


CAP_WITHOUT_GROWTH = Rule(
    id="HWP503",
    name="cap-without-growth",
    title="A memory limit without growth takes the whole limit at once",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether the policy sets `limit_mib` with `growth = false`.",
        matters="A limit is also a pre-allocation: the first tensor takes all of it. And growth that is set through "
        "tf.config is dropped without a word as soon as a limit is set.",
        fix="Set `growth = true` beside the limit; hwprobe then uses TF_FORCE_GPU_ALLOW_GROWTH, the only way to have "
        "both.",
        reference="tensorflow/tensorflow#38367; first allocation measured with TensorFlow 2.21",
    ),
)


def limit_has_growth(case: Case) -> Verdict:
    """HWP503."""
    memory = case.policy.memory
    if memory.limit_mib is None or not devices_that_compute(case.report):
        return NotApplicable(reason="the policy sets no memory limit, or no GPU will compute")
    if memory.growth:
        return PASS
    return (
        Problem(
            subject="memory",
            message=f"policy {case.policy.label} limits GPU memory to {memory.limit_mib} MiB without growth: the "
            "first tensor takes all of it",
            evidence={"limit_mib": memory.limit_mib, "growth": memory.growth},
            fix=_SET_GROWTH,
        ),
    )


SMALL_CARD = Rule(
    id="HWP507",
    name="small-card-without-growth",
    title="A small GPU without memory growth leaves cuDNN too little",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether a visible GPU of 8 GiB or less would be filled by TensorFlow (`growth = false`).",
        matters="TensorFlow then leaves a few hundred MiB for cuDNN and cuBLAS, and the first convolution fails with "
        "CUDNN_STATUS_INTERNAL_ERROR, which looks like a broken installation.",
        fix="Leave `growth = true` in the policy.",
        reference="tensorflow/tensorflow#24496, #27144, #29632",
    ),
)

_SMALL_BYTES = 8 * 2**30


def small_gpus_have_growth(case: Case) -> Verdict:
    """HWP507."""
    small = [gpu for gpu in devices_that_compute(case.report) if 0 < (gpu.memory.total_bytes or 0) <= _SMALL_BYTES]
    if not small:
        return NotApplicable(reason="no GPU of 8 GiB or less will compute")
    if case.policy.memory.growth or case.policy.memory.limit_mib is not None:
        return PASS
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label} has {(gpu.memory.total_bytes or 0) / 2**30:.1f} GiB, all of which TensorFlow would "
            "take",
            evidence={"total_bytes": gpu.memory.total_bytes},
            fix=_SET_GROWTH,
        )
        for gpu in small
    )


ALLOCATOR_UNSUPPORTED = Rule(
    id="HWP508",
    name="allocator-unsupported",
    title="cuda_malloc_async would end the process here",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="Where the policy or TF_GPU_ALLOCATOR asks for cuda_malloc_async: whether the driver (CUDA 11.2) and "
        "every visible GPU (6.0) support it.",
        matters="Where they do not, TensorFlow ends the process with a fatal log line and no exception.",
        fix='Leave the allocator at "default".',
        reference="tensorflow/core/common_runtime/gpu/gpu_cudamallocasync_allocator.cc; tensorflow/tensorflow#50669",
    ),
)

_ASYNC = "cuda_malloc_async"
_ASYNC_CAPABILITY = ComputeCapability(6, 0)
_ASYNC_CUDA = (11, 2)


def allocator_is_supported(case: Case) -> Verdict:
    """HWP508."""
    report = case.report
    asked = _ASYNC in (case.policy.memory.allocator, report.host.environment.get("TF_GPU_ALLOCATOR"))
    if not asked or not report.visible_devices:
        return NotApplicable(reason="nobody asks for cuda_malloc_async, or no GPU is visible")
    ceiling = cuda_release(report.driver.cuda_version) if report.driver and report.driver.cuda_version else None
    if ceiling is None or any(gpu.compute_capability is None for gpu in report.visible_devices):
        return Skipped(reason="the driver's CUDA version or a GPU's capability could not be read")
    old = [
        gpu for gpu in report.visible_devices if gpu.compute_capability and gpu.compute_capability < _ASYNC_CAPABILITY
    ]
    if ceiling >= _ASYNC_CUDA and not old:
        return PASS
    why = (
        f"{old[0].label} is older than 6.0"
        if old
        else f"the driver supports CUDA {'.'.join(map(str, ceiling))}, not 11.2"
    )
    return (
        Problem(
            subject="memory",
            message=f"cuda_malloc_async is asked for and {why}: TensorFlow would end the process",
            evidence={"cuda": ".".join(map(str, ceiling)), "devices": [gpu.subject for gpu in old]},
            fix=("unset TF_GPU_ALLOCATOR", 'or, in [memory] of the policy: allocator = "default"'),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(GROWTH_OVERRIDDEN, environment_agrees_with_growth),
    RuleCheck(FORCE_GROWTH_NOT_UNDERSTOOD, force_growth_is_understood),
    RuleCheck(CAP_WITHOUT_GROWTH, limit_has_growth),
    RuleCheck(SMALL_CARD, small_gpus_have_growth),
    RuleCheck(ALLOCATOR_UNSUPPORTED, allocator_is_supported),
)
