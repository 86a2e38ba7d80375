"""The boards that people train on.

PCI device ids come from the README of NVIDIA/open-gpu-kernel-modules 595.45.04, before Turing from pciutils/pciids at
c1c1254. Memory is what nvidia-smi prints for the board where a public dump shows it, else the nominal size.
Multiprocessors and clock (MHz) are NVIDIA's published ones; here they decide which board CUDA takes for the faster.
"""

from __future__ import annotations

from tests.machine.gpus import Gpu, gpu, size


def _geforce(name: str, capability: str, memory: str, device: str, multiprocessors: int, clock: int) -> Gpu:
    return gpu(
        f"NVIDIA GeForce {name}",
        capability,
        memory=memory,
        pci_device_id=device,
        multiprocessors=multiprocessors,
        clock_mhz=clock,
        brand="GeForce",
    )


def _datacenter(
    name: str, capability: str, memory: str, device: str, multiprocessors: int, clock: int, **facts: object
) -> Gpu:
    """With ECC. Rows are remapped from Ampere on, pages retired before."""
    made = gpu(
        name, capability, memory=memory, pci_device_id=device, multiprocessors=multiprocessors, clock_mhz=clock, **facts
    )
    bad_pages = "remapped_pending" if made.compute_capability >= (8, 0) else "retired_pending"
    return made.but(ecc=True, ecc_pending=True, **{bad_pages: False})


SPLITTABLE = {"mig_mode": False, "mig_pending": False}
ON_NVSWITCH = {**SPLITTABLE, "fabric_state": "completed"}
"""Boards with MIG; those of an NVSwitch fabric that is up."""

K80 = _datacenter("Tesla K80", "3.7", "11441 MiB", "102D", 13, 875)
GTX_980 = _geforce("GTX 980", "5.2", "4096 MiB", "13C0", 16, 1216)
P100 = _datacenter("Tesla P100-PCIE-16GB", "6.0", "16384 MiB", "15F8", 56, 1328, memory_reserved=size("103 MiB"))
GTX_1080_TI = _geforce("GTX 1080 Ti", "6.1", "11264 MiB", "1B06", 28, 1582)
GT_1030 = _geforce("GT 1030", "6.1", "2048 MiB", "1D01", 3, 1468)
V100 = _datacenter("Tesla V100-SXM2-16GB", "7.0", "16384 MiB", "1DB1", 80, 1530)
T4 = _datacenter("Tesla T4", "7.5", "15360 MiB", "1EB8", 40, 1590)
GTX_1660_TI = _geforce("GTX 1660 Ti", "7.5", "6144 MiB", "2182", 24, 1770)
T1200 = gpu(
    "NVIDIA T1200 Laptop GPU", "7.5", memory="4096 MiB", pci_device_id="1FBC", multiprocessors=16, clock_mhz=1425
)
A100 = _datacenter("NVIDIA A100-SXM4-80GB", "8.0", "81920 MiB", "20B2", 108, 1410, **SPLITTABLE)
A100_40GB = _datacenter("NVIDIA A100-SXM4-40GB", "8.0", "40960 MiB", "20B0", 108, 1410, **SPLITTABLE)
RTX_3090 = _geforce("RTX 3090", "8.6", "24576 MiB", "2204", 82, 1695)
RTX_4090 = _geforce("RTX 4090", "8.9", "24564 MiB", "2684", 128, 2520)
L4 = _datacenter("NVIDIA L4", "8.9", "23034 MiB", "27B8", 58, 2040)
H100 = _datacenter(
    "NVIDIA H100 80GB HBM3", "9.0", "81559 MiB", "2330", 132, 1980, memory_reserved=size("479 MiB"), **ON_NVSWITCH
)
H200 = _datacenter("NVIDIA H200", "9.0", "143771 MiB", "2335", 132, 1980, **ON_NVSWITCH)
B200 = _datacenter("NVIDIA B200", "10.0", "183359 MiB", "2901", 148, 1965, **ON_NVSWITCH)
RTX_5090 = _geforce("RTX 5090", "12.0", "32607 MiB", "2B85", 170, 2407)
GB10 = gpu(
    "NVIDIA GB10",
    "12.1",
    memory="122502 MiB",
    pci_device_id="2E12",
    multiprocessors=48,
    clock_mhz=2418,
    brand="NVIDIA RTX",
    pci_bus_id="0000000F:01:00.0",
    memory_readable=False,
    integrated=True,
)
