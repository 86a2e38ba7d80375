"""Which module may import which: the floors of the house, and an import that does nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hwprobe"

FLOORS = (
    # Each row may import the rows above it. A package may import itself, and so may the family of one name.
    ("what everything stands on", {"capability", "errors", "version"}),
    ("writing and reading", {"files", "serialize"}),
    ("keeping TensorFlow quiet", {"quiet"}),
    ("what every fact is", {"source"}),
    ("the facts about a GPU", {"gpu"}),
    ("the facts", {"report"}),
    ("what a rule found", {"findings"}),
    ("what to set", {"configuration"}),
    ("a site's wishes", {"policy", "policy_keys", "policy_format", "policy_reader"}),
    ("what is true everywhere", {"knowledge"}),
    ("reading the machine", {"probe"}),
    ("reading of a machine that is not here", {"offline"}),
    ("judging one device", {"usability"}),
    ("judging", {"rules", "requirements"}),
    ("choosing", {"decide"}),
    ("choosing for a machine that is not here", {"outlook"}),
    ("the corridor from probe to decision", {"preflight"}),
    ("what would have to change", {"why_not"}),
    ("showing", {"render"}),
    ("auditing a model", {"model"}),
    ("writing into TensorFlow and Keras", {"apply", "scaling"}),
    ("reading it back, and what comes later", {"keras_watch", "readback"}),
    ("agreeing, comparing, measuring", {"bench", "cluster", "comparison"}),
    ("the public functions", {"auto", "launch"}),
    ("reading a decision back", {"verification"}),
    ("the public names", {"__init__"}),
    ("the command", {"cli"}),
    ("python -m hwprobe", {"__main__"}),
)
HEIGHT = {unit: height for height, (_, units) in enumerate(FLOORS) for unit in units}

PURE = {
    *("capability", "configuration", "decide", "findings", "gpu", "outlook", "report", "requirements", "rules"),
    *("source", "usability", "why_not"),
}
TOUCHES_THE_WORLD = {
    *("asyncio", "ctypes", "glob", "io", "multiprocessing", "os", "pathlib", "platform", "shutil", "signal"),
    *("socket", "subprocess", "tempfile", "threading", "time", "urllib"),
    *("keras", "psutil", "pynvml", "tensorflow", "tf_keras"),
}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def unit_of(path: Path) -> str:
    return unit_at(path.relative_to(PACKAGE).with_suffix("").parts)


def unit_at(parts: tuple[str, ...]) -> str:
    """The unit of a module below `hwprobe`: the first part of its name."""
    return parts[0] if parts else "__init__"


def imported(path: Path) -> set[str]:
    """Full names of everything that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own_units(path: Path) -> set[str]:
    names = (tuple(name.split(".")) for name in imported(path))
    return {unit_at(parts[1:]) for parts in names if parts[0] == "hwprobe"}


def family(unit: str) -> str:
    return unit.split("_")[0] if unit.startswith("policy") else unit


every_module = pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))


@every_module
def test_a_module_imports_only_from_lower_floors(path: Path) -> None:
    unit = unit_of(path)
    others = {other for other in own_units(path) if family(other) != family(unit)}
    assert {other for other in others if HEIGHT[other] >= HEIGHT[unit]} == set()


def test_every_module_has_its_floor_and_every_floor_its_modules() -> None:
    assert {unit_of(path) for path in modules()} == set(HEIGHT)


@every_module
def test_what_judges_and_chooses_does_not_touch_the_world(path: Path) -> None:
    if unit_of(path) in PURE:
        assert {name.split(".")[0] for name in imported(path)} & TOUCHES_THE_WORLD == set()


def in_a_fresh_interpreter(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAVY = ("click", "keras", "numpy", "psutil", "pynvml", "rich", "tensorflow", "tf_keras")


def test_importing_hwprobe_loads_no_library_that_it_may_never_need() -> None:
    source = f"import sys, hwprobe; print([name for name in {HEAVY} if name in sys.modules])"
    assert in_a_fresh_interpreter(source).strip() == "[]"


def test_importing_hwprobe_reads_and_changes_no_environment() -> None:
    source = (
        "import os, sys\n"
        "before, seen = dict(os.environ), []\n"
        "class Watched(type(os.environ)):\n"
        "    def __getitem__(self, key): seen.append(key); return super().__getitem__(key)\n"
        "os.environ.__class__ = Watched\n"
        "import hwprobe\n"
        "print(seen); print(dict(os.environ) == before)\n"
    )
    assert in_a_fresh_interpreter(source).strip() == "[]\nTrue"


def test_every_public_name_is_there_and_in_the_list_of_names() -> None:
    import hwprobe

    assert [name for name in hwprobe.__all__ if not hasattr(hwprobe, name)] == []
    assert sorted(hwprobe.__all__) == list(hwprobe.__all__)
    assert set(hwprobe.__all__) <= set(dir(hwprobe))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    import hwprobe

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = hwprobe.no_such_name
