"""Fixtures for every test."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.dates import TODAY
from tests.machine import Machine, NoCompilerError, Workshop, find_compiler
from tests.machine.workshop import DRIVER_LIBRARIES

# No test is about time: a loaded machine must not fail one. A folder of its own for all examples of a test is meant.
# In CI a change is judged by the same examples each time, as in Hypothesis' own profile for CI; elsewhere every run
# tries others.
settings.register_profile(
    "hwprobe",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("hwprobe")

# A shell script that starts the tests in the background (`make test &`) has them ignore Ctrl-C, and every program that
# they start would inherit that: none of those that are interrupted here could be (POSIX, Asynchronous Lists).
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; the hook of a test machine sees to its own."""
    monkeypatch.setattr("hwprobe.preflight.today", lambda: TODAY)


@functools.cache
def _host_libraries() -> str:
    return subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout


def open_workshop(folder: Path) -> Workshop:
    """A workshop in this folder. Without a compiler that is a failure in CI and elsewhere a skip with its reason."""
    try:
        return Workshop(folder / "stand-ins", find_compiler())
    except NoCompilerError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The compiled stand-in libraries, one build for all workers."""
    folder = tmp_path_factory.getbasetemp()
    return open_workshop(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


@pytest.fixture
def machine(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Machine]:
    """Makes machines: `machine(gpus=[T4, A100], driver="535.104.05")`. See `tests/machine/__init__.py`.

    What a machine lacks, the host that runs the tests must lack too: nothing else keeps the loader from finding it.
    """
    for wheel in (Path(folder, "nvidia/cuda_runtime/lib") for folder in sys.path):
        if wheel.is_dir():
            pytest.skip(f"TensorFlow would load the libraries of the nvidia-* wheels: {wheel}")

    def make(*arguments: object, **facts: object) -> Machine:
        made = Machine(tmp_path_factory.mktemp("machine"), workshop, *arguments, **facts)  # type: ignore[arg-type]
        absent = set(DRIVER_LIBRARIES) - set(made.libraries)
        for soname in absent | set(facts.get("missing", ())):  # type: ignore[call-overload]
            if soname in _host_libraries():
                pytest.skip(f"this host has a {soname} of its own")
        return made

    return make
