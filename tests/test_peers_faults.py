"""Faults that other tools of this kind had, each tried on hwprobe.

F16 cannot befall it: hwprobe reads no training code and clears none. Its audit probes a model that it is given, and
says what it did not check (`tests/model/test_command.py::test_what_was_not_checked_is_said`).
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hwprobe
from hwprobe.cli import main
from hwprobe.decide import Request, decide
from hwprobe.errors import UnsupportedError
from hwprobe.knowledge.gpu_names import find
from hwprobe.policy import Policy
from hwprobe.preflight import assess
from hwprobe.render.formats import FORMATS, write
from hwprobe.report import Report, SharedLibrary
from tests import machine as boards
from tests.machine import Machine
from tests.reports import (
    A100,
    CPU_ONLY,
    GTX_1080_TI,
    GTX_1660_TI,
    P100,
    T4,
    V100,
    cpu_only,
    gpu,
    report,
    tensorflow_wheel,
)
from tests.rules.facts import LIBRARIES, with_libraries
from tests.rules.table import Fires
from tests.rules.test_catalogue import TABLES
from tests.schema import valid

ROOT = Path(__file__).parents[1]
FAST = [sys.executable, "-m", "hwprobe", "check", "--fast", "--format", "json"]
PYTHON_ONLY = str(Path(sys.executable).parent)
"""A search path on which there is this Python and no nvidia-smi."""


def ids(facts: Report) -> set[str]:
    return {finding.id for finding in assess(facts, Policy()).findings}


def every_fix() -> str:
    """All that hwprobe tells anybody to do, on every set of facts on which a rule fires."""
    firing = [row.facts for table in TABLES for rows in table.values() for row in rows if isinstance(row.expect, Fires)]
    return "\n".join(step for facts in firing for finding in assess(facts, Policy()).findings for step in finding.fix)


def test_f1_nvml_is_read_where_there_is_no_nvidia_smi(machine: Callable[..., Machine]) -> None:
    """A tool decoded what is text already, inside a catch-all, and saw no driver in a slim container."""
    answer = valid(machine(gpus=[boards.T4]).run(FAST, timeout=240, PATH=PYTHON_ONLY).stdout)
    assert (answer["report"]["driver"]["version"], answer["report"]["sources"]["nvml"]["status"]) == ("580.95.05", "ok")
    assert answer["report"]["devices"][0]["name"] == "Tesla T4"


@pytest.mark.parametrize("format_", FORMATS)
def test_f2_a_build_without_cuda_beside_a_driver_is_told_in_every_format(format_: str) -> None:
    """A tool ended in a traceback on the very case that it was advertised for."""
    check = assess(report(gpus=[T4], tensorflow=CPU_ONLY), Policy())
    assert check.exit_status == 1
    assert "HWP202" in write(check, format_)


class TestF3:
    """A tool's advice about TensorFlow was wrong in six ways."""

    @pytest.mark.parametrize(("driver", "found"), [("450.80.02", {"HWP206"}), ("525.60.13", set())])
    def test_a_cuda_version_of_three_parts_is_compared(self, driver: str, found: set[str]) -> None:
        assert ids(report(gpus=[T4], driver=driver)) == found

    def test_nobody_is_sent_to_a_package_without_cuda_or_to_a_faulty_release(self) -> None:
        told = every_fix()
        assert "2.16.1" not in told
        assert not re.search(r"pip install '?tensorflow==", told)

    def test_an_unset_library_path_is_no_fault(self) -> None:
        check = assess(report(gpus=[T4], tensorflow=with_libraries()), Policy())
        assert check.findings == ()

    def test_the_cudnn_that_is_recommended_is_of_the_major_that_was_built_with(self) -> None:
        old = SharedLibrary(soname="libcudnn.so.9", loads=True, path="/cuda/libcudnn.so.9", version="9.0.0")
        (finding,) = assess(report(gpus=[T4], tensorflow=tensorflow_wheel(libraries=(old,))), Policy()).findings
        assert finding.fix == ("pip install --upgrade 'nvidia-cudnn-cu12>=9.3,<10'",)

    def test_code_is_looked_for_where_tensorflow_is_all_there_is(self) -> None:
        code = assess(report(gpus=[V100]), Policy()).decision
        assert code is not None
        assert "sm_70 is machine code for 7.0" in code.usability[0].policies["float32"].reason

    def test_both_of_two_unlike_gpus_are_judged(self) -> None:
        decision = decide(report(gpus=[A100, P100]), Policy())
        assert [device.label for device in decision.usability] == [A100.label, P100.label]
        assert decision.dtype_policy == "float32"


@pytest.mark.parametrize(
    ("driver", "too_old"),
    [("535.104.05", False), ("535.54.03", False), ("1000.10.01", False), ("61.10.01", True)],
)
def test_f4_driver_versions_are_compared_as_numbers(driver: str, too_old: bool) -> None:
    """A tool compared them as text: 535.104 was older than 535.54, and 61 newer than either."""
    assert ("HWP206" in ids(report(gpus=[T4], driver=driver))) is too_old


def test_f5_no_banner_of_nvidia_smi_is_read(machine: Callable[..., Machine], tmp_path: Path) -> None:
    """Driver 610 renamed the labels of the banner, and five tools read nothing or the wrong number."""
    ran = tmp_path / "ran"
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\ntouch {ran}\necho '| NVIDIA-SMI 1.2  KMD Version: 1.2  CUDA UMD Version: 99.9 |'\n")
    fake.chmod(0o755)
    m = machine(gpus=[boards.T4], driver="610.47.02", cuda="13.3")
    answer = valid(m.run(FAST, timeout=240, PATH=f"{tmp_path}{os.pathsep}{PYTHON_ONLY}").stdout)
    driver = answer["report"]["driver"]
    assert (driver["version"], driver["cuda_version"]) == ("610.47.02", "13.3")
    assert not ran.exists()


def keys(value: object) -> set[str]:
    """Names of all keys anywhere in a JSON value, apart from those of maps by name."""
    if isinstance(value, dict):
        return {str(key) for key in value} | {name for inner in value.values() for name in keys(inner)}
    return {name for inner in value for name in keys(inner)} if isinstance(value, list) else set()


@pytest.mark.parametrize("home", ["/root", "/home/python", "/home/home", "/home/cuda"])
def test_f6_no_key_depends_on_who_runs_it(
    home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool replaced the user's name everywhere in its JSON, keys included."""
    for name in ("CUDA_VISIBLE_DEVICES", "HWPROBE_POLICY"):
        monkeypatch.delenv(name, raising=False)
    main(["check", "--fast", "--format", "json"])
    before = keys(valid(capsys.readouterr().out))
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("USER", home.rpartition("/")[2])
    main(["check", "--fast", "--format", "json"])
    text = capsys.readouterr().out
    assert keys(valid(text)) == before
    assert "<user>" not in text


def test_f7_a_newer_toolkit_that_nobody_uses_is_no_fault() -> None:
    """A tool compared the driver with whatever toolkit lay on the disk, and strictly."""
    libraries = tuple(
        SharedLibrary(soname=name, loads=True, other_versions=(f"/usr/local/cuda-13.0/lib64/{name[:-2]}13",))
        for name in LIBRARIES
    )
    facts = report(gpus=[T4], tensorflow=tensorflow_wheel(libraries=libraries), driver="550.54.14")
    assert ids(facts) == set()


class TestF8:
    """A tool denied a virtual environment that was not activated, and sold GPUs to a machine without one."""

    def test_the_environment_is_the_interpreters(self, machine: Callable[..., Machine]) -> None:
        answer = valid(machine(driver=None, toolkit=None).run(FAST, timeout=240, VIRTUAL_ENV=None).stdout)
        host = answer["report"]["host"]
        assert (host["prefix"], host["executable"]) == (sys.prefix, sys.executable)
        assert answer["report"]["tensorflow"]["version"]

    def test_a_machine_without_a_gpu_is_sold_none(self) -> None:
        (finding,) = assess(cpu_only(tensorflow=None), Policy()).findings
        assert finding.fix == ("pip install tensorflow",)


def test_f9_a_chosen_gpu_is_the_first_of_this_process(machine: Callable[..., Machine]) -> None:
    """A tool gave the number of the whole machine to a process that sees one GPU."""
    m = machine(gpus=[boards.T4, boards.T4])
    answer = valid(m.run(FAST, timeout=240, CUDA_VISIBLE_DEVICES="1").stdout)
    seen = [(one["nvml_index"], one["cuda_index"], one["visible"]) for one in answer["report"]["devices"]]
    assert seen == [(0, None, False), (1, 0, True)]


def test_f10_a_cpu_is_said_to_be_one_and_nothing_is_critical() -> None:
    """A tool reported a passed test without saying where it ran, beside seven critical faults."""
    check = assess(cpu_only(), Policy())
    assert write(check, "text").splitlines()[0] == "float32: no usable GPU, computing on the CPU"
    assert (check.findings, check.exit_status) == ((), 0)


K80 = gpu("Tesla K80", "3.7", memory_gib=11, pci_device_id="102D", multiprocessors=13)
GTX_970 = gpu("NVIDIA GeForce GTX 970", "5.2", memory_gib=4, pci_device_id="13C2", multiprocessors=13)


@pytest.mark.parametrize("device", [K80, GTX_970, P100, GTX_1080_TI, GTX_1660_TI], ids=lambda device: device.name)
def test_f11_float16_is_not_for_everything_before_ampere(device: object) -> None:
    """A tool turned float16 on for every GPU that is too old for bfloat16, by device 0 alone."""
    for gpus in ([device], [V100, device], [device, V100]):
        assert decide(report(gpus=gpus, tensorflow="2.12.1"), Policy()).dtype_policy == "float32"  # type: ignore[arg-type]


def test_f12_what_a_framework_emulates_is_not_support() -> None:
    """A tool took a T4 for a bfloat16 GPU, and float16 on a CPU without a word."""
    assert decide(report(gpus=[T4]), Policy()).dtype_policy == "mixed_float16"
    for facts, wanted in ((report(gpus=[T4]), "mixed_bfloat16"), (cpu_only(), "mixed_float16")):
        with pytest.raises(UnsupportedError):
            decide(facts, Policy(), Request(dtype_policy=wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("Tesla T4", "7.5"),
        ("NVIDIA GeForce GTX 1660 Ti", "7.5"),
        ("NVIDIA TITAN V", "7.0"),
        ("Tesla K80", "3.7"),
        ("NVIDIA GB10", "12.1"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0"),
        ("NVIDIA A10G", "8.6"),
        ("NVIDIA B300 SXM6 AC", "10.3"),
    ],
)
def test_f13_the_drivers_own_names_are_known(name: str, capability: str) -> None:
    """A tool knew H100 and not "Tesla T4", and held three Blackwells for two."""
    match = find(name)
    assert {str(board.capability) for board in match.boards} == {capability}
    if name == "NVIDIA A10G":
        assert [board.name for board in match.boards] == ["NVIDIA A10G"]


def test_f14_every_name_that_readme_shows_is_in_the_package() -> None:
    """A tool's README imported a module that its wheel did not have."""
    shown = set(re.findall(r"\bhwprobe\.([A-Za-z_]+)\(", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert shown
    assert [name for name in shown if not hasattr(hwprobe, name)] == []


def test_f15_nothing_is_invented_and_nothing_is_left_in_from_debugging(
    machine: Callable[..., Machine],
) -> None:
    """A tool listed a mock GPU and printed its debug lines; another died without a driver."""
    done = machine(driver=None, toolkit=None).run(FAST, timeout=240)
    answer = valid(done.stdout)
    assert (done.returncode, done.stderr, answer["report"]["devices"]) == (0, "", [])


NETWORK = {"aiohttp", "asyncio", "ftplib", "http", "httpx", "requests", "smtplib", "socket", "ssl", "urllib", "urllib3"}


def test_f17_nothing_but_agreeing_with_other_workers_knows_a_network(tmp_path: Path) -> None:
    """A tool called home at import, kept a machine id, and ran what its server sent."""
    talking = set()
    for path in (ROOT / "hwprobe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if NETWORK & {name.partition(".")[0] for name in names}:
                talking.add(path.relative_to(ROOT / "hwprobe").parts[0])
    assert talking <= {"cluster"}


def test_f17_f18_nothing_is_left_behind(machine: Callable[..., Machine], tmp_path: Path) -> None:
    """A tool wrote an id into the home directory; a script left files in the folder that it was run in."""
    home, here, temporary = tmp_path / "home", tmp_path / "here", tmp_path / "tmp"
    for folder in (home, here, temporary):
        folder.mkdir()
    m = machine(gpus=[boards.T4])
    done = m.run(FAST, timeout=240, cwd=here, HOME=str(home), TMPDIR=str(temporary), PATH=PYTHON_ONLY)
    assert done.returncode == 0, done.stdout
    assert [path for folder in (home, here, temporary) for path in folder.rglob("*")] == []


def test_f18_packages_are_found_without_pip(machine: Callable[..., Machine], tmp_path: Path) -> None:
    """A script asked pip, which environments made by other tools do not have."""
    (tmp_path / "pip.py").write_text("raise ImportError('there is no pip here')\n")
    m = machine(driver=None, toolkit=None)
    path = os.pathsep.join([str(tmp_path), m.environment()["PYTHONPATH"]])
    answer = valid(m.run(FAST, timeout=240, PYTHONPATH=path, PATH="/nonexistent").stdout)
    assert answer["report"]["tensorflow"]["distributions"]
    assert answer["report"]["keras"]["version"]


def test_f18_a_cpu_build_has_a_version_and_no_cuda_rather_than_no_answer() -> None:
    """A script said of a CPU build that its CUDA could not be collected."""
    text = write(assess(cpu_only(tensorflow=CPU_ONLY), Policy()), "text")
    assert "TensorFlow 2.21.0 (no CUDA in it)" in text
