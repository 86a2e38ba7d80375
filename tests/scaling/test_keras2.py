"""The cases for Keras 2 in a process where `tf.keras` is tf_keras."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tf_keras")

CASES = Path(__file__).with_name("keras2_cases.py")


def test_every_case_of_keras_2_passes() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:]
    assert " passed" in result.stdout
