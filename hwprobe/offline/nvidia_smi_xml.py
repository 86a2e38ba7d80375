"""`nvidia-smi -q -x`, as a report: drivers 418 to 610, whose DTD went from v11 to v13.

The file names a DTD that nobody has and nothing reads. A file that declares an entity is refused, so none is expanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.parsers import expat

from msgspec.structs import replace

from hwprobe.errors import InputError
from hwprobe.gpu import GpuMemory, MigInstance
from hwprobe.offline.nvidia_smi import ASK_XML, Cells, Device, report_of_devices
from hwprobe.report import Report

ROOT = "nvidia_smi_log"
MAX_DEPTH = 32
MAX_ELEMENTS = 100_000
MAX_GPUS = 1024

_PLACES: Mapping[str, tuple[str, ...]] = {
    "name": ("product_name",),
    "uuid": ("uuid",),
    "brand": ("product_brand",),
    "pci.bus_id": ("pci/pci_bus_id",),
    "pci.device_id": ("pci/pci_device_id",),
    "memory.total": ("fb_memory_usage/total",),
    "memory.reserved": ("fb_memory_usage/reserved",),
    "memory.used": ("fb_memory_usage/used",),
    "memory.free": ("fb_memory_usage/free",),
    "mig.mode.current": ("mig_mode/current_mig",),
    "mig.mode.pending": ("mig_mode/pending_mig",),
    "compute_mode": ("compute_mode",),
    "driver_model.current": ("driver_model/current_dm",),
    "persistence_mode": ("persistence_mode",),
    "virtualization": ("gpu_virtualization_mode/virtualization_mode",),
    "ecc.mode.current": ("ecc_mode/current_ecc",),
    "retired_pages.pending": ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    "remapped_rows.pending": ("remapped_rows/remapped_row_pending",),
    "remapped_rows.failure": ("remapped_rows/remapped_row_failure",),
    "fabric.state": ("fabric/state",),
    "fabric.status": ("fabric/status",),
}
"""Field of `--query-gpu` to where the XML has it; the first place that is there counts."""

_ECC = "ecc.errors.uncorrected.volatile.total"
_ECC_TOTAL = ("ecc_errors/volatile/double_bit/total",)
_ECC_PARTS = (
    "ecc_errors/volatile/sram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable_parity",
    "ecc_errors/volatile/sram_uncorrectable_secded",
    "ecc_errors/volatile/dram_uncorrectable",
)
"""Boards before Turing count single and double errors; later ones count by memory, and from 535 on by kind."""

_LOST = ("GPU is lost", "GPU requires reset")


class Element:
    """One element: its name, the line it begins in, its text, its children."""

    __slots__ = ("attributes", "children", "line", "pieces", "tag", "text")

    def __init__(self, tag: str, attributes: dict[str, str], line: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.text = ""
        self.pieces: list[str] = []
        self.children: list[Element] = []

    def all(self, tag: str) -> list[Element]:
        """The children of a name."""
        return [child for child in self.children if child.tag == tag]

    def at(self, path: str) -> str | None:
        """The text of the first element at a path; None where there is none, or only further elements."""
        place: Element | None = self
        for tag in path.split("/"):
            place = next(iter(place.all(tag)), None) if place is not None else None
        return place.text if place is not None and not place.children else None

    def every(self) -> Iterator[Element]:
        """This element and all below it."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(element.children)


def report_of_xml(text: str, *, origin: str, tensorflow: str | None = None) -> Report:
    """Make the report of a machine from nvidia-smi's XML.

    Args:
        text: The XML.
        origin: The file, for messages and for the report.
        tensorflow: Version of TensorFlow to judge by; None for the newest release.

    Raises:
        InputError: It is not well-formed, is not nvidia-smi's, declares an entity, is nested or long beyond reason, or
            lists no GPU.
    """
    root = parse(text, origin)
    if root.tag != ROOT:
        raise InputError(
            f"{origin}, line {root.line}: the element is <{root.tag[:40]}> and not <{ROOT}>. Run: {ASK_XML}"
        )
    gpus = root.all("gpu")
    if not gpus:
        raise InputError(f"{origin}: it lists no GPU; on a machine without one use --target 'no gpu'")
    if len(gpus) > MAX_GPUS:
        raise InputError(f"{origin}, line {gpus[MAX_GPUS].line}: more than {MAX_GPUS} GPUs: not one machine")
    head = Cells({name: root.at(name) or "" for name in ("driver_version", "cuda_version", "attached_gpus")})
    return report_of_devices(
        [_device(gpu) for gpu in gpus],
        what="XML",
        origin=origin,
        driver_version=head.text("driver_version"),
        cuda_version=head.text("cuda_version"),
        attached=head.number("attached_gpus"),
        tensorflow=tensorflow,
    )


def parse(text: str, origin: str) -> Element:
    """Read an XML document into elements, without entities, DTDs or depth beyond reason.

    Args:
        text: The document.
        origin: The file, for messages.

    Raises:
        InputError: It is not well-formed, or goes beyond the limits; the message names the line.
    """
    return _Builder(origin).build(text)


class _Builder:
    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._parser = parser = expat.ParserCreate()
        self._open: list[Element] = []
        self._count = 0
        self._root: Element | None = None
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        parser.EntityDeclHandler = self._entity

    def build(self, text: str) -> Element:
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            reason = expat.errors.messages.get(error.code, str(error))
            raise InputError(f"{self._origin}, line {error.lineno}: not well-formed XML: {reason}") from error
        assert self._root is not None
        return self._root

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        self._count += 1
        if len(self._open) >= MAX_DEPTH:
            raise InputError(f"{self._origin}, line {line}: elements more than {MAX_DEPTH} deep: not nvidia-smi's XML")
        if self._count > MAX_ELEMENTS:
            raise InputError(f"{self._origin}, line {line}: more than {MAX_ELEMENTS} elements: not one machine")
        element = Element(tag, attributes, line)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:  # noqa: ARG002 - expat gives it
        element = self._open.pop()
        element.text = "".join(element.pieces).strip()
        element.pieces = []

    def _data(self, data: str) -> None:
        self._open[-1].pieces.append(data)

    def _entity(self, name: str, *declaration: object) -> None:  # noqa: ARG002 - expat gives it
        line = self._parser.CurrentLineNumber
        raise InputError(
            f"{self._origin}, line {line}: it declares the entity {name[:40]!r}, which nvidia-smi never does"
        )


def _device(gpu: Element) -> Device:
    texts = {field: found for field, paths in _PLACES.items() if (found := _first(gpu, paths)) is not None}
    texts.setdefault("pci.bus_id", gpu.attributes.get("id", ""))
    texts[_ECC] = _ecc(gpu)
    lost = next((element.text for element in gpu.every() if element.text in _LOST), None)
    if lost is not None:
        # Some fields of a lost GPU are still cached; any of them says that it is lost.
        texts["memory.total"] = lost
    instances = tuple(_instance(each) for place in gpu.all("mig_devices") for each in place.all("mig_device"))
    return Device(texts, _first_is_visible(instances))


def _first(gpu: Element, paths: tuple[str, ...]) -> str | None:
    return next((found for path in paths if (found := gpu.at(path)) is not None), None)


def _ecc(gpu: Element) -> str:
    total = _first(gpu, _ECC_TOTAL)
    if total is not None:
        return total
    parts = [found for path in _ECC_PARTS if (found := gpu.at(path)) is not None]
    counts = [part for part in parts if part.isascii() and part.isdigit() and len(part) <= 15]
    if parts and len(counts) == len(parts):
        return str(sum(map(int, counts)))
    return next((part for part in parts if part not in counts), "")


def _instance(element: Element) -> MigInstance:
    cells = Cells(
        {
            "uuid": element.at("uuid") or "",
            "gpu_instance_id": element.at("gpu_instance_id") or "",
            "compute_instance_id": element.at("compute_instance_id") or "",
            "multiprocessors": element.at("device_attributes/shared/multiprocessor_count") or "",
            **{f"memory.{name}": element.at(f"fb_memory_usage/{name}") or "" for name in ("total", "used", "free")},
        }
    )
    return MigInstance(
        uuid=cells.text("uuid"),
        gpu_instance_id=cells.number("gpu_instance_id"),
        compute_instance_id=cells.number("compute_instance_id"),
        multiprocessors=cells.number("multiprocessors"),
        memory=GpuMemory(
            total_bytes=cells.size_bytes("memory.total"),
            used_bytes=cells.size_bytes("memory.used"),
            free_bytes=cells.size_bytes("memory.free"),
            kind="dedicated",
        ),
        error="; ".join(f"{field}: {reason}" for field, reason in cells.errors.items()) or None,
    )


def _first_is_visible(instances: tuple[MigInstance, ...]) -> tuple[MigInstance, ...]:
    """A process computes on one MIG device, and nothing says on which: the first stands for it."""
    return tuple(replace(each, visible=True) if number == 0 else each for number, each in enumerate(instances))
