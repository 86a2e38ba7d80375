"""GPUs whose names are commands to a terminal, a browser, a shell or a collector: every format shows them as text."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from xml.etree import ElementTree as Xml

import pytest

from hwprobe.preflight import Check
from hwprobe.render.formats import FORMATS
from hwprobe.serialize import from_json
from tests.faults.command import GENEROUS, ROOT
from tests.machine import GTX_1660_TI, RTX_5090, Machine

MakeMachine = Callable[..., Machine]

NAMES = (
    "A\x1b]0;owned\x07\x1b[2J\x1b[31mred",
    "B\x9b2J\u202eright to left\u2066",
    "C\rD ::error::E ##[error]F %0AG",
    'H" | I <script>J</script> & ]]> K=1 {L} \\n',
)

EVERY_FORMAT = """
import contextlib, io, json, sys
from hwprobe.cli import main
answers = {}
for format_ in sys.argv[1:]:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        status = main(["check", "--fast", "--format", format_, "--require", "gpus>=9"])
    answers[format_] = [status, stream.getvalue()]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(workshop: object, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Every format of one machine on which something is wrong with every GPU."""
    gpus = [board.but(name=name) for board, name in zip((RTX_5090, GTX_1660_TI) * 2, NAMES, strict=True)]
    machine = Machine(tmp_path_factory.mktemp("machine"), workshop, gpus)  # type: ignore[arg-type]
    done = machine.run([sys.executable, "-c", EVERY_FORMAT, *FORMATS], cwd=ROOT, timeout=GENEROUS)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return {name: (status, text) for name, (status, text) in json.loads(done.stdout).items()}


def test_the_names_arrive_as_they_are(answers: dict[str, tuple[int, str]]) -> None:
    report = from_json(answers["json"][1], Check).report
    assert report is not None
    assert sorted(str(gpu.name) for gpu in report.devices) == sorted(NAMES)


@pytest.mark.parametrize("format_", FORMATS)
def test_no_format_lets_a_control_character_through(answers: dict[str, tuple[int, str]], format_: str) -> None:
    status, text = answers[format_]
    assert status == (2 if format_ == "nagios" else 1)
    assert all(character.isprintable() or character == "\n" for character in text), ascii(text)


def test_each_format_keeps_its_form(answers: dict[str, tuple[int, str]]) -> None:
    Xml.fromstring(answers["junit"][1])
    assert answers["nagios"][1].count("\n") == 1
    assert answers["nagios"][1].count(" | ") == 1
    for line in answers["github"][1].splitlines():
        if line.startswith("::"):
            assert re.match(r"::(error|warning|notice) title=[^:,\n]*::", line), line
    sample = re.compile(r'^[a-z_]+(\{([a-z_]+="(\\.|[^"\\\n])*",?)*\})? -?[0-9.e+]+$')
    for line in answers["prometheus"][1].splitlines():
        assert line.startswith("#") or sample.match(line), line
    json.loads(answers["termination"][1])
    for line in answers["nfd"][1].splitlines():
        assert re.fullmatch(r"(# \+expiry-time=\S+|hwprobe\.[a-z-]+=[A-Za-z0-9_.-]*)", line), line


NARROW = """
import sys
sys.stdout.reconfigure(encoding="ascii")
from hwprobe.cli import main
sys.exit(main(["check", "--fast", "--format", sys.argv[1]]))
"""


@pytest.mark.parametrize("format_", ["text", "json", "prometheus", "github"])
def test_a_stream_that_knows_no_such_letters_gets_no_traceback(machine: MakeMachine, format_: str) -> None:
    m = machine(gpus=[GTX_1660_TI.but(name="NVIDIA Ampère \u2603")])
    done = m.run([sys.executable, "-c", NARROW, format_], cwd=ROOT, timeout=GENEROUS)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0
    if format_ == "json":
        assert "NVIDIA Ampère \u2603" in json.loads(done.stdout)["report"]["devices"][0]["name"]
