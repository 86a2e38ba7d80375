"""Fixtures for every test."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.machine import Machine, NoCompilerError, Workshop, find_compiler


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The compiled stand-in libraries, one build for all workers. In CI a missing compiler is a failure."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    try:
        return Workshop(folder / "stand-ins", find_compiler())
    except NoCompilerError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def machine(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Machine]:
    """Makes machines: `machine(gpus=[T4, A100], driver="535.104.05")`. See `tests/machine/__init__.py`."""

    def make(*arguments: object, **facts: object) -> Machine:
        folder: Path = tmp_path_factory.mktemp("machine")
        return Machine(folder, workshop, *arguments, **facts)  # type: ignore[arg-type]

    return make
