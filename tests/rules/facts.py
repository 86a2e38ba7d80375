"""Facts that the tables of several families start from."""

from __future__ import annotations

from typing import Any

import msgspec

from hwprobe.gpu import Gpu
from hwprobe.report import DeviceNode, Distribution, PciDevice, Report, SharedLibrary, TensorFlow
from hwprobe.source import Source
from tests.reports import report, source, tensorflow_wheel

UUID = "GPU-00000000-0000-0000-0000-000000000000"
"""Of the first GPU of a built report."""
SECOND_UUID = "GPU-00000001-0000-0000-0000-000000000000"

LIBRARIES = (
    *("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11"),
    *("libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.9"),
)
"""What TensorFlow 2.18 and newer open."""
SITE_PACKAGES = "/env/lib/python3.11/site-packages"


def pci(device_id: str = "20B2", *, vendor: str = "10de", driver: str | None = "nvidia", bus: int = 1) -> PciDevice:
    """A display controller; an A100 unless said otherwise."""
    return PciDevice(
        bus_id=f"00000000:{bus:02x}:00.0", vendor_id=vendor, device_id=device_id, class_id="0302", driver=driver
    )


def nodes(*names: str, **facts: Any) -> tuple[DeviceNode, ...]:
    """Device nodes with the usual mode, owned by root."""
    usual = {"mode": "0666", "owner": "root", "group": "root", "accessible": True}
    return tuple(DeviceNode(path=f"/dev/{name}", **{**usual, **facts}) for name in names)


NODES = nodes("nvidia0", "nvidiactl", "nvidia-uvm")
POD = {"container": "kubernetes", "device_nodes": NODES}
IN_POD = {"KUBERNETES_SERVICE_HOST": "set"}
WINDOWS = {"system": "Windows", "machine": "AMD64", "pci_devices": None}


def failed(code: int, error: str) -> Source:
    """A library that answered with an error."""
    return source("failed", f"{error} ({code})", code=code, error=error)


ABSENT = source("absent", "the library is not here")
CUDA_UNKNOWN = failed(999, "CUDA_ERROR_UNKNOWN")
NO_DRIVER = {"nvml": ABSENT, "cuda": ABSENT}


def unasked(gpu: Gpu) -> Gpu:
    """A GPU that NVML shows where CUDA could not be asked."""
    return msgspec.structs.replace(gpu, visible=None)


def without_cuda(*gpus: Gpu, cuda: Source = CUDA_UNKNOWN, **facts: Any) -> Report:
    """A machine on which NVML answers and CUDA does not start."""
    sources = {"cuda": cuda, **facts.pop("sources", {})}
    return report(gpus=[unasked(gpu) for gpu in gpus], sources=sources, lists=(), **facts)


def with_libraries(
    *broken: str, found: dict[str, str] | None = None, error: str | None = None, **facts: Any
) -> TensorFlow:
    """A wheel of TensorFlow 2.21 that tried its libraries; some do not load, and files of some lie somewhere."""
    found = found or {}
    not_found = "cannot open shared object file: No such file or directory"
    libraries = tuple(
        SharedLibrary(
            soname=name,
            loads=name not in broken,
            path=None if name in broken else f"/cuda/lib64/{name}",
            error=(error or f"{name}: {not_found}") if name in broken else None,
            found_at=(found[name],) if name in found else (),
            version="9.3.0" if "cudnn" in name and name not in broken else None,
        )
        for name in LIBRARIES
    )
    return tensorflow_wheel(**{"libraries": libraries, "location": f"{SITE_PACKAGES}/tensorflow", **facts})


def distributions(*names: str, version: str = "2.21.0", effective: str | None = None) -> tuple[Distribution, ...]:
    """Packages that own the top-level `tensorflow`."""
    return tuple(
        Distribution(name=name, version=version, in_effect=name == effective, ships_code=True) for name in names
    )


def in_cuda_order(facts: Report, *nvml_indices: int) -> Report:
    """A report whose visible GPUs CUDA numbers in another order than NVML; those that are not named are hidden."""
    devices = []
    for gpu in facts.devices:
        ordinal = nvml_indices.index(gpu.nvml_index) if gpu.nvml_index in nvml_indices else None
        name = None if ordinal is None else f"GPU:{ordinal}"
        devices.append(
            msgspec.structs.replace(gpu, cuda_index=ordinal, tensorflow_name=name, visible=ordinal is not None)
        )
    return msgspec.structs.replace(facts, devices=tuple(devices))
