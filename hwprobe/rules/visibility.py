"""HWP3xx: GPUs that are there and not visible to this process: variables, MIG, containers, schedulers."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict

MIG_WITHOUT_INSTANCES = Rule(
    id="HWP304",
    name="mig-without-instances",
    title="MIG is on and no instance exists",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    explanation=Explanation(
        checks="Whether a GPU in MIG mode has at least one compute instance.",
        matters="In MIG mode the whole GPU is not a CUDA device; without instances there is nothing to compute on, "
        "although NVML shows a healthy board.",
        fix="Create instances (`sudo nvidia-smi mig -cgi 9,9 -C`; `nvidia-smi mig -lgip` lists the profiles) or switch "
        "MIG off (`sudo nvidia-smi -i INDEX -mig 0`).",
        reference="NVIDIA Multi-Instance GPU User Guide",
    ),
)


def mig_has_instances(case: Case) -> Verdict:
    """HWP304."""
    partitioned = [gpu for gpu in case.report.devices if gpu.mig is not None and gpu.mig.enabled]
    if not partitioned:
        return NotApplicable(reason="no GPU in MIG mode")
    bare = [gpu for gpu in partitioned if gpu.mig is not None and not gpu.mig.instances]
    if not bare:
        return PASS
    others = [gpu for gpu in case.report.visible_devices if gpu not in bare]
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label}, NVML index {gpu.nvml_index}, is in MIG mode without an instance: CUDA has no device",
            evidence={"nvml_index": gpu.nvml_index, "mig_instances": 0},
            fix=(
                "nvidia-smi mig -lgip",
                "sudo nvidia-smi mig -cgi PROFILE,PROFILE -C   # or switch MIG off:",
                f"sudo nvidia-smi -i {gpu.nvml_index} -mig 0",
            ),
            severity=Severity.WARNING if others else None,
        )
        for gpu in bare
    )


RULES: tuple[RuleCheck, ...] = (RuleCheck(MIG_WITHOUT_INSTANCES, mig_has_instances),)
