"""Names of many nodes, folded for people (`v100-[07-08]`) and unfolded for comparison."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby
from math import prod
from typing import Any

from hwprobe.errors import InputError

MAX_NODES = 200_000
"""Most names that one list may unfold to; the largest clusters have a tenth of it."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12})(?:/\d{1,6})?)?")
_PATTERN = re.compile(r"(?:[^\[\],\s]|\[[^\]]*\])+")
_LAST_NUMBER = re.compile(r"(.*?)(\d+)(\D*)")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_LIST = re.compile(r"[A-Za-z0-9._,\[\]/ \t\n-]+")


def short_host_name(name: str) -> str:
    """Cut a host's domain off, so that `n1.cluster.example` and `n1` are the same node; addresses stay whole.

    Args:
        name: A host name or an IP address.
    """
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.split(".", 1)[0]
    return name


def fold(names: Iterable[str]) -> str:
    """Fold node names into one short list, as `expand` and ClusterShell read it: `n[1-4],rack[1-2]n[01-03]`.

    Args:
        names: Node names, in any order; repeats count once.
    """
    unfolded = [(name, "") for name in sorted(set(names))]
    folded = []
    while unfolded:
        alike: dict[tuple[str, str], list[str]] = {}
        for head, tail in unfolded:
            match = _LAST_NUMBER.fullmatch(head)
            if match is None:
                folded.append(head + tail)
            else:
                alike.setdefault((match[1], match[3] + tail), []).append(match[2])
        unfolded = [(head, numbers + tail) for (head, tail), digits in alike.items() for numbers in _ranges(digits)]
    return ",".join(sorted(folded))


def _ranges(digits: Sequence[str]) -> Iterator[str]:
    """Fold numbers that are written with the same width of zeros, one text for each width: `[08-10]`, `7`."""
    widths = {len(text) for text in digits if len(text) > 1 and text.startswith("0")}
    by_width: dict[int, list[int]] = {}
    for text in digits:
        by_width.setdefault(len(text) if len(text) in widths else 0, []).append(int(text))
    for width, numbers in by_width.items():
        runs = list(_runs(sorted(numbers), width))
        yield runs[0] if len(numbers) == 1 else f"[{','.join(runs)}]"


def _runs(numbers: Sequence[int], width: int) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        values = [f"{number:0{width}d}" for _, number in run]
        yield values[0] if len(values) == 1 else f"{values[0]}-{values[-1]}"


def expand(text: str) -> tuple[str, ...]:
    """Unfold a node list of Slurm or ClusterShell, two ranges in one name (`rack[1-2]n[01-03]`) included.

    Args:
        text: Names and ranges, separated by commas or blanks.

    Returns:
        Every name once, in the order of the list.

    Raises:
        InputError: The list cannot be read, unfolds to too many names, or has ranges and ClusterShell is missing.
    """
    if not text.strip() or not _LIST.fullmatch(text):
        raise InputError(
            f"node list {_shown(text)}: expected names and ranges such as n[01-04],rack[1-2]n[01-03] "
            f"(letters, digits, '.', '_', '-')"
        )
    if "[" not in text and "]" not in text:
        return tuple(dict.fromkeys(name for name in re.split(r"[,\s]+", text) if name))
    _refuse_flood(text)
    if find_spec("ClusterShell") is None:
        raise InputError(
            f"node list {_shown(text)} has ranges, which hwprobe reads with ClusterShell: "
            f'pip install "tf-hwprobe[cluster]", or give the names one by one'
        )
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(NodeSet(",".join(text.split()), resolver=_no_groups()))
    except NodeSetException as error:
        raise InputError(f"node list {_shown(text)}: {error}") from error


def is_plain_name(name: str) -> bool:
    """Whether a text can be a node's name: up to 253 letters, digits, `.`, `-` and `_`, no `.` or `-` in front."""
    return len(name) <= 253 and _PLAIN.fullmatch(name) is not None


def _no_groups() -> Any:
    # ClusterShell's own resolver reads /etc/clustershell and may run the commands that are named there.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP

    return RESOLVER_NOGROUP


def _refuse_flood(text: str) -> None:
    """Count what a list would unfold to before anything unfolds it."""
    patterns = _PATTERN.findall(text)
    if sum(prod(_width(ranges) for ranges in _BRACKETS.findall(pattern)) for pattern in patterns) > MAX_NODES:
        raise InputError(f"node list {_shown(text)} unfolds to more than {MAX_NODES:,} names")


def _width(ranges: str) -> int:
    matches = (_RANGE.fullmatch(part.strip()) for part in ranges.split(","))
    return sum(abs(int(match[2] or match[1]) - int(match[1])) + 1 for match in matches if match is not None)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
