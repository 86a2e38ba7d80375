"""HWP123 to HWP128: the condition of each GPU: compute mode, memory errors, fabric, virtualisation.

What is wrong with a GPU that was not given to this process is information: it is for whoever has it.
"""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.gpu import Gpu
from hwprobe.report import Report
from hwprobe.rules.verdict import Case, NotApplicable, Problem, RuleCheck, Verdict
from hwprobe.rules.visible_devices import VARIABLE
from hwprobe.source import SourceStatus

COMPUTE_MODE = Rule(
    id="HWP123",
    name="compute-mode",
    title="The GPU's compute mode restricts who may use it",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    hides_gpus=True,
    explanation=Explanation(
        checks="The compute mode that an operator set on each GPU.",
        matters="In mode `prohibited` no process can compute on it. In `exclusive_process` the first one keeps all "
        'others out: they see "all CUDA-capable devices are busy or unavailable" with no memory in use.',
        fix="`sudo nvidia-smi -i INDEX -c DEFAULT`, or end the process that holds the GPU. Inside a job of a "
        "scheduler the exclusive mode is information: there it is meant so.",
        reference="tensorflow/tensorflow#45450, #48558, #62351",
    ),
)


def compute_mode_lets_us_in(case: Case) -> Verdict:
    """HWP123."""
    report = case.report
    gpus = [gpu for gpu in report.devices if gpu.compute_mode is not None]
    if not gpus:
        return NotApplicable(reason="no GPU whose compute mode can be read")
    restricted = [gpu for gpu in gpus if gpu.compute_mode in ("prohibited", "exclusive_process")]
    free = [gpu for gpu in report.visible_devices if gpu.compute_mode != "prohibited"]
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{_named(gpu)} is in compute mode {gpu.compute_mode}: "
            + ("no process" if gpu.compute_mode == "prohibited" else "one process at a time")
            + " may compute on it",
            evidence={"compute_mode": gpu.compute_mode, "nvml_index": gpu.nvml_index},
            fix=(f"sudo nvidia-smi -i {_index(gpu)} -c DEFAULT",),
            severity=_compute_mode_severity(gpu, report, bool(free)),
        )
        for gpu in restricted
    )


def _compute_mode_severity(gpu: Gpu, report: Report, others: bool) -> Severity | None:
    if gpu.compute_mode == "exclusive_process":
        return Severity.INFO if report.host.scheduler is not None or _is_hidden(gpu, report) else Severity.WARNING
    # Operators prohibit the card that drives a display, beside others that compute.
    return Severity.INFO if others or _is_hidden(gpu, report) else None


ECC_UNCORRECTED = Rule(
    id="HWP124",
    name="ecc-uncorrected",
    title="A GPU had uncorrected memory errors",
    severity=Severity.ERROR,
    action=Action.DRAIN,
    explanation=Explanation(
        checks="NVML's count of uncorrected ECC errors since the driver was loaded.",
        matters="An uncorrected error ends the process that met it, and the numbers in that memory were wrong.",
        fix="Drain the node, reset or restart the GPU, and look at `nvidia-smi -q -d ECC,PAGE_RETIREMENT,"
        "ROW_REMAPPER`; replace the board if it comes back.",
        reference="NVIDIA GPU Debug Guidelines",
    ),
)


def no_memory_error_was_left(case: Case) -> Verdict:
    """HWP124."""
    gpus = [gpu for gpu in case.report.devices if gpu.health.ecc_uncorrected_volatile is not None]
    if not gpus:
        return NotApplicable(reason="no GPU that counts ECC errors")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{_named(gpu)} had {gpu.health.ecc_uncorrected_volatile} uncorrected memory "
            f"error{'' if gpu.health.ecc_uncorrected_volatile == 1 else 's'} since the driver was loaded",
            evidence={"ecc_uncorrected_volatile": gpu.health.ecc_uncorrected_volatile},
            fix=(f"nvidia-smi -i {_index(gpu)} -q -d ECC,ROW_REMAPPER", "drain the node and reset the GPU"),
            severity=Severity.INFO if _is_hidden(gpu, case.report) else None,
        )
        for gpu in gpus
        if gpu.health.ecc_uncorrected_volatile
    )


REPAIR_PENDING = Rule(
    id="HWP125",
    name="repair-pending",
    title="A memory repair waits for a reset",
    severity=Severity.WARNING,
    action=Action.ADMIN,
    explanation=Explanation(
        checks="Whether pages wait to be retired (to Turing) or rows to be remapped (from Ampere).",
        matters="The driver has found bad memory and goes on using it until the GPU is reset.",
        fix="Reset the GPU or restart the node when its jobs are done.",
        reference="NVIDIA Dynamic Page Retirement; NVIDIA GPU Memory Error Management",
    ),
)


def no_repair_is_pending(case: Case) -> Verdict:
    """HWP125."""
    gpus = [gpu for gpu in case.report.devices if _repairs(gpu) is not None]
    if not gpus:
        return NotApplicable(reason="no GPU that reports memory repairs")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"on {_named(gpu)} {_repairs(gpu)} for a reset",
            evidence={
                "retired_pages_pending": gpu.health.retired_pages_pending,
                "remapped_rows_pending": gpu.health.remapped_rows_pending,
            },
            fix=(f"sudo nvidia-smi -i {_index(gpu)} --gpu-reset   # when nothing uses it", "or restart the node"),
            severity=Severity.INFO if _is_hidden(gpu, case.report) else None,
        )
        for gpu in gpus
        if _repairs(gpu)
    )


def _repairs(gpu: Gpu) -> str | None:
    """What waits, as words; empty if nothing does; None if the GPU tells neither."""
    pages, rows = gpu.health.retired_pages_pending, gpu.health.remapped_rows_pending
    if pages is None and rows is None:
        return None
    return " and ".join(
        words for waits, words in ((pages, "page retirements wait"), (rows, "row remappings wait")) if waits
    )


REMAP_FAILED = Rule(
    id="HWP126",
    name="row-remap-failed",
    title="A GPU has bad memory that could not be remapped",
    severity=Severity.ERROR,
    action=Action.DRAIN,
    explanation=Explanation(
        checks="NVML's flag for a row of memory that could not be remapped.",
        matters="The spare rows are used up: the board is due for replacement.",
        fix="Drain the node and replace the board.",
        reference="NVIDIA GPU Memory Error Management",
    ),
)


def every_bad_row_was_remapped(case: Case) -> Verdict:
    """HWP126."""
    gpus = [gpu for gpu in case.report.devices if gpu.health.remapped_rows_failed is not None]
    if not gpus:
        return NotApplicable(reason="no GPU that remaps rows")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{_named(gpu)} has memory that could not be remapped",
            evidence={"remapped_rows_failed": True},
            fix=(f"nvidia-smi -i {_index(gpu)} -q -d ROW_REMAPPER", "drain the node and replace the board"),
            severity=Severity.INFO if _is_hidden(gpu, case.report) else None,
        )
        for gpu in gpus
        if gpu.health.remapped_rows_failed
    )


FABRIC_NOT_READY = Rule(
    id="HWP127",
    name="fabric-not-ready",
    title="The NVSwitch fabric is not ready",
    severity=Severity.ERROR,
    action=Action.RETRY,
    explanation=Explanation(
        checks="On NVSwitch machines: whether each GPU has joined the fabric, and with success.",
        matters="Until then CUDA refuses to start (802), although NVML shows healthy GPUs; a single GPU of such a "
        "machine in a container is affected too. Where CUDA starts all the same it is a warning.",
        fix="Wait, then `systemctl status nvidia-fabricmanager`; its version must be exactly the driver's.",
        reference="jax-ml/jax#24866; NVIDIA Fabric Manager User Guide",
    ),
)


def fabric_is_complete(case: Case) -> Verdict:
    """HWP127."""
    report = case.report
    gpus = [gpu for gpu in report.devices if gpu.health.fabric_state not in (None, "not_supported")]
    if not gpus:
        return NotApplicable(reason="no GPU on an NVSwitch fabric")
    starts = report.sources.cuda.status is SourceStatus.OK
    return tuple(_fabric_problem(gpu, starts) for gpu in gpus if not _fabric_joined(gpu))


def _fabric_joined(gpu: Gpu) -> bool:
    # The status counts only when the registration is complete (header nvml.h of CUDA 13).
    return gpu.health.fabric_state == "completed" and not gpu.health.fabric_status_code


def _fabric_problem(gpu: Gpu, cuda_starts: bool) -> Problem:
    failed = gpu.health.fabric_state == "completed"
    state = (gpu.health.fabric_state or "").replace("_", " ")
    what = f"failed with status {gpu.health.fabric_status_code}" if failed else f"is {state}"
    return Problem(
        subject=gpu.subject,
        message=f"the fabric registration of {_named(gpu)} {what}",
        evidence={"fabric_state": gpu.health.fabric_state, "fabric_status_code": gpu.health.fabric_status_code},
        fix=("systemctl status nvidia-fabricmanager", "sudo systemctl restart nvidia-fabricmanager"),
        severity=Severity.WARNING if cuda_starts else None,
        action=Action.DRAIN if failed else None,
    )


VIRTUAL_GPU = Rule(
    id="HWP128",
    name="virtual-gpu",
    title="This is a virtual GPU",
    severity=Severity.INFO,
    action=Action.ADMIN,
    explanation=Explanation(
        checks="Whether a GPU is a vGPU, by NVML's virtualisation mode.",
        matters="Without a licence a vGPU is throttled or refuses CUDA; profiles ending in Q need a licence for "
        "compute. Its memory is the profile's, not the board's.",
        fix="`nvidia-smi -q | grep -i license` shows the licence.",
        reference="tensorflow/tensorflow#48558 (GRID T4-4Q); NVIDIA vGPU documentation",
    ),
)


def no_gpu_is_virtual(case: Case) -> Verdict:
    """HWP128."""
    if not any(gpu.virtualization is not None for gpu in case.report.devices):
        return NotApplicable(reason="no GPU that tells its virtualisation mode")
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"{gpu.label} is a virtual GPU ({gpu.virtualization}), which needs a licence for CUDA",
            evidence={"virtualization": gpu.virtualization},
            fix=("nvidia-smi -q | grep -i license",),
        )
        for gpu in case.report.devices
        if gpu.virtualization == "vgpu"
    )


def _named(gpu: Gpu) -> str:
    return gpu.label if gpu.nvml_index is None else f"{gpu.label}, NVML index {gpu.nvml_index},"


def _index(gpu: Gpu) -> str:
    return gpu.subject if gpu.nvml_index is None else str(gpu.nvml_index)


def _is_hidden(gpu: Gpu, report: Report) -> bool:
    """Whether a variable keeps a GPU from this process, or a scheduler gave it to another one."""
    chosen = VARIABLE in report.host.environment or report.host.scheduler is not None
    return chosen and gpu.visible is False and bool(report.visible_devices)


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(COMPUTE_MODE, compute_mode_lets_us_in),
    RuleCheck(ECC_UNCORRECTED, no_memory_error_was_left),
    RuleCheck(REPAIR_PENDING, no_repair_is_pending),
    RuleCheck(REMAP_FAILED, every_bad_row_was_remapped),
    RuleCheck(FABRIC_NOT_READY, fabric_is_complete),
    RuleCheck(VIRTUAL_GPU, no_gpu_is_virtual),
)
