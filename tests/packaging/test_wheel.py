"""The wheel, installed alone into a fresh environment, does the main job."""

import email
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "tests", "benchmarks")
OURS = ("CUDA_", "HWPROBE_", "KERAS_", "LD_", "PYTHON", "TF_", "VIRTUAL_ENV")

Ended = subprocess.CompletedProcess[str]


def run(command: Sequence[str | Path], **options: Any) -> Ended:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the checkout keeps no build folder."""
    source = tmp_path_factory.mktemp("source") / "tree"
    shutil.copytree(ROOT, source, ignore=NOT_SOURCE)
    target = tmp_path_factory.mktemp("wheel")
    built = run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)])
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = target.iterdir()
    return path


@pytest.fixture(scope="module")
def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    done = run([programs / "python", "-m", "pip", "install", "--quiet", str(wheel)])
    assert done.returncode == 0, done.stdout + done.stderr
    return programs


def test_the_wheel_is_called_tf_hwprobe_and_runs_everywhere(wheel: Path) -> None:
    assert wheel.name.startswith("tf_hwprobe-")
    assert wheel.name.endswith("-py3-none-any.whl")


def test_every_file_of_the_packages_is_in_the_wheel(content: set[str]) -> None:
    def files(folder: str, package: str) -> set[str]:
        paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {f"{package}/{path.relative_to(ROOT / folder).as_posix()}" for path in paths}

    missing = (files("hwprobe", "hwprobe") | files("policies", "hwprobe/policies")) - content
    assert missing == set()
    assert {"hwprobe/py.typed", "hwprobe/policies/default.toml", "hwprobe/knowledge/architectures.toml"} <= content


def test_nothing_else_is_in_the_wheel(content: set[str]) -> None:
    places = {name.split("/")[0] for name in content}
    assert {place for place in places if not place.startswith("tf_hwprobe-")} == {"hwprobe"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in content)


def test_tensorflow_comes_only_by_an_extra(metadata: Message) -> None:
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    always = {each.name for each in requirements if each.marker is None or "extra" not in str(each.marker)}
    assert always == {"click", "msgspec", "nvidia-ml-py", "packaging", "psutil", "rich", "tomli", "wrapt"}
    assert set(metadata.get_all("Provides-Extra", [])) >= {"tensorflow", "and-cuda", "test"}


def test_the_wheel_reads_as_typed_and_licensed(metadata: Message) -> None:
    assert metadata["Name"] == "tf-hwprobe"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"


def test_alone_it_checks_the_machine_and_says_that_tensorflow_is_missing(installed: Path, tmp_path: Path) -> None:
    done = run([installed / "hwprobe", "check", "--format", "json"], cwd=tmp_path)
    result = json.loads(done.stdout)
    assert result["schema"] == "hwprobe.check/1"
    assert result["report"]["tensorflow"] is None
    assert result["report"]["sources"]["tensorflow_build"]["status"] == "absent"
    assert result["report"]["host"]["system"] == sys.platform.capitalize()
    assert done.returncode in (0, 1, 3), done.stderr
    assert "Traceback" not in done.stderr


def test_alone_it_says_so_in_words_too(installed: Path, tmp_path: Path) -> None:
    done = run([installed / "hwprobe", "check"], cwd=tmp_path)
    assert "TensorFlow" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["hwprobe"], ["python", "-m", "hwprobe"]], ids=" ".join)
def test_it_gives_its_version_both_ways(installed: Path, command: list[str], metadata: Message, tmp_path: Path) -> None:
    program, *arguments = command
    done = run([installed / program, *arguments, "--version"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"hwprobe, version {metadata['Version']}\n")


def test_it_brings_its_policies_along(installed: Path, tmp_path: Path) -> None:
    done = run([installed / "hwprobe", "policy", "list"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == sorted(path.stem for path in (ROOT / "policies").glob("*.toml"))


def test_each_of_its_modules_can_be_imported_without_tensorflow(installed: Path, tmp_path: Path) -> None:
    source = (
        "import hwprobe, importlib, pkgutil, sys\n"
        "for module in pkgutil.walk_packages(hwprobe.__path__, 'hwprobe.'):\n"
        "    if module.name != 'hwprobe.__main__': importlib.import_module(module.name)\n"
        "print(len(sys.modules))\n"
    )
    done = run([installed / "python", "-c", source], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
