"""A process whose environment tells the host's reader nothing."""

from __future__ import annotations

import pytest

from hwprobe.probe.host import ENVIRONMENT, ENVIRONMENT_PRESENCE, SCHEDULERS

SCHEDULER_VARIABLES = {variable for _, variables in SCHEDULERS for variable in variables}


@pytest.fixture
def plain_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*ENVIRONMENT, *ENVIRONMENT_PRESENCE, *SCHEDULER_VARIABLES}:
        monkeypatch.delenv(name, raising=False)
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container"):
        monkeypatch.delenv(name, raising=False)
