"""Builds a value of any of hwprobe's types with every field off its default, however the types grow."""

from __future__ import annotations

import enum
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from hwprobe.capability import ComputeCapability

SIMPLE: dict[Any, Any] = {int: 7, float: 0.25, ComputeCapability: ComputeCapability(8, 6)}


def filled(type_: Any, text: str = "text", default: Any = None) -> Any:
    """A value of the type that is not the default; every text is the given one."""
    if type_ in SIMPLE:
        return SIMPLE[type_]
    if type_ is str:
        return text
    if type_ is bool:
        return default is not True
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Literal:
        return next(choice for choice in reversed(arguments) if choice != default or len(arguments) == 1)
    if origin in (Union, types.UnionType):
        return filled(next(one for one in arguments if one is not type(None)), text, default)
    if origin is tuple:
        return (filled(arguments[0], text),)
    if origin is dict:
        return {"a key": filled(arguments[1], text)}
    if issubclass(type_, enum.Enum):
        return list(type_)[-1]
    assert issubclass(type_, msgspec.Struct), type_
    hints = get_type_hints(type_)
    fields = msgspec.structs.fields(type_)
    return type_(**{field.name: filled(hints[field.name], text, field.default) for field in fields})
