"""Reads the host from a folder that stands for its root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hwprobe.probe.host import collect_host
from hwprobe.report import Host
from hwprobe.source import SourceStatus
from tests.machine import cpuinfo, meminfo


def read(root: Path, files: Mapping[str, str] | None = None) -> Host:
    for name, text in {**HEALTHY, **(files or {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    (root / "dev").mkdir(exist_ok=True)
    found, source = collect_host(root)
    assert source.status is SourceStatus.OK
    return found


HEALTHY = {
    "proc/cpuinfo": cpuinfo(),
    "proc/meminfo": meminfo(total_kib=65_536_000, available_kib=60_000_000),
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "proc/self/maps": "",
}
