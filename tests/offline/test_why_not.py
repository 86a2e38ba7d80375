"""Why a dtype policy is not chosen: the reasons, and changes that were tried and do allow it."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from hwprobe.configuration import DTYPE_POLICIES, DtypePolicy
from hwprobe.errors import InputError
from hwprobe.offline.target import report_of_target
from hwprobe.policy import DeviceOverride, Policy
from hwprobe.preflight import Check, check
from hwprobe.render.why_not import write_why_not
from hwprobe.report import Report, SharedLibrary
from hwprobe.serialize import from_json, to_json
from hwprobe.why_not import WhyNot, why_not
from tests.offline.filled import filled
from tests.reports import (
    A100,
    CPU_ONLY,
    T4,
    cpu_only,
    gpu,
    hidden,
    lost,
    mig,
    report,
    source,
    tensorflow_wheel,
)


def ask(facts: Report | str, wanted: DtypePolicy = "mixed_bfloat16", policy: Policy | None = None) -> WhyNot:
    site = policy or Policy()
    machine = report_of_target(facts) if isinstance(facts, str) else facts
    return why_not(check(report=machine, policy=site), site, wanted)


class Row(NamedTuple):
    """A machine, what is asked, and the changes that allow it: kind, words in it, a step."""

    facts: Report | str
    wanted: DtypePolicy
    changes: list[tuple[str, str, str]]


MISSING = SharedLibrary(soname="libcudnn.so.9", loads=False, error="no such file")
OVERLOOKED = SharedLibrary(
    soname="libcusolver.so.11",
    loads=False,
    error="libcusolver.so.11: cannot open shared object file: No such file or directory",
    found_at=("/env/lib/python3.11/site-packages/nvidia/cusolver/lib/libcusolver.so.11",),
)
ROWS = {
    "a weaker GPU among others": Row(
        report(gpus=[T4, A100]),
        "mixed_bfloat16",
        [
            (
                "hide",
                "hide Tesla T4 (7.5), which leaves NVIDIA A100-SXM4-80GB (8.0)",
                "CUDA_VISIBLE_DEVICES=GPU-00000001",
            )
        ],
    ),
    "the same in words, where no GPU has a UUID": Row(
        "T4, A100", "mixed_bfloat16", [("hide", "hide Tesla T4", "CUDA_VISIBLE_DEVICES=<UUID of A100 (8.0)>")]
    ),
    "no GPU that can": Row(
        "2 x T4", "mixed_bfloat16", [("board", "compute capability 8.0", "--supports mixed_bfloat16")]
    ),
    "no Tensor Cores": Row(
        "GTX 1660 Ti", "mixed_float16", [("board", "apart from GTX 16", "--supports mixed_float16")]
    ),
    "no GPU": Row(cpu_only(), "mixed_float16", [("board", "another board", "hwprobe gpus")]),
    "a release that is too old": Row(
        "A100, tensorflow 2.10",
        "mixed_bfloat16",
        [("tensorflow", "TensorFlow 2.13 or newer", "pip install 'tensorflow==2.13.*'   # and CUDA 11.8")],
    ),
    "a release that is too new for the board": Row(
        "GTX 980", "float32", [("tensorflow", "TensorFlow 2.16", "pip install 'tensorflow[and-cuda]==2.16.*'")]
    ),
    "a release whose CUDA the driver runs": Row(
        "H100, tensorflow 2.12, driver 470.82.01",
        "mixed_bfloat16",
        [("tensorflow", "TensorFlow 2.13 or newer", "pip install 'tensorflow==2.13.*'")],
    ),
    "a wheel that needs a newer driver": Row(
        report(gpus=[A100], tensorflow=CPU_ONLY, driver="470.82.01"),
        "mixed_bfloat16",
        [("tensorflow", "NVIDIA driver 525.60.13 or newer, and TensorFlow 2.21 with CUDA", "update the NVIDIA driver")],
    ),
    "another Python would need another release": Row(
        "A100, tensorflow 2.12, python 3.11",
        "mixed_bfloat16",
        [("tensorflow", "TensorFlow 2.13 or newer", "pip install 'tensorflow==2.13.*'")],
    ),
    "a board that no wheel has code for": Row(
        "RTX 5090",
        "mixed_bfloat16",
        [("build", "a build of TensorFlow with code for sm_120", "nvcr.io/nvidia/tensorflow")],
    ),
    "a wheel without CUDA for this processor": Row(
        "GH200", "mixed_bfloat16", [("build", "a build of TensorFlow with code for sm_90", "nvcr.io/nvidia/tensorflow")]
    ),
    "a build for the CPU": Row(
        report(gpus=[A100], tensorflow=CPU_ONLY),
        "mixed_bfloat16",
        [("tensorflow", "TensorFlow 2.21 with CUDA", "pip install 'tensorflow[and-cuda]==2.21.*'")],
    ),
    "a library that does not load": Row(
        report(gpus=[A100], tensorflow=tensorflow_wheel(libraries=(MISSING,)), lists=[]),
        "mixed_bfloat16",
        [("tensorflow", "TensorFlow 2.21 with the CUDA libraries", "pip install 'tensorflow[and-cuda]==2.21.*'")],
    ),
    "a library that lies where this TensorFlow does not look": Row(
        report(gpus=[A100], tensorflow=tensorflow_wheel(libraries=(OVERLOOKED,)), lists=[]),
        "mixed_bfloat16",
        [
            ("repair", "libcusolver.so.11: installed by the nvidia-* wheels", "export LD_LIBRARY_PATH="),
            ("tensorflow", "TensorFlow 2.20 with the CUDA libraries", "pip install 'tensorflow[and-cuda]==2.20.*'"),
        ],
    ),
    "no TensorFlow": Row(
        "A100, no tensorflow",
        "mixed_bfloat16",
        [("tensorflow", "TensorFlow 2.21 with CUDA", "pip install 'tensorflow[and-cuda]==2.21.*'")],
    ),
    "native Windows": Row(
        "RTX 3090, windows", "mixed_bfloat16", [("tensorflow", "TensorFlow under WSL2", "wsl --install")]
    ),
    "two changes at once": Row(
        "RTX 5090, T4",
        "mixed_bfloat16",
        [("build", "code for sm_120: no wheel of the package index has it here, and hide Tesla T4", "nvcr.io")],
    ),
    "another release and fewer GPUs": Row(
        "A100, T4, tensorflow 2.12",
        "mixed_bfloat16",
        [("tensorflow", "TensorFlow 2.13, and hide Tesla T4 (7.5), which leaves A100 (8.0)", "pip install")],
    ),
    "a variable that hides them": Row(
        report(gpus=[hidden(A100)], environment={"CUDA_VISIBLE_DEVICES": ""}),
        "mixed_bfloat16",
        [("environment", "show the GPUs that CUDA_VISIBLE_DEVICES='' hides", "unset CUDA_VISIBLE_DEVICES")],
    ),
    "a driver that does not start": Row(
        report(
            gpus=[hidden(A100)],
            tensorflow=tensorflow_wheel(),
            sources={"cuda": source("failed", "cuInit", code=802, error="CUDA_ERROR_SYSTEM_NOT_READY")},
        ),
        "mixed_bfloat16",
        [("repair", "[HWP111]", "nvidia-fabricmanager")],
    ),
    "MIG without instances": Row(report(gpus=[mig(A100)]), "mixed_bfloat16", [("repair", "[HWP304]", "nvidia-smi")]),
    "a GPU of another make": Row(
        report(
            gpus=[gpu("AMD Instinct MI300X", None, kind="other", tensorflow_name="GPU:0")],
            tensorflow=tensorflow_wheel(is_cuda_build=False, is_rocm_build=True),
            driver=None,
        ),
        "mixed_bfloat16",
        [("policy", "measure it, and allow it for this board in a policy file", "hwprobe bench")],
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_would_allow_it(row: Row) -> None:
    answer = ask(row.facts, row.wanted)
    assert not answer.usable
    assert [change.kind for change in answer.changes] == [kind for kind, _, _ in row.changes]
    for change, (_, what, step) in zip(answer.changes, row.changes, strict=True):
        assert what in change.what
        assert step in "\n".join(change.steps)


def test_a_lost_gpu_is_left_aside_with_its_reason() -> None:
    answer = ask(report(gpus=[A100, lost(A100)]))
    assert answer.usable
    assert [(device.usable, device.reason) for device in answer.devices[1:]] == [
        (False, "the device does not work: GPU is lost")
    ]
    assert answer.causes[0].id == "HWP120"


class TestPolicies:
    DENIED = Policy(
        name="site", devices=(DeviceOverride(name="*A100*", deny=("mixed_bfloat16",), reason="house rule"),)
    )

    def test_a_site_that_denies_it_is_named_with_its_reason(self) -> None:
        answer = ask(report(gpus=[A100]), policy=self.DENIED)
        (change,) = answer.changes
        assert (change.kind, answer.decision.dtype_policy) == ("policy", "mixed_float16")
        assert "site denies it for '*A100*', since house rule" in change.what

    def test_where_another_one_is_preferred_asking_for_it_is_enough(self) -> None:
        answer = ask(report(gpus=[A100]), "mixed_float16")
        assert answer.usable
        (change,) = answer.changes
        assert change.kind == "none"
        assert change.steps[0] == "hwprobe run --dtype-policy mixed_float16 train.py"

    def test_where_it_is_chosen_nothing_has_to_change(self) -> None:
        answer = ask(report(gpus=[A100]))
        assert (answer.usable, answer.changes) == (True, ())


class TestEveryDevice:
    def test_each_says_why(self) -> None:
        answer = ask(report(gpus=[T4, A100]))
        assert [(device.label, device.usable) for device in answer.devices] == [
            ("Tesla T4 (7.5)", False),
            ("NVIDIA A100-SXM4-80GB (8.0)", True),
        ]
        assert answer.devices[0].reason.startswith("no bfloat16 in its Tensor Cores")

    def test_what_the_board_lacks_is_said_before_what_the_release_lacks(self) -> None:
        answer = ask("T4, K80, A100 80GB, tensorflow 2.12")
        assert [device.reason for device in answer.devices] == [
            "no bfloat16 in its Tensor Cores (compute capability 7.5; bfloat16 needs 8.0)",
            "no Tensor Cores: compute capability 3.7, they begin with 7.0",
            "TensorFlow 2.12 lacks bfloat16 kernels on GPUs; 2.13 is the first with them",
        ]

    def test_without_tensorflow_a_board_that_cannot_is_not_called_unknown(self) -> None:
        usable = [device.usable for device in ask("T4, A100 80GB, no tensorflow").devices]
        assert usable == [False, None]

    def test_what_was_taken_for_granted_goes_along(self) -> None:
        answer = ask("A100")
        assert answer.origin == "A100"
        assert "newest release that hwprobe knows" in answer.assumptions[0]

    def test_a_check_without_a_report_has_no_answer(self) -> None:
        refused = Check(hwprobe="0.1.0", verdict="unknown", error="no such policy")
        with pytest.raises(InputError, match="no such policy"):
            why_not(refused, Policy(), "float32")


def text(answer: WhyNot) -> str:
    stream = io.StringIO()
    write_why_not(answer, stream)
    return stream.getvalue()


class TestText:
    def test_one_page(self) -> None:
        facts = replace(report(gpus=[T4, T4, A100], tensorflow="2.21.0"), origin="machine.json")
        assert text(ask(facts)) == (
            "mixed_bfloat16 is not usable here; hwprobe chooses mixed_float16 with dynamic loss scaling: "
            "limited by 2 x Tesla T4 (7.5)\n"
            "not this machine: machine.json\n"
            "\n"
            "Tesla T4 (7.5)  GPU-00000000-0000-0000-0000-000000000000, GPU-00000001-0000-0000-0000-000000000000\n"
            "  no: no bfloat16 in its Tensor Cores (compute capability 7.5; bfloat16 needs 8.0)\n"
            "\n"
            "NVIDIA A100-SXM4-80GB (8.0)  GPU-00000002-0000-0000-0000-000000000000\n"
            "  yes: Tensor Cores for bfloat16; sm_80 is machine code for 8.0\n"
            "\n"
            "what would allow it:\n"
            "  hide 2 x Tesla T4 (7.5), which leaves NVIDIA A100-SXM4-80GB (8.0)\n"
            "    export CUDA_VISIBLE_DEVICES=GPU-00000002-0000-0000-0000-000000000000\n"
        )

    @pytest.mark.parametrize(
        ("facts", "wanted", "head"),
        [
            ("A100", "mixed_bfloat16", "mixed_bfloat16 without loss scaling: A100 (8.0): hwprobe chooses it here"),
            (
                "A100",
                "mixed_float16",
                "mixed_bfloat16 without loss scaling: A100 (8.0): mixed_float16 is usable here too",
            ),
            (
                "GTX 980",
                "mixed_float16",
                "mixed_float16 is not usable here, and nothing else is known to be: hwprobe is left with float32",
            ),
        ],
    )
    def test_the_first_line(self, facts: str, wanted: DtypePolicy, head: str) -> None:
        assert text(ask(facts, wanted)).splitlines()[0].startswith(head)

    def test_a_name_with_a_terminal_s_commands_in_it_stays_text(self) -> None:
        assert "\x1b" not in text(ask(report(gpus=[gpu("T4\x1b[2J", "7.5")])))


def test_every_field_comes_back() -> None:
    answer: Any = filled(WhyNot)
    assert from_json(to_json(answer), WhyNot) == answer


@pytest.mark.parametrize("wanted", DTYPE_POLICIES)
@pytest.mark.parametrize(
    "facts",
    ["T4", "A100", "RTX 5090", "GTX 980", "no gpu", "GH200", "RTX 3090, windows, tensorflow 2.10", "A100, T4, GTX 980"],
)
def test_there_is_a_way_to_whatever_is_not_chosen(facts: str, wanted: DtypePolicy) -> None:
    answer = ask(facts, wanted)
    chosen = answer.usable and answer.decision.dtype_policy == wanted
    assert bool(answer.changes) is not chosen
    assert all(change.what and change.steps for change in answer.changes)
