"""HWP30x: GPUs that are there and that CUDA does not give to this process, or in another order: variables and MIG."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Gpu, Report, SourceStatus
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.rules.visible_devices import Entry, read_entries

VARIABLE = "CUDA_VISIBLE_DEVICES"
_ON_PURPOSE = ("", "-1")

HIDDEN_BY_ENVIRONMENT = Rule(
    id="HWP301",
    name="hidden-by-environment",
    title="CUDA_VISIBLE_DEVICES hides every GPU",
    severity=Severity.WARNING,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="Whether CUDA_VISIBLE_DEVICES is empty or -1 on a machine with GPUs.",
        matters="That hides all of them, which is right for a CPU job and a surprise when a profile or a job template "
        "left it behind. Unset is another thing: it shows all.",
        fix="`unset CUDA_VISIBLE_DEVICES`, or name the GPUs that the process is to use.",
        reference="CUDA Programming Guide, environment variables",
    ),
)


def environment_hides_no_gpu(case: Case) -> Verdict:
    """HWP301."""
    value = case.report.host.environment.get(VARIABLE)
    gpus = _nvidia(case.report)
    if value is None or not gpus:
        return NotApplicable(reason=f"{VARIABLE} is not set" if value is None else "no NVIDIA GPU is known here")
    if value.strip() not in _ON_PURPOSE:
        return PASS
    return (
        Problem(
            subject=VARIABLE,
            message=f'{VARIABLE}="{value}" hides all {len(gpus)} GPUs of this machine from this process',
            evidence={VARIABLE: value, "gpus": len(gpus)},
            fix=(f"unset {VARIABLE}",),
        ),
    )


ENTRY_NOT_UNDERSTOOD = Rule(
    id="HWP302",
    name="visible-devices-entry",
    title="CUDA_VISIBLE_DEVICES ends at an entry that names no GPU",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="Each entry of CUDA_VISIBLE_DEVICES, by the driver's own rules.",
        matters="CUDA reads the list up to the first entry that names no device and drops the rest without a word; a "
        "device named twice empties the list. Indices count CUDA's order, not that of nvidia-smi.",
        fix="`nvidia-smi -L` lists the UUIDs; they mean the same device in every order, and their beginning is enough.",
        reference="CUDA Programming Guide, environment variables; pytorch/pytorch PR 92315",
    ),
)


def every_entry_names_a_gpu(case: Case) -> Verdict:
    """HWP302."""
    report = case.report
    value = report.host.environment.get(VARIABLE)
    gpus = _nvidia(report)
    if value is None or value.strip() in _ON_PURPOSE or not gpus:
        return NotApplicable(reason=f"{VARIABLE} is not set, hides all, or no NVIDIA GPU is known here")
    if report.sources.nvml.status is not SourceStatus.OK:
        return Skipped(reason="NVML, which knows all GPUs, did not answer")
    entries = read_entries(value, gpus)
    last = entries[-1]
    if last.problem is None or last.text.strip() == "NoDevFiles":
        return PASS
    return (_entry_problem(value, last, report),)


def _entry_problem(value: str, last: Entry, report: Report) -> Problem:
    seen = len(report.visible_devices)
    slurm = report.host.scheduler == "slurm" and last.kind == "index"
    fix: tuple[str, ...] = ("nvidia-smi -L", f"export {VARIABLE}={','.join(_uuids(report))}")
    if slurm:
        fix = (f"in the job, use the indices of the job and not of the node: export {VARIABLE}=0", *fix)
    return Problem(
        subject=VARIABLE,
        message=f"{VARIABLE}={value}: the entry {last.text.strip()!r} ends the list ({last.problem}); "
        f"{seen} GPU{'' if seen == 1 else 's'} remain visible",
        evidence={VARIABLE: value, "entry": last.text, "problem": last.problem, "visible": seen},
        fix=fix,
        severity=Severity.WARNING if seen else None,
    )


def _uuids(report: Report) -> list[str]:
    return [gpu.uuid for gpu in report.devices if gpu.uuid is not None]


ORDER_DIFFERS = Rule(
    id="HWP303",
    name="order-differs",
    title="CUDA and nvidia-smi number the GPUs differently",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether unlike GPUs have another order in CUDA than in NVML, and whether indices select among them.",
        matters="CUDA puts the fastest GPU first unless CUDA_DEVICE_ORDER=PCI_BUS_ID; nvidia-smi goes by the bus. "
        "Index 0 then names two different boards, and a job lands on the one that nobody meant.",
        fix="`export CUDA_DEVICE_ORDER=PCI_BUS_ID` before the first CUDA call, or select by UUID.",
        reference="tensorflow/tensorflow#32881, #152; CUDA Programming Guide, environment variables",
    ),
)


def orders_agree(case: Case) -> Verdict:
    """HWP303."""
    report = case.report
    placed = [gpu for gpu in report.devices if gpu.cuda_index is not None and gpu.nvml_index is not None]
    if len(_nvidia(report)) < 2 or not placed:
        return NotApplicable(reason="fewer than two GPUs")
    by_cuda = sorted(placed, key=lambda gpu: gpu.cuda_index or 0)
    wrong = _indices_mean_others(report, by_cuda)
    order = [gpu.nvml_index or 0 for gpu in by_cuda]
    if len({gpu.name for gpu in _nvidia(report)}) < 2 or (not wrong and order == sorted(order)):
        return PASS
    first = by_cuda[0]
    return (
        Problem(
            subject=first.subject,
            message=f"CUDA's first GPU is {first.label}, which nvidia-smi numbers {first.nvml_index}"
            + (f"; {VARIABLE} selects by index" if wrong else ""),
            evidence={"nvml_indices_in_cuda_order": [str(index) for index in order]},
            fix=("export CUDA_DEVICE_ORDER=PCI_BUS_ID", f"or by UUID: export {VARIABLE}={first.uuid}"),
            severity=Severity.WARNING if wrong else None,
        ),
    )


def _indices_mean_others(report: Report, by_cuda: list[Gpu]) -> bool:
    value = report.host.environment.get(VARIABLE)
    if value is None:
        return False
    entries = [entry for entry in read_entries(value, _nvidia(report)) if entry.problem is None]
    indices = [int(entry.text) for entry in entries if entry.kind == "index"]
    return any(index != gpu.nvml_index for index, gpu in zip(indices, by_cuda, strict=False))


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
    bare = [gpu for gpu in partitioned if gpu.mig is not None and not gpu.mig.instances]
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


MIG_SINGLE_INSTANCE = Rule(
    id="HWP305",
    name="mig-single-instance",
    title="More MIG instances were given than one process can use",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether CUDA_VISIBLE_DEVICES names more MIG instances than CUDA gives this process.",
        matters="A process computes on one MIG instance of a GPU, whatever it was allotted; MirroredStrategy over "
        "several is not possible. The others lie idle and are paid for.",
        fix="Start one process for each instance, each with its own `CUDA_VISIBLE_DEVICES=MIG-<uuid>`.",
        reference="pytorch/pytorch#130181; NVIDIA/k8s-device-plugin#446; CUDA Programming Guide",
    ),
)


def mig_instances_can_all_be_used(case: Case) -> Verdict:
    """HWP305."""
    value = case.report.host.environment.get(VARIABLE, "")
    entries = [entry for entry in read_entries(value, _nvidia(case.report)) if entry.kind == "mig"]
    if not entries:
        return NotApplicable(reason=f"{VARIABLE} names no MIG instance")
    seen = [
        instance
        for gpu in case.report.devices
        for instance in (gpu.mig.instances if gpu.mig is not None else ())
        if instance.visible
    ]
    if len(entries) <= max(len(seen), 1):
        return PASS
    return (
        Problem(
            subject=VARIABLE,
            message=f"{len(entries)} MIG instances were given to this process and CUDA lets it use {len(seen)}",
            evidence={"given": len(entries), "visible": len(seen)},
            fix=tuple(f"{VARIABLE}={entry.text.strip()} python train.py   # one process each" for entry in entries[:2]),
        ),
    )


def _nvidia(report: Report) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in report.devices if gpu.kind == "nvidia")


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(HIDDEN_BY_ENVIRONMENT, environment_hides_no_gpu),
    RuleCheck(ENTRY_NOT_UNDERSTOOD, every_entry_names_a_gpu),
    RuleCheck(ORDER_DIFFERS, orders_agree),
    RuleCheck(MIG_WITHOUT_INSTANCES, mig_has_instances),
    RuleCheck(MIG_SINGLE_INSTANCE, mig_instances_can_all_be_used),
)
