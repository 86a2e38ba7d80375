"""The few things that hwprobe reads in a shared library's file: its sections and the folders it searches for others.

Only the pages that are looked at are read from disk, so that a library of a gigabyte costs milliseconds.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hwprobe.errors import HwprobeError

MAX_SECTIONS = 4096
MAX_NAME_BYTES = 64 * 2**10
MAX_DYNAMIC_ENTRIES = 4096

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<QQ")
_NO_FILE_CONTENT = 8  # SHT_NOBITS
_DT_STRTAB_END, _DT_RPATH, _DT_RUNPATH = 0, 15, 29


class ElfError(HwprobeError):
    """A file is no 64-bit little-endian ELF file, or is damaged."""


class Section(msgspec.Struct, frozen=True):
    """One section of an ELF file: its name, and where its bytes are."""

    name: str
    offset: int
    size: int


class Elf(msgspec.Struct, frozen=True):
    """An ELF file in memory.

    Attributes:
        path: For messages.
        view: The bytes of the file.
        machine: `e_machine`: 62 is x86-64, 183 is AArch64.
        sections: Every section with content.
    """

    path: str
    view: mmap.mmap
    machine: int
    sections: tuple[Section, ...]


class SearchPath(msgspec.Struct, frozen=True):
    """Where the loader looks for the libraries that an object opens, beside `LD_LIBRARY_PATH` and its own places.

    Attributes:
        folders: With `$ORIGIN` replaced, in order, each once.
        is_runpath: Whether they come from `DT_RUNPATH`, which is searched after `LD_LIBRARY_PATH`, and not from
            `DT_RPATH`, which is searched before it (ld.so(8)).
        machine: `e_machine` of the object.
    """

    folders: tuple[str, ...]
    is_runpath: bool
    machine: int


@contextmanager
def open_elf(path: str) -> Iterator[Elf]:
    """Map an ELF file into memory and read its section table.

    Args:
        path: The file.

    Raises:
        ElfError: It cannot be opened, or is no ELF file of the kind that Linux on x86-64 and AArch64 loads.
    """
    try:
        with Path(path).open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ElfError(f"{path}: {error}") from error
    with view:
        if hasattr(view, "madvise"):
            view.madvise(mmap.MADV_RANDOM)
        machine, sections = _read_header(path, view)
        yield Elf(path, view, machine, sections)


def read_search_path(path: str) -> SearchPath:
    """Read `DT_RUNPATH` or `DT_RPATH` of a shared library.

    Args:
        path: The library.

    Raises:
        ElfError: The file cannot be read.
    """
    with open_elf(path) as elf:
        section = {section.name: section for section in elf.sections}
        if ".dynamic" not in section or ".dynstr" not in section:
            raise ElfError(f"{path}: no dynamic section")
        tags = dict(_dynamic_entries(elf, section[".dynamic"]))
        is_runpath = _DT_RUNPATH in tags
        position = tags.get(_DT_RUNPATH, tags.get(_DT_RPATH))
        text = "" if position is None else _name(elf.path, elf.view, section[".dynstr"], position)
        return SearchPath(_folders(text, str(Path(path).parent)), is_runpath, elf.machine)


def _read_header(path: str, view: mmap.mmap) -> tuple[int, tuple[Section, ...]]:
    if len(view) < _HEADER.size or view[:6] != b"\x7fELF\x02\x01":
        raise ElfError(f"{path}: not a 64-bit little-endian ELF file")
    header = _HEADER.unpack_from(view)
    machine, table, entry_size, count, names_index = header[2], header[6], header[11], header[12], header[13]
    if not count or names_index >= count or count > MAX_SECTIONS or entry_size < _SECTION.size:
        raise ElfError(f"{path}: no usable section table")
    if table + count * entry_size > len(view):
        raise ElfError(f"{path}: the section table lies beyond the end of the file (truncated?)")
    raw = [_SECTION.unpack_from(view, table + index * entry_size) for index in range(count)]
    names = Section("", raw[names_index][4], raw[names_index][5])
    sections = []
    for name, kind, _, _, offset, size, *_ in raw:
        if kind in (0, _NO_FILE_CONTENT):
            continue
        if offset + size > len(view):
            raise ElfError(f"{path}: a section lies beyond the end of the file (truncated?)")
        sections.append(Section(_name(path, view, names, name), offset, size))
    return machine, tuple(sections)


def _dynamic_entries(elf: Elf, section: Section) -> Iterator[tuple[int, int]]:
    for index in range(min(section.size // _DYNAMIC.size, MAX_DYNAMIC_ENTRIES)):
        tag, value = _DYNAMIC.unpack_from(elf.view, section.offset + index * _DYNAMIC.size)
        if tag == _DT_STRTAB_END:
            return
        yield tag, value


def _name(path: str, view: mmap.mmap, table: Section, position: int) -> str:
    start = table.offset + position
    if not table.offset <= start < min(table.offset + table.size, len(view)):
        raise ElfError(f"{path}: a name lies outside of its table")
    limit = min(table.offset + table.size, start + MAX_NAME_BYTES)
    end = view.find(b"\0", start, limit)
    if end < 0:
        raise ElfError(f"{path}: a name has no end")
    return view[start:end].decode("utf-8", "replace")


def _folders(text: str, origin: str) -> tuple[str, ...]:
    expanded = [part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for part in text.split(":") if part]
    return tuple(dict.fromkeys(expanded))
