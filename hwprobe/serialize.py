"""JSON in and out of hwprobe's frozen types, with errors that name the key."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from hwprobe.capability import ComputeCapability
from hwprobe.errors import InputError

T = TypeVar("T")

_NOT_PLAIN = re.compile(r"[^\n -~]")


def to_builtins(value: Any) -> Any:
    """Turn a frozen value into dictionaries, lists and scalars that JSON can carry.

    Args:
        value: Any of hwprobe's types, or a container of them.

    Returns:
        Plain Python data.
    """
    return msgspec.to_builtins(value, enc_hook=_encode, str_keys=True)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Write a frozen value as JSON, in ASCII: any stream can carry it, and no terminal obeys a name in it.

    Args:
        value: Any of hwprobe's types.
        indent: Spaces per level; None writes one compact line.
    """
    data = msgspec.json.encode(value, enc_hook=_encode)
    if indent is not None:
        data = msgspec.json.format(data, indent=indent)
    # Outside of strings JSON has no such characters, so each of them may be written as an escape.
    return _NOT_PLAIN.sub(_escaped, data.decode())


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[place] << 8 | units[place + 1]:04x}" for place in range(0, len(units), 2))


def from_json(text: str | bytes, type_: type[T], *, where: str = "JSON") -> T:
    """Read JSON into a frozen type.

    Args:
        text: The JSON document.
        type_: The type to build.
        where: What the text is, for the error message (a file name, usually).

    Raises:
        InputError: The text is not JSON, or does not have the type's form.
    """
    try:
        return msgspec.json.decode(text, type=type_, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: {error}: it is not JSON that can be read") from error


def from_builtins(data: Any, type_: type[T], *, where: str = "data") -> T:
    """Build a frozen type from dictionaries, lists and scalars.

    Args:
        data: Plain Python data, as `to_builtins` makes it.
        type_: The type to build.
        where: What the data is, for the error message.

    Raises:
        InputError: The data does not have the type's form.
    """
    try:
        return msgspec.convert(data, type=type_, dec_hook=_decode, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"{where}: {error}") from error


def json_schema(type_: Any) -> dict[str, Any]:
    """Give the JSON Schema (2020-12) of one of hwprobe's types."""
    return msgspec.json.schema(type_, schema_hook=_schema)


def _encode(value: Any) -> Any:
    if isinstance(value, ComputeCapability):
        return str(value)
    raise NotImplementedError(f"cannot write a {type(value).__name__} as JSON")


def _decode(type_: type[Any], value: Any) -> Any:
    if type_ is ComputeCapability:
        if not isinstance(value, str):
            raise ValueError(f"a compute capability is text such as '8.6', not {value!r}")
        return ComputeCapability.parse(value)
    raise NotImplementedError(f"cannot read a {type_.__name__} from JSON")


def _schema(type_: type[Any]) -> dict[str, Any]:
    if type_ is ComputeCapability:
        return {"type": "string", "pattern": r"^\d{1,3}\.\d{1,2}$", "examples": ["8.6"]}
    raise NotImplementedError(f"no JSON Schema for {type_.__name__}")
