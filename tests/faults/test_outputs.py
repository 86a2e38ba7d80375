"""Places that cannot be written: what stood there stays, nothing half is left, and one sentence says why."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hwprobe.cli import main
from hwprobe.files import write_aside
from hwprobe.serialize import to_json
from tests.cluster.records import t4

ROOT = Path(__file__).parents[2]
TARGET = ["--target", "2 x Tesla T4, driver 535.104.05, tensorflow 2.17"]

Command = Callable[[Path], list[str]]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "records" / "n1.json"
    path.parent.mkdir()
    path.write_text(to_json(t4("n1")))
    return path


COMMANDS: dict[str, Command] = {
    "check": lambda place: ["check", *TARGET, "--format", "json", "--output", str(place)],
    "plan": lambda place: ["plan", str(place.parents[1] / "records"), "-o", str(place)],
    "capture": lambda place: ["capture", "--output", str(place)],
}


@pytest.fixture(params=list(COMMANDS))
def command(request: pytest.FixtureRequest, record: Path) -> Command:
    return COMMANDS[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def test_a_symbolic_link_is_refused_and_its_target_kept(
    command: Command, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = folder / "precious"
    precious.write_text("keep me")
    for name, target in (("link", precious), ("dangling", folder / "nowhere"), ("loop", folder / "loop")):
        (folder / name).symlink_to(target)
        assert main(command(folder / name)) == 2
        assert "is a symbolic link" in capsys.readouterr().err
    assert precious.read_text() == "keep me"
    assert sorted(path.name for path in folder.iterdir()) == ["dangling", "link", "loop", "precious"]


@pytest.mark.parametrize(
    "place",
    ["missing/report", "file/report", ".", "x" * 300],
    ids=["no folder", "in a file", "a folder", "a name too long"],
)
def test_a_place_that_is_none_is_named(
    command: Command, folder: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").write_text("")
    assert main(command(folder / place)) == 2
    said = capsys.readouterr().err
    assert str(folder) in said
    assert "Traceback" not in said
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_a_script_that_cannot_be_looked_at_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be used is never called a broken standard output."""
    script = folder / ("x" * 300)
    assert main(["run", str(script)]) == 2
    assert capsys.readouterr().err == f"error: {script}: File name too long\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_into_and_stays_a_pipe(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        write_aside(pipe, "what was written\n")
        assert reader.communicate(timeout=60)[0] == "what was written\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(
    ("minor", "status", "says"), [(3, 0, ""), (7, 2, "No space left on device")], ids=["null", "full"]
)
def test_a_device_is_written_into_and_stays_a_device(
    folder: Path, minor: int, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `/dev/null` and `/dev/full`, which root could replace."""
    device = folder / "device"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        device.open("wb").close()
    except OSError:
        pytest.skip("only root can make devices, and not on every file system")
    assert main(COMMANDS["check"](device)) == status
    assert says in capsys.readouterr().err
    assert stat.S_ISCHR(device.stat().st_mode)
    assert [path.name for path in folder.iterdir()] == ["device"]


SMALL = """
mount -t tmpfs -o {options} none "$1" || exit 77
{before}
shift
"$@"
status=$?
ls -A "{folder}" >&2
cat "{folder}/report" >&2
exit $status
"""


def on_small_disk(
    folder: Path, options: str, arguments: list[str], before: str = ":"
) -> subprocess.CompletedProcess[str]:
    """Run the command where a folder is a disk of its own, which nobody else sees."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small disk")
    script = SMALL.format(options=options, folder=folder, before=before)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), sys.executable, "-m", "hwprobe", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    return done


def test_a_full_disk_leaves_what_stood_there(folder: Path) -> None:
    done = on_small_disk(folder, "size=8k", COMMANDS["check"](folder / "report"), f'echo old > "{folder}/report"')
    assert done.returncode == 2, done.stderr
    assert f"cannot write {folder}/report: No space left on device" in done.stderr
    assert done.stderr.endswith("report\nold\n")


def test_a_folder_that_cannot_be_written_leaves_what_stood_there(folder: Path) -> None:
    before = f'echo old > "{folder}/report"; mount -o remount,ro "{folder}"'
    done = on_small_disk(folder, "size=1m", COMMANDS["check"](folder / "report"), before)
    assert done.returncode == 2, done.stderr
    assert f"cannot write {folder}/report: Read-only file system" in done.stderr
    assert done.stderr.endswith("report\nold\n")


def test_a_record_that_cannot_be_written_fails_the_check(folder: Path) -> None:
    arguments = ["check", "--fast", "--format", "json", "--record", str(folder / "records")]
    done = on_small_disk(folder, "size=1m", arguments, f'mount -o remount,ro "{folder}"')
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["verdict"] == "unknown"
    assert "Read-only file system" in done.stderr


def test_a_full_disk_behind_standard_output_is_said_in_one_line() -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("this system has no /dev/full")
    for format_, status in {"text": 2, "json": 2, "junit": 2, "nagios": 3}.items():
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "hwprobe", "check", *TARGET, "--format", format_]
            done = subprocess.run(
                command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
            )
        assert done.returncode == status
        assert done.stderr == "error: cannot write standard output: No space left on device\n"
