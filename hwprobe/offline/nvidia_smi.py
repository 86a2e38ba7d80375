"""What nvidia-smi writes about one GPU, in the words of `nvidia-smi --help-query-gpu`, as facts.

Its csv has these words as column names; its XML has the same facts at places of its own, which
`hwprobe.offline.nvidia_smi_xml` maps to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from hwprobe.capability import ComputeCapability
from hwprobe.gpu import Gpu, GpuMemory, Health, Mig, MigInstance
from hwprobe.knowledge.gpu_names import find
from hwprobe.knowledge.gpus import Board, boards
from hwprobe.offline.description import OK, Platform, arm_host, describe
from hwprobe.offline.wheel import Wish, build_of
from hwprobe.probe.loader import long_bus_id
from hwprobe.probe.nvml_codes import GPU_IS_LOST, RESET_REQUIRED, UNIFIED_NAMES
from hwprobe.report import Driver, Report

FIELDS = (
    *("index", "name", "uuid", "pci.bus_id", "pci.device_id", "compute_cap", "driver_version"),
    *("memory.total", "memory.reserved", "memory.used", "memory.free"),
    *("mig.mode.current", "mig.mode.pending", "compute_mode", "driver_model.current", "persistence_mode"),
    *("ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "retired_pages.pending"),
    *("remapped_rows.pending", "remapped_rows.failure", "fabric.state", "fabric.status"),
)
"""The columns that hwprobe reads; it passes over all others."""

ASK_XML = "nvidia-smi -q -x > nvidia-smi.xml"
ASK_CSV = f"nvidia-smi --query-gpu={','.join(FIELDS)} --format=csv > nvidia-smi.csv"

_UNSUPPORTED = frozenset(
    {"", "n/a", "not supported", "not found", "requested functionality has been deprecated", "deprecated"}
)
"""Ways in which nvidia-smi says that a device or a driver does not have a fact (drivers 418 to 610)."""

_LOST = {"gpu is lost": GPU_IS_LOST, "gpu requires reset": RESET_REQUIRED, "reset required": RESET_REQUIRED}
_FAILED = frozenset({"err!", "error", "unknown error", "insufficient permissions", "no permission"})
_MIB = re.compile(r"(\d{1,9})\s*(?:MiB|MB)?")
_DEVICE_ID = re.compile(r"(?:0x)?([0-9a-f]{4})10de", re.IGNORECASE)
MAX_TEXT = 96
"""NVML_DEVICE_NAME_V2_BUFFER_SIZE: a driver gives nothing longer."""

_NUMBER = re.compile(r"\d{1,15}")
_COMPUTE_MODES: dict[str, Literal["default", "exclusive_thread", "prohibited", "exclusive_process"]] = {
    "default": "default",
    "exclusive_thread": "exclusive_thread",
    "prohibited": "prohibited",
    "exclusive_process": "exclusive_process",
}
_DRIVER_MODELS = {"wddm": "wddm", "tcc": "tcc", "mcdm": "mcdm"}
_VIRTUALIZATIONS = {
    "none": "none",
    "pass-through": "passthrough",
    "vgpu": "vgpu",
    "host vgpu": "host_vgpu",
    "host vsga": "host_vsga",
}
_FABRIC_STATES: dict[str, Literal["not_supported", "not_started", "in_progress", "completed"]] = {
    "not supported": "not_supported",
    "not started": "not_started",
    "in progress": "in_progress",
    "completed": "completed",
}
_FABRIC_SUCCESS, _FABRIC_FAILURE = 0, 999
"""nvidia-smi gives the status as text, NVML as a number: success, and its own "unknown error" for everything else."""

_SWITCH = {"enabled": True, "disabled": False}
_ANSWER = {"yes": True, "no": False}


class Cells:
    """The texts of one device, and why some of them say nothing.

    Args:
        texts: Field to text, as nvidia-smi wrote it.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self.errors: dict[str, str] = {}

    def text(self, field: str) -> str | None:
        """The text of a field; None where the device does not have the fact or it could not be read."""
        said = self._texts.get(field, "").strip()
        bare = said.strip("[]").strip()
        if bare.lower() in _UNSUPPORTED or bare.lower() in _LOST:
            return None
        if bare.lower() in _FAILED:
            self.errors[field] = f"nvidia-smi says {bare!r}"
            return None
        if len(bare) > MAX_TEXT:
            self._not_understood(field, bare)
            return None
        return bare

    def word(self, field: str, words: Mapping[str, Any]) -> Any:
        """What one of some words means; a word that is not among them is kept as an error."""
        said = self.text(field)
        if said is None:
            return None
        if said.lower() not in words:
            self._not_understood(field, said)
        return words.get(said.lower())

    def number(self, field: str) -> int | None:
        """A whole number."""
        said = self.text(field)
        if said is not None and _NUMBER.fullmatch(said) is None:
            self._not_understood(field, said)
            return None
        return None if said is None else int(said)

    def size_bytes(self, field: str) -> int | None:
        """A size, which nvidia-smi gives in MiB; releases before 331 wrote MB and meant the same."""
        said = self.text(field)
        match = _MIB.fullmatch(said) if said is not None else None
        if said is not None and match is None:
            self._not_understood(field, said)
        return int(match[1]) * 2**20 if match is not None else None

    def fatal(self) -> tuple[str, int] | None:
        """Why the whole device cannot be used, with NVML's number; it stands in any field then."""
        for said in self._texts.values():
            bare = said.strip().strip("[]").strip()
            if bare.lower() in _LOST:
                return bare, _LOST[bare.lower()]
        return None

    def _not_understood(self, field: str, said: str) -> None:
        self.errors[field] = f"not understood: {said[:80]!r}"


class Device(NamedTuple):
    """One GPU as nvidia-smi describes it.

    Attributes:
        texts: Field to text; the XML also has `brand` and `virtualization`.
        instances: Its MIG devices, as far as they are listed; None where this form does not list them.
    """

    texts: Mapping[str, str]
    instances: tuple[MigInstance, ...] | None = None


def report_of_devices(
    devices: Sequence[Device],
    *,
    what: str,
    origin: str,
    driver_version: str | None,
    cuda_version: str | None,
    attached: int | None,
    tensorflow: str | None,
) -> Report:
    """Make the report of a machine of which nvidia-smi's output is known.

    nvidia-smi asks NVML, so that source counts as read. What CUDA would give a process is not in its output: every GPU
    that works counts as visible.

    Args:
        devices: In nvidia-smi's order, which is NVML's.
        what: The kind of file: `csv`, `XML`.
        origin: The file.
        driver_version: As it says it; None where it does not.
        cuda_version: Newest CUDA of the driver, as it says it; None where it does not.
        attached: How many GPUs it says the machine has; None where it does not.
        tensorflow: Version of TensorFlow to judge by; None for the newest release.

    Raises:
        InputError: There is no such TensorFlow.
    """
    gpus = _without_shared_uuids([_gpu(device, index) for index, device in enumerate(devices)])
    known = [_boards(gpu.name, gpu.pci_device_id) for gpu in gpus]
    platform = _platform(devices[0].texts, known)
    build = build_of(Wish(tensorflow), platform, "--tensorflow")
    assumptions = [*build.assumptions, "the process may use every GPU that works"]
    if attached is not None and attached > len(gpus):
        assumptions.append(f"the machine is judged by the {len(gpus)} of its {attached} GPUs that the file shows")
    partitioned = [device for device, gpu in zip(devices, gpus, strict=True) if gpu.mig is not None and gpu.mig.enabled]
    if any(device.instances is None for device in partitioned):
        assumptions.append("the process computes on one MIG device of unknown size, since csv does not list them")
    return describe(
        f"{what} of nvidia-smi",
        origin,
        gpus=gpus,
        driver=Driver(version=driver_version, cuda_version=cuda_version, device_count=attached or len(gpus)),
        platform=platform,
        tensorflow=build.tensorflow,
        nvml=OK,
        assumptions=assumptions,
    )


def _gpu(device: Device, index: int) -> Gpu:
    cells = Cells(device.texts)
    name, chip = cells.text("name"), _chip(cells)
    mig = _mig(cells, device.instances)
    fatal = cells.fatal()
    usable = fatal is None and (mig is None or not mig.enabled or bool(mig.instances))
    number = cells.number("index")
    return Gpu(
        name=name,
        uuid=cells.text("uuid"),
        pci_bus_id=long_bus_id(cells.text("pci.bus_id")),
        pci_device_id=chip,
        nvml_index=index if number is None else number,
        visible=usable,
        compute_capability=_capability(cells, name, chip),
        memory=_memory(cells, name),
        mig=mig,
        health=_health(cells),
        compute_mode=cells.word("compute_mode", _COMPUTE_MODES),
        driver_model=cells.word("driver_model.current", _DRIVER_MODELS),
        virtualization=cells.word("virtualization", _VIRTUALIZATIONS),
        brand=cells.text("brand"),
        errors=cells.errors,
        error=fatal[0] if fatal is not None else None,
        error_code=fatal[1] if fatal is not None else None,
    )


def _chip(cells: Cells) -> str | None:
    said = cells.text("pci.device_id")
    match = _DEVICE_ID.fullmatch(said) if said is not None else None
    if said is not None and match is None:
        cells.errors["pci.device_id"] = f"not understood: {said[:80]!r}"
    return match[1].upper() if match is not None else None


def _boards(name: str | None, chip: str | None) -> tuple[Board, ...]:
    """What the catalogue knows of a device: by the id of its chip, which a driver never gets wrong, else by name."""
    of_chip = tuple(board for board in boards() if chip is not None and chip in board.pci)
    return of_chip or _boards_called(name)


def _boards_called(name: str | None) -> tuple[Board, ...]:
    return find(name).boards if name is not None else ()


def _capability(cells: Cells, name: str | None, chip: str | None) -> ComputeCapability | None:
    said = cells.text("compute_cap")
    if said is not None:
        try:
            return ComputeCapability.parse(said)
        except ValueError as error:
            cells.errors["compute_cap"] = str(error)
            return None
    known = {board.capability for board in _boards(name, chip)}
    by_name = {board.capability for board in _boards_called(name)}
    if len(known) != 1 or (by_name and not known & by_name):
        differing = ", ".join(map(str, sorted(known | by_name)))
        reason = f"the name and the PCI id stand for boards of {differing}" if differing else "the board is not known"
        cells.errors["compute_cap"] = f"nvidia-smi does not tell it here, and {reason}"
        return None
    return known.pop()


def _memory(cells: Cells, name: str | None) -> GpuMemory:
    words = (name or "").replace("(", " ").replace(")", " ").split()
    total = cells.size_bytes("memory.total")
    kind: Literal["dedicated", "unified", "unknown"] = "dedicated" if total is not None else "unknown"
    return GpuMemory(
        total_bytes=total,
        free_bytes=cells.size_bytes("memory.free"),
        used_bytes=cells.size_bytes("memory.used"),
        reserved_bytes=cells.size_bytes("memory.reserved"),
        kind="unified" if not UNIFIED_NAMES.isdisjoint(words) else kind,
    )


def _mig(cells: Cells, instances: tuple[MigInstance, ...] | None) -> Mig | None:
    enabled = cells.word("mig.mode.current", _SWITCH)
    pending = cells.word("mig.mode.pending", _SWITCH)
    if enabled is None:
        return None
    if enabled and instances is None:
        instances = (MigInstance(visible=True, error="csv does not list MIG devices; nvidia-smi -q -x does"),)
    return Mig(enabled=enabled, pending=pending, instances=instances or ())


def _health(cells: Cells) -> Health:
    state = cells.word("fabric.state", _FABRIC_STATES)
    status = cells.text("fabric.status")
    code = None if status is None else _FABRIC_SUCCESS if status.lower() == "success" else _FABRIC_FAILURE
    return Health(
        ecc_enabled=cells.word("ecc.mode.current", _SWITCH),
        ecc_uncorrected_volatile=cells.number("ecc.errors.uncorrected.volatile.total"),
        retired_pages_pending=cells.word("retired_pages.pending", _ANSWER),
        remapped_rows_pending=cells.word("remapped_rows.pending", _ANSWER),
        remapped_rows_failed=cells.word("remapped_rows.failure", _ANSWER),
        fabric_state=state,
        fabric_status_code=code,
    )


def _without_shared_uuids(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Take away UUIDs that several GPUs share: published logs often have zeros in place of all of them."""
    uuids = [gpu.uuid for gpu in gpus]
    return [replace(gpu, uuid=None) if uuids.count(gpu.uuid) > 1 else gpu for gpu in gpus]


def _platform(texts: Mapping[str, str], known: Sequence[tuple[Board, ...]]) -> Platform:
    """Tell Windows from WSL: both say WDDM, and only Linux has a persistence mode (NVIDIA/k8s-device-plugin#332)."""
    cells = Cells(texts)
    machine = arm_host([board for each in known for board in each]) if all(known) else None
    if cells.text("driver_model.current") is None:
        return Platform(machine=machine)
    if cells.text("persistence_mode") is None:
        return Platform(system="Windows", machine=machine)
    return Platform(wsl=True, machine=machine)
