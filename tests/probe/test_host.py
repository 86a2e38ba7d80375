"""The host, from a folder that stands for its root, and from this process's environment."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from hwprobe.probe import host
from hwprobe.probe.host import ENVIRONMENT, ENVIRONMENT_PRESENCE, LINUX_ONLY, collect_host, read_kernel_module
from hwprobe.report import DeviceNode, Host, PciDevice
from hwprobe.serialize import from_json, to_json
from hwprobe.source import SourceStatus
from tests.machine import A100, T4, Machine, cpuinfo, meminfo
from tests.probe.site_packages import Site

GIB = 2**30
SCHEDULER_VARIABLES = {variable for _, variables in host.SCHEDULERS for variable in variables}


@pytest.fixture(autouse=True)
def plain_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*ENVIRONMENT, *ENVIRONMENT_PRESENCE, *SCHEDULER_VARIABLES}:
        monkeypatch.delenv(name, raising=False)
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container"):
        monkeypatch.delenv(name, raising=False)


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


def pci(address: str, vendor: str, device: str, kind: str) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{address}"
    return {f"{folder}/vendor": f"{vendor}\n", f"{folder}/device": f"{device}\n", f"{folder}/class": f"{kind}\n"}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_this_machine_is_read() -> None:
    found, source = collect_host()
    assert source.status is SourceStatus.OK
    assert (found.system, found.python) == ("Linux", platform.python_version())
    assert found.memory_total_bytes is not None
    assert found.memory_available_bytes is not None
    assert 0 < found.memory_available_bytes <= found.memory_total_bytes
    assert found.name is None
    assert from_json(to_json(found), Host) == found


def test_the_name_is_there_only_for_who_asks() -> None:
    assert collect_host(with_name=True)[0].name == platform.node()


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


def test_what_cannot_be_read_is_unknown_with_a_reason(tmp_path: Path) -> None:
    found, source = collect_host(tmp_path)
    assert source.status is SourceStatus.OK
    unknown = found.cpu_flags, found.memory_total_bytes, found.pci_devices, found.device_nodes, found.mapped_libraries
    assert unknown == (None,) * 5
    assert found.absent["pci_devices"] == f"{tmp_path}/sys/bus/pci/devices: No such file or directory"
    assert {"cpu_flags", "memory_total_bytes", "device_nodes", "mapped_libraries"} <= set(found.absent)


@pytest.mark.parametrize(
    ("release", "wsl"),
    [
        ("5.15.153.1-microsoft-standard-WSL2", True),
        ("4.4.0-19041-Microsoft", True),
        ("6.1.0-18-amd64", False),
        ("6.8.0-1030-azure", False),
    ],
)
def test_wsl_is_known_by_its_kernel(tmp_path: Path, release: str, wsl: bool) -> None:
    assert read(tmp_path, {"proc/sys/kernel/osrelease": f"{release}\n"}).wsl is wsl


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


CONTAINERS = [
    ("none", {}, {}, None),
    ("docker", {".dockerenv": ""}, {}, "docker"),
    ("podman", {"run/.containerenv": 'engine="podman-4.9.3"\n'}, {}, "podman"),
    ("a pod, by variable", {".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    ("a pod, by account", {"var/run/secrets/kubernetes.io/serviceaccount/token": "x"}, {}, "kubernetes"),
    ("apptainer", {}, {"APPTAINER_CONTAINER": "/images/tf.sif"}, "apptainer"),
    ("singularity", {}, {"SINGULARITY_CONTAINER": "/images/tf.sif"}, "apptainer"),
    ("LXC, by systemd", {"run/systemd/container": "lxc\n"}, {}, "lxc"),
    ("LXC, by variable", {}, {"container": "lxc"}, "lxc"),
    ("no engine's name", {"run/systemd/container": "\x1b[31m"}, {}, None),
    ("docker, by control group", {"proc/1/cgroup": "12:memory:/docker/0123\n"}, {}, "docker"),
    ("a pod, by control group", {"proc/1/cgroup": "1:name=systemd:/kubepods/pod1/2\n"}, {}, "kubernetes"),
    ("a service, by control group", {"proc/1/cgroup": "0::/init.scope\n"}, {}, None),
]


@pytest.mark.parametrize(
    ("files", "variables", "expected"), [case[1:] for case in CONTAINERS], ids=[case[0] for case in CONTAINERS]
)
def test_the_container_engine_is_known_by_its_marks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    variables: dict[str, str],
    expected: str | None,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read(tmp_path, files).container == expected


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
LIMITS = [
    ("no control groups", {}, None),
    ("version 2, without a limit", {"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "max\n"}, None),
    ("version 2", {"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": f"{8 * GIB}\n"}, 8 * GIB),
    (
        "version 2, a limit further up",
        {
            "proc/self/cgroup": "0::/job/step\n",
            f"{V2}/job/memory.max": f"{4 * GIB}",
            f"{V2}/job/step/memory.max": "max",
        },
        4 * GIB,
    ),
    (
        "version 2, the smallest counts",
        {"proc/self/cgroup": "0::/a/b\n", f"{V2}/a/memory.max": f"{GIB}", f"{V2}/a/b/memory.max": f"{2 * GIB}"},
        GIB,
    ),
    (
        "version 2, a path that leads out of the mount",
        {"proc/self/cgroup": "0::/../../outer\n", f"{V2}/memory.max": f"{GIB}"},
        GIB,
    ),
    (
        "version 1",
        {"proc/self/cgroup": "5:cpu,memory:/slurm/job_7\n", f"{V1}/slurm/job_7/memory.limit_in_bytes": f"{GIB}\n"},
        GIB,
    ),
    (
        "version 1 in a container, whose path does not exist there",
        {"proc/self/cgroup": "9:memory:/docker/0123\n", f"{V1}/memory.limit_in_bytes": f"{GIB}\n"},
        GIB,
    ),
    (
        "version 1, without a limit",
        {"proc/self/cgroup": "9:memory:/\n", f"{V1}/memory.limit_in_bytes": "9223372036854771712\n"},
        None,
    ),
    ("another controller", {"proc/self/cgroup": "9:cpu:/\n", f"{V1}/memory.limit_in_bytes": f"{GIB}\n"}, None),
    ("not a number", {"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "-1\n"}, None),
    ("a number without end", {"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "9" * 5000}, None),
]


@pytest.mark.parametrize(("files", "expected"), [case[1:] for case in LIMITS], ids=[case[0] for case in LIMITS])
def test_the_memory_limit_is_the_smallest_on_the_way_up(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    assert read(tmp_path, files).container_memory_limit_bytes == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "7"}, "slurm"),
        ({"SLURM_NNODES": "2"}, None),
        ({"PBS_JOBID": "7.server"}, "pbs"),
        ({"LSB_JOBID": "7"}, "lsf"),
        ({"JOB_ID": "7"}, None),
        ({"SGE_ROOT": "/opt/sge", "JOB_ID": "7"}, "sge"),
        ({"FLUX_JOB_ID": "f1"}, "flux"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "SLURM_JOB_ID": "7"}, "slurm"),
    ],
)
def test_the_scheduler_is_known_by_its_jobs_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert read(tmp_path).scheduler == expected


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


def test_only_allowed_variables_enter_and_an_empty_one_is_not_an_unset_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["node1.example:2222"]}}')
    monkeypatch.setenv("SLURM_JOB_ID", "")
    found = read(tmp_path)
    assert found.environment == {
        "CUDA_VISIBLE_DEVICES": "",
        "SLURM_JOB_ID": "",
        "TF_CONFIG": "set",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


@pytest.mark.skipif(os.name != "posix", reason="variables are bytes on POSIX systems only")
def test_a_variable_that_is_no_text_can_still_be_written_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environb, b"LD_LIBRARY_PATH", b"/opt/\xff/lib")
    found = read(tmp_path)
    assert found.environment["LD_LIBRARY_PATH"] == "/opt/\N{REPLACEMENT CHARACTER}/lib"
    assert from_json(to_json(found), Host) == found


def test_the_allow_list_names_each_variable_once_and_no_secret() -> None:
    names = [*ENVIRONMENT, *ENVIRONMENT_PRESENCE]
    assert len(set(names)) == len(names)
    assert [
        name for name in names if any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "KEY_", "USER"))
    ] == []


def test_a_notebook_is_known_by_its_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert read(tmp_path).notebook is False
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert read(tmp_path).notebook is True


def test_cuda_libraries_that_this_process_has_loaded_are_named_once(tmp_path: Path) -> None:
    lines = [
        "7f00-7f10 r-xp 00000000 08:01 11   /site/torch/lib/libcudnn.so.8",
        "7f10-7f20 r--p 00010000 08:01 11   /site/torch/lib/libcudnn.so.8",
        "7f20-7f30 r-xp 00000000 08:01 12   /usr/lib/x86_64-linux-gnu/libc.so.6",
        "7f30-7f40 r-xp 00000000 08:01 13   /usr/lib/libcuda.so.535.104.05",
        "7f40-7f50 r-xp 00000000 00:00 0 ",
        "7f50-7f60 r-xp 00000000 08:01 14   /site/a folder/libcublasLt.so.12",
        "7f60-7f70 r-xp 00000000 08:01 15   /site/libcurl.so.4",
    ]
    found = read(tmp_path, {"proc/self/maps": "\n".join(lines) + "\n"})
    assert found.mapped_libraries == (
        "/site/torch/lib/libcudnn.so.8",
        "/usr/lib/libcuda.so.535.104.05",
        "/site/a folder/libcublasLt.so.12",
    )


def test_other_frameworks_and_the_other_hwprobe_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path / "site-packages")
    for name, version in (("torch", "2.9.0"), ("jaxlib", "0.8.1"), ("tf-hwprobe", "0.1.0"), ("numpy", "2.4.6")):
        site.install(name, version)
    monkeypatch.setattr(sys, "path", [str(site.folder)])
    found = read(tmp_path / "root")
    assert [(each.name, each.version) for each in found.frameworks] == [("jaxlib", "0.8.1"), ("torch", "2.9.0")]
    assert found.foreign_hwprobe is None
    site.install("hwprobe", "1.2.3")
    foreign = read(tmp_path / "root").foreign_hwprobe
    assert foreign is not None
    assert foreign.version == "1.2.3"


@pytest.mark.parametrize("system", ["Windows", "Darwin", "FreeBSD"])
def test_elsewhere_each_reading_of_linux_is_absent_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "release", lambda: "10-microsoft")
    found = read(tmp_path, {"proc/driver/nvidia/version": "Kernel Module  1.2 ", ".dockerenv": ""})
    assert set(found.absent) == set(LINUX_ONLY)
    assert all(system in reason for reason in found.absent.values())
    assert [getattr(found, fact) for fact in LINUX_ONLY] == [None] * len(LINUX_ONLY)
    assert (found.system, found.kernel, found.wsl) == (system, "10-microsoft", False)
    assert read_kernel_module(tmp_path) is None


def test_elsewhere_memory_comes_from_psutil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    found = read(tmp_path)
    assert found.memory_total_bytes == psutil.virtual_memory().total


def test_elsewhere_without_psutils_answer_memory_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    def refuse() -> None:
        raise OSError("no such sysctl")

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    found = read(tmp_path)
    assert found.memory_total_bytes is None
    assert found.absent["memory_total_bytes"] == "psutil: no such sysctl"


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
    assert [device.bus_id for device in found.pci_devices] == [gpu.pci_bus_id.lower() for gpu in m.gpus]
    assert {device.driver for device in found.pci_devices} == {"nvidia"}
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} <= {node.path for node in found.device_nodes or ()}
