"""`hwprobe gpus`: the catalogue of boards, for whoever chooses what to buy or which partition to ask for."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import click

from hwprobe.configuration import DTYPE_POLICIES
from hwprobe.errors import InputError
from hwprobe.knowledge.architectures import architectures
from hwprobe.knowledge.gpu_names import find, search
from hwprobe.knowledge.gpus import SEGMENTS, Board, boards
from hwprobe.knowledge.tensorflow import newest_release
from hwprobe.outlook import outlooks
from hwprobe.policy_reader import read_policy
from hwprobe.render.boards import BoardList, as_csv, as_json, entry_of, write_text
from hwprobe.version import VERSION

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(mib|gib|tib|mb|gb|tb|)", re.IGNORECASE)
_UNIT_GIB = {
    "": 1,
    "mib": 2**-10,
    "gib": 1,
    "tib": 2**10,
    "mb": 10**6 / 2**30,
    "gb": 10**9 / 2**30,
    "tb": 10**12 / 2**30,
}


def _size_gib(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size: expected a form such as 40GiB, 24576MiB or 40 (GiB)")
    return float(match[1]) * _UNIT_GIB[match[2].lower()]


def _architecture(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    names = list(dict.fromkeys(row.name for row in architectures()))
    wanted = value.strip().lower()
    fitting = [name for name in names if wanted and name.lower().startswith(wanted)]
    if len(fitting) != 1:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(names)}")
    return fitting[0]


@click.command()
@click.argument("pattern", nargs=-1)
@click.option("--supports", type=click.Choice(DTYPE_POLICIES), help="Only boards that can use this dtype policy.")
@click.option(
    "--min-memory", callback=_size_gib, metavar="SIZE", help="Only boards with at least this much: 40GiB or 40."
)
@click.option(
    "--architecture", callback=_architecture, metavar="NAME", help="Only boards of this one, for instance Ampere."
)
@click.option("--segment", type=click.Choice(SEGMENTS), help="Only boards made for this.")
@click.option("--policy", metavar="NAME|FILE", help="Policy to choose by; see `hwprobe policy list`.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "csv"]),
    default="text",
    show_default=True,
    help="Output format.",
)
def gpus(
    pattern: tuple[str, ...],
    supports: str | None,
    min_memory: float | None,
    architecture: str | None,
    segment: str | None,
    policy: str | None,
    format_: str,
) -> None:
    """List the boards that hwprobe knows, and what it would choose on each with the newest TensorFlow wheel.

    PATTERN is a name as NVML writes it, as a shop does (3090, A100 80GB), or as a Kubernetes label does
    (A100-SXM4-40GB-MIG-1g.5gb); * and ? stand for anything. Variants of a board are listed beside it.
    """
    name = " ".join(pattern)
    wish = read_policy(policy)
    found = [
        board
        for board in _named(name)
        if architecture in (None, board.architecture.name) and segment in (None, board.segment)
    ]
    fitting = [board for board in found if min_memory is None or max(board.memory_gib, default=0) >= min_memory]
    foreseen = zip(fitting, outlooks((board.as_gpu() for board in fitting), wish), strict=True)
    listed = BoardList(
        hwprobe=VERSION,
        tensorflow=newest_release().version,
        policy=wish.label,
        boards=tuple(entry_of(*each) for each in foreseen if supports is None or supports in each[1].usable),
    )
    if format_ == "json":
        click.echo(as_json(listed), nl=False)
    elif format_ == "csv":
        click.echo(as_csv(listed), nl=False)
    elif listed.boards:
        write_text(listed, sys.stdout)
    for remark in _remarks(name, listed, found if min_memory is not None else ()):
        click.echo(remark, err=True)


def _named(name: str) -> tuple[Board, ...]:
    found = search(name) if name.strip() else boards()
    if found:
        return found
    similar = find(name).similar
    hint = f"did you mean {', '.join(similar)}?" if similar else "`hwprobe gpus` lists all of them"
    raise InputError(f"no board of the catalogue is called {name!r}: {hint}")


def _remarks(name: str, listed: BoardList, measured: Sequence[Board]) -> list[str]:
    """What the list itself does not say; on standard error, so that the list stays whole."""
    remarks = []
    if not listed.boards:
        remarks.append("no board of the catalogue fits all of this")
    unknown = sum(not board.memory_gib for board in measured)
    if unknown:
        remarks.append(f"left out: {unknown} boards whose memory is not established")
    if not name.strip():
        return remarks
    match = find(name)
    if match.mig is not None:
        remarks.append(f"{match.mig} is a MIG device: it computes as its board does, with a part of that memory")
    if not match.is_settled and not set(name) & set("*?"):
        remarks.append(f"{name!r} could be any of these: name one in full to be sure")
    return remarks
