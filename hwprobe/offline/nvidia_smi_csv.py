"""`nvidia-smi --query-gpu=... --format=csv`, as a report."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence

from hwprobe.errors import InputError
from hwprobe.offline.nvidia_smi import ASK_CSV, FIELDS, Cells, Device, report_of_devices
from hwprobe.report import Report

MAX_ROWS = 1024
MAX_COLUMNS = 1024

_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_OTHER_NAMES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id", "kmd_version": "driver_version"}
"""Names that `nvidia-smi --help-query-gpu` gives for the same thing; R610 splits the driver's version in two."""

_IDENTITIES = ("name", "pci.device_id", "compute_cap")
"""One of these must be there: nothing else says what a GPU can compute in."""


def is_header(line: str) -> bool:
    """Whether a line is the head of nvidia-smi's csv: it names at least one of the fields that hwprobe reads.

    Args:
        line: The first line of a file.
    """
    return any(_field(cell) in FIELDS for cell in line.split(","))


def report_of_csv(text: str, *, origin: str, tensorflow: str | None = None) -> Report:
    """Make the report of a machine from nvidia-smi's csv.

    Args:
        text: The csv with its head; `nounits` or not.
        origin: The file, for messages and for the report.
        tensorflow: Version of TensorFlow to judge by; None for the newest release.

    Raises:
        InputError: It has no head, lacks what tells one GPU from another, or a line does not fit the head.
    """
    rows = _rows(text, origin)
    header = [_field(cell) for _, cells in rows[:1] for cell in cells]
    _check_header(header, origin)
    devices = [_device(header, line, cells, origin) for line, cells in rows[1:]]
    if not devices:
        raise InputError(f"{origin}: it has a head and no line of a GPU")
    _check_repeats(devices, rows[1:], origin)
    versions = (Cells(device.texts).text("driver_version") for device in devices)
    return report_of_devices(
        devices,
        what="csv",
        origin=origin,
        driver_version=next((version for version in versions if version is not None), None),
        cuda_version=None,
        attached=None,
        tensorflow=tensorflow,
    )


def _rows(text: str, origin: str) -> list[tuple[int, list[str]]]:
    rows: list[tuple[int, list[str]]] = []
    for line, cells in _lines(text, origin):
        if len(cells) > MAX_COLUMNS:
            raise InputError(f"{origin}, line {line}: more than {MAX_COLUMNS} columns: not nvidia-smi's csv")
        if any(cell.strip() for cell in cells):
            rows.append((line, cells))
        if len(rows) > MAX_ROWS + 1:
            raise InputError(f"{origin}, line {line}: more than {MAX_ROWS} lines: give one sample of one machine")
    return rows


def _lines(text: str, origin: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{origin}, line {reader.line_num}: {error}") from error


def _field(cell: str) -> str:
    name = _UNIT.sub("", cell.strip().strip("\ufeff")).lower()
    return _OTHER_NAMES.get(name, name)


def _check_header(header: Sequence[str], origin: str) -> None:
    known = [field for field in header if field in FIELDS]
    if not known:
        raise InputError(f"{origin}: the first line names no field of nvidia-smi (leave out noheader). Run:\n{ASK_CSV}")
    if not any(field in known for field in _IDENTITIES):
        raise InputError(f"{origin}: it has none of {', '.join(_IDENTITIES)}, which say what a GPU is. Run:\n{ASK_CSV}")
    for field in known:
        if known.count(field) > 1 and field != "driver_version":
            raise InputError(f"{origin}, line 1: the column {field} is there twice")


def _device(header: Sequence[str], line: int, cells: Sequence[str], origin: str) -> Device:
    if len(cells) != len(header):
        raise InputError(f"{origin}, line {line}: {len(cells)} cells under {len(header)} columns")
    return Device({field: cell for field, cell in zip(header, cells, strict=True) if field in FIELDS})


def _check_repeats(devices: Sequence[Device], rows: Sequence[tuple[int, Sequence[str]]], origin: str) -> None:
    """Refuse a log of `--loop`, in which each GPU comes again and again."""
    seen: set[str] = set()
    for device, (line, _) in zip(devices, rows, strict=True):
        place = _place(device.texts)
        if place is not None and place in seen:
            raise InputError(f"{origin}, line {line}: GPU {place} is there twice: give one sample of one machine")
        seen |= {place} if place is not None else set()


def _place(texts: Mapping[str, str]) -> str | None:
    return next((texts[field].strip() for field in ("index", "pci.bus_id") if field in texts), None)
