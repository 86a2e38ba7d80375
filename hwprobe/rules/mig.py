"""HWP304 and HWP305: GPUs in MIG mode, of which a process gets instances and not the whole."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.gpu import MigInstance
from hwprobe.report import Report
from hwprobe.rules.presence import in_container, nvidia_gpus
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.rules.visible_devices import VARIABLE, read_entries
from hwprobe.source import SourceStatus

MIG_WITHOUT_INSTANCES = Rule(
    id="HWP304",
    name="mig-without-instances",
    title="MIG is on and no instance exists",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    hides_gpus=True,
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
    bare = [gpu for gpu in partitioned if gpu.mig is not None and not gpu.mig.instances and not gpu.visible]
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
            severity=Severity.WARNING if case.report.visible_devices else None,
        )
        for gpu in bare
    )


MIG_SINGLE_INSTANCE = Rule(
    id="HWP305",
    name="mig-single-instance",
    title="More MIG instances were given than one process can use",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether this process was given more MIG instances than CUDA lets it use: by CUDA_VISIBLE_DEVICES, or "
        "by a container.",
        matters="A process computes on one MIG instance of a GPU, whatever it was allotted; MirroredStrategy over "
        "several is not possible. The others lie idle and are paid for.",
        fix="Start one process for each instance, each with its own `CUDA_VISIBLE_DEVICES=MIG-<uuid>`.",
        reference="pytorch/pytorch#130181; NVIDIA/k8s-device-plugin#446; CUDA Programming Guide",
    ),
)


def mig_instances_can_all_be_used(case: Case) -> Verdict:
    """HWP305."""
    report = case.report
    if report.sources.cuda.status is not SourceStatus.OK:
        return Skipped(reason="CUDA did not say which instances it gives")
    given = _given_by_variable(report) if VARIABLE in report.host.environment else _given_by_container(report)
    if not given:
        return NotApplicable(reason=f"neither {VARIABLE} nor a container gives MIG instances")
    seen = [instance for gpu in report.devices if gpu.mig is not None for instance in gpu.mig.instances]
    usable = sum(bool(instance.visible) for instance in seen)
    if len(given) <= max(usable, 1):
        return PASS
    return (
        Problem(
            subject="MIG",
            message=f"{len(given)} MIG instances were given to this process and CUDA lets it use {usable}",
            evidence={"given": len(given), "visible": usable},
            fix=tuple(f"{VARIABLE}={name} python train.py   # one process each" for name in given[:2]),
        ),
    )


def _given_by_variable(report: Report) -> list[str]:
    entries = read_entries(report.host.environment[VARIABLE], nvidia_gpus(report))
    return [entry.text.strip() for entry in entries if entry.kind == "mig"]


def _given_by_container(report: Report) -> list[str]:
    """The instances that NVML shows in a container: those that it was started with. On a host they are everybody's."""
    if not in_container(report):
        return []
    instances: list[MigInstance] = [one for gpu in report.devices if gpu.mig is not None for one in gpu.mig.instances]
    return [instance.uuid or f"MIG-<uuid of {instance.name}>" for instance in instances]


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(MIG_WITHOUT_INSTANCES, mig_has_instances),
    RuleCheck(MIG_SINGLE_INSTANCE, mig_instances_can_all_be_used),
)
