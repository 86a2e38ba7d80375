"""The CUDA driver by ctypes: which GPUs this process may use, in CUDA's own order, and whether CUDA starts at all.

No context is made, so nothing is taken on any GPU. `CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER` and MIG are applied by
the driver itself. Source: the CUDA Driver API reference, "Initialization", "Device Management", "Error Handling".
"""

from __future__ import annotations

import ctypes
import os

from hwprobe.probe.bootstrap import ReaderFailure
from hwprobe.probe.loader import CUDA_LIBRARY, loaded_library, long_bus_id, open_library, version_in_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    T = TypeVar("T")

SUCCESS = 0
NO_DEVICE = 100

ERRORS = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid value"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "the CUDA driver is not initialized"),
    4: ("CUDA_ERROR_DEINITIALIZED", "the CUDA driver is shutting down"),
    34: ("CUDA_ERROR_STUB_LIBRARY", "the library is the toolkit's stub for linking, not the driver"),
    36: ("CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the call needs a newer driver"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "the GPU is busy, or its compute mode shuts this process out"),
    100: ("CUDA_ERROR_NO_DEVICE", "CUDA sees no GPU"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device"),
    102: ("CUDA_ERROR_DEVICE_NOT_LICENSED", "the GPU needs a vGPU license"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "invalid context"),
    214: ("CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error on the GPU"),
    226: ("CUDA_ERROR_CONTAINED", "a memory error on the GPU was contained"),
    304: ("CUDA_ERROR_OPERATING_SYSTEM", "a call to the operating system failed"),
    500: ("CUDA_ERROR_NOT_FOUND", "not found"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "an earlier kernel failed"),
    800: ("CUDA_ERROR_NOT_PERMITTED", "not permitted"),
    801: ("CUDA_ERROR_NOT_SUPPORTED", "not supported"),
    802: (
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the system is not ready: a daemon of the driver does not run (yet)",
    ),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the CUDA library and the kernel module differ in version"),
    804: ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility does not cover this GPU"),
    805: ("CUDA_ERROR_MPS_CONNECTION_FAILED", "the MPS control daemon cannot be reached"),
    806: ("CUDA_ERROR_MPS_RPC_FAILURE", "the MPS server does not answer"),
    807: ("CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is not ready"),
    808: ("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has no room for another client"),
    810: ("CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client"),
    999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}

MULTIPROCESSORS = 16
INTEGRATED = 18
COMPUTE_MODE = 20
CAPABILITY_MAJOR = 75
CAPABILITY_MINOR = 76
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


class CudaFailure(Exception):  # noqa: N818 - "no device" is no error
    """A call that the driver did not answer with success.

    Args:
        function: Which one.
        code: The `CUresult`; None where this driver lacks the function.
        name: The driver's own name for it, where hwprobe's table has none.
    """

    def __init__(self, function: str, code: int | None, name: str | None = None) -> None:
        known, words = ERRORS.get(code or 0, (None, None))
        self.function = function
        self.code = code
        self.error = known or name
        if code is None:
            self.reason = f"this driver lacks {function}"
        else:
            self.reason = f"{function}: {words or 'error'} ({self.error or code})"
        super().__init__(self.reason)


class Driver:
    """The loaded library, with failures as exceptions."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, function: str, *arguments: object) -> None:
        """Call one function.

        Raises:
            CudaFailure: It did not succeed, or is not there.
        """
        try:
            code = int(getattr(self._library, function)(*arguments))
        except AttributeError as error:
            raise CudaFailure(function, None) from error
        if code != SUCCESS:
            raise CudaFailure(function, code, None if code in ERRORS else self._name(code))

    def _name(self, code: int) -> str | None:
        name = ctypes.c_char_p()
        try:
            failed = self._library.cuGetErrorName(code, ctypes.byref(name))
        except AttributeError:
            return None
        return None if failed or not name.value else name.value.decode("ascii", "replace")

    def integer(self, function: str, *arguments: object) -> int:
        """Call a function whose first parameter is an `int` to fill."""
        value = ctypes.c_int()
        self.call(function, ctypes.byref(value), *arguments)
        return value.value

    def attribute(self, number: int, device: int) -> int:
        """Ask one `CUdevice_attribute` of a device."""
        return self.integer("cuDeviceGetAttribute", number, device)

    def name(self, device: int) -> str:
        """Ask a device's name."""
        buffer = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", buffer, len(buffer), device)
        return buffer.value.decode("utf-8", "replace")

    def pci_bus_id(self, device: int) -> str | None:
        """Ask a device's PCI bus id, in NVML's long form."""
        buffer = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", buffer, len(buffer), device)
        return long_bus_id(buffer.value.decode("ascii", "replace"))

    def uuid(self, device: int) -> str:
        """Ask a device's UUID: that of the MIG instance where there is one. No prefix, since CUDA gives none."""
        buffer = (ctypes.c_ubyte * 16)()
        try:
            self.call("cuDeviceGetUuid_v2", buffer, device)
        except CudaFailure as failure:
            if failure.code is not None:
                raise
            # Drivers before 470 have only the first version, which does not know MIG instances.
            self.call("cuDeviceGetUuid", buffer, device)
        digits = bytes(buffer).hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def memory_bytes(self, device: int) -> int:
        """Ask how much memory a device has."""
        size = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        return size.value


def read(request: dict[str, object]) -> dict[str, object]:  # noqa: ARG001 - all readers have this form
    """Read the devices that CUDA lists for a process with this environment.

    Args:
        request: Nothing is taken from it.

    Returns:
        The fields of `hwprobe.probe.readings.CudaReading` as plain data.

    Raises:
        ReaderFailure: There is no library, or CUDA does not start or does not count. `CUDA_ERROR_NO_DEVICE` (100) is
            such a failure too: CUDA gives it where nothing is there and where everything is hidden.
    """
    driver = Driver(open_library(CUDA_LIBRARY))
    data = _library(driver)
    try:
        driver.call("cuInit", 0)
        return data | _devices(driver)
    except CudaFailure as failure:
        raise ReaderFailure("failed", failure.reason, code=failure.code, error=failure.error, data=data) from failure


def read_in_process() -> dict[str, object] | None:
    """Read the same from the libcuda that this process has loaded and started already, as TensorFlow does.

    Nothing is loaded or started here.

    Returns:
        As `read`; None where no libcuda is loaded, or it has not been started, or it does not answer.
    """
    driver = _loaded()
    if driver is None:
        return None
    try:
        return _library(driver) | _devices(driver)
    except CudaFailure:
        return None


def identify_in_process(ordinals: Iterable[int]) -> dict[int, tuple[str | None, str | None]]:
    """Ask the libcuda that this process has loaded already for bus ids and UUIDs.

    Args:
        ordinals: CUDA ordinals, as in the names of TensorFlow's devices.

    Returns:
        Ordinal to PCI bus id in NVML's long form and UUID without prefix, each None where the driver does not give it;
        empty if no libcuda is loaded here.
    """
    driver = _loaded()
    return {} if driver is None else {ordinal: _identity(driver, ordinal) for ordinal in ordinals}


def silence_in_process() -> CudaFailure | None:
    """Tell why the libcuda that this process has loaded already does not answer as one that was started does.

    In a copy of a process (`fork`) CUDA does not work if the original had started it.

    Returns:
        The failure; None if it answers, or if none is loaded here.
    """
    driver = _loaded()
    if driver is None:
        return None
    try:
        driver.integer("cuDeviceGetCount")
    except CudaFailure as failure:
        return failure
    return None


def active_in_process(ordinals: Iterable[int]) -> tuple[int, ...]:
    """Ask the libcuda that this process has loaded already on which GPUs this process has a CUDA context.

    Nothing that hwprobe calls makes one, nor does TensorFlow while it only lists devices.

    Args:
        ordinals: CUDA ordinals.

    Returns:
        Those with an active primary context; none if no libcuda is loaded here, or it does not say.
    """
    driver = _loaded()
    return () if driver is None else tuple(ordinal for ordinal in ordinals if _is_active(driver, ordinal))


def _is_active(driver: Driver, ordinal: int) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    try:
        device = driver.integer("cuDeviceGet", ordinal)
        driver.call("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
    except CudaFailure:
        return False
    return bool(active.value)


def _loaded() -> Driver | None:
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        return Driver(ctypes.CDLL(CUDA_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY))
    except OSError:
        return None


def _library(driver: Driver) -> dict[str, object]:
    path = loaded_library("libcuda.so")
    return {"library": path, "library_version": version_in_name(path), "cuda_version": _version(driver)}


def _devices(driver: Driver) -> dict[str, object]:
    return {"devices": [_device(driver, ordinal) for ordinal in range(driver.integer("cuDeviceGetCount"))]}


def _identity(driver: Driver, ordinal: int) -> tuple[str | None, str | None]:
    try:
        device = driver.integer("cuDeviceGet", ordinal)
    except CudaFailure:
        return None, None
    return _or_none(driver.pci_bus_id, device), _or_none(driver.uuid, device)


def _or_none(reading: Callable[[int], T], device: int) -> T | None:
    try:
        return reading(device)
    except CudaFailure:
        return None


def _version(driver: Driver) -> str | None:
    try:
        number = driver.integer("cuDriverGetVersion")
    except CudaFailure:
        return None
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


def _device(driver: Driver, ordinal: int) -> dict[str, object]:
    try:
        device = driver.integer("cuDeviceGet", ordinal)
    except CudaFailure as failure:
        return {"cuda_index": ordinal, "error": failure.reason}
    errors: dict[str, str] = {}

    def get(fact: str, reading: Callable[[], T]) -> T | None:
        try:
            return reading()
        except CudaFailure as failure:
            errors[fact] = failure.reason
            return None

    major = get("compute_capability", lambda: driver.attribute(CAPABILITY_MAJOR, device))
    minor = get("compute_capability", lambda: driver.attribute(CAPABILITY_MINOR, device))
    integrated = get("integrated", lambda: driver.attribute(INTEGRATED, device))
    mode = get("compute_mode", lambda: driver.attribute(COMPUTE_MODE, device))
    return {
        "cuda_index": ordinal,
        "name": get("name", lambda: driver.name(device)),
        "uuid": get("uuid", lambda: driver.uuid(device)),
        "pci_bus_id": get("pci_bus_id", lambda: driver.pci_bus_id(device)),
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "multiprocessors": get("multiprocessors", lambda: driver.attribute(MULTIPROCESSORS, device)),
        "memory_total_bytes": get("memory", lambda: driver.memory_bytes(device)),
        "integrated": None if integrated is None else bool(integrated),
        "compute_mode": COMPUTE_MODES.get(-1 if mode is None else mode),
        "errors": errors,
    }
