"""Every key of a policy file with the values that it accepts.

Documents are checked key by key, so that one reading reports every mistake of a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hwprobe.configuration import ALLOCATORS, DTYPE_POLICIES
from hwprobe.findings import Severity
from hwprobe.policy import FAIL_ON, LOSS_SCALING_WISH_MODES, SCHEMA

Document = dict[str, Any]
Check = Callable[[str, Any, list[str]], Any]
"""Takes a key's path, its value and the list of mistakes; returns the value, or `_WRONG` after adding to the list."""

_WRONG: Any = object()

# Keras keeps the scale in a float32 variable, and TensorFlow flushes float32's subnormals to zero.
_SMALLEST_FLOAT32, _LARGEST_FLOAT32 = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127
_LARGEST_WHOLE_NUMBER = 2**31 - 1

_LONGEST_NAME = 100
_LONGEST_DESCRIPTION = 1000
_RULE_ID = re.compile(r"HWP[0-9]{0,3}")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")

NO_LIMIT = "none"
"""What `memory.limit_mib` says for no bound: TOML has no null, and a file that extends another may need to say it."""


def check_document(document: Mapping[str, Any]) -> tuple[Document, list[str]]:
    """Check one document by itself.

    Args:
        document: What a policy file holds, or the same as plain Python data.

    Returns:
        The keys whose values are accepted, in the form that `merge` and `build_policy` take; and the mistakes, each
        with the path of its key and the accepted values.
    """
    mistakes: list[str] = []
    if "schema" not in document:
        mistakes.append(f"schema: missing; accepted: {shown(SCHEMA)}")
    accepted = _table(_POLICY)("", dict(document), mistakes)
    return accepted, mistakes


def check_merged(document: Document) -> list[str]:
    """Check what only the whole can tell: the numbers of loss scaling against its mode.

    Args:
        document: An accepted document, merged with those that it extends.

    Returns:
        The mistakes.
    """
    wish = document.get("loss_scaling", {})
    mode = wish.get("mode", "auto")
    mistakes = []
    if mode == "static" and "initial_scale" not in wish:
        mistakes.append('loss_scaling.initial_scale: missing; the mode "static" needs a scale, such as 1024.0')
    if mode == "none" and "initial_scale" in wish:
        mistakes.append('loss_scaling.initial_scale: the mode "none" has no scale; remove it or choose another mode')
    if mode in ("static", "none") and "growth_steps" in wish:
        mistakes.append(f"loss_scaling.growth_steps: with the mode {shown(mode)} no scale grows; remove it")
    return mistakes


def _table(keys: Mapping[str, Check], required: Iterable[str] = ()) -> Check:
    def check(path: str, value: Any, mistakes: list[str]) -> Any:
        if not isinstance(value, dict):
            return _refuse(mistakes, path, value, f"a table with the keys {', '.join(keys)}")
        accepted = {}
        for key, item in value.items():
            if key not in keys:
                mistakes.append(
                    f"{_joined(path, key)}: no such key;{suggestion(key, keys)} accepted: {', '.join(keys)}"
                )
            elif (checked := keys[key](_joined(path, key), item, mistakes)) is not _WRONG:
                accepted[key] = checked
        mistakes += [f"{_joined(path, key)}: missing" for key in required if key not in value]
        return accepted

    return check


def _list(of: Check, what: str) -> Check:
    def check(path: str, value: Any, mistakes: list[str]) -> Any:
        if not isinstance(value, (list, tuple)):
            return _refuse(mistakes, path, value, what)
        items = [of(f"{path}[{index}]", item, mistakes) for index, item in enumerate(value)]
        return _WRONG if _WRONG in items else items

    return check


def _choice(values: Iterable[str], because: str = "") -> Check:
    choices = tuple(values)

    def check(path: str, value: Any, mistakes: list[str]) -> Any:
        if isinstance(value, str) and value in choices:
            return value
        hint = suggestion(value, choices) if isinstance(value, str) else ""
        accepted = ", ".join(shown(choice) for choice in choices)
        return _refuse(mistakes, path, value, f"{accepted}{because}", hint)

    return check


def _preference(values: Iterable[str], because: str = "") -> Check:
    items = _list(_choice(values, because), f'a list such as ["{DTYPE_POLICIES[0]}", "float32"]')

    def check(path: str, value: Any, mistakes: list[str]) -> Any:
        preference = items(path, value, mistakes)
        if not isinstance(value, (list, tuple)):
            return _WRONG
        counted = Counter(item for item in value if isinstance(item, str))
        repeated = [shown(item) for item, count in counted.items() if count > 1]
        if repeated:
            mistakes.append(f"{path}: {', '.join(repeated)} stands there more than once")
        if not value or value[-1] != "float32":
            mistakes.append(
                f'{path}: must end in "float32", the one policy that every device can run; to refuse a machine that'
                " can do nothing better, use: hwprobe check --require dtype_policy=NAME"
            )
        return preference

    return check


def _boolean(path: str, value: Any, mistakes: list[str]) -> Any:
    return value if isinstance(value, bool) else _refuse(mistakes, path, value, "true, false")


def _scale(path: str, value: Any, mistakes: list[str]) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and _SMALLEST_FLOAT32 <= value <= _LARGEST_FLOAT32:
        return float(value)
    return _refuse(mistakes, path, value, "a positive number that float32 can hold, such as 32768.0")


def _whole_number(path: str, value: Any, mistakes: list[str], or_else: str = "") -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST_WHOLE_NUMBER:
        return value
    return _refuse(mistakes, path, value, f"a whole number from 1 to {_LARGEST_WHOLE_NUMBER}{or_else}")


def _memory_limit(path: str, value: Any, mistakes: list[str]) -> Any:
    if isinstance(value, str) and value == NO_LIMIT:
        return None
    return _whole_number(path, value, mistakes, f' (MiB), or "{NO_LIMIT}"')


def _text(longest: int) -> Check:
    def check(path: str, value: Any, mistakes: list[str]) -> Any:
        if isinstance(value, str) and value.strip() and len(value) <= longest and value.isprintable():
            return value
        return _refuse(mistakes, path, value, f"one line of printable text, up to {longest} characters")

    return check


def _description(path: str, value: Any, mistakes: list[str]) -> Any:
    return value if isinstance(value, str) and not value else _text(_LONGEST_DESCRIPTION)(path, value, mistakes)


def _rule_id(path: str, value: Any, mistakes: list[str]) -> Any:
    if isinstance(value, str) and _RULE_ID.fullmatch(value):
        return value
    return _refuse(mistakes, path, value, 'a rule id such as "HWP305", or the beginning of some, such as "HWP3"')


def _severities(path: str, value: Any, mistakes: list[str]) -> Any:
    severity = _choice(level.value for level in Severity)
    if not isinstance(value, dict):
        return _refuse(mistakes, path, value, "a table from rule id to severity")
    accepted = {}
    for id_, level in value.items():
        where = _joined(path, id_)
        if _rule_id(where, id_, mistakes) is not _WRONG and (checked := severity(where, level, mistakes)) is not _WRONG:
            accepted[id_] = checked
    return accepted


def _override(path: str, value: Any, mistakes: list[str]) -> Any:
    override = _table(_OVERRIDE, required=("name", "reason"))(path, value, mistakes)
    if override is _WRONG:
        return _WRONG
    if not value.get("allow") and not value.get("deny"):
        mistakes.append(f"{path}: says nothing; give it an entry in allow or in deny")
    both = set(override.get("allow", ())) & set(override.get("deny", ()))
    mistakes += [f"{path}: {shown(policy)} is both allowed and denied" for policy in sorted(both)]
    return override


def _refuse(mistakes: list[str], path: str, value: Any, accepted: str, hint: str = "") -> Any:
    mistakes.append(f"{path}: {shown(value)} is not accepted;{hint} accepted: {accepted}")
    return _WRONG


def suggestion(key: str, accepted: Iterable[str]) -> str:
    """Give " did you mean X?" where X is an accepted word near to the key, and nothing where there is none."""
    # Only a mistake needs it, and every check reads a policy.
    import difflib

    near = difflib.get_close_matches(key, accepted, n=1) if len(key) < _LONGEST_NAME else []
    return f" did you mean {near[0]}?" if near else ""


def _joined(path: str, key: str) -> str:
    name = key if _BARE_KEY.fullmatch(key) else shown(key)
    return f"{path}.{name}" if path else name


def shown(value: Any) -> str:
    """Give a value as a message may repeat it: short, on one line, with nothing that a terminal would obey."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (str, bool)):
        import json

        text = json.dumps(value)
    elif isinstance(value, int) and value.bit_length() > 200:
        text = "a number of more than 60 digits"
    else:
        text = str(value)
    return text if len(text) <= 80 else f"{text[:76]}..."


_HALF_POLICIES = tuple(policy for policy in DTYPE_POLICIES if policy != "float32")
_OVERRIDE: dict[str, Check] = {
    "name": _text(_LONGEST_NAME),
    "allow": _list(_choice(_HALF_POLICIES, " (every device can run float32)"), 'a list such as ["mixed_float16"]'),
    "deny": _list(_choice(_HALF_POLICIES, " (every device can run float32)"), 'a list such as ["mixed_float16"]'),
    "reason": _text(_LONGEST_DESCRIPTION),
}
_POLICY: dict[str, Check] = {
    "schema": _choice((SCHEMA,)),
    "extends": _text(4096),
    "name": _text(_LONGEST_NAME),
    "description": _description,
    "precision": _table(
        {
            "prefer": _preference(DTYPE_POLICIES),
            "cpu": _preference(("mixed_bfloat16", "float32"), " (float16 is slower than float32 on CPUs)"),
            "tf32": _boolean,
        }
    ),
    "loss_scaling": _table(
        {"mode": _choice(LOSS_SCALING_WISH_MODES), "initial_scale": _scale, "growth_steps": _whole_number}
    ),
    "memory": _table(
        {
            "growth": _boolean,
            "limit_mib": _memory_limit,
            "allocator": _choice(ALLOCATORS),
        }
    ),
    "check": _table(
        {
            "fail_on": _choice(FAIL_ON),
            "select": _list(_rule_id, 'a list of rule ids such as ["HWP3"]'),
            "ignore": _list(_rule_id, 'a list of rule ids such as ["HWP3"]'),
            "severity": _severities,
        }
    ),
    "devices": _list(_override, "a list of tables: [[devices]]"),
}
