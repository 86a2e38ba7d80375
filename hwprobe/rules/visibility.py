"""HWP301 to HWP303: what CUDA_VISIBLE_DEVICES hides, and GPUs that come in another order than nvidia-smi's."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.gpu import Gpu
from hwprobe.report import Report
from hwprobe.rules.presence import nvidia_driver_present, nvidia_gpu_expected, nvidia_gpus
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.rules.visible_devices import HIDE_ALL, NO_DEV_FILES, VARIABLE, Entry, read_entries
from hwprobe.source import SourceStatus
from hwprobe.usability import visible_devices_value

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
    report = case.report
    value = report.host.environment.get(VARIABLE)
    gpus = nvidia_gpus(report)
    if value is None:
        return NotApplicable(reason=f"{VARIABLE} is not set")
    # Where NVML does not answer nobody names the GPUs: CUDA itself obeys the variable.
    if not gpus and not (nvidia_gpu_expected(report) and nvidia_driver_present(report)):
        return NotApplicable(reason="no NVIDIA GPU is known here")
    if value.strip() not in HIDE_ALL:
        return PASS
    some = f"the {len(gpus)} GPUs" if gpus else "the GPUs"
    hidden = gpus[0].label if len(gpus) == 1 else f"{some} of this machine"
    return (
        Problem(
            subject=VARIABLE,
            message=f'{VARIABLE}="{value}" hides {hidden} from this process',
            evidence={VARIABLE: value, "gpus": len(gpus) or None},
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
        fix="`nvidia-smi -L` lists the UUIDs; they mean the same device in every order, and their beginning is enough. "
        "In a container or a Slurm job the indices are those of the container or job, not those of the whole node.",
        reference="CUDA Programming Guide, environment variables; pytorch/pytorch PR 92315",
    ),
)


def every_entry_names_a_gpu(case: Case) -> Verdict:
    """HWP302."""
    report = case.report
    value = report.host.environment.get(VARIABLE)
    gpus = nvidia_gpus(report)
    if value is None or value.strip() in HIDE_ALL or not gpus:
        return NotApplicable(reason=f"{VARIABLE} is not set, hides all, or no NVIDIA GPU is known here")
    if report.sources.nvml.status is not SourceStatus.OK:
        return Skipped(reason="NVML, which knows all GPUs, did not answer")
    last = read_entries(value, gpus)[-1]
    slurm = report.host.scheduler == "slurm"
    if last.problem is None or (slurm and last.text.strip() == NO_DEV_FILES) or _cuda_gives_as_many(value, report):
        return PASS
    return (_entry_problem(value, last, report),)


def _cuda_gives_as_many(value: str, report: Report) -> bool:
    """Whether CUDA found a device for every entry after all: its own word counts for more than our reading."""
    instances = [one for gpu in report.visible_devices if gpu.mig is not None for one in gpu.mig.instances]
    whole = [gpu for gpu in report.visible_devices if gpu.mig is None or not gpu.mig.instances]
    return len(whole) + sum(bool(one.visible) for one in instances) >= len(value.split(","))


def _entry_problem(value: str, last: Entry, report: Report) -> Problem:
    seen = len(report.visible_devices)
    fix: tuple[str, ...] = ("nvidia-smi -L", f"export {VARIABLE}={','.join(_uuids(report))}")
    if report.host.scheduler == "slurm" and last.kind == "index":
        fix = (f"export {VARIABLE}=0   # in a job, indices count the job's GPUs and not the node's", *fix)
    return Problem(
        subject=VARIABLE,
        message=f"{VARIABLE}={value}: the entry {last.text.strip()!r} ends the list ({last.problem}); "
        f"{seen} GPU{' remains' if seen == 1 else 's remain'} visible",
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
    if len(nvidia_gpus(report)) < 2 or not placed:
        return NotApplicable(reason="fewer than two GPUs")
    by_cuda = sorted(placed, key=lambda gpu: gpu.cuda_index or 0)
    wrong = _indices_mean_others(report, by_cuda)
    order = [gpu.nvml_index or 0 for gpu in by_cuda]
    if len({gpu.name for gpu in nvidia_gpus(report)}) < 2 or (not wrong and order == sorted(order)):
        return PASS
    first = by_cuda[0]
    return (
        Problem(
            subject=first.subject,
            message=f"CUDA's first GPU is {first.label}, which nvidia-smi numbers {first.nvml_index}"
            + (f"; {VARIABLE} selects by index" if wrong else ""),
            evidence={"nvml_indices_in_cuda_order": [str(index) for index in order]},
            fix=_order_fix(report, by_cuda, wrong=wrong),
            severity=Severity.WARNING if wrong else None,
        ),
    )


def _order_fix(report: Report, by_cuda: list[Gpu], *, wrong: bool) -> tuple[str, ...]:
    """By UUID the same GPUs stay; the other order gives those that nvidia-smi numbers so, which may be others."""
    by_uuid = f"export {VARIABLE}={visible_devices_value(by_cuda)}"
    if not wrong:
        return ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", f"or by UUID: {by_uuid}")
    by_index = {gpu.nvml_index: gpu.label for gpu in report.devices}
    others = ", ".join(by_index.get(index, f"index {index}") for index in _indices(report))
    return (
        f"{by_uuid}   # the same as now: {', '.join(gpu.label for gpu in by_cuda)}",
        f"or export CUDA_DEVICE_ORDER=PCI_BUS_ID   # the same indices then give {others}",
    )


def _indices_mean_others(report: Report, by_cuda: list[Gpu]) -> bool:
    return any(index != gpu.nvml_index for index, gpu in zip(_indices(report), by_cuda, strict=False))


def _indices(report: Report) -> list[int]:
    value = report.host.environment.get(VARIABLE)
    entries = read_entries(value, nvidia_gpus(report)) if value is not None else ()
    return [int(entry.text) for entry in entries if entry.problem is None and entry.kind == "index"]


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(HIDDEN_BY_ENVIRONMENT, environment_hides_no_gpu),
    RuleCheck(ENTRY_NOT_UNDERSTOOD, every_entry_names_a_gpu),
    RuleCheck(ORDER_DIFFERS, orders_agree),
)
