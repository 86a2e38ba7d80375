"""Boards of the catalogue with what is foreseen for them: as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Literal, TextIO

from hwprobe.capability import ComputeCapability
from hwprobe.configuration import DtypePolicy
from hwprobe.knowledge.gpus import Board, source_text
from hwprobe.outlook import Outlook
from hwprobe.render.printable import printable
from hwprobe.render.terminal import console_on
from hwprobe.serialize import to_builtins, to_json
from hwprobe.source import Fact

SCHEMA: Literal["hwprobe.gpus/1"] = "hwprobe.gpus/1"

_WIDE = 200
"""Columns for a file or pipe: one board stays one line, so that it can be searched."""


class BoardEntry(Fact, frozen=True, kw_only=True):
    """One board and what hwprobe would choose on it.

    Attributes:
        name: As NVML writes it.
        also: Other names.
        compute_capability, architecture: Of the board.
        tensor_cores: Dtypes that they multiply; empty without any, None where that is not established.
        memory_gib: Nominal sizes of one GPU, empty where not established.
        unified_memory: Whether it is shared with the host.
        segment: Whom the board is made for.
        chip: Name of the die, or of the dies.
        pci_device_ids: Four hexadecimal digits each.
        arm_host: Whether the board comes with an Arm CPU.
        dtype_policy: The choice with the newest TensorFlow; None where nothing is known to be usable with it.
        usable: All dtype policies that are usable with it.
        rejected: Those that are not, each with the reason.
        tensorflow_since: Release from which on the choice holds.
        tensorflow_native_since: Release from which on there is machine code for the board.
        tensorflow_last: Where there is no choice, the newest release that had one.
        note: What else there is to know.
        source: Where name and ids can be read.
    """

    name: str
    also: tuple[str, ...]
    compute_capability: ComputeCapability
    architecture: str
    tensor_cores: tuple[str, ...] | None
    memory_gib: tuple[float, ...]
    unified_memory: bool
    segment: str
    chip: str
    pci_device_ids: tuple[str, ...]
    arm_host: bool
    dtype_policy: DtypePolicy | None
    usable: tuple[str, ...]
    rejected: dict[str, str]
    tensorflow_since: str | None
    tensorflow_native_since: str | None
    tensorflow_last: str | None
    note: str | None
    source: str


class BoardList(Fact, frozen=True, kw_only=True):
    """The answer of `hwprobe gpus`.

    Attributes:
        schema: Version of this form.
        hwprobe: Version of hwprobe.
        tensorflow: Newest final TensorFlow release that hwprobe knows: the choices are for its Linux x86_64 wheel.
        policy: Name or path of the policy that chose.
        boards: The boards.
    """

    schema: Literal["hwprobe.gpus/1"] = SCHEMA
    hwprobe: str
    tensorflow: str
    policy: str
    boards: tuple[BoardEntry, ...]


def entry_of(board: Board, outlook: Outlook) -> BoardEntry:
    """Put a board and its outlook into one record.

    Args:
        board: Of the catalogue.
        outlook: What is foreseen for it.
    """
    return BoardEntry(
        name=board.name,
        also=board.also,
        compute_capability=board.capability,
        architecture=board.architecture.name,
        tensor_cores=board.tensor_core_dtypes,
        memory_gib=board.memory_gib,
        unified_memory=board.unified,
        segment=board.segment,
        chip=board.chip,
        pci_device_ids=board.pci,
        arm_host=board.arm_host,
        dtype_policy=outlook.dtype_policy,
        usable=outlook.usable,
        rejected=outlook.rejected,
        tensorflow_since=outlook.since,
        tensorflow_native_since=outlook.native_since,
        tensorflow_last=outlook.last,
        note=board.note,
        source=source_text(board),
    )


def as_json(listed: BoardList) -> str:
    """Write boards as one JSON object."""
    return to_json(listed, indent=2) + "\n"


def as_csv(listed: BoardList) -> str:
    """Write boards as comma-separated values with a header; several values in one cell stand side by side."""
    stream = io.StringIO()
    columns = [name for name in BoardEntry.__struct_fields__ if name != "rejected"]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for board in listed.boards:
        record = to_builtins(board)
        writer.writerow([_cell(record[column]) for column in columns])
    return stream.getvalue()


def _cell(value: str | bool | list[str | float] | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    separator = "; " if any(" " in str(part) for part in value) else " "
    return separator.join(part if isinstance(part, str) else f"{part:g}" for part in value)


def write_text(listed: BoardList, stream: TextIO) -> None:
    """Write boards as a table with what has to be known to read it.

    Args:
        listed: The boards.
        stream: Where to.
    """
    from rich import box
    from rich.table import Table

    console = console_on(stream, width=_WIDE)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("GPU", "capability", "Tensor Cores", "memory GiB", "dtype policy", "TensorFlow"):
        table.add_column(title, overflow="fold")
    for board in listed.boards:
        table.add_row(*_row(board))
    console.print(table)
    for line in _footer(listed):
        console.print(line, soft_wrap=True)


def _row(board: BoardEntry) -> tuple[str, ...]:
    cores = "unknown" if board.tensor_cores is None else ", ".join(board.tensor_cores) or "none"
    memory = " or ".join(f"{size:g}" for size in board.memory_gib) or "unknown"
    return (
        board.name,
        f"{board.compute_capability} {board.architecture}",
        cores,
        f"{memory} unified" if board.unified_memory else memory,
        (board.dtype_policy or "no code") + ("*" if board.arm_host else ""),
        releases_text(board),
    )


def releases_text(board: BoardEntry) -> str:
    """Say with which TensorFlow releases the choice holds, in a few words."""
    if board.dtype_policy is None:
        return f"up to {board.tensorflow_last}" if board.tensorflow_last else "none so far"
    since = board.tensorflow_since or ""
    native = board.tensorflow_native_since
    return f"{since} on" if native is None or _numbers(native) <= _numbers(since) else f"{since} on, native {native} on"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _footer(listed: BoardList) -> Sequence[str]:
    count = len(listed.boards)
    boards = "1 board" if count == 1 else f"{count} boards"
    wheel = f"TensorFlow {listed.tensorflow} (Linux x86_64 wheel)"
    lines = [f"{boards}; dtype policy with {wheel} and policy {printable(listed.policy)}"]
    if any(board.dtype_policy is None for board in listed.boards):
        lines.append("no code: nothing in this wheel runs on that GPU, even where TensorFlow lists it")
    if any("native" in releases_text(board) for board in listed.boards):
        lines.append("native: before that release the driver compiles the kernels at the first start, for many minutes")
    if any(board.arm_host for board in listed.boards):
        lines.append(
            "*: comes with an Arm CPU, for which the package index has no wheel with CUDA; "
            "a build of NVIDIA's or your own is judged by its own list of architectures"
        )
    return lines
