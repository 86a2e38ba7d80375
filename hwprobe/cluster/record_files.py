"""Node records on disk: one file a node, written whole; folders, files and NDJSON read back as a stream."""

from __future__ import annotations

import errno
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from hwprobe.cluster.record import SCHEMA, NodeRecord
from hwprobe.errors import InputError
from hwprobe.files import open_without_waiting, write_aside
from hwprobe.serialize import from_json, to_json
from hwprobe.source import Fact

MAX_RECORD_BYTES = 64 * 2**10
MAX_BROKEN_LINES = 100
"""Of one file: one that has as many is something else, and each of them would be kept for the plan."""

SPREAD_ABOVE = 1000
"""From this number of nodes on, records go to 64 sub-folders: thousands of creates in one folder are the weak point of
a parallel file system's metadata server."""

FOLDERS = 64
MAX_DEPTH = 3
"""The folder given, the job step's folder in it, and the 64 in that."""

ATTEMPTS = 3
RETRY_SECONDS = 0.2
_PASSES_BY_ITSELF = (errno.ESTALE, errno.ENOENT)
"""What an NFS client may answer for a moment after another one renamed or made something (nfs(5), "Data and metadata
coherence"), or when the server had done what a repeated request asks for."""


class UnreadableRecord(Fact, frozen=True, kw_only=True):
    """A file, or a line of one, that should hold a record and does not.

    Attributes:
        where: Path, with the line's number where the file has several.
        reason: What is wrong with it.
    """

    where: str
    reason: str


class _Head(Fact, frozen=True, kw_only=True):
    schema: str


def record_path(directory: Path, record: NodeRecord, *, nodes: int | None = None) -> Path:
    """Where a record belongs: keyed by job, step, restart, node and task, so that no run ever reads another's file.

    Args:
        directory: Folder that all nodes share.
        record: The record.
        nodes: Nodes of the job, where known.
    """
    folder = directory if record.job.folder is None else directory / record.job.folder
    name = record.host if record.task is None else f"{record.host}.{record.task}"
    if nodes is not None and nodes > SPREAD_ABOVE:
        folder = folder / f"{zlib.crc32(record.host.encode()) % FOLDERS:02x}"
    return folder / f"{name}.json"


def write_record(directory: Path, record: NodeRecord, *, nodes: int | None = None) -> Path:
    """Write this node's record: aside, flushed to disk, renamed into place; again where a network file system asks.

    Args:
        directory: Folder that all nodes share; it is made where it is missing.
        record: The record.
        nodes: Nodes of the job, where known (`SLURM_NNODES`): large jobs are spread over 64 sub-folders.

    Returns:
        The file.

    Raises:
        InputError: It cannot be written there.
    """
    path = record_path(directory, record, nodes=nodes)
    text = to_json(record) + "\n"
    if len(text.encode()) > MAX_RECORD_BYTES:
        raise InputError(f"the record of {record.name} is larger than {MAX_RECORD_BYTES // 1024} KiB")
    for attempt in range(1, ATTEMPTS + 1):
        failure = _try_to_write(path, text)
        if failure is None:
            break
        if attempt == ATTEMPTS or getattr(failure.__cause__, "errno", None) not in _PASSES_BY_ITSELF:
            raise failure
        time.sleep(RETRY_SECONDS * attempt)
    return path


def _try_to_write(path: Path, text: str) -> InputError | None:
    try:
        _make_folder(path.parent)
        write_aside(path, text)
    except InputError as error:
        # A server may have done what a repeated request, or a lost answer, reports as failed.
        return None if _holds(path, text) else error
    return None


def read_records(paths: Iterable[str | Path]) -> Iterator[NodeRecord | UnreadableRecord]:
    """Read records one by one, whatever holds them. Nothing is kept.

    A folder is searched three levels deep for files that end in `.json`, `.ndjson` or `.jsonl`; plans in it are passed
    over. A file holds one record, or one on each line. `-` is standard input.

    Args:
        paths: Folders and files.

    Yields:
        Every record, and one entry for each that cannot be read or is not there.
    """
    for path in paths:
        if str(path) == "-":
            yield from _read_lines(_lines(sys.stdin.buffer), "standard input")
        elif _is_folder(Path(path)):
            yield from _read_folder(Path(path))
        else:
            yield from _read_file(Path(path), named=True)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        # A folder above it may not be entered, say: opening it as a file gives the reason.
        return False


def _read_folder(folder: Path) -> Iterator[NodeRecord | UnreadableRecord]:
    for path in _record_files(folder, MAX_DEPTH):
        if isinstance(path, UnreadableRecord):
            yield path
        else:
            yield from _read_file(path, named=False)


def _record_files(folder: Path, depth: int) -> Iterator[Path | UnreadableRecord]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield UnreadableRecord(where=str(folder), reason=error.strerror or str(error))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth > 1:
                yield from _record_files(Path(entry.path), depth - 1)
        elif entry.name.endswith((".json", ".ndjson", ".jsonl")) and _is_to_be_opened(entry):
            yield Path(entry.path)


def _is_to_be_opened(entry: os.DirEntry[str]) -> bool:
    """Whether a file is to be opened: pipes and links to nowhere are not, links that cannot be followed are."""
    try:
        return entry.is_file()
    except OSError:
        return True


def _read_file(path: Path, *, named: bool) -> Iterator[NodeRecord | UnreadableRecord]:
    try:
        with open_without_waiting(path) as stream:
            start = stream.read(MAX_RECORD_BYTES + 1)
            if _is_many_lines(start):
                yield from _read_lines(_lines(stream, start), str(path))
                return
        record = _record(start, str(path))
        if named or isinstance(record, NodeRecord) or not _is_plan(start):
            yield record
    except OSError as error:
        yield UnreadableRecord(where=str(path), reason=error.strerror or str(error))


def _is_many_lines(start: bytes) -> bool:
    first, newline, rest = start.partition(b"\n")
    return len(start) > MAX_RECORD_BYTES or (bool(newline and rest.strip()) and first.rstrip().endswith(b"}"))


def _lines(stream: BinaryIO, start: bytes = b"") -> Iterator[bytes]:
    """Give the lines of a stream of which the start was read already; a line without end is cut above the limit."""
    *whole, last = start.split(b"\n")
    yield from whole
    yield last + stream.readline(MAX_RECORD_BYTES + 1)
    while line := stream.readline(MAX_RECORD_BYTES + 1):
        yield line


def _read_lines(lines: Iterable[bytes], where: str) -> Iterator[NodeRecord | UnreadableRecord]:
    empty = True
    broken = 0
    for number, line in enumerate(lines, start=1):
        place = f"{where}, line {number}"
        if broken == MAX_BROKEN_LINES:
            yield UnreadableRecord(where=place, reason=f"{broken} lines before it are no records: the rest is not read")
            return
        if len(line) > MAX_RECORD_BYTES:
            yield UnreadableRecord(where=place, reason=f"longer than {MAX_RECORD_BYTES // 1024} KiB: not a node record")
            return
        if line.strip():
            empty = False
            record = _record(line, place)
            broken += isinstance(record, UnreadableRecord)
            yield record
    if empty:
        yield UnreadableRecord(where=where, reason="it is empty")


def _record(text: bytes, where: str) -> NodeRecord | UnreadableRecord:
    if not text.strip():
        return UnreadableRecord(where=where, reason="it is empty")
    try:
        schema = from_json(text, _Head, where=where).schema
        if schema != SCHEMA:
            return UnreadableRecord(where=where, reason=f"its schema is {schema[:40]!r}, expected {SCHEMA!r}")
        return from_json(text, NodeRecord, where=where)
    except InputError as error:
        return UnreadableRecord(where=where, reason=str(error.__cause__ or error))


def _is_plan(text: bytes) -> bool:
    try:
        return from_json(text, _Head).schema.startswith("hwprobe.plan/")
    except InputError:
        return False


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror or error}") from error


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False
