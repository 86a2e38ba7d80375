"""The files of the project stand alone: they name no place that only its authors have."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.toml import read_toml

ROOT = Path(__file__).parents[2]
TEXT = {
    "",
    ".c",
    ".cfg",
    ".h",
    ".ini",
    ".json",
    ".jsonl",
    ".md",
    ".py",
    ".sh",
    ".toml",
    ".tsv",
    ".txt",
    ".xml",
    ".yaml",
    ".yml",
}


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked_files():
        if path.suffix in TEXT and path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [
                f"{path.relative_to(ROOT)}:{number}" for number, line in enumerate(lines, 1) if pattern.search(line)
            ]
    return found


PLACES = [
    ("the folder of this checkout", re.escape(f"{ROOT}/")),
    ("a workplace at the root of a disk", r"(?<![\w.~}])/" + r"work/"),
    ("a folder beside the checkout", r"\.\./" + r"shared"),
    ("a package index of one's own", r"--(extra-)?index-" + r"url|--find-" + r"links"),
]


@pytest.mark.parametrize("pattern", [place[1] for place in PLACES], ids=[place[0] for place in PLACES])
def test_no_file_names(pattern: str) -> None:
    assert lines_with(re.compile(pattern)) == []


def test_every_package_has_its_place_in_the_wheel() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    packages = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in (ROOT / "hwprobe").rglob("__init__.py")
    }
    assert {package for package in packages if f'"{package}"' not in text} == set()


def imported_modules(folder: str) -> Iterator[str]:
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(node.module).split(".")[0]


def required(*extras: str) -> set[str]:
    project = read_toml(ROOT / "pyproject.toml")["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(text).name) for text in texts}


COMES_WITH_TENSORFLOW = {"keras", "numpy"}
OURS = {"benchmarks", "hwprobe", "tests"}
IF_IT_IS_THERE = {"mpi4py", "tf_keras"}
PRIVATE_OF_SOME_PYTHONS = {"_sha2", "_sha256"}


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("hwprobe", ("tensorflow", "plots", "compare", "cluster")),
        ("tests", ("tensorflow", "test")),
        ("benchmarks", ("tensorflow", "test")),
    ],
)
def test_every_package_that_is_imported_is_required_somewhere(folder: str, extras: tuple[str, ...]) -> None:
    owners = packages_distributions()
    known = {
        *sys.stdlib_module_names,
        *OURS,
        *PRIVATE_OF_SOME_PYTHONS,
        *(IF_IT_IS_THERE if folder == "hwprobe" else ()),
    }
    modules = set(imported_modules(folder)) - known
    names = {module: {canonicalize_name(name) for name in owners.get(module, [module])} for module in modules}
    accepted = required(*extras) | COMES_WITH_TENSORFLOW
    assert {module: name for module, name in names.items() if not name & accepted} == {}
