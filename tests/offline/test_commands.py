"""`check --from`, `check --target`, `capture` and `why-not`, as they are typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hwprobe.cli import main
from tests.machine import A100, GTX_1660_TI, H100, T4, Machine
from tests.offline.smi import T4 as T4_XML
from tests.offline.smi import gpu, xml

TARGET = "2 x Tesla T4, driver 535.104.05, tensorflow 2.17"


@pytest.fixture(autouse=True)
def no_policy_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWPROBE_POLICY", raising=False)


class TestTarget:
    def test_text_says_that_it_is_about_another_machine_and_what_it_takes_for_granted(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", "--target", TARGET]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "mixed_float16 with dynamic loss scaling: 2 x Tesla T4 (7.5)"
        assert lines[1] == f"not this machine: {TARGET}"
        assert "TensorFlow 2.17 (CUDA 12.3, cuDNN 8.9), driver 535.104.05; policy default" in lines
        assert any(line.startswith("assumed: TensorFlow 2.17 as its wheel for Linux x86_64") for line in lines)

    def test_json_is_a_check_like_any_other(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--target", TARGET, "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["schema"], answer["decision"]["dtype_policy"]) == ("hwprobe.check/1", "mixed_float16")
        assert answer["report"]["origin"] == TARGET
        main(["schema", "check"])
        jsonschema.validate(answer, json.loads(capsys.readouterr().out))

    def test_requirements_hold_there_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--target", TARGET, "--require", "gpus>=2"]) == 0
        assert main(["check", "--target", TARGET, "--require", "gpus>=4"]) == 1
        assert "gpus>=4 is not met: 2 usable" in capsys.readouterr().out

    def test_what_is_not_understood_is_wrong_usage_and_json_all_the_same(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["check", "--target", "RTX 6000", "--format", "json"]) == 2
        told = capsys.readouterr()
        assert "could be any of Quadro RTX 6000" in told.err
        assert "could be any of Quadro RTX 6000" in json.loads(told.out)["error"]

    def test_a_name_that_no_terminal_wrote(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--target", "\udcff\udcfe", "--format", "json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"].startswith("--target: ")


USAGE = {
    "two machines": (["--from", "x.xml", "--target", "T4"], "give one of them"),
    "another TensorFlow here": (["--tensorflow", "2.17"], "goes with --from or --target"),
    "a record of a machine that is not here": (["--target", "T4", "--record", "records"], "--record is for the node"),
    "a file that is not there": (["--from", "missing.xml"], "cannot read missing.xml"),
}


@pytest.mark.parametrize(("options", "says"), USAGE.values(), ids=USAGE)
def test_options_that_do_not_go_together(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", *options]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


class TestFrom:
    def test_a_log_and_the_tensorflow_to_judge_it_by(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "smi.xml"
        path.write_text(xml(gpu(T4_XML), driver="470.82.01"))
        assert main(["check", "--from", str(path), "--tensorflow", "2.17"]) == 1
        assert "[HWP206]" in capsys.readouterr().out.splitlines()[0]
        assert main(["check", "--from", str(path), "--tensorflow", "2.10"]) == 0

    def test_what_check_writes_it_reads(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "check.json"
        assert main(["check", "--target", TARGET, "--format", "json", "--output", str(path)]) == 0
        assert main(["check", "--from", str(path)]) == 0
        assert capsys.readouterr().out.splitlines()[1] == f"not this machine: {path}"


class TestWhyNot:
    def test_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["why-not", "mixed_bfloat16", "--target", "T4, A100 80GB"]) == 0
        told = capsys.readouterr().out
        assert told.startswith("mixed_bfloat16 is not usable here")
        assert "hide Tesla T4 (7.5), which leaves A100 80GB (8.0)" in told

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["why-not", "mixed_bfloat16", "--target", TARGET, "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["schema"], answer["usable"]) == ("hwprobe.why-not/1", False)
        assert [change["kind"] for change in answer["changes"]] == ["board"]
        main(["schema", "why-not"])
        jsonschema.validate(answer, json.loads(capsys.readouterr().out))

    def test_a_policy_that_is_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["why-not", "mixed_int4", "--target", "T4"]) == 2
        assert "'mixed_bfloat16', 'mixed_float16', 'float32'" in capsys.readouterr().err

    def test_another_site_s_policy(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["why-not", "mixed_float16", "--target", "A100", "--policy", "prefer-float16"]) == 0
        assert "hwprobe chooses it here" in capsys.readouterr().out


def hwprobe(m: Machine, *arguments: str, **variables: Any) -> tuple[int, str, str]:
    done = m.run([sys.executable, "-m", "hwprobe", *arguments], timeout=240, **variables)
    return done.returncode, done.stdout, done.stderr


REPLAYED: dict[str, dict[str, Any]] = {
    "an unlike pair": {"gpus": [T4, A100]},
    "one of two GPUs lost": {"gpus": [A100, A100.lost()]},
    "a driver that does not start": {"gpus": [H100], "cu_init": 802},
    "a missing library": {"gpus": [GTX_1660_TI], "missing": ["libcudnn.so.9"]},
}


@pytest.mark.parametrize("facts", REPLAYED.values(), ids=REPLAYED)
def test_a_captured_machine_is_judged_elsewhere_as_it_was_at_home(
    facts: dict[str, Any], machine: Callable[..., Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = machine(**facts)
    path = tmp_path / "machine.json"
    status, _, told = hwprobe(m, "capture", "-o", str(path), HOME=str(m.folder))
    assert (status, told.splitlines()[0]) == (
        0,
        f"wrote {path}, without host name, user name, home folder and whole UUIDs",
    )
    assert not any(str(board.uuid) in path.read_text() for board in m.gpus)
    assert str(m.folder) not in path.read_text()
    status, out, _ = hwprobe(m, "check", "--format", "json", HOME=str(m.folder))
    at_home = json.loads(out)
    assert main(["check", "--from", str(path), "--format", "json"]) == status
    elsewhere = json.loads(capsys.readouterr().out)
    for part in ("verdict", "rules"):
        assert elsewhere[part] == at_home[part]
    for part in ("dtype_policy", "loss_scaling", "memory", "tf32"):
        assert elsewhere["decision"][part] == at_home["decision"][part]
    kept = ("id", "severity", "action", "primary", "title")
    assert [[finding[key] for key in kept] for finding in elsewhere["findings"]] == [
        [finding[key] for key in kept] for finding in at_home["findings"]
    ]


class TestCapture:
    def test_without_a_file_it_is_the_output(self, machine: Callable[..., Machine]) -> None:
        status, out, err = hwprobe(machine(gpus=[T4]), "capture", "--fast")
        assert (status, err) == (0, "")
        capture = json.loads(out)
        assert (capture["schema"], capture["identifiers"]) == ("hwprobe.capture/1", "removed")
        assert capture["report"]["sources"]["tensorflow_runtime"]["status"] == "skipped"

    def test_identifiers_stay_where_somebody_asks_for_it(self, machine: Callable[..., Machine]) -> None:
        m = machine(gpus=[T4])
        status, out, _ = hwprobe(m, "capture", "--fast", "--include-identifiers")
        capture = json.loads(out)
        assert (status, capture["identifiers"]) == (0, "included")
        assert capture["report"]["devices"][0]["uuid"] == m.gpus[0].uuid

    def test_a_place_that_cannot_be_written(self, machine: Callable[..., Machine], tmp_path: Path) -> None:
        status, _, err = hwprobe(machine(gpus=[T4]), "capture", "--fast", "-o", str(tmp_path))
        assert (status, err) == (2, f"error: {tmp_path} is a folder: name a file in it\n")
