"""Workers of one job on loopback, that agree without a plan."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hwprobe.cluster.agreement import agree
from hwprobe.cluster.plan import Plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.errors import AgreementError, HwprobeError
from tests.ports import free_ports

TIMEOUT = 20.0
SHORT = 2.0


class Group:
    """Workers on loopback; each agrees in a thread of its own."""

    def __init__(self, count: int, host: str = "127.0.0.1") -> None:
        self.ports = free_ports(count)
        self.addresses = [f"{host}:{port}" for port in self.ports]

    def environment(self, index: int) -> dict[str, str]:
        return {
            "TF_CONFIG": json.dumps({"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": index}})
        }

    def agree(
        self,
        records: Mapping[int, NodeRecord],
        *,
        timeout: float = TIMEOUT,
        secrets: Mapping[int, bytes] | None = None,
        environments: Mapping[int, dict[str, str]] | None = None,
        beside: Callable[[], Any] | None = None,
    ) -> dict[int, Plan | HwprobeError]:
        """What each worker got: the plan, or the error that it raised."""
        results: dict[int, Plan | HwprobeError] = {}

        def run(index: int) -> None:
            environment = (environments or {}).get(index, self.environment(index))
            try:
                results[index] = agree(
                    records[index], environment, timeout_seconds=timeout, secret=(secrets or {}).get(index)
                )
            except HwprobeError as error:
                results[index] = error

        threads = [threading.Thread(target=run, args=(index,)) for index in records]
        for thread in threads:
            thread.start()
        if beside is not None:
            beside()
        for thread in threads:
            thread.join(3 * timeout + 30)
            assert not thread.is_alive()
        return results


def plan_of(results: Mapping[int, Plan | HwprobeError]) -> Plan:
    """The one plan that all have."""
    plans = list(results.values())
    assert all(isinstance(plan, Plan) for plan in plans), plans
    assert len({plan.digest for plan in plans if isinstance(plan, Plan)}) == 1
    assert isinstance(plans[0], Plan)
    return plans[0]


def failures(results: Mapping[int, Plan | HwprobeError]) -> dict[int, str]:
    assert all(isinstance(result, AgreementError) for result in results.values()), results
    return {index: str(result) for index, result in results.items()}
