"""The files of the project stand alone: they name no place that only its authors have."""

import re
import subprocess
from pathlib import Path

import pytest

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


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def lines_with(pattern):
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
def test_no_file_names(pattern):
    assert lines_with(re.compile(pattern)) == []


def test_every_package_has_its_place_in_the_wheel():
    text = (ROOT / "pyproject.toml").read_text()
    packages = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in (ROOT / "hwprobe").rglob("__init__.py")
    }
    assert {package for package in packages if f'"{package}"' not in text} == set()
