"""The child's side of `hwprobe.probe.child`: run one reader and write its answer on a private descriptor.

This module imports nothing that costs time: it stands in front of every reading.
"""

from __future__ import annotations

import faulthandler
import os
import sys

# The `typing` module alone would double the time that this process takes to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, NoReturn

ORPHAN_SECONDS = 10.0
"""How much longer than its limit a child lives whose parent was killed before it could kill it."""


class ReaderFailure(Exception):  # noqa: N818 - it ends a reading, and "absent" is no error
    """Ends a reading that cannot be completed.

    Args:
        status: `absent` where the thing is not there, `failed` where it is there and does not work.
        reason: Why, in the source's own words where it has some.
        code: The library's own error number.
        error: The library's own name for it.
        data: What was known before, for instance which file was loaded.
    """

    def __init__(
        self,
        status: Literal["absent", "failed"],
        reason: str,
        *,
        code: int | None = None,
        error: str | None = None,
        data: dict[str, object] | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.code = code
        self.error = error
        self.data = data


def serve(reader: str, request: dict[str, object], limit_seconds: float) -> NoReturn:
    """Call the reader, write one line of JSON, and end this process at once.

    Whatever the reader prints goes to standard error. An exception other than `ReaderFailure` ends the process with a
    traceback there, which the parent turns into a reason.

    Args:
        reader: `module:function`.
        request: Its one argument.
        limit_seconds: When the parent kills this process.
    """
    private = os.dup(1)
    os.dup2(2, 1)
    faulthandler.dump_traceback_later(limit_seconds + ORPHAN_SECONDS, exit=True)
    try:
        answer: dict[str, object] = {"status": "ok", "data": _function(reader)(request)}
    except ReaderFailure as failure:
        answer = {"status": failure.status, **vars(failure)}
    line = json_line(answer)
    sys.stdout.flush()
    sys.stderr.flush()
    while line:
        line = line[os.write(private, line) :]
    # Libraries that crash or wait when they are unloaded have nothing more to say.
    os._exit(0)


def json_line(value: object) -> bytes:
    """Write plain data as one line of ASCII JSON.

    The `json` package costs a fresh interpreter as much time as the whole reading of the CUDA driver, since it brings
    regular expressions and enumerations along.

    Args:
        value: None, booleans, integers, floats, text, and lists, tuples and dictionaries with text keys of them.

    Raises:
        TypeError: The value holds something else.
    """
    return _json(value).encode("ascii") + b"\n"


def _json(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(key)}:{_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_json, value)) + "]"
    raise TypeError(f"a reader's answer is plain data, not {type(value).__name__}")


def _float(value: float) -> str:
    if value - value != 0.0:
        raise TypeError(f"a reader's answer holds finite numbers, not {value}")
    return repr(float(value))


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of a reader's answer is text, not {type(key).__name__}")
    return _quote(key)


def _quote(text: str) -> str:
    quoted = ['"']
    for character in text:
        code = ord(character)
        if character in '"\\':
            quoted.append("\\" + character)
        elif 0x20 <= code < 0x7F:
            quoted.append(character)
        elif code < 0x10000:
            quoted.append(f"\\u{code:04x}")
        else:
            code -= 0x10000
            quoted.append(f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}")
    quoted.append('"')
    return "".join(quoted)


def _function(reader: str) -> Callable[[dict[str, object]], dict[str, object]]:
    module, _, name = reader.partition(":")
    __import__(module)
    function: Callable[[dict[str, object]], dict[str, object]] = getattr(sys.modules[module], name)
    return function
