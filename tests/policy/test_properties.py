"""Whatever a user writes gets a policy or a clear error, and every policy survives its own file."""

import json
import math
from datetime import date, datetime, time
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hwprobe.configuration import ALLOCATORS, Memory
from hwprobe.errors import InputError
from hwprobe.findings import Severity
from hwprobe.policy import FAIL_ON, CheckWish, DeviceOverride, LossScalingWish, Policy, Precision
from hwprobe.policy_format import build_policy, merge, policy_to_document, policy_to_toml
from hwprobe.policy_keys import check_document, check_merged
from hwprobe.policy_reader import read_policy, shipped_policies
from tests.policy.documents import FULL

HALVES = ("mixed_bfloat16", "mixed_float16")
SHIPPED = [resources.files("hwprobe.policies").joinpath(f"{name}.toml").read_bytes() for name in shipped_policies()]

lines = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=60).filter(
    str.strip
)
scales = st.floats(2.0**-126, (2 - 2.0**-23) * 2.0**127)
whole_numbers = st.integers(1, 2**31 - 1)
rule_ids = st.from_regex(r"HWP[0-9]{0,3}", fullmatch=True)
preferences = st.permutations(HALVES).flatmap(
    lambda halves: st.integers(0, 2).map(lambda count: (*halves[:count], "float32"))
)
wishes = st.one_of(
    st.builds(
        LossScalingWish,
        mode=st.sampled_from(["auto", "dynamic"]),
        initial_scale=st.none() | scales,
        growth_steps=st.none() | whole_numbers,
    ),
    st.builds(LossScalingWish, mode=st.just("static"), initial_scale=scales),
    st.just(LossScalingWish(mode="none")),
)
overrides = st.builds(
    lambda name, reason, allowed, denied: DeviceOverride(
        name=name, reason=reason, allow=tuple(allowed), deny=tuple(denied - allowed)
    ),
    lines,
    lines,
    st.sets(st.sampled_from(HALVES)),
    st.sets(st.sampled_from(HALVES)),
).filter(lambda override: override.allow or override.deny)
policies = st.builds(
    Policy,
    name=lines,
    description=st.just("") | lines,
    precision=st.builds(
        Precision,
        prefer=preferences,
        cpu=st.sampled_from([("float32",), ("mixed_bfloat16", "float32")]),
        tf32=st.booleans(),
    ),
    loss_scaling=wishes,
    memory=st.builds(
        Memory, growth=st.booleans(), limit_mib=st.none() | whole_numbers, allocator=st.sampled_from(ALLOCATORS)
    ),
    check=st.builds(
        CheckWish,
        fail_on=st.sampled_from(FAIL_ON),
        select=st.lists(rule_ids, max_size=4).map(tuple),
        ignore=st.lists(rule_ids, max_size=4).map(tuple),
        severity=st.dictionaries(rule_ids, st.sampled_from(Severity), max_size=4),
    ),
    devices=st.lists(overrides, max_size=3).map(tuple),
)


def read_text(tmp_path: Path, text: str | bytes) -> Policy:
    path = tmp_path / "site.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_policy(path)


def assert_policy_or_clear_error(tmp_path: Path, text: str | bytes) -> None:
    try:
        policy = read_text(tmp_path, text)
    except InputError as error:
        message: str | None = str(error)
    else:
        message = None
        assert as_read(read_text(tmp_path, policy_to_toml(policy))) == as_read(policy)
    assert message is None or message.startswith(f"{tmp_path}/site.toml: ")


def accepted(policy: Policy) -> dict[str, Any]:
    document, mistakes = check_document(policy_to_document(policy))
    assert mistakes == []
    return document


def as_read(policy: Policy) -> Policy:
    return msgspec.structs.replace(policy, path=None, origin="default")


@given(policies)
def test_a_policy_written_as_toml_reads_back_as_the_same_policy(tmp_path: Path, policy: Policy) -> None:
    assert as_read(read_text(tmp_path, policy_to_toml(policy))) == policy


@given(policies)
def test_a_policy_made_in_python_passes_the_same_checks(policy: Policy) -> None:
    assert as_read(read_policy(policy)) == policy


@given(policies)
def test_a_policy_survives_json(policy: Policy) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


def test_the_round_trip_of_a_full_file_is_exact(tmp_path: Path) -> None:
    policy = read_text(tmp_path, FULL)
    assert all(
        getattr(policy, field) != getattr(Policy(), field) for field in set(Policy.__struct_fields__) - {"schema"}
    )
    assert as_read(read_text(tmp_path, policy_to_toml(policy))) == as_read(policy)


@given(policies, policies)
def test_what_a_file_says_itself_is_never_changed_by_what_it_extends(base: Policy, own: Policy) -> None:
    merged = merge(accepted(base), accepted(own))
    assert check_merged(merged) == []
    severity = {**base.check.severity, **own.check.severity}
    assert build_policy(merged) == msgspec.structs.replace(
        own, check=msgspec.structs.replace(own.check, severity=severity)
    )


@given(policies)
def test_an_empty_file_over_another_changes_only_what_it_is_called(base: Policy) -> None:
    assert build_policy(merge(accepted(base), {})) == msgspec.structs.replace(base, name="default", description="")


values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(["float32", "mixed_float16", "none", "static", "error", "HWP3", "hwprobe.policy/1", "default"]),
        st.dates(),
        st.times(),
        st.datetimes(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    [
        "schema",
        "extends",
        "name",
        "description",
        "precision",
        "loss_scaling",
        "memory",
        "check",
        "devices",
        "prefer",
        "cpu",
        "tf32",
        "mode",
        "initial_scale",
        "growth_steps",
        "growth",
        "limit_mib",
        "allocator",
        "fail_on",
        "select",
        "ignore",
        "severity",
        "allow",
        "deny",
        "reason",
    ]
)
documents = st.dictionaries(
    keys | st.text(max_size=8),
    values
    | st.dictionaries(keys, values, max_size=4)
    | st.lists(st.dictionaries(keys, values, max_size=4), max_size=2),
    max_size=6,
)


@given(documents)
def test_any_document_is_accepted_or_answered_with_mistakes_in_one_line_each(document: dict[str, Any]) -> None:
    accepted, mistakes = check_document(document)
    assert all(mistake.isprintable() and ": " in mistake for mistake in mistakes)
    if not mistakes and not check_merged(accepted):
        build_policy(accepted)


def in_toml(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {in_toml(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@given(documents)
@example({"schema": "hwprobe.policy/1"})
def test_any_document_in_a_file_gives_a_policy_or_an_error_that_names_the_file(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    text = "".join(f"{in_toml(key)} = {in_toml(value)}\n" for key, value in document.items())
    assert_policy_or_clear_error(tmp_path, text)


@settings(max_examples=300)
@given(
    text=st.sampled_from([*SHIPPED, FULL.encode()]),
    cuts=st.lists(
        st.tuples(
            st.floats(0, 1),
            st.integers(0, 8),
            st.binary(max_size=4) | st.sampled_from([b'"', b"[", b"]", b"=", b"\n", b"1e9", b"-", b"#"]),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_any_damage_to_a_good_file_gives_a_policy_or_an_error_that_names_the_file(
    tmp_path: Path, text: bytes, cuts: list[tuple[float, int, bytes]]
) -> None:
    for position, length, put in cuts:
        start = int(position * len(text))
        text = text[:start] + put + text[start + length :]
    assert_policy_or_clear_error(tmp_path, text)


@given((st.text(max_size=200) | st.just("\0")).filter(lambda text: text not in shipped_policies()))
def test_a_name_that_nothing_has_gets_an_error_in_one_printable_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_policy(text)
    assert str(caught.value).isprintable()
