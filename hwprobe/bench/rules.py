"""What a bench says about a device: HWP45x."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hwprobe.bench.facts import ERROR_LIMITS, POLICY_MODES, WORK_KERNELS, Bench, Measurement, is_wrong
from hwprobe.findings import Action, EvidenceValue, Explanation, Finding, Rule, Severity

SLOWER = 0.95
"""A policy counts as slower where its kernels together stay below this share of the baseline's speed, and one of them
does so even in the upper fifth of its rounds."""

KERNEL_MISSING = Rule(
    id="HWP450",
    name="kernel-missing",
    title="A kernel does not run on this device",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="A matrix product, a convolution, attention and an optimizer's step on the device itself, in float32, "
        "float16 and bfloat16, with soft placement off.",
        matters="With soft placement on, TensorFlow silently runs such a kernel on the CPU, which was measured to be "
        "hundreds of times slower (bfloat16 before TensorFlow 2.12), or stops at the first step.",
        fix="Use a dtype policy whose kernels run here, or a TensorFlow that has the kernel: see the finding.",
        reference="tensorflow/tensorflow#59050",
    ),
)
WRONG_RESULT = Rule(
    id="HWP451",
    name="wrong-result",
    title="A kernel gives a wrong result on this device",
    severity=Severity.ERROR,
    action=Action.DRAIN,
    explanation=Explanation(
        checks="The result of each kernel against float64 on the same, already rounded inputs: finite, and within some "
        "ten times of what the format's rounding explains.",
        matters="Boards without Tensor Cores were reported to give NaN in float16 (GeForce GTX 16xx); a defective "
        "board or driver does so in any dtype. Training on it is lost.",
        fix="float32 wrong as well: take the node out of service and run the vendor's diagnostics. Only 16 bits: use "
        "the float32 policy there.",
        reference="pytorch/pytorch#58123; ultralytics/yolov5#7470",
    ),
)
POLICY_SLOWER = Rule(
    id="HWP452",
    name="policy-slower-than-float32",
    title="This dtype policy is slower than float32 here",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Time of the kernels in the policy's dtype against float32 (TF32 where the device has it), in turns.",
        matters="A mixed policy is there for speed and memory. Where the device has no fast units for its dtype it "
        "costs both accuracy and time.",
        fix="Use float32, or decide by the measurement: hwprobe bench --output bench.json, then hwprobe decide "
        "--measured bench.json.",
        reference="https://www.tensorflow.org/guide/mixed_precision",
    ),
)

RULES: tuple[Rule, ...] = (KERNEL_MISSING, WRONG_RESULT, POLICY_SLOWER)


def judge_bench(measured: Bench, dtype_policy: str | None = None) -> tuple[Finding, ...]:
    """Judge what was measured.

    Args:
        measured: A bench.
        dtype_policy: The policy that is to be used: what is wrong with another one's dtype is information. None
            judges both mixed policies as wanted.

    Returns:
        Findings, worst first, about the device.
    """
    wanted = {"float32", "tf32"} | {
        mode for policy, mode in POLICY_MODES.items() if dtype_policy is None or policy == dtype_policy
    }
    found = [
        *_missing(measured, wanted),
        *_wrong(measured, wanted),
        *(_slower(measured, policy) for policy in POLICY_MODES if dtype_policy in (None, policy)),
    ]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (-each.severity.rank, each.id)))


def _missing(measured: Bench, wanted: set[str]) -> Iterable[Finding]:
    yield from _by_mode(
        measured,
        wanted,
        KERNEL_MISSING,
        lambda seen: seen.error is not None,
        lambda seen: f"{seen.kernel} ({seen.error})",
        "does not run in {mode}",
    )
    yield from _by_mode(
        measured,
        wanted,
        KERNEL_MISSING,
        lambda seen: seen.ran_on is not None and seen.ran_on.partition(":")[0] != measured.device.partition(":")[0],
        lambda seen: f"{seen.kernel} (ran on {seen.ran_on})",
        "ran elsewhere in {mode}",
    )


def _wrong(measured: Bench, wanted: set[str]) -> Iterable[Finding]:
    yield from _by_mode(
        measured,
        wanted,
        WRONG_RESULT,
        is_wrong,
        lambda seen: (
            f"{seen.kernel} ({seen.non_finite} elements infinite or NaN)"
            if seen.non_finite
            else f"{seen.kernel} (off by {seen.relative_error or 0.0:.2g}, at most {ERROR_LIMITS[seen.mode]:g} is due)"
        ),
        "is wrong in {mode}",
    )


def _by_mode(
    measured: Bench,
    wanted: set[str],
    rule: Rule,
    applies: Callable[[Measurement], bool],
    describe: Callable[[Measurement], str],
    what: str,
) -> Iterable[Finding]:
    for mode in dict.fromkeys(seen.mode for seen in measured.measurements):
        hit = [seen for seen in measured.measurements if seen.mode == mode and applies(seen)]
        if not hit:
            continue
        policy = next((name for name, its_mode in POLICY_MODES.items() if its_mode == mode), "float32")
        names = [describe(seen) for seen in hit]
        yield _finding(
            rule,
            measured,
            f"on {_name(measured)} {what.format(mode=mode)}: {'; '.join(names)}",
            "take the node out of service and run the vendor's diagnostics"
            if policy == "float32"
            else f"do not use {policy} on this device",
            evidence={"mode": mode, "kernels": [str(seen.kernel) for seen in hit], "tensorflow": measured.tensorflow},
            severity=rule.severity if mode in wanted else Severity.INFO,
        )


def _slower(measured: Bench, policy: str) -> Finding | None:
    mode = POLICY_MODES[policy]
    ratio = measured.policy_ratio(policy)
    if ratio is None or ratio >= SLOWER:
        return None
    by_kernel = {str(seen.kernel): seen.ratio for seen in measured.measurements if seen.mode == mode and seen.ratio}
    surely = [str(kernel) for kernel in WORK_KERNELS if kernel in by_kernel and by_kernel[kernel].high < SLOWER]
    if not surely:
        return None
    return _finding(
        POLICY_SLOWER,
        measured,
        f"{policy} runs at {ratio:.2f} of the speed of {measured.baseline} on {_name(measured)} "
        f"({', '.join(f'{kernel} {its_ratio.median:.2f}' for kernel, its_ratio in by_kernel.items())})",
        'hwprobe.auto_configure(dtype_policy="float32")',
        evidence={
            "policy": policy,
            "ratio": round(ratio, 3),
            "baseline": measured.baseline,
            "slower": list(map(str, surely)),
        },
        severity=POLICY_SLOWER.severity,
    )


def _name(measured: Bench) -> str:
    capability = f" ({measured.compute_capability})" if measured.compute_capability else ""
    return f"{measured.device} {measured.description}{capability}"


def _finding(
    rule: Rule, measured: Bench, message: str, *fix: str, evidence: dict[str, EvidenceValue], severity: Severity
) -> Finding:
    return Finding(
        id=rule.id,
        severity=severity,
        action=rule.action if severity is not Severity.INFO else Action.NONE,
        subject=measured.uuid or measured.device,
        title=rule.title,
        message=message,
        evidence=evidence,
        fix=fix,
    )
