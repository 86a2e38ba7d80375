"""Every command that README and docs show is run, and what they show as its output is what it prints."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

import tests.machine
from tests.docs.documents import blocks, matches
from tests.machine import Machine

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.exists()
]
SHELL_LANGUAGES = {"bash", "sh", "shell", "shell-session"}
TIMEOUT_SECONDS = 600

Ended = subprocess.CompletedProcess[str]
Run = Callable[[Sequence[str], tuple[str, ...] | None], Ended]

every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands of a document run: a home of their own, beside the examples and the policies."""
    for name in ("examples", "policies"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.fixture
def run(machine: Callable[..., Machine], folder: Path) -> Run:
    """Runs a command on the machine that a block names."""
    made: dict[tuple[str, ...] | None, Machine] = {}

    def run(command: Sequence[str], gpus: tuple[str, ...] | None) -> Ended:
        if gpus not in made:
            boards = [getattr(tests.machine, name) for name in gpus or ()]
            made[gpus] = machine(boards) if gpus else machine(driver=None, toolkit=None)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return made[gpus].run(command, timeout=TIMEOUT_SECONDS, cwd=folder, HOME=str(folder), COLUMNS="110", PATH=path)

    return run


def test_there_is_a_readme() -> None:
    assert ROOT / "README.md" in DOCUMENTS


def with_this_keras(shown: str) -> str:
    """Python 3.10 gets an older Keras than the one that documents show; see tests/constraints.txt."""
    return shown.replace("Keras 3.15.1", f"Keras {version('keras')}")


@every_document
def test_what_a_document_shows_is_what_happens(path: Path, run: Run) -> None:
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{path.relative_to(ROOT)}:{block.line}"
        if block.skip:
            continue
        if block.language == "python":
            compile(block.text, where, "exec")
            if block.runs:
                done = run([sys.executable, "-c", block.text], block.machine)
                assert done.returncode == block.status, f"{where}\n{done.stdout}{done.stderr}"
        if block.language != "console":
            continue
        commands = block.commands
        for command in commands:
            done = run(["bash", "-euo", "pipefail", "-c", command.text], block.machine)
            printed = done.stdout + done.stderr
            status = block.status if command is commands[-1] else 0
            assert done.returncode == status, f"{where}: {command.text}\n{printed}"
            if block.compares_output:
                assert matches(with_this_keras(command.output), printed), f"{where}: {command.text} printed\n{printed}"


@every_document
def test_commands_stand_in_console_blocks_where_they_are_run(path: Path) -> None:
    languages = {block.language for block in blocks(path.read_text(encoding="utf-8")) if not block.skip}
    assert languages.isdisjoint(SHELL_LANGUAGES)


@every_document
def test_a_document_points_at_files_that_exist(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


@every_document
def test_nobody_is_told_to_install_the_unrelated_package_of_the_same_name(path: Path) -> None:
    assert re.findall(r"pip3? install (?:-\S+ )*['\"]?hwprobe\b", path.read_text(encoding="utf-8")) == []
