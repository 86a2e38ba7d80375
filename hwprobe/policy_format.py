"""From documents to a policy and back: laying one document over another, building, writing as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hwprobe.policy import Policy
from hwprobe.policy_keys import NO_LIMIT, Document


def merge(base: Document, own: Document) -> Document:
    """Lay one accepted document over another: tables key by key, lists and single values whole.

    A document that names a loss scaling mode starts that table anew, since the numbers belong to the mode. What a
    policy is called is never inherited.

    Args:
        base: The document that is extended.
        own: The document that extends it.
    """
    base = {key: value for key, value in base.items() if key not in ("name", "description")}
    if "mode" in own.get("loss_scaling", {}):
        base["loss_scaling"] = {}
    merged: Document = _laid_over(base, own)
    return merged


def build_policy(document: Document, **attributes: Any) -> Policy:
    """Turn an accepted document into a policy.

    Args:
        document: As `check_document` and `merge` return it, without mistakes.
        **attributes: Fields of `Policy` that no file holds: `path`, `origin`.
    """
    fields = {key: value for key, value in document.items() if key != "extends"}
    return msgspec.convert({**fields, **attributes}, Policy)


def policy_to_document(policy: Policy) -> Document:
    """Give a policy as the document that its file would hold, with every key."""
    document: Document = msgspec.to_builtins(policy)
    for key in ("path", "origin"):
        del document[key]
    if policy.memory.limit_mib is None:
        document["memory"]["limit_mib"] = NO_LIMIT
    document["loss_scaling"] = {key: value for key, value in document["loss_scaling"].items() if value is not None}
    return document


def policy_to_toml(policy: Policy) -> str:
    """Write a policy as a file that reads back as the same policy.

    Args:
        policy: Any policy that was read or that passes the same checks.
    """
    document = policy_to_document(policy)
    overrides = document.pop("devices")
    severities = document["check"].pop("severity")
    tables = [(name, document.pop(name)) for name in ("precision", "loss_scaling", "memory", "check")]
    lines = _assignments(document)
    for name, table in tables:
        lines += ["", f"[{name}]", *_assignments(table)]
    if severities:
        lines += ["", "[check.severity]", *_assignments(severities)]
    for override in overrides:
        lines += ["", "[[devices]]", *_assignments(override)]
    return "\n".join(lines) + "\n"


def _assignments(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items()]


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    import json

    # JSON and TOML agree on booleans, finite numbers and the escapes of a printable string.
    return json.dumps(value, ensure_ascii=False)


def _laid_over(base: Any, own: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    both = base.keys() & own.keys()
    return {**base, **own, **{key: _laid_over(base[key], own[key]) for key in both}}
