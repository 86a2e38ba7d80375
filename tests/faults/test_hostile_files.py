"""Files that nobody meant well: each reader refuses them in one sentence, without reading them whole or waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from hwprobe.cli import main
from hwprobe.cluster.messages import read_secret
from hwprobe.cluster.plan import load_plan
from hwprobe.cluster.record_files import UnreadableRecord, read_records
from hwprobe.errors import InputError
from hwprobe.offline.reading import read_file, read_target
from hwprobe.policy_reader import read_policy
from hwprobe.scaling.calibration import Calibration

MIB = 2**20
HUGE = 100 * MIB

Reader = Callable[[Path], object]


def read_record(path: Path) -> object:
    """A record that cannot be read is an entry with its reason, which becomes a problem of the plan."""
    items = list(read_records([path]))
    assert 0 < len(items) < 200
    assert all(isinstance(item, UnreadableRecord) for item in items)
    raise InputError(str(items[0]))


def read_extended(path: Path) -> object:
    own = path.with_name("own.toml")
    own.write_text(f'schema = "hwprobe.policy/1"\nextends = "{path}"\n')
    return read_policy(own)


READERS: dict[str, Reader] = {
    "policy": read_policy,
    "extended policy": read_extended,
    "plan": load_plan,
    "record": read_record,
    "report": read_file,
    "labels": lambda path: read_target(str(path)),
    "calibration": Calibration.load,
    "secret": lambda path: read_secret({"HWPROBE_SECRET_FILE": str(path)}),
}


@pytest.fixture(params=list(READERS))
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


def refusal(reader: Reader, path: Path) -> str:
    with pytest.raises(InputError) as refused:
        reader(path)
    message = str(refused.value)
    assert path.name in message
    assert len(message) < 3000
    assert all(character.isprintable() or character == "\n" for character in message)
    return message


@pytest.fixture(scope="module", params=[b"\0", b"[", b'{"schema": "', b"a = 1\n"], ids=["zeros", "[", "schema", "toml"])
def huge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 MB: of one thing over and over, or of a beginning and then zeros that take no room on the disk."""
    path = tmp_path_factory.mktemp("huge") / "huge.json"
    with path.open("wb") as file:
        file.write(request.param * (MIB if len(request.param) < 12 else 1))
        file.truncate(HUGE)
    return path


def test_a_file_of_100_mb_is_refused_and_not_read(reader: Reader, huge: Path) -> None:
    tracemalloc.start()
    try:
        refusal(reader, huge)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < HUGE * 2 / 3


DEEP = {
    "lists": b"[" * 60_000,
    "objects": b'{"a":' * 10_000,
    "a list in a plan": b'{"schema": "hwprobe.plan/1", "problems": ' + b"[" * 50_000,
    "a list in a record": b'{"schema": "hwprobe.node/1", "host": ' + b"[" * 50_000,
    "a list in a capture": b'{"schema": "hwprobe.capture/1", "report": ' + b"[" * 50_000,
    "a list in a policy": b'schema = "hwprobe.policy/1"\nname = ' + b"[" * 50_000,
    "a key in a policy": b'schema = "hwprobe.policy/1"\n' + b"a." * 20_000 + b"a = 1\n",
    "elements": b"<nvidia_smi_log>" * 10_000,
}
ODD = {
    "nothing": b"",
    "blanks": b" \n\t\n",
    "null": b"null",
    "no text": b"\xff\xfe\x00\x01",
    "NaN": b'{"schema": "hwprobe.plan/1", "tf32": NaN}',
    "infinity": b'{"schema": "hwprobe.node/1", "gpu_count": Infinity}',
    "a number without end": b'{"schema": "hwprobe.node/1", "gpu_count": 1' + b"0" * 5000 + b"}",
    "TOML's nan": b'schema = "hwprobe.policy/1"\n[loss_scaling]\nmode = "static"\ninitial_scale = nan\n',
    "TOML's infinity": b'schema = "hwprobe.policy/1"\n[loss_scaling]\nmode = "static"\ninitial_scale = inf\n',
    "TOML's number without end": b'schema = "hwprobe.policy/1"\n[memory]\nlimit_mib = 1' + b"0" * 5000 + b"\n",
    "a terminal's commands": b'{"schema": "\x1b]0;title\x07\x1b[2J"}',
    "commands as a key": b'schema = "hwprobe.policy/1"\n"\\u001b[2J\\u009b" = 1\n',
    "commands as escapes": rb'{"schema": "\u001b]0;title\u0007\u001b[2J\u202e\ud800"}',
}


@pytest.mark.parametrize("content", [*DEEP.values(), *ODD.values()], ids=[*DEEP, *ODD])
def test_content_of_no_use_is_refused_in_printable_words(reader: Reader, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    if reader is READERS["secret"] and 0 < len(content.strip()) <= 4096:
        assert reader(path) == content.strip()
    else:
        refusal(reader, path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_that_nobody_writes_into_is_not_waited_for(reader: Reader, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refusal(reader, pipe)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_that_somebody_writes_into_slowly_is_read_to_its_end(tmp_path: Path) -> None:
    source = "import sys, time; print('{', flush=True); time.sleep(1); print('\"schema\": \"hwprobe.capture/99\"}')"
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        with pytest.raises(InputError, match=r"hwprobe\.capture/99 was written by a newer hwprobe"):
            read_file(Path(f"/dev/fd/{writer.stdout.fileno()}"))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_file_without_end_is_refused(reader: Reader) -> None:
    refusal(reader, Path("/dev/zero"))


def test_a_folder_is_refused(reader: Reader, tmp_path: Path) -> None:
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    if reader is READERS["record"]:
        assert list(read_records([folder])) == []
    else:
        refusal(reader, folder)


def test_a_name_that_no_file_can_have_is_refused(reader: Reader, tmp_path: Path) -> None:
    """Even asking whether it is there fails, as it does in a folder that may not be entered."""
    path = tmp_path / ("x" * 290 + ".toml")
    if reader is READERS["labels"]:
        # What names no file describes a machine.
        with pytest.raises(InputError, match="too long for one part"):
            reader(path)
    else:
        refusal(reader, path)


@pytest.mark.parametrize(
    "command",
    [
        ["check", "--fast", "--policy", "FILE"],
        ["check", "--from", "FILE"],
        ["check", "--target", "FILE"],
        ["plan", "FILE"],
        ["policy", "validate", "FILE"],
    ],
    ids=" ".join,
)
def test_the_command_says_so_in_one_sentence_and_status_2(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep.toml"
    path.write_bytes(DEEP["lists"])
    assert main([str(path) if word == "FILE" else word for word in command]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "deep.toml" in said.err + said.out
