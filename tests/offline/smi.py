"""Writes what nvidia-smi would say: XML from paths and texts, csv from columns.

xml(gpu(T4), driver="535.104.05")
csv(T4_ROW, {**T4_ROW, "index": "1"})
"""

from __future__ import annotations

from collections.abc import Mapping

T4: dict[str, str] = {
    "product_name": "Tesla T4",
    "product_brand": "NVIDIA",
    "persistence_mode": "Enabled",
    "mig_mode/current_mig": "N/A",
    "mig_mode/pending_mig": "N/A",
    "driver_model/current_dm": "N/A",
    "uuid": "GPU-7f1c2d3e-0000-4000-8000-000000000001",
    "gpu_virtualization_mode/virtualization_mode": "Pass-Through",
    "pci/pci_device_id": "1EB810DE",
    "pci/pci_bus_id": "00000000:00:1E.0",
    "fb_memory_usage/total": "15360 MiB",
    "fb_memory_usage/reserved": "450 MiB",
    "fb_memory_usage/used": "2 MiB",
    "fb_memory_usage/free": "14908 MiB",
    "compute_mode": "Default",
    "ecc_mode/current_ecc": "Enabled",
    "ecc_errors/volatile/sram_uncorrectable": "0",
    "ecc_errors/volatile/dram_uncorrectable": "0",
    "retired_pages/pending_retirement": "No",
    "remapped_rows": "N/A",
}
"""A T4 as driver 515 writes it."""

H100: dict[str, str] = {
    **T4,
    "product_name": "NVIDIA H100 80GB HBM3",
    "mig_mode/current_mig": "Disabled",
    "mig_mode/pending_mig": "Disabled",
    "uuid": "GPU-9e8d35e3-0000-4000-8000-000000000001",
    "pci/pci_device_id": "233010DE",
    "pci/pci_bus_id": "00000000:8F:00.0",
    "fb_memory_usage/total": "81559 MiB",
    "fb_memory_usage/free": "81077 MiB",
    "retired_pages/pending_retirement": "N/A",
    "remapped_rows/remapped_row_pending": "No",
    "remapped_rows/remapped_row_failure": "No",
    "fabric/state": "Completed",
    "fabric/status": "Success",
}
del H100["remapped_rows"]


def tree(facts: Mapping[str, str]) -> str:
    """Elements from paths: `{"pci/pci_bus": "01"}` is `<pci><pci_bus>01</pci_bus></pci>`."""
    heads = dict.fromkeys(path.partition("/")[0] for path in facts)
    written = ""
    for head in heads:
        inner = {path.partition("/")[2]: text for path, text in facts.items() if path.partition("/")[0] == head}
        written += f"<{head}>{inner[''] if '' in inner else tree(inner)}</{head}>\n"
    return written


def gpu(facts: Mapping[str, str], *mig_devices: Mapping[str, str], id_: str = "00000000:00:1E.0") -> str:
    instances = "".join(f"<mig_device>{tree(each)}</mig_device>" for each in mig_devices) or "None"
    return f'<gpu id="{id_}">\n{tree(facts)}<mig_devices>{instances}</mig_devices></gpu>\n'


def xml(
    *gpus: str, driver: str = "535.104.05", cuda: str = "12.2", dtd: str = "v12", attached: int | None = None
) -> str:
    count = len(gpus) if attached is None else attached
    return (
        f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_{dtd}.dtd">\n<nvidia_smi_log>\n'
        f"<driver_version>{driver}</driver_version>\n<cuda_version>{cuda}</cuda_version>\n"
        f"<attached_gpus>{count}</attached_gpus>\n{''.join(gpus)}</nvidia_smi_log>\n"
    )


ROW: dict[str, str] = {
    "index": "0",
    "name": "NVIDIA H100 80GB HBM3",
    "driver_version": "590.48.01",
    "compute_cap": "9.0",
    "uuid": "GPU-9e8d35e3-0000-4000-8000-000000000001",
    "pci.bus_id": "00000000:00:09.0",
    "pci.device_id": "0x233010DE",
    "persistence_mode": "Enabled",
    "driver_model.current": "[N/A]",
    "compute_mode": "Default",
    "memory.total [MiB]": "81559 MiB",
    "memory.reserved [MiB]": "479 MiB",
    "memory.used [MiB]": "0 MiB",
    "memory.free [MiB]": "81081 MiB",
    "ecc.mode.current": "Enabled",
    "ecc.errors.uncorrected.volatile.total": "0",
    "retired_pages.pending": "[N/A]",
    "remapped_rows.pending": "No",
    "remapped_rows.failure": "No",
    "mig.mode.current": "Disabled",
    "mig.mode.pending": "Disabled",
    "fabric.state": "Completed",
    "fabric.status": "Success",
}
"""An H100 as driver 590 writes it."""


def csv(*rows: Mapping[str, str]) -> str:
    lines = [", ".join(rows[0]), *(", ".join(row.values()) for row in rows)]
    return "\n".join(lines) + "\n"
