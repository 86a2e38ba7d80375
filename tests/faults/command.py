"""Runs `hwprobe check` on a machine and holds every answer to the laws that no fault may break."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import jsonschema

from hwprobe.gpu import Gpu
from hwprobe.preflight import Check
from hwprobe.report import Report
from hwprobe.serialize import from_json, json_schema
from hwprobe.source import SourceStatus
from tests.machine import Machine

ROOT = Path(__file__).parents[2]
SCHEMA = json_schema(Check)
GENEROUS = 300.0

WITH_READERS = """
import json, sys
from hwprobe.cli import main
from hwprobe.probe import collect
collect.READERS.update(json.loads(sys.argv[1]))
sys.exit(main(sys.argv[2:]))
"""
"""The command with other readers in its child processes."""


class Answer(NamedTuple):
    """What the command said."""

    check: Check
    text: str

    @property
    def report(self) -> Report:
        assert self.check.report is not None
        return self.check.report

    @property
    def statuses(self) -> tuple[str, str]:
        """How NVML and CUDA ended."""
        return self.report.sources.nvml.status.value, self.report.sources.cuda.status.value

    @property
    def dtype_policy(self) -> str:
        assert self.check.decision is not None
        return self.check.decision.dtype_policy

    @property
    def ids(self) -> set[str]:
        """Rules that found something worse than information."""
        return {finding.id for finding in self.check.findings if finding.severity.value != "info"}


def check(
    machine: Machine, *options: str, readers: dict[str, str] | None = None, timeout: float = GENEROUS, **variables: str
) -> Answer:
    """Run `hwprobe check --fast --format json`."""
    command = [sys.executable, "-m", "hwprobe"]
    if readers is not None:
        command = [sys.executable, "-c", WITH_READERS, json.dumps(readers)]
    done = machine.run(
        [*command, "check", "--fast", "--format", "json", *options], cwd=ROOT, timeout=timeout, **variables
    )
    assert "Traceback" not in done.stderr, done.stderr
    jsonschema.validate(json.loads(done.stdout), SCHEMA)
    answer = Answer(from_json(done.stdout, Check), done.stdout)
    assert done.returncode == answer.check.exit_status, done.stderr
    hold_to_the_laws(answer)
    return answer


def hold_to_the_laws(answer: Answer) -> None:
    """Nothing is made up, whatever was broken."""
    sources = answer.report.sources
    for name in sources.__struct_fields__:
        source = getattr(sources, name)
        assert source.status is SourceStatus.OK or source.reason, f"{name} is {source.status} and does not say why"
    told = (SourceStatus.OK, SourceStatus.ABSENT)
    assert answer.check.verdict != "ready" or sources.cuda.status in told, "ready, and nobody said with which GPUs"
    for gpu in answer.report.devices:
        assert gpu.visible is not True or sources.cuda.status is SourceStatus.OK, "visible, and CUDA did not say so"
        for fact in ("name", "compute_capability"):
            assert getattr(gpu, fact) is not None or _is_explained(fact, gpu), f"{fact} is missing without a reason"
    visible = answer.report.visible_devices
    if answer.dtype_policy != "float32":
        assert visible
        assert all(gpu.error is None and gpu.compute_capability is not None for gpu in visible)


def _is_explained(fact: str, gpu: Gpu) -> bool:
    return gpu.error is not None or any(fact in missing for missing in gpu.errors)
