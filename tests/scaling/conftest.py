"""Every test of loss scaling starts from Keras' own policy and with nothing decided."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hwprobe.scaling.in_force import set_in_force

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(autouse=True)
def _nothing_decided() -> Iterator[None]:
    before = set_in_force(None)
    yield
    set_in_force(before)


@pytest.fixture
def float32() -> Iterator[None]:
    yield from _policy("float32")


@pytest.fixture
def mixed_float16() -> Iterator[None]:
    yield from _policy("mixed_float16")


def _policy(name: str) -> Iterator[None]:
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    yield
    keras.config.set_dtype_policy(before)
