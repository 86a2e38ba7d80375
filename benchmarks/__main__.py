"""`python -m benchmarks [--write] [NAME]...`: run the benchmarks of these names, or all of them.

Each runs in a process of its own. With `--write` what it prints replaces its part of README.md, where it has one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"


def benchmarks() -> list[str]:
    """Names of the modules beside this one that can be run."""
    paths = sorted(FOLDER.glob("[!_]*.py"))
    return [path.stem for path in paths if '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")]


def on_page() -> list[str]:
    """Names of the benchmarks whose results the page shows."""
    page = PAGE.read_text(encoding="utf-8")
    return [name for name in benchmarks() if _marks(name)[0] in page]


def replaced(page: str, name: str, result: str) -> str:
    """The page with another result between the marks of a benchmark."""
    start, end = _marks(name)
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n\n{result.strip()}\n\n{end}{after}"


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- begin {name} -->", f"<!-- end {name} -->"


def run(name: str) -> str | None:
    """Run a benchmark, show what it prints and give it; None where it failed."""
    command = [sys.executable, "-u", "-m", f"benchmarks.{name}"]
    lines = []
    with subprocess.Popen(command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return None if child.returncode else "".join(lines)


def main(arguments: list[str]) -> int:
    """Run benchmarks and give the exit status: 1 where one failed, 2 for a name that none has."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run the benchmarks.")
    # The empty list is what argparse holds against the choices where no name is given.
    parser.add_argument("names", nargs="*", choices=[*benchmarks(), []], metavar="NAME", help=", ".join(benchmarks()))
    parser.add_argument("--write", action="store_true", help="put the results into benchmarks/README.md")
    asked = parser.parse_args(arguments)
    failed = []
    for name in asked.names or (on_page() if asked.write else benchmarks()):
        print(f"\n== {name}\n", flush=True)
        result = run(name)
        if result is None:
            failed.append(name)
        elif asked.write and name in on_page():
            PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), name, result), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
