"""The command: what it prints where, and what it exits with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hwprobe.cli import main
from hwprobe.preflight import Check
from hwprobe.serialize import from_json, json_schema
from hwprobe.version import VERSION
from tests.machine import T4, Machine


@pytest.fixture(autouse=True)
def no_site_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWPROBE_POLICY", raising=False)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hwprobe, version {VERSION}\n"


def test_python_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hwprobe", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"hwprobe, version {VERSION}\n"


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    commands = [
        line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line.strip()
    ]
    assert "check" in commands
    for command in commands:
        assert main([command, "--help"]) == 0, command
        assert capsys.readouterr().out.startswith(f"Usage: hwprobe {command}")


WRONG: list[tuple[list[str], str]] = [
    (["check", "--no-such-option"], "No such option"),
    (["check", "--require", "gpu>1"], "is not understood"),
    (["check", "--policy", "no-such-policy"], "no-such-policy"),
    (["check", "--policy", "/no/such/policy.toml"], "/no/such/policy.toml"),
    (["check", "--timeout", "0"], "--timeout"),
    (["check", "--select", "HW211"], "'HW211' is no rule"),
    (["check", "--fail-on", "sometimes"], "--fail-on"),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_wrong_usage_is_status_2_and_one_json_object_where_json_was_asked_for(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    plain = capsys.readouterr()
    assert plain.out == ""
    assert says in plain.err
    assert "Traceback" not in plain.err
    assert main([*arguments, "--format", "json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json_schema(Check))
    assert (answer["verdict"], says in answer["error"]) == ("unknown", True)


def test_nagios_gets_unknown_for_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "nagios", "--require", "gpu>1"]) == 3
    assert capsys.readouterr().out.startswith("HWPROBE UNKNOWN - ")


class TestOutput:
    def test_a_file_is_written_whole_and_standard_output_stays_empty(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = tmp_path / "report.json"
        assert main(["check", "--fast", "--format", "json", "--output", str(place)]) == 0
        assert capsys.readouterr().out == ""
        assert from_json(place.read_text(), Check).verdict == "ready"
        assert [path.name for path in tmp_path.iterdir()] == ["report.json"]

    def test_a_link_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        target = tmp_path / "precious"
        target.write_text("keep me")
        link = tmp_path / "link"
        link.symlink_to(target)
        assert main(["check", "--fast", "--output", str(link)]) == 2
        assert "symbolic link" in capsys.readouterr().err
        assert target.read_text() == "keep me"

    @pytest.mark.parametrize("place", ["/no/such/folder/report", "/proc/report", "/"])
    def test_a_place_that_cannot_be_written_is_status_2(self, place: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--fast", "--output", place]) == 2
        assert place in capsys.readouterr().err

    def test_a_full_disk_is_said_in_one_line(self) -> None:
        if not Path("/dev/full").exists():
            pytest.skip("this system has no /dev/full")
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "hwprobe", "rules"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode == 2
        assert done.stderr == "error: cannot write standard output: No space left on device\n"

    def test_a_reader_that_goes_away_is_no_traceback(self) -> None:
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m hwprobe rules | head -n 1"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.startswith("HWP1")
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("arguments", [["rules"], ["check", "--target", "Tesla T4"]], ids=" ".join)
    def test_a_reader_that_has_gone_is_not_a_machine_that_is_not_ready(self, arguments: list[str]) -> None:
        source, sink = os.pipe()
        os.close(source)
        command = [sys.executable, "-m", "hwprobe", *arguments]
        done = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        os.close(sink)
        assert (done.returncode, done.stderr) == (141, "")


def test_there_is_no_colour_in_a_file_and_some_on_a_terminal(machine: Callable[..., Machine]) -> None:
    m = machine(gpus=[T4])
    plain = m.run([sys.executable, "-m", "hwprobe", "check", "--fast"], timeout=120)
    assert "\x1b[" not in plain.stdout
    script = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'hwprobe', 'check', '--fast']) >> 8)"
    colourful = m.run([sys.executable, "-c", script], timeout=120, TERM="xterm-256color")
    assert "\x1b[1m" in colourful.stdout


def test_fast_leaves_tensorflow_out_and_says_so(machine: Callable[..., Machine]) -> None:
    done = machine(gpus=[T4]).run([sys.executable, "-m", "hwprobe", "check", "--fast", "--format", "json"], timeout=120)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["report"]["sources"]["tensorflow_runtime"]["status"] == "skipped"
    assert answer["decision"]["dtype_policy"] == "mixed_float16"
    skipped = {rule["id"]: rule for rule in answer["rules"] if rule["status"] == "skip"}
    assert "HWP214" in skipped


@pytest.mark.parametrize("policy", ["prefer-float16", "float32"])
def test_a_policy_by_variable_and_by_option(
    policy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HWPROBE_POLICY", policy)
    assert main(["check", "--fast", "--format", "json"]) == 0
    by_variable = json.loads(capsys.readouterr().out)["decision"]
    assert (by_variable["policy"], by_variable["origin"]) == (policy, "environment")
    assert main(["check", "--fast", "--format", "json", "--policy", "default"]) == 0
    by_option = json.loads(capsys.readouterr().out)["decision"]
    assert (by_option["policy"], by_option["origin"]) == ("default", "argument")


def test_strict_lets_a_warning_fail(machine: Callable[..., Machine]) -> None:
    m = machine(gpus=[T4])
    command = [sys.executable, "-m", "hwprobe", "check", "--fast"]
    variables: dict[str, Any] = {"TF_FORCE_GPU_ALLOW_GROWTH": "yes"}
    assert m.run(command, timeout=120, **variables).returncode == 0
    assert m.run([*command, "--strict"], timeout=120, **variables).returncode == 1
    assert m.run([*command, "--strict", "--ignore", "HWP5"], timeout=120, **variables).returncode == 0
    assert m.run([*command, "--fail-on", "warning", "--select", "HWP1"], timeout=120, **variables).returncode == 0


def test_rules_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    assert "HWP211" in capsys.readouterr().out
    assert main(["explain", "hwp211"]) == 0
    page = capsys.readouterr().out
    for heading in ("What it checks:", "Why it matters:", "How to fix it:", "Reference:"):
        assert heading in page
    assert main(["explain", "HWP299"]) == 2
    assert "there is no rule HWP299" in capsys.readouterr().err


def test_explain_says_where_the_policy_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HWPROBE_POLICY", raising=False)
    assert main(["explain", "--target", "Tesla T4"]) == 0
    assert "policy default (from: default)" in capsys.readouterr().out
    assert main(["explain", "--target", "Tesla T4", "--policy", "float32"]) == 0
    assert "policy float32 (from: argument)" in capsys.readouterr().out
    monkeypatch.setenv("HWPROBE_POLICY", "float32")
    assert main(["explain", "--target", "Tesla T4"]) == 0
    assert "policy float32 (from: environment)" in capsys.readouterr().out


def test_the_schema_is_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "check"]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_nothing_of_the_environment_but_the_allow_list_enters_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert main(["check", "--fast", "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert "do-not-tell" not in text
    host = json.loads(text)["report"]["host"]
    assert (host["environment"]["CUDA_VISIBLE_DEVICES"], host["name"]) == ("-1", None)
