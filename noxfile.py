"""The environments of tests/matrix/environments.toml, each made under .nox and tried: `nox`, or `nox -s NAME`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nox

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
# An interpreter is looked for on this machine, never fetched.
os.environ["UV_PYTHON_DOWNLOADS"] = "never"

TABLE = Path(__file__).parent / "tests/matrix/environments.toml"


def find_interpreter(version: str) -> str | None:
    """The Python of this version on the path, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))]
    return next((candidate for candidate in candidates if candidate and says_version(candidate, version)), None)


def says_version(python: str, version: str) -> bool:
    """Whether it runs and is what its name says: pyenv puts names on the path that have no Python behind them."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def add_session(environment: dict[str, Any]) -> None:
    """Make a session of one environment of the table."""
    wanted, *others = environment["python"]
    found = {version: path for version in (wanted, *others) if (path := find_interpreter(version))}

    def session(session: nox.Session) -> None:
        if wanted not in found:
            session.warn(f"Python {wanted} is not here; this environment has Python {next(iter(found))} in its place")
        session.install("--editable", ".", "hypothesis", "pytest", "pytest-xdist", *environment["install"])
        for case in environment["case"]:
            variables = {"HWPROBE_MATRIX": case["name"], **case.get("variables", {})}
            tests = ("tests/matrix", *case.get("tests", ()))
            session.run("python", "-m", "pytest", *tests, "-n", "2", *session.posargs, env=variables)

    # Without any of them nox names the missing interpreter: an error in CI, elsewhere a skip.
    python = next(iter(found.values()), wanted)
    nox.session(session, name=environment["name"], python=python)


for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["environment"]:
    if "install" in row:
        add_session(row)
