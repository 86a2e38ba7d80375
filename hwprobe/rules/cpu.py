"""HWP404 and HWP411: 16 bits where no GPU computes."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import CPU_SUBJECT

_AMX = "amx_bf16"

HALF_ON_CPU = Rule(
    id="HWP404",
    name="half-precision-on-cpu",
    title="A 16-bit dtype policy is set and the CPU computes",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether a 16-bit global policy was set before hwprobe came, where no GPU computes.",
        matters="Float16 was up to 60 times slower than float32 on a CPU, bfloat16 up to 20 times without AMX. Keras "
        "2 warned; Keras 3 sets the policy without a word.",
        fix="Let hwprobe choose the policy, or set it after looking for a GPU.",
        reference="tensorflow/tensorflow#45441, #41783; steps measured with TensorFlow 2.21",
    ),
)


def cpu_computes_in_float32(case: Case) -> Verdict:
    """HWP404."""
    report = case.report
    policy = report.keras.dtype_policy if report.keras is not None else None
    if policy is None:
        return NotApplicable(reason="no Keras was loaded before hwprobe looked")
    if any(device.subject != CPU_SUBJECT for device in case.usability):
        return NotApplicable(reason="a GPU computes")
    amx = _AMX in (report.host.cpu_flags or ())
    if "16" not in policy or (amx and policy == "mixed_bfloat16"):
        return PASS
    return (
        Problem(
            subject="keras",
            message=f"the global dtype policy was {policy} and no GPU computes: on this CPU it is slower than float32",
            evidence={"dtype_policy": policy},
            fix=("hwprobe.auto_configure()   # sets float32 here",),
        ),
    )


AMX_UNUSED = Rule(
    id="HWP411",
    name="amx-unused",
    title="This CPU could compute in bfloat16",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Where no GPU computes: whether the CPU has AMX for bfloat16 and the policy leaves it unused.",
        matters="With AMX, recommenders trained 2.05 to 2.55 times faster in bfloat16 than in float32.",
        fix="`hwprobe check --policy cpu-bfloat16`, and measure your model with `hwprobe compare`.",
        reference="DeepRec-AI/DeepRec, docs_en/AMX.md",
    ),
)


def amx_is_used(case: Case) -> Verdict:
    """HWP411."""
    host = case.report.host
    if any(device.subject != CPU_SUBJECT for device in case.usability):
        return NotApplicable(reason="a GPU computes")
    if host.cpu_flags is None:
        return Skipped(reason="the CPU's flags are not known")
    if _AMX not in host.cpu_flags or "mixed_bfloat16" in case.policy.precision.cpu:
        return PASS
    return (
        Problem(
            subject=CPU_SUBJECT,
            message=f"{host.cpu_model or 'this CPU'} has AMX for bfloat16, which policy {case.policy.label} leaves "
            "unused",
            evidence={"cpu_flags": list(host.cpu_flags)},
            fix=("hwprobe check --policy cpu-bfloat16",),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(HALF_ON_CPU, cpu_computes_in_float32),
    RuleCheck(AMX_UNUSED, amx_is_used),
)
