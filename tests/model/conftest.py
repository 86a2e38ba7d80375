"""The real Keras 3 on the real TensorFlow, with its global policy put back after each test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hwprobe.findings import Finding
from hwprobe.model.audit import audit


@pytest.fixture
def keras() -> Iterator[Any]:
    """Keras 3 under mixed_float16, float32 again afterwards."""
    module = pytest.importorskip("keras", minversion="3.3", reason="the audit's probe needs Keras 3")
    pytest.importorskip("tensorflow")
    module.utils.set_random_seed(7)
    module.config.set_dtype_policy("mixed_float16")
    yield module
    module.config.set_dtype_policy("float32")


@pytest.fixture
def found() -> Callable[..., dict[str, list[Finding]]]:
    """Audit a model and give its findings by id."""

    def ask(model: Any, batch: Any = None, **options: Any) -> dict[str, list[Finding]]:
        by_id: dict[str, list[Finding]] = {}
        for finding in audit(model, batch, **options).findings:
            by_id.setdefault(finding.id, []).append(finding)
        return by_id

    return ask
