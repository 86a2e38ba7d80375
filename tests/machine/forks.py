"""Many short cases on many machines for the price of one import of TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.machine.machine import Machine

SERVER = Path(__file__).with_name("fork_server.py")


@dataclasses.dataclass(frozen=True)
class Case:
    """Python source to run on a machine, with variables as in `Machine.python`."""

    machine: Machine
    source: str
    variables: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    seconds: int = 120


def python_in_forks(
    cases: Sequence[Case], *, preload: Sequence[str] = ("tensorflow",), timeout: float = 600
) -> list[subprocess.CompletedProcess[str]]:
    """Runs each case in a process of its own, forked after the slow imports, and returns their ends in order.

    All cases use the library folder of the first machine, from which TensorFlow loaded libcudart, so the machines must
    agree in `toolkit`, `missing`, `broken`, `lacks` and the driver's file names. A case that takes longer than its
    seconds ends with -14.
    """
    first = cases[0].machine
    request = first.folder / "cases.json"
    answers = [
        (first.folder / f"case-{number}.out", first.folder / f"case-{number}.err") for number in range(len(cases))
    ]
    described = [
        {
            "source": case.source,
            "environment": case.machine.environment(**case.variables) | {"LD_LIBRARY_PATH": first.library_path},
            "seconds": case.seconds,
            "stdout": str(output),
            "stderr": str(errors),
        }
        for case, (output, errors) in zip(cases, answers, strict=True)
    ]
    request.write_text(json.dumps({"preload": list(preload), "cases": described}))
    done = first.run([sys.executable, str(SERVER), str(request)], timeout=timeout, TF_CPP_MIN_LOG_LEVEL="2")
    assert done.returncode == 0, done.stderr
    ends = json.loads(request.with_suffix(".ends").read_text())
    return [
        subprocess.CompletedProcess(case.source, end, output.read_text(), errors.read_text())
        for case, end, (output, errors) in zip(cases, ends, answers, strict=True)
    ]
