"""Templates: complete, and safe whatever `--set` is given."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.cluster.template import KINDS, fill, templates
from hwprobe.errors import InputError

TEMPLATES = templates()
SHELL = [name for name, template in TEMPLATES.items() if template.file.endswith(".sh")]
YAML = [name for name, template in TEMPLATES.items() if template.language == "yaml"]

HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned #",
    '"; touch pwned; "',
    "a && touch pwned",
    "x' 'y",
    "${IFS}",
    "*",
    "~root",
    "true",
    "null",
    "1e3",
    "- item",
    "key: value",
    "{a: b}",
    "# comment",
    "&anchor *alias",
    "!!python:os.system",
    "grüße 你好 😀",
    '\\"',
]
BROKEN_LINES = ["a\nb", "a\r\nb", "a\x00b", "a\x1b[31m", "a\u2028b"]


def parameters(names: list[str], *kinds: str) -> list[tuple[str, str]]:
    return [
        (name, parameter)
        for name in names
        for parameter, description in TEMPLATES[name].parameters.items()
        if not kinds or description.kind in kinds
    ]


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_parameter_stands_in_the_text_and_nothing_is_left_open(name: str) -> None:
    raw = (Path(__file__).parents[2] / "hwprobe/cluster/templates" / TEMPLATES[name].file).read_text()
    assert set(re.findall(r"\{\{(\w+)\}\}", raw)) == set(TEMPLATES[name].parameters)
    assert "{{" not in fill(name, {})


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_default_is_a_value_that_is_accepted(name: str) -> None:
    for parameter in TEMPLATES[name].parameters.values():
        assert parameter.kind in KINDS
        if parameter.value:
            assert KINDS[parameter.kind](parameter.value)
        assert not parameter.help.endswith(".")


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_says_at_its_top_what_it_is(name: str) -> None:
    lines = fill(name, {}).splitlines()
    first = lines[1] if lines[0].startswith("#!") else lines[0]
    assert first.startswith("# ")


@pytest.mark.parametrize(("name", "parameter"), parameters(list(TEMPLATES)))
@pytest.mark.parametrize("value", BROKEN_LINES)
def test_line_breaks_and_control_characters_are_refused(name: str, parameter: str, value: str) -> None:
    with pytest.raises(InputError, match=f"--set {parameter}="):
        fill(name, {parameter: value})


@pytest.mark.parametrize(
    ("name", "parameter"),
    parameters(list(TEMPLATES), "name", "label", "count", "number", "port", "duration", "image", "glob"),
)
def test_what_is_a_name_or_a_number_takes_nothing_else(name: str, parameter: str) -> None:
    kind = TEMPLATES[name].parameters[parameter].kind
    for value in HOSTILE:
        if not re.fullmatch(r"\w+|\*", value) or (kind not in ("name", "label", "image", "glob")):
            with pytest.raises(InputError, match=f"--set {parameter}="):
                fill(name, {parameter: value})


@pytest.mark.parametrize("name", SHELL)
def test_only_names_and_numbers_stand_where_sbatch_reads(name: str) -> None:
    raw = (Path(__file__).parents[2] / "hwprobe/cluster/templates" / TEMPLATES[name].file).read_text()
    for line in raw.splitlines():
        if line.startswith("#SBATCH"):
            for parameter in re.findall(r"\{\{(\w+)\}\}", line):
                assert TEMPLATES[name].parameters[parameter].kind in ("name", "count", "duration")


def test_a_line_whose_parameter_is_empty_is_left_out() -> None:
    assert "--partition" not in fill("slurm", {})
    assert "#SBATCH --partition=gpu\n" in fill("slurm", {"partition": "gpu"})
    assert "HWPROBE_SECRET" not in fill("kubernetes-job", {})
    assert "HWPROBE_SECRET" in fill("kubernetes-job", {"secret": "agreement"})


@pytest.mark.parametrize("value", ["", "   ", "'unfinished"])
def test_a_command_is_one_that_a_shell_could_split(value: str) -> None:
    if value:
        with pytest.raises(InputError, match="command line"):
            fill("slurm", {"command": value})
    else:
        assert "train=" not in fill("slurm", {"command": value})


class Stage:
    """A folder with stand-ins for the programs that a script calls: they note their arguments and do what is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()

    def program(self, name: str, then: str = "") -> None:
        path = self.bin / name
        calls = self.folder / "calls"
        note = f'{{ printf "%s\\0" {shlex.quote(name)} "$@"; printf "\\036"; }} >> "{calls}"'
        path.write_text(f"#!/bin/bash\n{note}\n{then}\n")
        path.chmod(0o755)

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        file = self.folder / "script"
        file.write_text(script)
        return subprocess.run(
            ["bash", str(file)],
            cwd=self.folder,
            env={"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": "/nowhere", **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self, program: str) -> list[list[str]]:
        noted = (self.folder / "calls").read_text() if (self.folder / "calls").exists() else ""
        split = [call.split("\0")[:-1] for call in noted.split("\x1e") if call]
        return [call[1:] for call in split if call[0] == program]

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {"bin", "calls", "script"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


SLURM_JOB = {
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_SUBMIT_DIR": "/nowhere",
    "SLURM_NODEID": "1",
    "SLURM_GPUS_ON_NODE": "4",
}


@pytest.mark.parametrize("value", HOSTILE)
def test_what_is_set_in_the_slurm_script_is_text_and_nothing_else(stage: Stage, value: str) -> None:
    stage.program("hwprobe")
    stage.program("srun")
    stage.program("scontrol", "printf 'n1\\nn2\\n'")
    script = fill("slurm", {"directory": str(stage.folder / value), "command": f"train {shlex.quote(value)}"})
    done = stage.run(script, **SLURM_JOB)
    assert done.returncode == 0, done.stderr
    assert stage.names == {value}
    (plan,) = stage.calls("hwprobe")
    assert plan == [
        "plan", f"{stage.folder}/{value}/42", "--expect", "n[1-2]",
        "--output", f"{stage.folder}/{value}/42/plan-0.json",
    ]  # fmt: skip
    check, train = stage.calls("srun")
    assert check[check.index("check") :] == [
        "check", "--record", f"{stage.folder}/{value}/42", "--require", "gpus>=4",
    ]  # fmt: skip
    assert train[-2:] == ["train", value]


@pytest.mark.parametrize("value", HOSTILE)
def test_what_is_set_in_the_mpi_script_is_text_and_nothing_else(stage: Stage, value: str) -> None:
    stage.program("hwprobe")
    stage.program("mpirun")
    script = fill(
        "mpi",
        {
            "directory": str(stage.folder / value),
            "command": f"train {shlex.quote(value)}",
            "hostfile": value,
            "ranks": "2",
        },
    )
    done = stage.run(script)
    assert done.returncode == 0, done.stderr
    assert stage.names == {value}
    check, train = stage.calls("mpirun")
    assert check[:2] == train[:2] == ["--hostfile", value]
    assert train[-2:] == ["train", value]


@pytest.mark.parametrize("value", HOSTILE)
def test_what_is_set_in_the_prologs_is_text_and_nothing_else(stage: Stage, value: str) -> None:
    program = stage.bin / value
    stage.program(value, "exit 1")
    log = stage.folder / f"log {value}"
    script = fill("slurm-prolog", {"hwprobe": shlex.quote(str(program)), "log": str(log)})
    assert stage.run(script).returncode == 0
    task = fill("slurm-taskprolog", {"directory": f"{stage.folder}/{value}"})
    (stage.folder / value / "42").mkdir(parents=True)
    (stage.folder / value / "42" / "plan-0.json").write_text("{}")
    done = stage.run(task, **SLURM_JOB)
    assert (done.returncode, done.stdout) == (0, f"export HWPROBE_PLAN={stage.folder}/{value}/42/plan-0.json\n")
    assert "pwned" not in stage.names


def test_the_slurm_script_stops_where_the_plan_is_negative(stage: Stage) -> None:
    stage.program("hwprobe", "exit 1")
    stage.program("srun", "exit 1")
    stage.program("scontrol")
    done = stage.run(fill("slurm", {"directory": str(stage.folder)}), **SLURM_JOB)
    assert done.returncode == 1
    assert len(stage.calls("srun")) == 1


def test_the_slurm_script_gives_every_worker_the_plan_and_tf_config(stage: Stage) -> None:
    stage.program("hwprobe")
    stage.program("scontrol", "printf 'n1\\nn2\\n'")
    stage.program("srun", 'while [ "$1" != bash ]; do shift; [ $# -gt 0 ] || exit 0; done; exec "$@"')
    script = fill("slurm", {"directory": str(stage.folder), "command": "env"})
    done = stage.run(script, **SLURM_JOB, SLURM_RESTART_COUNT="2")
    variables = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert variables["HWPROBE_PLAN"] == f"{stage.folder}/42/plan-2.json"
    assert json.loads(variables["TF_CONFIG"]) == {
        "cluster": {"worker": ["n1:20042", "n2:20042"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("status", "report", "exit_status"),
    [
        (0, '{"verdict": "ready"}', 0),
        (1, '{"verdict": "not_ready"}', 1),
        (1, '{"verdict":"not_ready"}', 1),
        (1, None, 0),
        (1, "", 0),
        (2, '{"verdict": "unknown"}', 0),
        (3, '{"verdict": "unknown"}', 0),
        (2, '{"verdict": "not_ready"}', 0),
        (127, None, 0),
    ],
)
def test_a_prolog_drains_only_where_hwprobe_itself_says_so(
    stage: Stage, status: int, report: str | None, exit_status: int
) -> None:
    log = stage.folder / "log.json"
    log.write_text('{"verdict": "not_ready"}')
    write = "" if report is None else f"printf %s {shlex.quote(report)} > {log}"
    stage.program("hwprobe", f"{write}\nexit {status}")
    script = fill("slurm-prolog", {"hwprobe": str(stage.bin / "hwprobe"), "log": str(log)})
    assert stage.run(script).returncode == exit_status
    (call,) = stage.calls("hwprobe")
    assert call[call.index("--fail-on") + 1] == "drain"


def test_a_prolog_without_hwprobe_drains_nothing(stage: Stage) -> None:
    assert stage.run(fill("slurm-prolog", {"log": str(stage.folder / "log.json")})).returncode == 0


def test_a_task_prolog_leaves_a_plan_of_one_s_own_alone(stage: Stage) -> None:
    script = fill("slurm-taskprolog", {"directory": str(stage.folder)})
    assert stage.run(script, **SLURM_JOB).stdout == ""
    (stage.folder / "42").mkdir()
    (stage.folder / "42" / "plan-0.json").write_text("{}")
    assert "plan-0.json" in stage.run(script, **SLURM_JOB).stdout
    assert stage.run(script, **SLURM_JOB, HWPROBE_PLAN="mine.json").stdout == ""
    assert stage.run(script, **SLURM_JOB, SLURM_RESTART_COUNT="1").stdout == ""


@pytest.mark.parametrize("path", ["/opt/hwprobe/bin/hwprobe", *(f"/{value}" for value in HOSTILE)])
@pytest.mark.parametrize(
    ("then", "healthy"),
    [
        ('echo \'{"verdict": "ready"}\'', True),
        ('echo \'{"verdict": "not_ready"}\'; exit 1', False),
        ("exit 1", True),
        ("exit 3", True),
    ],
)
def test_the_line_for_nhc_fails_only_where_hwprobe_itself_says_so(
    stage: Stage, path: str, then: str, healthy: bool
) -> None:
    line = fill("nhc", {"hwprobe": path, "hosts": "gpu*"}).splitlines()[-1]
    target, check = line.split(" || ", 1)
    assert target == "gpu*"
    # NHC gives the right side to eval; its check runs the command and compares the status with -r.
    program = stage.bin / "program"
    stage.program("program", then)
    command = shlex.split(check)
    assert command[:5] == ["check_cmd_status", "-t", "90", "-r", "0"]
    assert command[-1] == path
    status = subprocess.run([*command[5:-1], str(program)], cwd=stage.folder, capture_output=True).returncode
    assert (status == 0) is healthy
    assert "pwned" not in stage.names


def shape(value: Any) -> Any:
    """A document without its values."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    return [shape(member) for member in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize(("name", "value"), list(itertools.product(YAML, HOSTILE)))
def test_what_is_set_in_a_manifest_is_text_and_nothing_else(name: str, value: str) -> None:
    plain = list(yaml.safe_load_all(fill(name, {"command": "python x"})))
    filled = list(yaml.safe_load_all(fill(name, {"command": f"python {shlex.quote(value)}"})))
    assert shape(filled) == shape(plain)
    assert value.replace("$(", "$$(") in json.dumps(filled, ensure_ascii=False) or value in str(filled)
    (command,) = [words for words in _lists(filled) if words[:1] == ["python"]]
    assert command == ["python", value.replace("$(", "$$(")]


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("job", ["true", "null", "on", "y", "e3", "no"])
def test_a_name_that_yaml_would_take_for_something_else_stays_a_name(name: str, job: str) -> None:
    documents = list(yaml.safe_load_all(fill(name, {"job": job})))
    assert {document["metadata"]["name"] for document in documents} == {job}


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_text_is_refused_or_arrives_whole(value: str) -> None:
    try:
        text = fill("kubeflow-tfjob", {"command": f"python {shlex.quote(value)}"})
    except InputError:
        assert not value.isprintable()
        return
    document = yaml.safe_load(text)
    (command,) = [words for words in _lists(document) if words[:1] == ["python"]]
    assert command == ["python", value.replace("$(", "$$(")]


def _lists(value: Any) -> list[list[Any]]:
    if isinstance(value, dict):
        return [found for member in value.values() for found in _lists(member)]
    if isinstance(value, list):
        return [value, *(found for member in value for found in _lists(member))]
    return []
