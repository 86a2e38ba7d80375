"""The output formats of a check, by name."""

from __future__ import annotations

import io
from collections.abc import Callable

from hwprobe.preflight import Check
from hwprobe.serialize import to_json


def _text(check: Check) -> str:
    from hwprobe.render.text import write_text

    stream = io.StringIO()
    write_text(check, stream)
    return stream.getvalue()


def _json(check: Check) -> str:
    return to_json(check, indent=2) + "\n"


FORMATS: dict[str, Callable[[Check], str]] = {"text": _text, "json": _json}
