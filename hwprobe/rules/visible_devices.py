"""What CUDA_VISIBLE_DEVICES says, by the driver's own rules. Only for explaining: CUDA's own list is the truth.

Rules from the CUDA Programming Guide ("Environment Variables") and from PyTorch's tests against the driver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from hwprobe.gpu import Gpu
from hwprobe.source import Fact

VARIABLE = "CUDA_VISIBLE_DEVICES"
HIDE_ALL = ("", "-1")
"""Values with which people hide every GPU on purpose."""
NO_DEV_FILES = "NoDevFiles"
"""What Slurm writes into the variable of a job without GPUs."""

_NUMBER = re.compile(r"\s*([+-]?\d+)")
_DUPLICATE = "the same device twice, which empties the whole list"


class Entry(Fact, frozen=True, kw_only=True):
    """One entry of the list.

    Attributes:
        text: As it was written.
        kind: `index`, `gpu` (a UUID or its beginning), `mig`, or `nothing` for what the driver does not understand.
        subject: UUID of the device it names, where that is known; None for an index, whose order is CUDA's own.
        problem: Why it ends or empties the list; None for an entry that counts.
    """

    text: str
    kind: Literal["index", "gpu", "mig", "nothing"]
    subject: str | None = None
    problem: str | None = None


def read_entries(value: str, gpus: Sequence[Gpu]) -> tuple[Entry, ...]:
    """Read the list up to and including the first entry that ends it.

    Args:
        value: The variable, which is set.
        gpus: The physical GPUs of the machine.

    Returns:
        The entries; the last one holds the problem where there is one. Empty where the variable is empty.
    """
    entries: list[Entry] = []
    for text in value.split(",") if value.strip() else ():
        entry = _read(text, gpus, entries)
        entries.append(entry)
        if entry.problem is not None:
            break
    return tuple(entries)


def _read(text: str, gpus: Sequence[Gpu], before: Sequence[Entry]) -> Entry:
    stripped = text.strip()
    if stripped.upper().startswith("MIG-"):
        entry = _mig(stripped, gpus)
    elif stripped.upper().startswith("GPU-"):
        entry = _uuid(stripped, gpus)
    else:
        entry = _index(text, len(gpus))
    if entry.problem is not None or not before:
        return entry
    return _beside(entry, before)


def _beside(entry: Entry, before: Sequence[Entry]) -> Entry:
    if (entry.kind == "index") != (before[0].kind == "index"):
        kinds = "a number after a UUID" if entry.kind == "index" else "a UUID after a number"
        return _with_problem(entry, f"{kinds}: the first entry fixes the kind")
    same = entry.subject if entry.subject is not None else entry.text.strip().lstrip("+")
    if any(same == (one.subject if one.subject is not None else one.text.strip().lstrip("+")) for one in before):
        return _with_problem(entry, _DUPLICATE)
    return entry


def _with_problem(entry: Entry, problem: str) -> Entry:
    return Entry(text=entry.text, kind=entry.kind, subject=entry.subject, problem=problem)


def _index(text: str, count: int) -> Entry:
    match = _NUMBER.match(text)
    if match is None:
        if text.strip() == NO_DEV_FILES:
            return Entry(text=text, kind="nothing", problem="Slurm's word for a job without GPUs")
        return Entry(text=text, kind="nothing", problem="neither a number nor a UUID")
    index = int(match[1])
    if index < 0:
        return Entry(text=text, kind="index", problem="a negative number ends the list")
    if index >= count:
        counted = "is 1 GPU" if count == 1 else f"are {count} GPUs"
        return Entry(text=text, kind="index", problem=f"there {counted}, numbered from 0")
    return Entry(text=match[1], kind="index")


def _uuid(text: str, gpus: Sequence[Gpu]) -> Entry:
    found = [gpu.uuid for gpu in gpus if gpu.uuid is not None and gpu.uuid.lower().startswith(text.lower())]
    return _found(text, "gpu", found, "GPU")


def _mig(text: str, gpus: Sequence[Gpu]) -> Entry:
    instances = [instance for gpu in gpus if gpu.mig is not None for instance in gpu.mig.instances]
    if text.upper().startswith("MIG-GPU-"):
        # The form before R470: MIG-GPU-<uuid of the GPU>/<GPU instance>/<compute instance>.
        parent, _, rest = text[4:].partition("/")
        found = [
            instance.uuid
            for gpu in gpus
            if gpu.mig is not None and gpu.uuid is not None and gpu.uuid.lower() == parent.lower()
            for instance in gpu.mig.instances
            if f"{instance.gpu_instance_id}/{instance.compute_instance_id}" == rest
        ]
    else:
        found = [one.uuid for one in instances if one.uuid is not None and one.uuid.lower().startswith(text.lower())]
    return _found(text, "mig", found, "MIG device")


def _found(text: str, kind: Literal["gpu", "mig"], found: Sequence[str | None], noun: str) -> Entry:
    if not found:
        return Entry(text=text, kind=kind, problem=f"no {noun} has a UUID that begins so")
    if len(found) > 1:
        return Entry(text=text, kind=kind, problem=f"{len(found)} of them begin so")
    return Entry(text=text, kind=kind, subject=found[0])
