"""A check for a terminal: the answer, the GPUs, the versions that matter, the findings."""

from __future__ import annotations

from typing import TextIO

from hwprobe.findings import Finding, worst_first
from hwprobe.gpu import Gpu, GpuMemory
from hwprobe.preflight import Check
from hwprobe.render.headline import decision_line, headline
from hwprobe.render.printable import printable
from hwprobe.render.terminal import Page
from hwprobe.report import Report
from hwprobe.source import SourceStatus

_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_TITLES = ("NVML", "CUDA", "TensorFlow", "GPU", "capability", "Tensor Cores", "free memory", "state")
_NUMBERS = 3
"""How many of the columns hold indices."""


def write_text(check: Check, stream: TextIO, *, color: bool | None = None) -> None:
    """Write a check as text.

    Args:
        check: The check.
        stream: Where to.
        color: Whether to colour; None colours on a terminal only.
    """
    page = Page(stream, color)
    page.say(headline(check), "bold" if check.verdict == "ready" else "bold red")
    report, decision = check.report, check.decision
    if report is None or decision is None:
        return
    if report.origin != "machine":
        page.say(f"not this machine: {printable(report.origin)}")
    if check.verdict != "ready":
        page.say(f"decision: {decision_line(decision)}")
    if report.devices:
        page.say()
        page.table(_TITLES, [[printable(cell) for cell in _row(gpu, report)] for gpu in report.devices], right=_NUMBERS)
        page.say()
    page.say(versions_line(report) + f"; policy {printable(decision.policy)}")
    for assumption in report.assumptions:
        page.say(f"assumed: {printable(assumption)}")
    for name, reason in _unread(report):
        page.say(f"{name}: {reason}", "yellow")
    for finding in worst_first(check.findings):
        _finding(page, finding)


def _finding(page: Page, finding: Finding) -> None:
    primary = " (first cause)" if finding.primary else ""
    who = f"; for: {finding.action.value}" if finding.action.value != "none" else ""
    page.say()
    head = f"{finding.severity.value} {finding.id} {printable(finding.title)}{primary}{who}"
    page.say(head, _STYLE[finding.severity.value])
    page.say(f"  {printable(finding.message)}")
    for step in finding.fix:
        page.say(f"    {printable(step)}")


def _row(gpu: Gpu, report: Report) -> tuple[str, ...]:
    return (
        _index(gpu.nvml_index),
        _index(gpu.cuda_index),
        gpu.tensorflow_name or "-",
        gpu.name or gpu.subject,
        str(gpu.compute_capability) if gpu.compute_capability is not None else "unknown",
        _tensor_cores(gpu),
        memory_text(gpu, report),
        state_text(gpu),
    )


def _index(value: int | None) -> str:
    return "-" if value is None else str(value)


def _tensor_cores(gpu: Gpu) -> str:
    if gpu.tensor_cores is None:
        return "unknown"
    return ", ".join(gpu.tensor_cores) or "none"


def memory_text(gpu: Gpu, report: Report) -> str:
    """Free of total memory in GiB, of a GPU or of its visible instances; in words where there are no numbers."""
    visible = [one.memory for one in gpu.mig.instances if one.visible] if gpu.mig is not None else []
    if visible:
        return ", ".join(_free_of_total(memory) for memory in visible)
    memory = gpu.memory
    if memory.total_bytes is None:
        if memory.kind == "unified" and report.host.memory_total_bytes is not None:
            return f"unified, {report.host.memory_total_bytes / 2**30:.0f} GiB with the host"
        return "unified" if memory.kind == "unified" else "unknown"
    return _free_of_total(memory)


def _free_of_total(memory: GpuMemory) -> str:
    free, total = (
        "unknown" if size is None else f"{size / 2**30:.1f}" for size in (memory.free_bytes, memory.total_bytes)
    )
    return f"{free} of {total} GiB"


def state_text(gpu: Gpu) -> str:
    """Whether this process may use a GPU, in a few words."""
    if gpu.error is not None:
        return gpu.error
    mig = ""
    if gpu.mig is not None and gpu.mig.enabled:
        seen = sum(instance.visible is True for instance in gpu.mig.instances)
        mig = f"MIG, {seen} of {len(gpu.mig.instances)} instances "
    if gpu.visible is None:
        return f"{mig}unknown"
    return f"{mig}visible" if gpu.visible else f"{mig}not visible"


def versions_line(report: Report) -> str:
    """The versions that a bug report would need, in one line."""
    parts = [_tensorflow_version(report), _keras_version(report)]
    driver = report.driver
    if driver is not None and driver.version is not None:
        ceiling = f" (CUDA up to {driver.cuda_version})" if driver.cuda_version else ""
        parts.append(f"driver {driver.version}{ceiling}")
    if report.host.python is not None:
        parts.append(f"Python {report.host.python}")
    return printable(", ".join(part for part in parts if part))


def _tensorflow_version(report: Report) -> str:
    tensorflow = report.tensorflow
    if tensorflow is None:
        return "no TensorFlow"
    version = f"TensorFlow {tensorflow.version or 'of unknown version'}"
    if tensorflow.is_rocm_build:
        return f"{version} (ROCm)"
    if tensorflow.is_cuda_build is False:
        return f"{version} (no CUDA in it)"
    if tensorflow.cuda_version is None:
        return version
    cudnn = f", cuDNN {tensorflow.cudnn_version}" if tensorflow.cudnn_version else ""
    return f"{version} (CUDA {tensorflow.cuda_version}{cudnn})"


def _keras_version(report: Report) -> str:
    keras = report.keras
    if keras is None:
        described = report.sources.tensorflow_build.status is SourceStatus.SKIPPED
        return "" if described else "no Keras"
    if keras.legacy and keras.tf_keras_version:
        return f"tf_keras {keras.tf_keras_version} as tf.keras (TF_USE_LEGACY_KERAS)"
    version = f"Keras {keras.version}" if keras.version else f"tf_keras {keras.tf_keras_version}"
    return f"{version} on {keras.backend}" if keras.backend not in (None, "tensorflow") else version


def _unread(report: Report) -> list[tuple[str, str]]:
    sources = report.sources
    named = {
        "NVML": sources.nvml,
        "CUDA": sources.cuda,
        "TensorFlow build": sources.tensorflow_build,
        "TensorFlow runtime": sources.tensorflow_runtime,
        "host": sources.host,
    }
    bad = (SourceStatus.FAILED, SourceStatus.TIMEOUT)
    return [
        (name, printable(f"{source.status.value}: {source.reason or 'no reason given'}"))
        for name, source in named.items()
        if source.status in bad
    ]
