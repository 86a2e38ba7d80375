"""The host around the process, from a folder that stands for its root, and from this process's environment."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hwprobe.probe.host import ENVIRONMENT, ENVIRONMENT_PRESENCE, LINUX_ONLY, collect_host, read_kernel_module
from hwprobe.report import Host
from hwprobe.serialize import from_json, to_json
from hwprobe.source import SourceStatus
from tests.probe.host import read
from tests.probe.site_packages import Site

pytestmark = pytest.mark.usefixtures("plain_process")

GIB = 2**30


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
