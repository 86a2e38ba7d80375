"""A check on one node becomes that node's record (`hwprobe check --record DIR`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hwprobe.cluster.record import node_record
from hwprobe.cluster.record_files import write_record
from hwprobe.decide import Request
from hwprobe.errors import InputError
from hwprobe.policy import Policy
from hwprobe.preflight import Check


def record_check(
    check: Check, policy: Policy, directory: Path, environment: Mapping[str, str], *, request: Request | None = None
) -> Path:
    """Write this node's record of a check (`hwprobe check --record DIR`).

    Args:
        check: The check, with its report and decision.
        policy: The policy that it was made by.
        directory: Folder that all nodes share.
        environment: Usually `os.environ`.
        request: What the caller asked for, over the policy.

    Returns:
        The file.

    Raises:
        InputError: Nothing could be checked, or the record cannot be written.
    """
    if check.report is None or check.decision is None:
        raise InputError(f"no record was written, since nothing could be checked: {check.error}")
    record = node_record(
        check.report,
        check.decision,
        policy,
        environment=environment,
        request=request,
        findings=check.findings,
        verdict=check.verdict,
    )
    nodes = environment.get("SLURM_NNODES", "")
    return write_record(directory, record, nodes=int(nodes) if nodes.isdecimal() else None)
