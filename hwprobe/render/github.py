"""A check as GitHub annotations: at most ten, since GitHub drops more without a word."""

from __future__ import annotations

from hwprobe.findings import Finding, worst_first
from hwprobe.preflight import Check
from hwprobe.render.headline import headline
from hwprobe.render.printable import printable

LIMIT = 10
_KIND = {"error": "error", "warning": "warning", "info": "notice"}


def write_github(check: Check) -> str:
    """Write a check as workflow commands.

    Args:
        check: The check.
    """
    lines = [f"hwprobe: {headline(check)}"]
    if check.error is not None:
        lines.append(f"::error title=hwprobe::{_data(check.error)}")
    ordered = worst_first(check.findings)
    shown = ordered if len(ordered) <= LIMIT else ordered[: LIMIT - 1]
    lines += [_annotation(finding) for finding in shown]
    if len(shown) < len(ordered):
        lines.append(f"::notice title=hwprobe::{len(ordered) - len(shown)} more findings: run hwprobe check")
    return "\n".join(lines) + "\n"


def _annotation(finding: Finding) -> str:
    text = "\n".join((finding.message, *finding.fix))
    title = _property(f"{finding.id} {finding.title}")
    return f"::{_KIND[finding.severity.value]} title={title}::{_data(text)}"


def _data(text: str) -> str:
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
    return "%0A".join(printable(line).replace("%", "%25") for line in text.split("\n"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
