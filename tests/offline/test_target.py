"""A machine in words: what is understood, what is asked back, and what stays unknown."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from hwprobe.errors import InputError
from hwprobe.findings import Severity
from hwprobe.knowledge.gpu_names import find
from hwprobe.knowledge.gpus import Board, boards
from hwprobe.offline.target import report_of_target
from hwprobe.policy import CheckWish
from hwprobe.preflight import check
from hwprobe.source import SourceStatus


class Said(NamedTuple):
    text: str
    gpus: list[str]
    driver: str | None = None
    tensorflow: str | None = "2.21"


SAID = {
    "the sentence of the manual": Said(
        "2 x Tesla T4, driver 535.104.05, tensorflow 2.17", ["Tesla T4"] * 2, "535.104.05", "2.17"
    ),
    "no blank around the x": Said("2xT4", ["Tesla T4"] * 2),
    "the count behind": Said("3090 x 2", ["NVIDIA GeForce RTX 3090"] * 2),
    "the sign for times": Said("2 \u00d7 T4", ["Tesla T4"] * 2),
    "a bare count": Said("8 B200", ["NVIDIA B200"] * 8),
    "a name that begins with a number": Said("3090", ["NVIDIA GeForce RTX 3090"]),
    "two kinds, joined by a plus sign": Said("T4 + 2 x L4", ["Tesla T4", "NVIDIA L4", "NVIDIA L4"]),
    "parts joined by and": Said("T4 and driver 535.54.03 and tf 2.16", ["Tesla T4"], "535.54.03", "2.16"),
    "architectures joined by a plus sign": Said(
        "T4, tf 2.17, built for sm_75 + sm_80", ["Tesla T4"], tensorflow="2.17"
    ),
    "a name without blanks": Said("2xteslat4", ["Tesla T4"] * 2),
    "two kinds": Said("T4, 2 x L4", ["Tesla T4", "NVIDIA L4", "NVIDIA L4"]),
    "a family, which is alike in precision": Said("4 x A100", ["A100"] * 4),
    "a shop's name with its size": Said("A100 80GB", ["A100 80GB"]),
    "a MIG device of a label": Said("A100-SXM4-40GB-MIG-1g.5gb", ["NVIDIA A100-SXM4-40GB"]),
    "lines in place of commas": Said("T4\ndriver 535.54.03\n\ntensorflow 2.16\n", ["Tesla T4"], "535.54.03", "2.16"),
    "equals signs": Said("T4; driver=535.54.03; tensorflow==2.16", ["Tesla T4"], "535.54.03", "2.16"),
    "any letter case, a v before the version": Said(
        "TESLA t4, Driver v535.54, TF 2.16", ["Tesla T4"], "535.54", "2.16"
    ),
    "a build for the CPU": Said("T4, tensorflow-cpu 2.17", ["Tesla T4"], tensorflow="2.17"),
    "no TensorFlow": Said("T4, no tensorflow", ["Tesla T4"], tensorflow=None),
    "no GPU": Said("no gpu", []),
    "only a CPU": Said("CPU only, tensorflow 2.17", [], tensorflow="2.17"),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_what_is_understood(said: Said) -> None:
    report = report_of_target(said.text)
    assert [gpu.name for gpu in report.devices] == said.gpus
    assert (report.driver.version if report.driver is not None else None) == said.driver
    assert (report.tensorflow.version if report.tensorflow is not None else None) == said.tensorflow
    assert report.origin == " ".join(said.text.split())


REFUSED = {
    "nothing": ("", "names no GPU"),
    "no GPU and none denied": ("driver 535.104.05", "names no GPU"),
    "a name that could be several unlike boards": ("RTX 6000", "could be any of Quadro RTX 6000, NVIDIA RTX 6000 Ada"),
    "a name of half the catalogue": ("2 x RTX", "and 132 more"),
    "a misspelt name": ("2 x Tesla T44", "no board of the catalogue is called 'Tesla T44': did you mean Tesla T4"),
    "something else": ("a hundred horses", "'a hundred horses' is not understood. Accepted: 2 x Tesla T4"),
    "zero GPUs": ("0 x T4", "must be 1 or more"),
    "more GPUs than a machine has": ("200 x T4, 100 x L4", "more than 256"),
    "a driver without a version": ("T4, driver", "expected a form such as 'driver 535.104.05'"),
    "a driver that is no version": ("T4, driver newest", "'newest' is not a version of driver"),
    "TensorFlow that is no version": ("T4, tensorflow two", "'two' is not a version of TensorFlow"),
    "TensorFlow before the tables": ("T4, tensorflow 1.15", "older than 2.4"),
    "TensorFlow after the tables": ("T4, tensorflow 3.7", "newer than 2.22"),
    "two TensorFlows": ("T4, tensorflow 2.17, tf 2.18", "said beside '2.17'"),
    "two TensorFlows, one for the CPU": ("T4, tensorflow-cpu 2.17, tf 2.18", "said beside '2.17'"),
    "two drivers": ("T4, driver 535, driver 550", "said beside '535'"),
    "two platforms": ("T4, linux, windows", "said beside 'linux'"),
    "GPUs and none": ("T4, no gpu", "says that there are none"),
    "a driver and no GPU": ("no gpu, driver 535.104", "names a driver"),
    "TensorFlow and none": ("T4, no tensorflow, tensorflow 2.17", "says that there is none"),
    "a Python without that wheel": ("T4, tensorflow 2.21, python 3.9", "for Python 3.9: it is for 3.10 to 3.13"),
    "a Python too new for that wheel": ("T4, tensorflow 2.12, python 3.13", "for Python 3.13: it is for 3.8 to 3.11"),
    "an architecture that is none": ("T4, built for sm_x", "'sm_x' is no architecture"),
    "a CPU build with GPU code": ("T4, tensorflow-cpu 2.17, built for sm_75", "is not built for sm_75"),
    "a text without end": ("T4," * 4000, "longer than 4000 characters"),
    "parts without end": ("T4," * 100, "more than 64 parts"),
    "a part without end": ("x" * 500, "too long for one part"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_asked_back(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        report_of_target(text)
    assert str(caught.value).startswith("--target")
    assert says in str(caught.value)


def without_own_rules(wish: CheckWish) -> CheckWish:
    """HWP9xx speak of hwprobe itself, and of the day on which the test runs."""
    return replace(wish, ignore=("HWP9",))


DECIDED = {
    "T4": ("2 x T4", "mixed_float16", []),
    "A100": ("A100", "mixed_bfloat16", []),
    "the weakest decides": ("A100, T4", "mixed_float16", ["HWP403"]),
    "no Tensor Cores at 7.5": ("GTX 1660 Ti", "float32", ["HWP401"]),
    "bfloat16 came with 2.13": ("A100, tensorflow 2.12", "mixed_float16", ["HWP405"]),
    "no wheel has code for Blackwell": ("RTX 5090", "float32", ["HWP211"]),
    "a build that has": ("RTX 5090, tensorflow 2.17, built for sm_90 sm_120", "mixed_bfloat16", []),
    "architectures between commas": ("RTX 5090, tensorflow 2.17, built for sm_90, sm_120", "mixed_bfloat16", []),
    "H100 before its machine code": ("H100, tensorflow 2.15", "mixed_bfloat16", ["HWP212"]),
    "a driver older than the wheel's CUDA": ("T4, driver 470.82, tensorflow 2.17", "mixed_float16", ["HWP206"]),
    "a driver that cannot compile the wheel's PTX": (
        "H100, driver 525.60.13, tensorflow 2.15",
        "mixed_bfloat16",
        ["HWP207"],
    ),
    "a branch of drivers, of which some are older and some newer": (
        "T4, driver 525, tensorflow 2.17",
        "mixed_float16",
        [],
    ),
    "a branch that is older as a whole": ("T4, driver 515, tensorflow 2.17", "mixed_float16", ["HWP206"]),
    "a driver that need not": ("2 x T4, driver 535.104.05, tensorflow 2.17", "mixed_float16", []),
    "the wheel for Arm has no CUDA": ("GH200", "float32", ["HWP204"]),
    "nor that for Windows": ("RTX 3080, windows", "float32", ["HWP203"]),
    "which WSL does not mind": ("RTX 3080, wsl", "mixed_bfloat16", []),
    "a wheel for the CPU": ("T4, tensorflow-cpu 2.17", "float32", ["HWP202"]),
    "nothing is installed": ("T4, no tensorflow", "float32", ["HWP201"]),
    "a MIG device computes as its board": ("A100-SXM4-40GB-MIG-1g.5gb", "mixed_bfloat16", []),
    "no GPU is calm": ("no gpu", "float32", []),
}


@pytest.mark.parametrize(("text", "dtype_policy", "found"), DECIDED.values(), ids=DECIDED)
def test_what_is_decided_and_what_would_be_wrong(text: str, dtype_policy: str, found: list[str]) -> None:
    result = check(report=report_of_target(text), wish=without_own_rules)
    assert result.decision is not None
    assert result.decision.dtype_policy == dtype_policy
    seen = {finding.id: finding.severity for finding in result.findings}
    assert set(found) <= set(seen)
    assert {id_ for id_, severity in seen.items() if severity is not Severity.INFO} <= set(found)
    assert result.verdict == ("not_ready" if Severity.ERROR in seen.values() else "ready")


class TestUnknown:
    def test_what_the_text_does_not_say_is_unknown_and_says_so(self) -> None:
        report = report_of_target("2 x A100, tensorflow 2.17")
        for source in (
            report.sources.nvml,
            report.sources.cuda,
            report.sources.host,
            report.sources.tensorflow_runtime,
        ):
            assert (source.status, source.reason) == (SourceStatus.SKIPPED, "not part of the target")
        assert report.host.absent["pci_devices"] == "not part of the target"
        assert (report.host.python, report.host.machine, report.host.cpu_flags) == (None, None, None)
        assert report.driver is not None
        assert (report.driver.version, report.driver.cuda_version, report.keras) == (None, None, None)
        assert {gpu.memory.total_bytes for gpu in report.devices} == {None}

    def test_nothing_of_this_host_gets_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = report_of_target("T4")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        monkeypatch.setattr("platform.system", lambda: "Windows")
        assert report_of_target("T4") == before
        assert before.host.system == "Linux"

    def test_a_tensorflow_that_nobody_names_is_the_newest_and_the_answer_says_so(self) -> None:
        (assumption,) = report_of_target("T4").assumptions
        assert assumption.startswith("TensorFlow 2.21, the newest release that hwprobe knows, since none is named")

    def test_a_tensorflow_that_is_named_is_its_wheel(self) -> None:
        (assumption,) = report_of_target("T4, tensorflow 2.17").assumptions
        assert assumption == (
            "TensorFlow 2.17 as its wheel for Linux x86_64, with the CUDA libraries that it opens installed and found"
        )

    def test_a_release_that_does_not_find_its_libraries_is_named(self) -> None:
        (assumption,) = report_of_target("T4, tensorflow 2.16.1").assumptions
        assert "of those of the nvidia-* wheels it overlooks some by itself (HWP209)" in assumption

    def test_a_family_of_boards_says_which_and_leaves_the_memory_open(self) -> None:
        report = report_of_target("A100, tensorflow 2.17")
        assert report.assumptions[1].startswith("'A100' is one of NVIDIA A100 80GB PCIe")
        assert report.devices[0].memory.total_bytes is None

    def test_a_board_has_the_memory_of_the_catalogue(self) -> None:
        assert report_of_target("A100 80GB").devices[0].memory.total_bytes == 80 * 2**30

    def test_every_fact_that_can_be_said(self) -> None:
        report = report_of_target(
            "H100 PCIe, driver 550.54.15, cuda 12.4, tensorflow 2.17, keras 3.4.1, python 3.12, wsl, x86_64"
        )
        assert report.driver is not None
        assert report.keras is not None
        assert (report.driver.cuda_version, report.keras.version) == ("12.4", "3.4.1")
        assert (report.host.python, report.host.wsl, report.host.machine) == ("3.12", True, "x86_64")


class TestMig:
    def test_one_instance_is_visible_of_as_many_as_are_named(self) -> None:
        (gpu,) = report_of_target("3 x A100-SXM4-40GB-MIG-1g.5gb").devices
        assert gpu.mig is not None
        assert [(one.name, one.visible) for one in gpu.mig.instances] == [
            ("MIG 1g.5gb", True),
            ("MIG 1g.5gb", None),
            ("MIG 1g.5gb", None),
        ]
        assert gpu.memory.total_bytes is None

    def test_what_is_taken_for_granted_is_said(self) -> None:
        assumptions = report_of_target("3 x A100-SXM4-40GB-MIG-1g.5gb").assumptions
        assert assumptions[-1] == "the process computes on one MIG device, one of the 3, whose memory is unknown"

    def test_a_driver_by_its_branch_alone_is_said_to_be_known_in_part(self) -> None:
        assert report_of_target("T4, tf 2.17, driver 525").assumptions[-1] == (
            "driver 525 is some release of that branch: what depends on which one stays unknown"
        )
        assert len(report_of_target("T4, tf 2.17, driver 525.60.13").assumptions) == 1


class TestPython:
    @pytest.mark.parametrize("python", ["3.9", "3.9.18", "3.12", "3.12.7"])
    def test_one_that_the_wheel_is_for(self, python: str) -> None:
        assert report_of_target(f"T4, tensorflow 2.17, python {python}").host.python == python

    @pytest.mark.parametrize("python", ["3.8.18", "3.13", "3.13.1"])
    def test_one_that_it_is_not_for(self, python: str) -> None:
        with pytest.raises(InputError, match=f"no wheel of TensorFlow 2.17 for Python {python}: it is for 3.9 to 3.12"):
            report_of_target(f"T4, tensorflow 2.17, python {python}")

    def test_a_build_of_one_s_own_may_be_for_any(self) -> None:
        assert report_of_target("T4, tensorflow 2.17, python 3.13, built for sm_75").host.python == "3.13"


class TestTensorFlowOption:
    def test_it_names_the_tensorflow_of_a_text_that_names_none(self) -> None:
        report = report_of_target("T4", tensorflow="2.16")
        assert report.tensorflow is not None
        assert report.tensorflow.version == "2.16"

    @pytest.mark.parametrize("text", ["T4, tensorflow 2.17", "T4, built for sm_75"])
    def test_it_contradicts_a_text_that_names_one(self, text: str) -> None:
        with pytest.raises(InputError, match="leave out --tensorflow"):
            report_of_target(text, tensorflow="2.16")


@pytest.mark.parametrize("board", boards(), ids=lambda board: f"{board.name} {board.capability}")
def test_every_board_of_the_catalogue_can_be_a_target_or_is_asked_back(board: Board) -> None:
    match = find(board.name)
    if match.as_gpu() is None:
        with pytest.raises(InputError, match="could be any of"):
            report_of_target(board.name)
        return
    (gpu,) = report_of_target(board.name).devices
    assert (gpu.compute_capability, gpu.visible) == (board.capability, True)
