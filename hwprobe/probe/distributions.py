"""The installed Python distributions, by the names of their metadata folders alone.

`importlib.metadata` opens and parses a file of each; here a file is opened only for a distribution that matters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from hwprobe.report import Distribution

MAX_METADATA_BYTES = 64 * 2**20
_SUFFIXES = (".dist-info", ".egg-info")


class Installed(msgspec.Struct, frozen=True):
    """One installed distribution.

    Attributes:
        name: Normalised as PEP 503 says: `tensorflow-cpu`.
        version: As the distribution writes it; empty where the folder's name does not say.
        site: The folder that it was installed into.
        folder: Name of its `.dist-info` or `.egg-info` folder there.
    """

    name: str
    version: str
    site: Path
    folder: str

    @property
    def metadata(self) -> Path:
        """Path of that folder."""
        return self.site / self.folder

    @property
    def fact(self) -> Distribution:
        """The same as a fact of the report."""
        return Distribution(name=self.name, version=self.version)

    def read(self, file: str) -> str:
        """Read one file of its metadata; empty where there is none, or none that can be read."""
        return self._bytes(file).decode("utf-8", "replace").replace("\r\n", "\n")

    def has_record(self) -> bool:
        """Whether it recorded its files; packages of Linux distributions and development installs do not."""
        return (self.metadata / "RECORD").is_file()

    def recorded(self, start: str) -> str | None:
        """Give the first line of RECORD that starts so: path, hash and size, separated by commas; None without one."""
        # TensorFlow's has 20,000 lines: only the one that matters is decoded.
        content = self._bytes("RECORD")
        wanted = start.encode()
        position = 0 if content.startswith(wanted) else content.find(b"\n" + wanted) + 1
        if not position and not content.startswith(wanted):
            return None
        return content[position:].split(b"\n", 1)[0].strip().decode("utf-8", "replace")

    def _bytes(self, file: str) -> bytes:
        try:
            with (self.metadata / file).open("rb") as opened:
                return opened.read(MAX_METADATA_BYTES)
        except OSError:
            return b""


def installed(paths: Iterable[str]) -> tuple[Installed, ...]:
    """List the distributions on a module search path.

    Args:
        paths: In the order in which Python searches them; entries that are no folders hold none.

    Returns:
        In that order, by name within a folder. The same name may be there more than once; Python uses the first.
    """
    return tuple(
        _installed(Path(path), name)
        for path in dict.fromkeys(os.path.realpath(path) for path in paths)
        for name in _names(path)
        if name.endswith(_SUFFIXES) and not name.startswith("~")
    )


def normal_name(name: str) -> str:
    """Write a distribution's name as PEP 503 does: lower case, one hyphen for each run of separators."""
    return re.sub(r"[-_.]+", "-", name).lower()


def first_version(distributions: Sequence[Installed], *names: str) -> str | None:
    """Give the version of the first of some distributions that is installed."""
    return next((each.version for name in names for each in distributions if each.name == name), None)


def utf8(text: str) -> str:
    """Replace what is no text in a path or variable: the system allows any bytes there, and JSON does not."""
    return os.fsencode(text).decode("utf-8", "replace")


def _installed(site: Path, folder: str) -> Installed:
    parts = folder.rpartition(".")[0].split("-")
    if len(parts) > 1 and parts[1][:1].isdigit():
        return Installed(normal_name(parts[0]), parts[1], site, folder)
    return Installed(normal_name("-".join(parts)), "", site, folder)


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - names are enough
    except OSError:
        return []
