"""The output formats of a check, by name."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module

from hwprobe.preflight import Check

_WRITERS = {
    "text": "hwprobe.render.formats:_text",
    "json": "hwprobe.render.formats:_json",
    "nagios": "hwprobe.render.nagios:write_nagios",
    "junit": "hwprobe.render.junit:write_junit",
    "prometheus": "hwprobe.render.prometheus:write_prometheus",
    "github": "hwprobe.render.github:write_github",
    "nfd": "hwprobe.render.nfd:write_nfd",
    "termination": "hwprobe.render.termination:write_termination",
}
"""Format to the function that writes it, imported when it is used: a check pays for one."""

FORMATS = tuple(_WRITERS)


def write(check: Check, format_: str) -> str:
    """Write a check in a format.

    Args:
        check: The check.
        format_: One of `FORMATS`.

    Returns:
        The whole text, with the newline at its end that the format wants.
    """
    module, _, name = _WRITERS[format_].partition(":")
    writer: Callable[[Check], str] = getattr(import_module(module), name)
    return writer(check)


def exit_status(check: Check, format_: str) -> int:
    """What the command exits with: hwprobe's own status, or the plug-in codes of `nagios`.

    Args:
        check: The check.
        format_: One of `FORMATS`.
    """
    if format_ == "nagios":
        from hwprobe.render.nagios import nagios_status

        return nagios_status(check)
    return check.exit_status


def _text(check: Check) -> str:
    from hwprobe.render.text import write_text

    stream = io.StringIO()
    write_text(check, stream)
    return stream.getvalue()


def _json(check: Check) -> str:
    from hwprobe.serialize import to_json

    return to_json(check, indent=2) + "\n"
