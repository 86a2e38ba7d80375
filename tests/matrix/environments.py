"""Which environment the tests run in, and what has to come out there: a row of `environments.toml`."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.toml import read_toml

TABLE = Path(__file__).with_name("environments.toml")
OF_THE_TESTS = "tensorflow-2.21"


@dataclasses.dataclass(frozen=True)
class Expected:
    """A case of the table. The head of the table says what each key means."""

    name: str
    python: tuple[str, ...]
    toolkit: str
    t4: str
    a100: str
    variables: Mapping[str, Any]
    tensorflow: str | None = None
    keras: int | None = None
    architectures: tuple[str, ...] = ()
    cudnn: str | None = None
    nvml_binding: str | None = None
    finding: str | None = None
    exit_status: tuple[int, ...] = (0, 0)
    tests: tuple[str, ...] = ()

    @property
    def on_tensorflow(self) -> bool:
        """Whether Keras, or a script, computes with TensorFlow."""
        return self.tensorflow is not None and self.variables.get("KERAS_BACKEND", "tensorflow") == "tensorflow"

    @property
    def lists_gpus(self) -> bool:
        """Whether its TensorFlow lists the GPUs of a machine."""
        return self.on_tensorflow and bool(self.architectures)


@functools.cache
def table() -> dict[str, Expected]:
    """Every case by its name."""
    rows = read_toml(TABLE)["environment"]
    cases = {}
    for row in rows:
        for case in row["case"]:
            facts: dict[str, Any] = {"variables": {}, "python": tuple(row.get("python", ()))}
            facts |= {name: tuple(value) if isinstance(value, list) else value for name, value in case.items()}
            cases[case["name"]] = Expected(**facts)
    return cases


def expected_here() -> Expected:
    """What has to come out in this process's environment: `HWPROBE_MATRIX` names the case."""
    return table()[os.environ.get("HWPROBE_MATRIX", OF_THE_TESTS)]
