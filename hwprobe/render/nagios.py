"""A check for Nagios and Icinga: one line, performance data, and their own exit codes."""

from __future__ import annotations

from hwprobe.findings import Severity
from hwprobe.preflight import Check
from hwprobe.render.headline import headline
from hwprobe.requirements import usable_gpus

_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
"""Position is the exit code, as the monitoring plug-ins' guidelines have it."""


def nagios_status(check: Check) -> int:
    """The plug-in exit code: 0 fine, 1 a warning, 2 not ready, 3 unknown or wrong usage.

    Args:
        check: The check.
    """
    if check.error is not None or check.verdict == "unknown":
        return 3
    if check.verdict == "not_ready":
        return 2
    return 1 if any(finding.severity is Severity.WARNING for finding in check.findings) else 0


def write_nagios(check: Check) -> str:
    """Write a check as the one line of a monitoring plug-in.

    Args:
        check: The check.
    """
    # The first bar separates the text from the performance data.
    text = headline(check).replace("|", "/")
    return f"HWPROBE {_WORDS[nagios_status(check)]} - {text}{_performance(check)}\n"


def _performance(check: Check) -> str:
    if check.report is None:
        return ""
    errors = sum(finding.severity is Severity.ERROR for finding in check.findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in check.findings)
    values = {
        "gpus": len(check.report.devices),
        "visible": len(check.report.visible_devices),
        "usable": len(usable_gpus(check.report)),
        "errors": errors,
        "warnings": warnings,
    }
    return " | " + " ".join(f"{name}={value};;;0" for name, value in values.items())
