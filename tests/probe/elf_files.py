"""Small ELF files and fat binaries for tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

FAT_MAGIC = 0xBA55ED50
PTX, MACHINE_CODE = 1, 2


def record(kind: int, architecture: int, payload: bytes = b"\xff" * 24, header_size: int = 64) -> bytes:
    """One record of a fat binary, with the architecture where cuobjdump reads it."""
    start = struct.pack("<HHIQ12xI", kind, 0x101, header_size, len(payload), architecture)
    return start.ljust(header_size, b"\0") + payload


def fat_binary(records: Iterable[bytes], magic: int = FAT_MAGIC, header_size: int = 16) -> bytes:
    """A fat binary of some records."""
    content = b"".join(records)
    return struct.pack("<IHHQ", magic, 1, header_size, len(content)).ljust(header_size, b"\0") + content


def code_for(*architectures: str) -> bytes:
    """A fat binary for `sm_80`, `compute_90`, ..."""
    kinds = {"sm": MACHINE_CODE, "compute": PTX}
    parts = (architecture.split("_") for architecture in architectures)
    return fat_binary(record(kinds[kind], int(number)) for kind, number in parts)


def elf(sections: Mapping[str, bytes]) -> bytes:
    """A 64-bit little-endian ELF file for x86-64 with these sections."""
    names = {"": 0}
    table = b"\0"
    for name in [*sections, ".shstrtab"]:
        names[name] = len(table)
        table += name.encode() + b"\0"
    content = b""
    headers = [bytes(64)]
    for name, data in [*sections.items(), (".shstrtab", table)]:
        headers.append(struct.pack("<IIQQQQIIQQ", names[name], 1, 0, 0, 64 + len(content), len(data), 0, 0, 8, 0))
        content += data + bytes(-len(data) % 8)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + len(content), 0, 64, 56, 0, 64, len(headers), len(headers) - 1,
    )  # fmt: skip
    return header + content + b"".join(headers)


def with_search_path(tag: int, folders: str) -> bytes:
    """An ELF file with `DT_RPATH` (15) or `DT_RUNPATH` (29)."""
    dynamic = struct.pack("<QQQQ", tag, 1, 0, 0)
    return elf({".dynamic": dynamic, ".dynstr": b"\0" + folders.encode() + b"\0"})
