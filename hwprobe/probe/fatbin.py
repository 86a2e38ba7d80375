"""The GPU architectures that a CUDA library carries code for, read from its `.nv_fatbin` sections.

It is the only way to learn them where `build_info.py` is silent (TensorFlow 2.22). A section holds one fat binary for
each compiled source file, and a fat binary one record for each architecture:

    fat binary: magic 0xBA55ED50 (4 bytes), version (2), header size (2), size of all records (8)
    record: kind (2), version (2), header size (4), payload size (8), 12 bytes, architecture (4), ..., payload

The payload may be compressed and is never looked at. NVIDIA does not document the layout; this one fits the wheels of
TensorFlow 2.15 to 2.22.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hwprobe.probe.elf import Elf, ElfError, Section, open_elf

SECTION = ".nv_fatbin"
MAX_RECORDS = 200_000
MAX_PADDING_BYTES = 4096

_FAT_BINARY = struct.Struct("<IHHQ")
_RECORD = struct.Struct("<HHIQ12xI")
_MAGIC = 0xBA55ED50
_MAGIC_BEFORE_CUDA_5 = 0x1EE55A01
_PTX, _MACHINE_CODE = 1, 2

_LIBRARIES = (
    "libtensorflow_cc.so.2",
    "libtensorflow_framework.so.2",
    "python/_pywrap_tensorflow_internal.so",
)
"""Where TensorFlow's own kernels are; before 2.13 they were all in the last one."""


def read_compute_capabilities(location: str) -> tuple[str, ...]:
    """Name the architectures that TensorFlow's libraries carry code for.

    An architecture counts if at least half of the fat binaries have it: libraries that are linked in (NCCL, CUTLASS
    kernels) bring a few for architectures that TensorFlow itself was not compiled for.

    Args:
        location: Folder of the `tensorflow` package.

    Returns:
        `sm_80` for machine code, `compute_90` for PTX, oldest first, PTX last; empty if no library has a section of
        fat binaries.

    Raises:
        ElfError: A library is damaged, or none is there.
    """
    paths = [path for name in _LIBRARIES if (path := Path(location, name)).is_file()]
    if not paths:
        raise ElfError(f"{location}: holds none of {', '.join(_LIBRARIES)}")
    binaries = 0
    seen: Counter[tuple[int, int]] = Counter()
    for path in paths:
        with open_elf(str(path)) as elf:
            for architectures in fat_binaries(elf):
                binaries += 1
                seen.update(architectures)
    common = {architecture for architecture, count in seen.items() if 2 * count >= binaries}
    machine_code = sorted(number for kind, number in common if kind == _MACHINE_CODE)
    ptx = sorted(number for kind, number in common if kind == _PTX)
    return (*(f"sm_{number}" for number in machine_code), *(f"compute_{number}" for number in ptx))


def fat_binaries(elf: Elf) -> Iterator[set[tuple[int, int]]]:
    """Walk the fat binaries of an ELF file.

    Args:
        elf: The file.

    Yields:
        For each fat binary its pairs of kind (1 PTX, 2 machine code) and architecture (80 for 8.0).

    Raises:
        ElfError: A size points out of its section, or the form is unknown.
    """
    records = 0
    for section in elf.sections:
        if section.name != SECTION:
            continue
        position, end = section.offset, section.offset + section.size
        while (position := _skip_padding(elf, section, position)) + _FAT_BINARY.size <= end:
            start, stop = _fat_binary(elf, section, position)
            architectures = set()
            for kind, architecture in _records(elf, start, stop):
                architectures.add((kind, architecture))
                records += 1
                if records > MAX_RECORDS:
                    raise ElfError(f"{elf.path}: more than {MAX_RECORDS} records in {SECTION}")
            yield architectures
            position = stop


def _skip_padding(elf: Elf, section: Section, position: int) -> int:
    end = section.offset + section.size
    limit = min(end, position + MAX_PADDING_BYTES)
    while position + 8 <= limit and elf.view[position : position + 8] == bytes(8):
        position += 8
    if position + 8 <= end and position >= limit:
        raise ElfError(f"{elf.path}: {SECTION} holds more than {MAX_PADDING_BYTES} bytes of nothing")
    return position


def _fat_binary(elf: Elf, section: Section, position: int) -> tuple[int, int]:
    magic, _, header_size, size = _FAT_BINARY.unpack_from(elf.view, position)
    if magic == _MAGIC_BEFORE_CUDA_5:
        raise ElfError(f"{elf.path}: fat binaries in the form of CUDA 4 and older")
    if magic != _MAGIC:
        raise ElfError(f"{elf.path}: unknown fat binary {magic:#010x} at byte {position}")
    stop = position + header_size + size
    if header_size < _FAT_BINARY.size or stop > section.offset + section.size:
        raise ElfError(f"{elf.path}: a fat binary at byte {position} does not fit into {SECTION}")
    return position + header_size, stop


def _records(elf: Elf, position: int, stop: int) -> Iterator[tuple[int, int]]:
    while position + _RECORD.size <= stop:
        kind, _, header_size, size, architecture = _RECORD.unpack_from(elf.view, position)
        if header_size < _RECORD.size or position + header_size + size > stop:
            raise ElfError(f"{elf.path}: a record at byte {position} does not fit into its fat binary")
        if kind in (_PTX, _MACHINE_CODE):
            yield kind, architecture
        position += header_size + size
