"""What a real run needs is there, or the test says so: a skip with its reason elsewhere, a failure in CI."""

from __future__ import annotations

import os

import pytest

IN_CI = os.environ.get("CI") == "true"


def need(why_not: str | None) -> None:
    """Go on where nothing is missing; else fail in CI and skip elsewhere."""
    if why_not is not None:
        if IN_CI:
            pytest.fail(why_not)
        pytest.skip(why_not)
