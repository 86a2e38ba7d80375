"""NVML through nvidia-ml-py: every GPU of this host or container. The one door to `pynvml`.

`read` runs in a child process, since NVML can take half a minute to wake GPUs, or never come back.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings

from hwprobe.probe import nvml_codes as codes
from hwprobe.probe.bootstrap import ReaderFailure
from hwprobe.probe.loader import NVML_LIBRARY, loaded_library, long_bus_id, open_library, version_in_name
from hwprobe.probe.nvml_binding import foreign_owner, installed_version, packages_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, Literal

MAX_MIG_DEVICES = 7
"""Indices that are tried where NVML does not say how many there are: as many as any board of today holds."""


class NvmlFailure(Exception):  # noqa: N818 - "not supported" is no error
    """A call that NVML, or the binding in front of it, did not answer.

    Args:
        code: NVML's number; None where the binding itself failed.
        text: What it said, where there is no number.
    """

    def __init__(self, code: int | None, text: str = "") -> None:
        self.code = code
        self.error, words = codes.ERRORS.get(code, (None, text or f"NVML error {code}"))
        self.reason = f"{words} ({self.error})" if self.error else words
        super().__init__(self.reason)

    @property
    def unsupported(self) -> bool:
        """Whether it only says that this device, driver or binding has no such fact."""
        return self.code in (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND)

    @property
    def lost(self) -> bool:
        """Whether it says that the whole GPU cannot be used."""
        return self.code in (codes.GPU_IS_LOST, codes.RESET_REQUIRED)


def read(request: dict[str, object]) -> dict[str, object]:  # noqa: ARG001 - all readers have this form
    """Read every GPU that NVML counts.

    Args:
        request: Nothing is taken from it.

    Returns:
        The fields of `hwprobe.probe.readings.NvmlReading` as plain data.

    Raises:
        ReaderFailure: There is no library or no usable binding, or NVML does not start or does not count.
    """
    if os.name == "posix":
        # Most machines without it have no GPU, and the binding takes longer to import than all else here.
        open_library(NVML_LIBRARY)
    binding = _import_binding()
    path = getattr(binding, "__file__", None) or ""
    data: dict[str, object] = {
        "binding": installed_version(packages_folder(path)),
        "foreign": foreign_owner(path, binding),
    }
    if not hasattr(binding, "NVMLError"):
        raise ReaderFailure("failed", f"the module {path} is not a binding to NVML", data=data)
    nvml = Nvml(binding)
    _start(nvml, data)
    try:
        return data | _library() | _system(nvml) | {"devices": [_device(nvml, i) for i in range(_count(nvml, data))]}
    finally:
        _shut_down(nvml)


class Nvml:
    """The binding, with one kind of exception.

    Its own is unhashable and raises when it is compared with None, so it goes no further than here.
    """

    def __init__(self, binding: ModuleType) -> None:
        self._binding = binding
        self._mismatch: type[Exception] = getattr(binding, "NVMLLibraryMismatchError", NvmlFailure)

    def call(self, function: str, *arguments: object) -> Any:
        """Call one function of the binding.

        Raises:
            NvmlFailure: It failed, or this binding does not have it.
        """
        if not hasattr(self._binding, function):
            raise NvmlFailure(codes.FUNCTION_NOT_FOUND)
        try:
            return getattr(self._binding, function)(*arguments)
        except self._binding.NVMLError as error:
            raise NvmlFailure(int(error.value)) from error
        except self._mismatch as error:
            raise NvmlFailure(codes.FUNCTION_NOT_FOUND) from error
        except (ValueError, TypeError, ctypes.ArgumentError) as error:
            # A name that is not UTF-8 fails inside the binding.
            raise NvmlFailure(None, f"{type(error).__name__} in {function}: {error}") from error

    def constant(self, name: str) -> Any:
        """A constant or structure of the binding; None if it does not have it."""
        return getattr(self._binding, name, None)


class Facts:
    """Reads the facts of one device, each for itself, and keeps why one is missing."""

    def __init__(self, nvml: Nvml, handle: object) -> None:
        self.nvml = nvml
        self.handle = handle
        self.failures: dict[str, NvmlFailure] = {}
        self.fatal: NvmlFailure | None = None

    @property
    def errors(self) -> dict[str, str]:
        """Fact to the reason why it is missing, apart from those that the device does not have."""
        return {fact: failure.reason for fact, failure in self.failures.items()}

    def get(self, fact: str, function: str, *arguments: object) -> Any:
        """Call a function with the device's handle in front; None where it fails."""
        return self.attempt(fact, lambda: self.nvml.call(function, self.handle, *arguments))

    def text(self, fact: str, function: str) -> str | None:
        """The same for text, which bindings before 11.515 give as bytes."""
        value = self.get(fact, function)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def attempt(self, fact: str, reading: Callable[[], Any]) -> Any:
        """Do a reading; None where it fails."""
        try:
            return reading()
        except NvmlFailure as failure:
            if failure.lost:
                self.fatal = failure
            elif not failure.unsupported:
                self.failures[fact] = failure
            return None


def _import_binding() -> ModuleType:
    with warnings.catch_warnings(), _LightCtypesUtil():
        # The `pynvml` distribution announces its own end with a FutureWarning at import.
        warnings.simplefilter("ignore")
        try:
            import pynvml
        except ImportError as error:
            raise ReaderFailure("failed", f"nvidia-ml-py cannot be imported: {error}") from error
    module: ModuleType = pynvml
    return module


class _LightCtypesUtil:
    """Spares the binding `ctypes.util`, which it imports and never calls.

    That module imports subprocess, tempfile and random: a quarter of the time of this whole reading.
    """

    NAME = "ctypes.util"

    def __enter__(self) -> None:
        self._spared = os.name == "posix" and self.NAME not in sys.modules
        if self._spared:
            stand_in = type(sys)(self.NAME)
            stand_in.find_library = None  # type: ignore[attr-defined]
            sys.modules[self.NAME] = stand_in

    def __exit__(self, *error: object) -> None:
        if self._spared:
            del sys.modules[self.NAME]


def _start(nvml: Nvml, data: dict[str, object]) -> None:
    try:
        nvml.call("nvmlInit")
    except NvmlFailure as failure:
        # On Linux the library was opened before, so this is its own word about another one that it needs.
        absent = failure.code == codes.LIBRARY_NOT_FOUND and os.name != "posix"
        status: Literal["absent", "failed"] = "absent" if absent else "failed"
        data = data | _library()
        raise ReaderFailure(status, failure.reason, code=failure.code, error=failure.error, data=data) from failure


def _library() -> dict[str, object]:
    path = loaded_library("libnvidia-ml.so")
    return {"library": path, "library_version": version_in_name(path)}


def _system(nvml: Nvml) -> dict[str, object]:
    return {"driver_version": _driver_version(nvml), "cuda_version": _cuda_version(nvml)}


def _driver_version(nvml: Nvml) -> str | None:
    try:
        version: str | bytes = nvml.call("nvmlSystemGetDriverVersion")
    except NvmlFailure:
        return None
    return version.decode("ascii", "replace") if isinstance(version, bytes) else version


def _cuda_version(nvml: Nvml) -> str | None:
    try:
        # The newer _v2 asks libcuda and fails without it (a container with only the "utility" capability).
        number = int(nvml.call("nvmlSystemGetCudaDriverVersion"))
    except NvmlFailure:
        return None
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


def _count(nvml: Nvml, data: dict[str, object]) -> int:
    try:
        return int(nvml.call("nvmlDeviceGetCount"))
    except NvmlFailure as failure:
        data = data | _library() | _system(nvml)
        reason = f"NVML cannot count the GPUs: {failure.reason}"
        raise ReaderFailure("failed", reason, code=failure.code, error=failure.error, data=data) from failure


def _shut_down(nvml: Nvml) -> None:
    try:
        nvml.call("nvmlShutdown")
    except NvmlFailure:
        # Every fact has been read; what is left of NVML ends with this process.
        return


def _device(nvml: Nvml, index: int) -> dict[str, object]:
    try:
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
    except NvmlFailure as failure:
        return {"nvml_index": index, "error": failure.reason, "error_code": failure.code}
    facts = Facts(nvml, handle)
    device = {
        "nvml_index": index,
        "name": facts.text("name", "nvmlDeviceGetName"),
        "uuid": facts.text("uuid", "nvmlDeviceGetUUID"),
        **_pci(facts),
        "compute_capability": _compute_capability(facts),
        "mig": _mig(facts),
        "health": _health(facts),
        "compute_mode": codes.COMPUTE_MODES.get(facts.get("compute_mode", "nvmlDeviceGetComputeMode")),
        "driver_model": _driver_model(facts),
        "virtualization": codes.VIRTUALIZATIONS.get(facts.get("virtualization", "nvmlDeviceGetVirtualizationMode")),
        "brand": codes.BRANDS.get(facts.get("brand", "nvmlDeviceGetBrand")),
    }
    device["memory"] = _memory(facts, str(device["name"]))
    device["errors"] = facts.errors
    fatal = facts.fatal
    if fatal is None and not (device["name"] or device["uuid"] or device.get("pci_bus_id")):
        # Drivers also say "unknown error" to every question about a GPU that fell off the bus.
        fatal = next(iter(facts.failures.values()), None)
    if fatal is not None:
        device |= {"error": fatal.reason, "error_code": fatal.code}
    return device


def _pci(facts: Facts) -> dict[str, object]:
    info = facts.get("pci_bus_id", "nvmlDeviceGetPciInfo")
    if info is None:
        return {}
    bus_id = info.busId.decode("ascii", "replace") if isinstance(info.busId, bytes) else info.busId
    return {"pci_bus_id": long_bus_id(bus_id), "pci_device_id": f"{int(info.pciDeviceId) >> 16:04X}"}


def _compute_capability(facts: Facts) -> str | None:
    pair = facts.get("compute_capability", "nvmlDeviceGetCudaComputeCapability")
    return None if pair is None else f"{pair[0]}.{pair[1]}"


def _memory(facts: Facts, name: str) -> dict[str, object]:
    unified = not codes.UNIFIED_NAMES.isdisjoint(name.replace("(", " ").replace(")", " ").split())
    info = facts.attempt("memory", lambda: _memory_info(facts))
    if info is None:
        return {"kind": "unified" if unified else "unknown"}
    reserved = getattr(info, "reserved", None)
    return {
        "total_bytes": int(info.total),
        "free_bytes": int(info.free),
        "used_bytes": int(info.used),
        "reserved_bytes": None if reserved is None else int(reserved),
        "kind": "unified" if unified else "dedicated",
    }


def _memory_info(facts: Facts) -> Any:
    """Ask with the second structure (driver 510 and newer), else with the first."""
    version = facts.nvml.constant("nvmlMemory_v2")
    if version is not None:
        try:
            return facts.nvml.call("nvmlDeviceGetMemoryInfo", facts.handle, version)
        except NvmlFailure as failure:
            if failure.lost:
                raise
    return facts.nvml.call("nvmlDeviceGetMemoryInfo", facts.handle)


def _driver_model(facts: Facts) -> str | None:
    pair = facts.attempt("driver_model", lambda: _driver_model_pair(facts))
    return None if pair is None else codes.DRIVER_MODELS.get(pair[0])


def _driver_model_pair(facts: Facts) -> Any:
    try:
        return facts.nvml.call("nvmlDeviceGetDriverModel", facts.handle)
    except NvmlFailure as failure:
        if failure.code != codes.FUNCTION_NOT_FOUND:
            raise
        # Bindings from 13.595 ask the second version of the function, which older drivers lack.
        return facts.nvml.call("nvmlDeviceGetDriverModel_v1", facts.handle)


def _health(facts: Facts) -> dict[str, object]:
    ecc_mode = facts.get("ecc_enabled", "nvmlDeviceGetEccMode")
    uncorrected, volatile = 1, 0
    ecc = facts.get("ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", uncorrected, volatile)
    retired = facts.get("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus")
    remapped = facts.get("remapped_rows", "nvmlDeviceGetRemappedRows")
    fabric = facts.attempt("fabric_state", lambda: _fabric(facts))
    return {
        "ecc_enabled": None if ecc_mode is None else bool(ecc_mode[0]),
        "ecc_uncorrected_volatile": None if ecc is None else int(ecc),
        "retired_pages_pending": None if retired is None else bool(retired),
        "remapped_rows_pending": None if remapped is None else bool(remapped[2]),
        "remapped_rows_failed": None if remapped is None else bool(remapped[3]),
        "fabric_state": None if fabric is None else codes.FABRIC_STATES.get(int(fabric.state)),
        "fabric_status_code": None if fabric is None else int(fabric.status),
    }


def _fabric(facts: Facts) -> Any:
    structure = facts.nvml.constant("c_nvmlGpuFabricInfoV_t")
    if structure is None:
        raise NvmlFailure(codes.FUNCTION_NOT_FOUND)
    info = structure()
    facts.nvml.call("nvmlDeviceGetGpuFabricInfoV", facts.handle, ctypes.byref(info))
    return info


def _mig(facts: Facts) -> dict[str, object] | None:
    mode = facts.get("mig", "nvmlDeviceGetMigMode")
    if mode is None:
        return None
    instances = _mig_instances(facts) if mode[0] else []
    return {"enabled": bool(mode[0]), "pending": bool(mode[1]), "instances": instances}


def _mig_instances(facts: Facts) -> list[dict[str, object]]:
    instances: list[dict[str, object]] = []
    count = facts.get("mig_instances", "nvmlDeviceGetMaxMigDeviceCount")
    for index in range(MAX_MIG_DEVICES if count is None else count):
        try:
            handle = facts.nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", facts.handle, index)
        except NvmlFailure as failure:
            # The indices have holes where no instance was made.
            if failure.code != codes.NOT_FOUND:
                instances.append({"error": failure.reason})
            continue
        instances.append(_mig_instance(Facts(facts.nvml, handle)))
    return instances


def _mig_instance(facts: Facts) -> dict[str, object]:
    attributes = facts.get("multiprocessors", "nvmlDeviceGetAttributes_v2")
    name = facts.text("name", "nvmlDeviceGetName")
    instance: dict[str, object] = {
        "uuid": facts.text("uuid", "nvmlDeviceGetUUID"),
        "name": name,
        "gpu_instance_id": facts.get("gpu_instance_id", "nvmlDeviceGetGpuInstanceId"),
        "compute_instance_id": facts.get("compute_instance_id", "nvmlDeviceGetComputeInstanceId"),
        "multiprocessors": None if attributes is None else int(attributes.multiprocessorCount),
        "memory": _memory(facts, str(name)),
    }
    if facts.fatal is not None:
        return instance | {"error": facts.fatal.reason}
    if facts.errors:
        return instance | {"error": "; ".join(f"{fact}: {reason}" for fact, reason in facts.errors.items())}
    return instance
