"""Every output format, on checks that hold everything that can go wrong."""

from __future__ import annotations

import datetime
import json
import re
from xml.etree import ElementTree as Xml

import msgspec
import pytest

from hwprobe.gpu import GpuMemory, MigInstance
from hwprobe.policy import CheckWish, Policy
from hwprobe.preflight import Check, assess
from hwprobe.render.formats import FORMATS, exit_status, write
from hwprobe.render.headline import headline
from hwprobe.render.nfd import write_nfd
from hwprobe.render.termination import LIMIT_BYTES
from hwprobe.render.text import memory_text, versions_line
from hwprobe.report import Keras
from hwprobe.requirements import parse_requirements
from hwprobe.serialize import from_json, to_json
from tests.reports import A100, GTX_1660_TI, RTX_5090, T4, cpu_only, gpu, hidden, lost, mig, report, source
from tests.schema import valid

CLEAR_SCREEN = "\x1b[2J"
EVIL = gpu(f"NVIDIA {CLEAR_SCREEN}\n::error::|<&\x00\ud7ff", "7.5", pci_device_id="1EB8")


def check(facts: object, require: str | None = None, fail_on: str = "error") -> Check:
    site = Policy(check=CheckWish(fail_on=fail_on))  # type: ignore[arg-type]
    requirements = parse_requirements([require] if require else [])
    return assess(facts, site, requirements=requirements)  # type: ignore[arg-type]


CHECKS = {
    "ready on a GPU": check(report(gpus=[A100])),
    "ready on a CPU": check(cpu_only()),
    "limited": check(report(gpus=[A100, T4])),
    "not ready": check(report(gpus=[RTX_5090])),
    "several findings": check(report(gpus=[lost(A100), RTX_5090, hidden(T4)]), require="gpus>=4"),
    "unknown": check(
        report(gpus=[T4], sources={"cuda": source("timeout"), "tensorflow_runtime": source("skipped")}), fail_on="never"
    ),
    "a hostile name": check(report(gpus=[EVIL, GTX_1660_TI]), require="gpus>=3"),
    "many findings": check(report(gpus=[RTX_5090] * 64), require="gpus>=65"),
    "wrong input": Check(hwprobe="0.1.0", verdict="unknown", error="policy x: no such file\n|"),
}


@pytest.fixture(params=list(CHECKS))
def any_check(request: pytest.FixtureRequest) -> Check:
    return CHECKS[request.param]


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_writes_every_check_without_control_characters(format_: str, any_check: Check) -> None:
    text = write(any_check, format_)
    assert CLEAR_SCREEN not in text
    assert "\x00" not in text
    assert exit_status(any_check, format_) in (0, 1, 2, 3)


def test_json_validates_against_the_schema_and_comes_back_whole(any_check: Check) -> None:
    text = write(any_check, "json")
    valid(text)
    assert from_json(text, Check) == any_check


def test_json_of_a_later_hwprobe_with_more_keys_is_read() -> None:
    data = json.loads(write(CHECKS["ready on a GPU"], "json")) | {"new_in_0.9": 1}
    assert from_json(json.dumps(data), Check) == CHECKS["ready on a GPU"]


def test_the_exit_status_follows_the_verdict() -> None:
    statuses = {name: one.exit_status for name, one in CHECKS.items()}
    assert statuses == {
        "ready on a GPU": 0,
        "ready on a CPU": 0,
        "limited": 0,
        "not ready": 1,
        "several findings": 1,
        "unknown": 3,
        "a hostile name": 1,
        "many findings": 1,
        "wrong input": 2,
    }


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ready on a GPU", "mixed_bfloat16 without loss scaling: NVIDIA A100-SXM4-80GB (8.0)"),
        ("ready on a CPU", "float32: no usable GPU, computing on the CPU"),
        ("limited", "mixed_float16 with dynamic loss scaling: limited by Tesla T4 (7.5)"),
    ],
)
def test_the_answer_stands_first(name: str, line: str) -> None:
    assert headline(CHECKS[name]) == line
    assert write(CHECKS[name], "text").splitlines()[0] == line


def test_what_is_unknown_is_not_blamed_on_a_finding_that_has_nothing_to_do_with_it() -> None:
    facts = report(
        gpus=[],
        lists=(),
        keras=Keras(version="3.15.1", tf_keras_version="2.21.0", backend="tensorflow"),
        sources={
            "nvml": source("timeout", "no answer within 4 s"),
            "cuda": source("timeout", "no answer within 4 s"),
            "tensorflow_runtime": source("skipped", "--fast"),
        },
    )
    one = assess(facts, Policy(check=CheckWish(ignore=("HWP1",))))
    assert (one.verdict, [finding.id for finding in one.findings]) == ("unknown", ["HWP219"])
    said = "unknown: no source could tell which GPUs this process has (CUDA: timeout: no answer within 4 s)"
    assert headline(one) == said
    assert headline(CHECKS["unknown"]).startswith("unknown: ")
    assert headline(check(facts, fail_on="never")).endswith("[HWP108]")


def test_information_that_fails_the_check_is_the_one_that_the_headline_names() -> None:
    (finding,) = check(report(gpus=[GTX_1660_TI]), fail_on="info").findings
    assert headline(check(report(gpus=[GTX_1660_TI]), fail_on="info")) == f"not ready: {finding.message} [HWP401]"


def test_the_memory_of_a_mig_instance_is_what_the_process_has() -> None:
    half = MigInstance(
        uuid="MIG-1", name="MIG 3g.40gb", memory=GpuMemory(total_bytes=40 * 2**30, free_bytes=39 * 2**30), visible=True
    )
    other = msgspec.structs.replace(half, uuid="MIG-2", visible=False)
    assert memory_text(mig(A100, half, other), report()) == "39.0 of 40.0 GiB"
    whole = memory_text(A100, report())
    assert memory_text(mig(A100, other), report()) == whole


def test_the_versions_name_the_keras_that_is_in_force() -> None:
    both = Keras(version="3.15.1", tf_keras_version="2.21.0", backend="tensorflow")
    assert "Keras 3.15.1" in versions_line(report(keras=both))
    legacy = versions_line(report(keras=msgspec.structs.replace(both, legacy=True)))
    assert "tf_keras 2.21.0 as tf.keras" in legacy
    assert "3.15.1" not in legacy


def test_on_a_narrow_terminal_short_words_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwprobe.render.terminal.LOG_WIDTH", 80)
    lines = write(check(report(gpus=[lost(A100), A100])), "text").splitlines()
    (head,) = [line for line in lines if line.startswith("NVML")]
    assert head.split()[:5] == ["NVML", "CUDA", "TensorFlow", "GPU", "capability"]
    assert max(map(len, lines[lines.index(head) : lines.index(head) + 6])) <= 80


def test_text_shows_the_devices_the_versions_and_what_to_type() -> None:
    text = write(CHECKS["several findings"], "text")
    for part in (
        "not ready:",
        "decision: float32",
        "GPU is lost",
        "not visible",
        "NVIDIA GeForce RTX 5090",
        "TensorFlow 2.21.0 (CUDA 12.5.1, cuDNN 9), Keras 3.15.1, driver 570.124.06",
        "HWP120 A GPU is lost (first cause); for: drain",
        "dmesg | grep -i xid",
        "gpus>=4 is not met",
    ):
        assert part in text


def test_no_command_is_cut_at_the_width_of_a_log() -> None:
    gpus = [A100] * 6 + [T4]
    text = write(check(report(gpus=gpus)), "text")
    (line,) = [line for line in text.splitlines() if "CUDA_VISIBLE_DEVICES=" in line]
    assert line.count("GPU-") == 6


class TestNagios:
    @pytest.mark.parametrize(
        ("name", "word", "status"),
        [
            ("ready on a GPU", "OK", 0),
            ("not ready", "CRITICAL", 2),
            ("unknown", "UNKNOWN", 3),
            ("wrong input", "UNKNOWN", 3),
        ],
    )
    def test_one_line_with_the_plug_ins_own_codes(self, name: str, word: str, status: int) -> None:
        text = write(CHECKS[name], "nagios")
        assert text.startswith(f"HWPROBE {word} - ")
        assert text.count("\n") == 1
        assert exit_status(CHECKS[name], "nagios") == status

    def test_a_warning_is_a_warning(self) -> None:
        facts = report(gpus=[T4], environment={"TF_FORCE_GPU_ALLOW_GROWTH": "false"})
        assert exit_status(check(facts), "nagios") == 1

    def test_the_first_bar_starts_the_performance_data(self, any_check: Check) -> None:
        line = write(any_check, "nagios")
        if any_check.report is None:
            assert "|" not in line
            return
        data = line.rstrip("\n").split(" | ")[1]
        assert all(re.fullmatch(r"[a-z]+=\d+;;;0", one) for one in data.split())


def test_junit_has_a_case_for_every_rule_and_counts_them(any_check: Check) -> None:
    suite = Xml.fromstring(write(any_check, "junit"))
    ids = {case.get("name") for case in suite.iter("testcase")}
    assert {status.id for status in any_check.rules} <= ids
    assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
    failing = [finding for finding in any_check.findings if any_check.fails(finding)]
    assert int(suite.get("failures", "")) == len(failing)
    assert all(element.get("message") for element in suite.iter("skipped"))


def test_prometheus_is_what_the_textfile_collector_takes(any_check: Check) -> None:
    text = write(any_check, "prometheus")
    assert text.endswith("\n")
    sample = re.compile(r'^[a-z_]+(\{([a-z_]+="(\\.|[^"\\\n])*",?)*\})? -?[0-9.e+]+$')
    announced: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            announced.add(line.split()[2])
        elif not line.startswith("# HELP "):
            assert sample.match(line), line
            assert re.split(r"[{ ]", line)[0] in announced
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_github_gets_at_most_ten_annotations_and_says_what_is_left_out() -> None:
    lines = write(CHECKS["many findings"], "github").splitlines()
    annotations = [line for line in lines if line.startswith("::")]
    assert len(annotations) == 10
    assert "more findings" in annotations[-1]


def test_a_hostile_name_starts_no_annotation_of_its_own() -> None:
    text = write(CHECKS["a hostile name"], "github")
    assert not any(line.startswith("::error::") for line in text.splitlines())


def test_nfd_labels_are_legal_and_expire(any_check: Check) -> None:
    now = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.timezone.utc)
    first, *labels = write_nfd(any_check, now).splitlines()
    assert first == "# +expiry-time=2026-12-01T12:00:00Z"
    for label in labels:
        name, value = label.split("=")
        assert re.fullmatch(r"hwprobe\.[a-z-]+", name)
        assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value), label


def test_a_termination_message_fits_and_keeps_the_first_cause(any_check: Check) -> None:
    text = write(any_check, "termination")
    assert len(text.encode()) < LIMIT_BYTES
    message = json.loads(text)
    if any_check.primary is not None:
        assert message["findings"][0]["id"] == any_check.primary.id


def test_every_fact_of_a_check_survives_the_round_trip_off_its_default() -> None:
    one = CHECKS["several findings"]
    assert from_json(to_json(one), Check) == one
    assert {status.status for status in one.rules} >= {"pass", "fail", "skip", "not_applicable"}
