"""`python -m benchmarks [NAME]...`: run the benchmarks of these names, or all of them, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def benchmarks() -> list[str]:
    """Names of the modules beside this one that can be run."""
    paths = sorted(FOLDER.glob("[!_]*.py"))
    return [path.stem for path in paths if '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")]


def main(wanted: list[str]) -> int:
    """Run benchmarks and give the exit status: 1 where one failed, 2 for a name that none has."""
    unknown = sorted(set(wanted) - set(benchmarks()))
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(benchmarks())}", file=sys.stderr)
        return 2
    failed = []
    for name in wanted or benchmarks():
        print(f"\n== {name}\n", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=FOLDER.parent, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
