"""A check as a file for the node exporter's textfile collector: gauges, no timestamps, one newline at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hwprobe.findings import Severity
from hwprobe.preflight import Check
from hwprobe.render.printable import printable
from hwprobe.requirements import usable_gpus

Sample = tuple[Mapping[str, str], float]


def write_prometheus(check: Check) -> str:
    """Write a check in Prometheus' text format.

    Args:
        check: The check.
    """
    parts = [
        _metric("hwprobe_info", "What was checked and decided; always 1.", [(_info(check), 1)]),
        _metric(
            "hwprobe_verdict",
            "1 for the verdict that holds.",
            [({"verdict": name}, name == check.verdict) for name in ("ready", "not_ready", "unknown")],
        ),
        _metric("hwprobe_findings", "Findings by severity.", _severities(check)),
        _metric("hwprobe_finding", "One finding; always 1.", _findings(check)),
    ]
    if check.report is not None:
        parts += [
            _metric("hwprobe_gpus", "GPUs by what this process can do with them.", _gpus(check)),
            _metric("hwprobe_gpu_memory_total_bytes", "Memory of a GPU.", _memory(check, "total_bytes")),
            _metric("hwprobe_gpu_memory_free_bytes", "Memory of a GPU that nobody uses.", _memory(check, "free_bytes")),
        ]
    return "".join(parts)


def _metric(name: str, help_: str, samples: Iterable[Sample]) -> str:
    lines = [f"{name}{_labels(labels)} {float(value):.16g}" for labels, value in samples]
    # A metric without samples would still be announced; the collector takes that for a mistake of ours.
    return "\n".join((f"# HELP {name} {help_}", f"# TYPE {name} gauge", *lines)) + "\n" if lines else ""


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')


def _info(check: Check) -> dict[str, str]:
    decision, report = check.decision, check.report
    tensorflow = report.tensorflow.version if report is not None and report.tensorflow is not None else None
    driver = report.driver.version if report is not None and report.driver is not None else None
    return {
        "version": check.hwprobe,
        "dtype_policy": decision.dtype_policy if decision is not None else "",
        "loss_scaling": decision.loss_scaling.mode if decision is not None else "",
        "tensorflow": tensorflow or "",
        "driver": driver or "",
    }


def _severities(check: Check) -> list[Sample]:
    return [
        ({"severity": severity.value}, sum(finding.severity is severity for finding in check.findings))
        for severity in Severity
    ]


def _findings(check: Check) -> list[Sample]:
    seen = {
        (finding.id, finding.severity.value, finding.action.value, str(finding.primary).lower()): finding
        for finding in check.findings
    }
    names = ("id", "severity", "action", "primary")
    return [(dict(zip(names, key, strict=True)), 1) for key in sorted(seen)]


def _gpus(check: Check) -> list[Sample]:
    assert check.report is not None
    counts = {
        "present": len(check.report.devices),
        "visible": len(check.report.visible_devices),
        "usable": len(usable_gpus(check.report)),
    }
    return [({"state": state}, count) for state, count in counts.items()]


def _memory(check: Check, fact: str) -> list[Sample]:
    assert check.report is not None
    samples: list[Sample] = []
    for gpu in check.report.devices:
        value = getattr(gpu.memory, fact)
        if value is not None:
            samples.append(({"gpu": gpu.subject, "name": gpu.name or ""}, value))
    return samples
