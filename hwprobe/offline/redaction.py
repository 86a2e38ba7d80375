"""Take out of a report what names a person or a machine, so that it can be attached to a public bug report.

Only values are changed, never keys: what a program reads stays where it was, whatever the user is called. What rules
compare (UUIDs with each other and with CUDA_VISIBLE_DEVICES, folders of packages) stays comparable.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hwprobe.report import Report
from hwprobe.serialize import from_builtins, to_builtins

USER, HOST, HOME = "<user>", "<host>", "~"

_FREE_TEXT = frozenset({"reason", "error", "errors", "absent", "messages", "foreign_pynvml"})
"""Facts in somebody else's words, in which a name can stand anywhere."""

_NOBODY = frozenset(
    {
        *("root", "user", "home", "localhost", "nvidia", "cuda", "python", "tensorflow"),
        *("usr", "lib", "lib64", "bin", "opt", "proc", "dev", "wsl", "stubs", "compat"),
    }
)
"""Names of accounts and machines that tell nobody's name, and by which rules know where a library belongs."""

_PACKAGES = ("site-packages", "dist-packages")
"""Folders in whose paths every name is that of a package."""

_SHORTEST_NAME = 3
_OTHERS_HOME = re.compile(r"(?P<root>/home/|/Users/|(?<![A-Za-z])[A-Za-z]:\\Users\\)(?P<name>[^/\\:;\s'\"]+)")
_COMPONENTS = re.compile(r"[/\\:;]|[^/\\:;]+")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_UUID_BEGINNING = re.compile(r"(?<=GPU-|MIG-)[0-9a-f]{8}[0-9a-f-]*", re.IGNORECASE)
_UUID_LENGTH = 8


class Identity(NamedTuple):
    """What must not be told.

    Attributes:
        homes: Paths of the home folder, also as links resolve them.
        user: Name of the account.
        hosts: The machine's name, with and without its domain.
    """

    homes: tuple[str, ...] = ()
    user: str | None = None
    hosts: tuple[str, ...] = ()


def own_identity() -> Identity:
    """Read who runs this process, and where."""
    homes: list[str] = []
    try:
        home = Path.home()
        homes = [str(home), str(home.resolve())]
    except (RuntimeError, OSError):
        # A container may run under a number that no account has.
        homes = [os.environ["HOME"]] if os.environ.get("HOME") else []
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = None
    node = platform.node()
    return Identity(
        tuple(dict.fromkeys(homes)), user, tuple(filter(None, dict.fromkeys((node, node.partition(".")[0]))))
    )


def redact(report: Report, identity: Identity) -> Report:
    """Take out home folder, user, host name and the tails of UUIDs.

    Args:
        report: Any report.
        identity: Who made it.

    Returns:
        The same facts: paths under the home folder begin with `~`, names of accounts are `<user>`, the host's is
        `<host>`, and a UUID is as much of its beginning as tells the devices of this report apart.
    """
    data = to_builtins(report)
    data["host"]["name"] = None
    for node in data["host"]["device_nodes"] or ():
        node["owner"] = _account(node["owner"])
        node["group"] = USER if node["group"] is not None and node["group"] == identity.user else node["group"]
    shorten = _shortener(data)
    return from_builtins(_with_values(data, _change(identity, shorten)), Report)


def _with_values(value: Any, change: Callable[[str, bool], str], free: bool = False) -> Any:
    """Change every text that is a value; keys stay, whatever they spell."""
    if isinstance(value, str):
        return change(value, free)
    if isinstance(value, dict):
        return {key: _with_values(inner, change, free or key in _FREE_TEXT) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_values(inner, change, free) for inner in value]
    return value


def _change(identity: Identity, shorten: Callable[[str], str]) -> Callable[[str, bool], str]:
    homes = _homes(identity.homes)
    told = dict.fromkeys(identity.hosts, HOST) | ({identity.user: USER} if identity.user else {})
    names = {name: mark for name, mark in told.items() if name.lower() not in _NOBODY}
    words = _words(names)

    def change(text: str, free: bool) -> str:
        text = shorten(homes(text))
        if "/" in text or "\\" in text:
            text = _OTHERS_HOME.sub(lambda match: match["root"] + USER, text)
            text = _without_components(text, names)
        return words(text) if free else text

    return change


def _homes(homes: Iterable[str]) -> Callable[[str], str]:
    # HOME may be set to anything; only a path is looked for in other paths.
    given = {home.rstrip("/\\") for home in homes if "/" in home or "\\" in home}
    folders = sorted(given - {""}, key=len, reverse=True)
    if not folders:
        return lambda text: text
    # The beginning of a path, and the end of a folder's name: /home/al is not in /home/alice, nor in /srv/home/al.
    pattern = re.compile(rf"(?<![\w.~/\\-])(?:{'|'.join(map(re.escape, folders))})(?![\w.-])")
    return lambda text: pattern.sub(HOME, text)


def _words(names: dict[str, str]) -> Callable[[str], str]:
    told = {name: mark for name, mark in names.items() if len(name) >= _SHORTEST_NAME}
    if not told:
        return lambda text: text
    longest_first = sorted(told, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])")
    return lambda text: pattern.sub(lambda match: told[match[0]], text)


def _without_components(text: str, names: dict[str, str]) -> str:
    """Replace folders that are called like the user or the host, apart from those of packages."""
    in_packages = False
    pieces = []
    for piece in _COMPONENTS.findall(text):
        in_packages = (in_packages or piece in _PACKAGES) and piece not in ":;"
        pieces.append(piece if in_packages else names.get(piece, piece))
    return "".join(pieces)


def _account(owner: str | None) -> str | None:
    return owner if owner in (None, "root", "0") else USER


def _shortener(data: Any) -> Callable[[str], str]:
    """Cut UUIDs to the shortest beginning, of eight digits or more, that no two different ones share."""
    uuids: set[str] = set()

    def collect(text: str, _free: bool) -> str:
        uuids.update(found.lower() for found in _UUID.findall(text))
        return text

    _with_values(data, collect)
    length = _UUID_LENGTH
    while len({uuid[:length] for uuid in uuids}) < len(uuids):
        length += 1

    def shorten(text: str) -> str:
        text = _UUID.sub(lambda match: match[0][:length], text)
        return _UUID_BEGINNING.sub(lambda match: match[0][:length], text)

    return shorten
