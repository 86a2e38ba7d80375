"""The hardware of a host, from a folder that stands for its root: processor, memory, PCI bus, nodes, kernel module."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hwprobe.probe.host import read_kernel_module
from hwprobe.report import DeviceNode, Host, PciDevice
from hwprobe.serialize import from_json
from tests.machine import A100, T4, Machine, cpuinfo
from tests.probe.host import read

pytestmark = pytest.mark.usefixtures("plain_process")


def pci(address: str, vendor: str, device: str, kind: str) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{address}"
    return {f"{folder}/vendor": f"{vendor}\n", f"{folder}/device": f"{device}\n", f"{folder}/class": f"{kind}\n"}


def test_processor_and_memory(tmp_path: Path) -> None:
    found = read(
        tmp_path, {"proc/cpuinfo": cpuinfo("Intel(R) Xeon(R) 6980P", "fpu f16c avx512_bf16 amx_bf16 amx_tile")}
    )
    assert found.cpu_model == "Intel(R) Xeon(R) 6980P"
    assert found.cpu_flags == ("amx_bf16", "avx512_bf16", "f16c")
    assert (found.memory_total_bytes, found.memory_available_bytes) == (65_536_000 * 1024, 60_000_000 * 1024)
    assert found.kernel == "6.1.0-18-amd64"
    assert found.absent == {}


def test_a_processor_without_any_of_the_flags_has_none_of_them_and_is_not_unknown(tmp_path: Path) -> None:
    assert read(tmp_path, {"proc/cpuinfo": cpuinfo(flags="fpu sse")}).cpu_flags == ()


def test_an_arm_processor_has_features_and_no_model(tmp_path: Path) -> None:
    found = read(tmp_path, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd4f\n"})
    assert (found.cpu_model, found.cpu_flags) == (None, ())


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/device-tree/model": "Raspberry Pi 5 Model B\0"}, None),
        ({"proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0"}, "NVIDIA Jetson AGX Orin Developer Kit"),
        ({"etc/nv_tegra_release": "# R32 (release), REVISION: 7.1\nmore\n"}, "# R32 (release), REVISION: 7.1"),
    ],
)
def test_a_jetson_board_is_known_by_its_model(tmp_path: Path, files: dict[str, str], expected: str | None) -> None:
    assert read(tmp_path, files).tegra == expected


def test_display_controllers_are_listed_and_nothing_else(tmp_path: Path) -> None:
    files = {
        **pci("0000:65:00.0", "0x10de", "0x1eb8", "0x030200"),
        **pci("0000:65:00.1", "0x10de", "0x10f8", "0x040300"),
        **pci("0000:00:02.0", "0x8086", "0x56a0", "0x030000"),
        **pci("10000:01:00.0", "0x1002", "0x74a1", "0x038000"),
        **pci("0000:66:00.0", "0x10de", "0x1af1", "0x068000"),
        **pci("0000:67:00.0", "", "0x1eb8", "0x030200"),
    }
    assert read(tmp_path, files).pci_devices == (
        PciDevice(bus_id="00000000:00:02.0", vendor_id="8086", device_id="56A0", class_id="0300"),
        PciDevice(bus_id="00000000:65:00.0", vendor_id="10de", device_id="1EB8", class_id="0302"),
        PciDevice(bus_id="00010000:01:00.0", vendor_id="1002", device_id="74A1", class_id="0380"),
    )


def test_a_controller_tells_its_kernel_driver_and_a_virtual_function_does_not_count(tmp_path: Path) -> None:
    files = pci("0000:65:00.0", "0x10de", "0x20b5", "0x030200") | pci("0000:65:00.4", "0x10de", "0x20b5", "0x030200")
    devices = tmp_path / "sys/bus/pci/devices"
    for address in ("0000:65:00.0", "0000:65:00.4"):
        (devices / address).mkdir(parents=True)
    (devices / "0000:65:00.0/driver").symlink_to("../../drivers/nouveau")
    (devices / "0000:65:00.4/physfn").symlink_to("../0000:65:00.0")
    (found,) = read(tmp_path, files).pci_devices or ()
    assert (found.bus_id, found.driver) == ("00000000:65:00.0", "nouveau")


def test_device_nodes_tell_who_may_use_them(tmp_path: Path) -> None:
    names = [
        "nvidia0",
        "nvidiactl",
        "nvidia-uvm",
        "dxg",
        "nvmap",
        "nvhost-ctrl-gpu",
        "nvidia-fs",
        "null",
        "nvidiahelper",
    ]
    files = dict.fromkeys((f"dev/{name}" for name in names), "")
    files["etc/passwd"] = f"someone:x:{os.getuid()}:0::/:/bin/sh\nbroken\n"
    files["etc/group"] = f"video:x:{os.getgid()}:\n"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch(mode=0o660)
    (tmp_path / "dev/nvidia0").chmod(0o660)
    (tmp_path / "dev/nvidia7").symlink_to("nowhere")
    found = {node.path: node for node in read(tmp_path, files).device_nodes or ()}
    assert sorted(found) == [
        *("/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia7"),
        *("/dev/nvidiactl", "/dev/nvmap"),
    ]
    assert found["/dev/nvidia0"] == DeviceNode(
        path="/dev/nvidia0", mode="0660", owner="someone", group="video", accessible=True
    )
    assert found["/dev/nvidia7"] == DeviceNode(path="/dev/nvidia7", error="No such file or directory")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may use every node")
def test_a_node_of_somebody_else_is_not_accessible(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch(mode=0o000)
    (node,) = read(tmp_path).device_nodes or ()
    assert (node.mode, node.accessible) == ("0000", False)


def test_owners_without_a_name_are_numbers(tmp_path: Path) -> None:
    (node,) = read(tmp_path, {"dev/nvidia0": ""}).device_nodes or ()
    assert (node.owner, node.group) == (str(os.getuid()), str(os.getgid()))


def test_no_gpu_means_an_empty_list_and_not_an_unknown_one(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.pci_devices, found.device_nodes, found.mapped_libraries) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023\nGCC version: 12.3.0\n",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (builder@host)\n",
            "550.54.14",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  610.47  Release Build\n", "610.47"),
        ("", None),
        (None, None),
    ],
)
def test_the_kernel_module_tells_its_version(tmp_path: Path, text: str | None, version: str | None) -> None:
    if text is not None:
        (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
        (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert read_kernel_module(tmp_path) == version


def test_a_machine_of_the_tests_shows_its_gpus(machine: Callable[..., Machine]) -> None:
    m = machine(gpus=[T4, A100], kernel_driver="550.90.07")
    done = m.python(
        "from hwprobe.probe.host import collect_host, read_kernel_module\n"
        "from hwprobe.serialize import to_json\n"
        "print(read_kernel_module())\n"
        "print(to_json(collect_host()[0]))\n"
    )
    assert done.returncode == 0, done.stderr
    version, _, text = done.stdout.partition("\n")
    found = from_json(text, Host)
    assert version == "550.90.07"
    assert found.absent.keys() <= {"mapped_libraries"}
    assert found.pci_devices is not None
    assert [device.bus_id for device in found.pci_devices] == [str(gpu.pci_bus_id).lower() for gpu in m.gpus]
    assert {device.driver for device in found.pci_devices} == {"nvidia"}
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} <= {node.path for node in found.device_nodes or ()}
