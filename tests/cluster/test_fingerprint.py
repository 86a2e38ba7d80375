"""What has to be the same on every replica, and how a difference is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hwprobe.cluster.verify_strategy import Fingerprint, _raise_on_difference, _replica, _row
from hwprobe.errors import AgreementError

OWN = Fingerprint(
    dtype_policy="keras mixed_float16",
    loss_scaling="dynamic loss scaling",
    versions={"TensorFlow": "2.21.0", "Keras": "3.15.1"},
)


def replicas(*fingerprints: Fingerprint) -> list[Any]:
    return [_replica(number, _row(fingerprint)) for number, fingerprint in enumerate(fingerprints)]


@pytest.mark.parametrize(
    "change",
    [
        {"dtype_policy": "keras float32"},
        {"loss_scaling": "no loss scaling"},
        {"versions": {"TensorFlow": "2.20.0", "Keras": "3.15.1"}},
        {"versions": {"TensorFlow": "2.21.0"}},
    ],
)
def test_a_difference_names_the_replicas_and_what_each_has(change: dict[str, Any]) -> None:
    other = msgspec.structs.replace(OWN, **change)
    with pytest.raises(AgreementError) as raised:
        _raise_on_difference(replicas(OWN, OWN, other))
    text = str(raised.value)
    assert f"{other} on replica 2 (" in text
    assert f"{OWN} on replica 0 (" in text
    assert ", replica 1 (" in text


def test_patch_versions_may_differ_as_in_a_plan() -> None:
    _raise_on_difference(
        replicas(OWN, msgspec.structs.replace(OWN, versions={"TensorFlow": "2.21.1", "Keras": "3.15.0"}))
    )


def test_what_does_not_fit_into_a_row_is_compared_all_the_same() -> None:
    long = msgspec.structs.replace(OWN, loss_scaling="ü" * 1000)
    other = msgspec.structs.replace(OWN, loss_scaling="ü" * 1001)
    assert len(_row(long)) == len(_row(OWN))
    _raise_on_difference(replicas(long, long))
    with pytest.raises(AgreementError, match="replica 1"):
        _raise_on_difference(replicas(long, other))
