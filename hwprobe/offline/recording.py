"""A machine's report as one file (`hwprobe capture`), and such files read back, of this version and of older ones."""

from __future__ import annotations

import datetime
import re
from typing import Literal

from msgspec.structs import replace

from hwprobe.errors import InputError
from hwprobe.offline.redaction import Identity, redact
from hwprobe.report import Report
from hwprobe.serialize import from_json
from hwprobe.source import Fact

SCHEMA: Literal["hwprobe.capture/1"] = "hwprobe.capture/1"
NEWEST = {"capture": 1, "check": 1}
"""Kinds of file that hold a report, and the newest version of each that this hwprobe reads. It reads all older ones."""

MAX_GPUS = 1024
MAX_NAME = 256
"""NVML gives at most 96 characters; CUDA and TensorFlow have longer descriptions."""

_SCHEMA = re.compile(r"hwprobe\.(?P<kind>[\w-]{1,32})/(?P<version>\d{1,6})")


class Capture(Fact, frozen=True, kw_only=True):
    """A report to keep or to send.

    Attributes:
        schema: Version of this form.
        hwprobe: Version of hwprobe that read the machine.
        recorded: The day, in ISO form.
        identifiers: Whether names of persons and machines and whole UUIDs were `removed` or `included`.
        report: The facts.
    """

    schema: Literal["hwprobe.capture/1"] = SCHEMA
    hwprobe: str
    recorded: str
    identifiers: Literal["removed", "included"]
    report: Report


class _Head(Fact, frozen=True, kw_only=True):
    schema: str | None = None


class _Checked(Fact, frozen=True, kw_only=True):
    """What `hwprobe check --format json` writes, as far as it is looked at here."""

    report: Report | None
    error: str | None = None


def record(report: Report, identity: Identity, *, include_identifiers: bool = False) -> Capture:
    """Make a capture of a report.

    Args:
        report: What was read.
        identity: Who read it, and where.
        include_identifiers: Whether to keep what names a person or a machine; the host's name is then added.
    """
    from hwprobe.version import VERSION

    if include_identifiers:
        host = replace(report.host, name=next(iter(identity.hosts), None))
        kept = replace(report, host=host)
    else:
        kept = redact(report, identity)
    return Capture(
        hwprobe=VERSION,
        recorded=datetime.date.today().isoformat(),
        identifiers="included" if include_identifiers else "removed",
        report=kept,
    )


def report_of_recording(text: str, *, origin: str) -> Report:
    """Read the report out of a capture, or out of what `hwprobe check --format json` wrote.

    Args:
        text: The JSON.
        origin: The file, for messages and for the report.

    Raises:
        InputError: It is another kind of file, was written by a newer hwprobe, or does not have the form that it names.
    """
    schema = from_json(text, _Head, where=origin).schema
    match = _SCHEMA.fullmatch(schema or "")
    kind = match["kind"] if match is not None else None
    if match is None or kind not in NEWEST:
        raise InputError(f"{origin}: {_other_kind(schema, text)}")
    if int(match["version"]) > NEWEST[kind]:
        raise InputError(
            f"{origin}: {schema} was written by a newer hwprobe; this one reads up to hwprobe.{kind}/{NEWEST[kind]}. "
            "Run: pip install --upgrade tf-hwprobe"
        )
    if kind == "capture":
        report = from_json(text, Capture, where=origin).report
    else:
        checked = from_json(text, _Checked, where=origin)
        if checked.report is None:
            raise InputError(f"{origin}: this check has no report in it; it says: {checked.error}")
        report = checked.report
    _check_size(report, origin)
    return replace(report, origin=origin)


def _check_size(report: Report, origin: str) -> None:
    """Refuse what no machine has: rules compare devices with each other, and names with every known board."""
    if len(report.devices) > MAX_GPUS:
        raise InputError(f"{origin}: `$.report.devices` has {len(report.devices)} entries: not one machine")
    for number, gpu in enumerate(report.devices):
        if len(gpu.name or "") > MAX_NAME:
            raise InputError(f"{origin}: `$.report.devices[{number}].name` is longer than {MAX_NAME} characters")


def _other_kind(schema: str | None, text: str) -> str:
    if schema is not None:
        return f"its schema is {schema[:60]!r}; expected hwprobe.capture or hwprobe.check (key `schema`)"
    if '"nvidia.com/' in text:
        return "these look like the labels of a Kubernetes node: give them with --target"
    return "it has no key `schema`; expected a file of `hwprobe capture` or `hwprobe check --format json`"
