"""The Slurm part of docs/clusters.md, run on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.presence import need
from tests.cluster.slurm import Slurm, why_not_here
from tests.docs.documents import Block, blocks, matches
from tests.machine import A100, T4, Machine, Workshop

DOCUMENT = Path(__file__).parents[2] / "docs" / "clusters.md"
REASON = "needs a Slurm cluster"

TRAIN = "import hwprobe\nassert hwprobe.auto_configure().decision.dtype_policy == 'mixed_float16'\n"
"""In place of the document's own script: the nodes' GPUs run no kernel, and their names lead nowhere."""


def slurm_blocks() -> list[Block]:
    return [block for block in blocks(DOCUMENT.read_text(encoding="utf-8")) if block.skip == REASON]


@pytest.fixture
def slurm(workshop: Workshop, tmp_path: Path) -> Iterator[Slurm]:
    need(why_not_here())
    folder = tmp_path / "cluster"
    with Slurm(folder, ("n1", "n2", "n3", "n4")) as cluster:
        for node in cluster.nodes:
            gpus = (T4, T4) if node in ("n1", "n2") else (A100, A100)
            cluster.place(node, Machine(tmp_path / node, workshop, gpus))
        cluster.place(None, Machine(tmp_path / "login", workshop, (), driver=None))
        yield cluster


def test_what_the_document_shows_is_what_slurm_does(slurm: Slurm) -> None:
    (slurm.folder / "train.py").write_text(TRAIN)
    shown = slurm_blocks()
    assert len(shown) >= 4
    for block in shown:
        commands = block.commands
        for command in commands:
            done = slurm.shell(command.text)
            printed = done.stdout + done.stderr + "".join(job.read_text() for job in slurm.folder.glob("slurm-*.out"))
            status = block.status if command is commands[-1] else 0
            assert done.returncode == status, f"{command.text}\n{printed}"
            if block.compares_output:
                assert matches(command.output, done.stdout + done.stderr), f"{command.text} printed\n{printed}"
