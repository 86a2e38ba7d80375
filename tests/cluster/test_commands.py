"""`hwprobe plan` and `hwprobe template`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwprobe.cli import main
from hwprobe.cluster.plan import load_plan, read_plan
from hwprobe.cluster.record_files import write_record
from hwprobe.serialize import to_json
from tests.cluster.records import a100, job, t4


@pytest.fixture(autouse=True)
def outside_of_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SLURM_JOB_ID", "HWPROBE_JOB", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "HWPROBE_POLICY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    for record in (a100("n1"), t4("n2"), a100("n3")):
        write_record(folder, record)
    return folder


def test_a_plan_is_written_and_told(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "plan.json"
    assert main(["plan", str(records), "--expect", "n[1-3]", "-o", str(output)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "mixed_float16 with dynamic loss scaling, TF32 allowed, for 3 nodes, n[1-3]"
    )
    assert load_plan(output).limited_by == "n2"


def test_without_a_file_the_plan_is_the_output(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(records)]) == 0
    written = capsys.readouterr()
    assert read_plan(written.out).dtype_policy == "mixed_float16"
    assert written.err.startswith("mixed_float16 with dynamic loss scaling")


def test_a_negative_plan_is_written_too(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "plan.json"
    assert main(["plan", str(records), "--expect", "n[1-5]", "--output", str(output)]) == 1
    assert "2 of 5 expected nodes sent no record: n[4-5]" in capsys.readouterr().out
    assert load_plan(output).missing == "n[4-5]"


def test_a_record_that_cannot_be_read_has_a_status_of_its_own(
    records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (records / "n4.json").write_text(to_json(a100("n4"))[:-20])
    output = tmp_path / "plan.json"
    assert main(["plan", str(records), "-o", str(output)]) == 2
    assert "n4.json: Input data was truncated" in capsys.readouterr().out
    assert not load_plan(output).agreed


def test_a_folder_that_no_node_made_gives_a_negative_plan(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    assert main(["plan", str(tmp_path / "nothing"), "--expect", "n[1-2]", "-o", str(output)]) == 2
    assert load_plan(output).missing == "n[1-2]"


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (["--prefer", "float32"], "float32"),
        (["--prefer", "mixed_bfloat16, mixed_float16"], "mixed_float16"),
        (["--policy", "float32"], "float32"),
        (["--policy", "prefer-float16"], "mixed_float16"),
    ],
)
def test_the_preference_can_be_named_here(
    records: Path, options: list[str], policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(records), *options]) == 0
    assert read_plan(capsys.readouterr().out).dtype_policy == policy


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--prefer", "float8"], "'float8' is not known: expected some of mixed_bfloat16, mixed_float16, float32"),
        (["--expect", "n[1-"], "missing bracket"),
        (["--policy", "no-such-policy"], "no-such-policy"),
    ],
)
def test_wrong_usage_says_what_is_accepted(
    records: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(records), *options]) == 2
    assert says in capsys.readouterr().err


def test_a_plan_needs_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 2
    assert "RECORDS" in capsys.readouterr().err


def test_inside_a_job_only_its_own_records_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for record in (t4("n1", job=job("41")), a100("n1", job=job("42")), t4("n1", job=job("42", restart=1))):
        write_record(tmp_path, record)
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    assert main(["plan", str(tmp_path), "--expect", "n1"]) == 0
    plan = read_plan(capsys.readouterr().out)
    assert (plan.dtype_policy, plan.job.id, plan.job.restart) == ("mixed_bfloat16", "42", 0)
    monkeypatch.delenv("SLURM_JOB_ID")
    assert main(["plan", str(tmp_path)]) == 2
    assert "name the folder of one job" in capsys.readouterr().err


def test_the_templates_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["template"]) == 0
    listed = capsys.readouterr().out
    assert "kubernetes-jobset: " in listed
    assert "nodes=4" in listed


def test_a_template_is_filled_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["template", "slurm", "--set", "nodes=16", "--set", "command=python a.py --x=1"]) == 0
    text = capsys.readouterr().out
    assert "#SBATCH --nodes=16\n" in text
    assert "train=(python a.py --x=1)\n" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lsf"], "template 'lsf' is not known: expected one of slurm, "),
        (["slurm", "--set", "node=4"], "no parameter 'node': expected one of job, nodes"),
        (["slurm", "--set", "nodes"], "--set 'nodes': expected PARAMETER=VALUE"),
        (["slurm", "--set", "nodes=many"], "--set nodes='many': expected a number from 1"),
        (["--set", "nodes=4"], "name the template"),
    ],
)
def test_a_template_that_cannot_be_filled_in_says_why(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["template", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_check_writes_its_record_and_a_plan_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HWPROBE_JOB", "night-7")
    status = main(["check", "--fast", "--format", "json", "--record", str(tmp_path / "records")])
    check = json.loads(capsys.readouterr().out)
    assert status == 0, check["findings"]
    assert main(["plan", str(tmp_path / "records"), "--expect", "1"]) == 0
    plan = read_plan(capsys.readouterr().out)
    assert (plan.dtype_policy, plan.job.id) == (check["decision"]["dtype_policy"], "night-7")


def test_a_check_that_is_not_ready_says_so_in_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--fast", "--require", "gpus>=99", "--record", str(tmp_path)]) == 1
    assert main(["plan", str(tmp_path)]) == 1
    assert "not ready" in capsys.readouterr().err


def test_a_record_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["check", "--fast", "--record", str(tmp_path / "file" / "records")]) == 2
    assert "cannot make the folder" in capsys.readouterr().err
