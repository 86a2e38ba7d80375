"""The cases for Keras 3 on JAX, where JAX is installed: in an environment of tests/matrix."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("jax_cases.py")


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed here")
def test_every_case_on_jax_passes() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", str(CASES)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:]
    assert " passed" in result.stdout
