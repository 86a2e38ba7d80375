"""Which Keras is installed, which backend it would take, and which policy is set."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hwprobe.probe.distributions import installed
from hwprobe.probe.keras_packages import loaded_dtype_policy, read_keras
from hwprobe.report import Keras
from tests.probe.site_packages import Site


def keras_of(folder: Path, packages: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Keras | None:
    site = Site(folder / "site-packages")
    for name, version in packages.items():
        site.install(name, version)
    variables = {"KERAS_HOME": str(folder / "keras-home"), **(environment or {})}
    return read_keras(installed([str(site.folder)]), variables)


def test_without_keras_there_is_none(tmp_path: Path) -> None:
    assert keras_of(tmp_path, {"numpy": "2.4.6", "keras-tuner": "1.4"}) is None


@pytest.mark.parametrize(
    ("packages", "version", "tf_keras_version"),
    [
        ({"keras": "3.15.1"}, "3.15.1", None),
        ({"keras": "2.15.0"}, "2.15.0", None),
        ({"keras-nightly": "3.16.0.dev2026102704"}, "3.16.0.dev2026102704", None),
        ({"tf_keras": "2.21.0"}, None, "2.21.0"),
        ({"keras": "3.15.1", "tf_keras": "2.21.0"}, "3.15.1", "2.21.0"),
    ],
)
def test_both_kinds_are_told_apart(
    tmp_path: Path, packages: dict[str, str], version: str | None, tf_keras_version: str | None
) -> None:
    keras = keras_of(tmp_path, packages)
    assert keras is not None
    assert (keras.version, keras.tf_keras_version) == (version, tf_keras_version)


@pytest.mark.parametrize(
    ("environment", "file", "expected"),
    [
        ({}, None, ("tensorflow", "default")),
        ({}, '{"backend": "jax"}', ("jax", "file")),
        ({}, '{"floatx": "float32"}', ("tensorflow", "default")),
        ({}, "not JSON", ("tensorflow", "default")),
        ({}, "[1]", ("tensorflow", "default")),
        ({}, '{"backend": 3}', ("tensorflow", "default")),
        ({"KERAS_BACKEND": "torch"}, '{"backend": "jax"}', ("torch", "environment")),
        ({"KERAS_BACKEND": ""}, '{"backend": "jax"}', ("jax", "file")),
    ],
)
def test_the_backend_is_the_one_that_keras_would_take(
    tmp_path: Path, environment: dict[str, str], file: str | None, expected: tuple[str, str]
) -> None:
    if file is not None:
        (tmp_path / "keras-home").mkdir()
        (tmp_path / "keras-home/keras.json").write_text(file)
    keras = keras_of(tmp_path, {"keras": "3.15.1"}, environment)
    assert keras is not None
    assert (keras.backend, keras.backend_origin) == expected


def test_the_home_folder_holds_the_configuration_where_nobody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras/keras.json").write_text('{"backend": "jax"}')
    site = Site(tmp_path / "site-packages")
    site.install("keras", "3.15.1")
    keras = read_keras(installed([str(site.folder)]), {})
    assert keras is not None
    assert (keras.backend, keras.backend_origin) == ("jax", "file")


@pytest.mark.parametrize(
    ("value", "legacy"),
    [
        ("1", True),
        ("true", True),
        ("True", True),
        ("0", False),
        ("TRUE", False),
        ("2", False),
        ("yes", False),
        ("", False),
    ],
)
def test_only_three_spellings_ask_for_the_legacy_keras(tmp_path: Path, value: str, legacy: bool) -> None:
    keras = keras_of(tmp_path, {"keras": "3.15.1", "tf_keras": "2.21.0"}, {"TF_USE_LEGACY_KERAS": value})
    assert keras is not None
    assert keras.legacy is legacy


def keras_3() -> Any:
    keras = pytest.importorskip("keras")
    if not hasattr(keras, "ops"):
        pytest.skip("Keras 2 is installed")
    return keras


def test_the_policy_of_the_loaded_keras_is_read_without_fixing_it() -> None:
    keras = keras_3()
    keras.utils.clear_session()  # drops a policy that an earlier test has set
    assert loaded_dtype_policy(legacy=False) == "float32"
    floatx = keras.config.floatx()
    try:
        keras.config.set_floatx("float16")
        assert loaded_dtype_policy(legacy=False) == "float16", "reading made float32 the policy"
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("mixed_bfloat16")
        assert loaded_dtype_policy(legacy=False) == "mixed_bfloat16"
    finally:
        keras.config.set_floatx(floatx)
        keras.utils.clear_session()


def test_the_policy_of_the_legacy_keras_is_the_one_that_counts_for_it() -> None:
    keras, tf_keras = keras_3(), pytest.importorskip("tf_keras")
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        tf_keras.mixed_precision.set_global_policy("mixed_float16")
        assert loaded_dtype_policy(legacy=True) == "mixed_float16"
        assert loaded_dtype_policy(legacy=False) == "mixed_bfloat16"
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
        keras.utils.clear_session()


def test_no_loaded_keras_has_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("keras", "tf_keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert loaded_dtype_policy(legacy=False) is None


def test_a_keras_that_is_being_imported_has_no_policy_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", type(sys)("keras"))
    monkeypatch.delitem(sys.modules, "tf_keras", raising=False)
    assert loaded_dtype_policy(legacy=False) is None
