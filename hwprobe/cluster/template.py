"""Job files for schedulers, filled in with values that are checked first and quoted for the language they stand in."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Literal, cast

from hwprobe.errors import InputError
from hwprobe.source import Fact

Language = Literal["shell", "yaml"]

_PLACEHOLDER = re.compile(r"\{\{([a-z]+)\}\}")


class Parameter(Fact, frozen=True, kw_only=True):
    """Something that `--set` fills in.

    Attributes:
        kind: What values it takes; see `KINDS`.
        value: Where nobody sets it; "" leaves its lines out.
        help: What it is, in a few words.
    """

    kind: str
    value: str
    help: str


class Template(Fact, frozen=True, kw_only=True):
    """A job file.

    Attributes:
        name: As `hwprobe template` knows it.
        file: Of the text, beside this module.
        summary: What it is for, in one line.
        parameters: What can be filled in.
    """

    name: str
    file: str
    summary: str
    parameters: dict[str, Parameter]

    @property
    def language(self) -> Language:
        """The language that decides how values are quoted."""
        return "yaml" if self.file.endswith(".yaml") else "shell"


def _pattern(pattern: str, expected: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise InputError(f"expected {expected}")
        return value

    return check


def _printable(value: str) -> str:
    if not value.isprintable():
        raise InputError("expected text without line breaks and other control characters")
    return value


def _command(value: str) -> str:
    try:
        words = shlex.split(_printable(value))
    except ValueError as error:
        raise InputError(f"expected a command line as a shell would split it ({error})") from error
    if not words:
        raise InputError("expected a command line")
    return value


KINDS: dict[str, Callable[[str], str]] = {
    "name": _pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "1 to 63 letters, digits, '_', '.' and '-'"),
    "label": _pattern(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", "a DNS label: up to 40 of a-z, 0-9 and '-', a letter first"),
    "count": _pattern(r"[1-9]\d{0,5}", "a number from 1"),
    "number": _pattern(r"0|[1-9]\d{0,5}", "a number from 0"),
    "port": _pattern(r"[1-9]\d{3,4}", "a port from 1000"),
    "duration": _pattern(r"(\d{1,4}-)?\d{1,5}(:\d{2}){0,2}", "a time limit such as 90, 24:00:00 or 2-12:00"),
    "image": _pattern(
        r"[a-z0-9][A-Za-z0-9._-]*(:\d{1,5})?(/[A-Za-z0-9._-]+)*(:[A-Za-z0-9._-]{1,128})?(@sha256:[0-9a-f]{64})?",
        "an image such as registry.example/train:1",
    ),
    "glob": _pattern(r"[A-Za-z0-9_.,*?\[\]-]{1,200}", "a pattern of node names such as gpu*"),
    "path": _printable,
    "folder": _printable,
    "command": _command,
}
"""What a value of a kind must look like."""

_BARE = ("name", "count", "number", "port", "duration", "glob")
"""Kinds whose values mean nothing to a shell, to sbatch or to YAML where they stand, and are written as they are."""


def templates() -> dict[str, Template]:
    """All templates by name, in the order in which they are listed."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    from hwprobe.serialize import from_builtins

    table = tomllib.loads(_text("templates.toml"))
    return {name: from_builtins({"name": name, **row}, Template, where="templates.toml") for name, row in table.items()}


def fill(name: str, values: Mapping[str, str]) -> str:
    """Give the text of a template with its values in place.

    Args:
        name: Of the template.
        values: Parameter to value, in place of the template's own.

    Returns:
        The job file.

    Raises:
        InputError: There is no such template or parameter, or a value cannot be what it is for.
    """
    known = templates()
    if name not in known:
        raise InputError(f"template {name!r} is not known: expected one of {', '.join(known)}")
    template = known[name]
    for parameter in values:
        if parameter not in template.parameters:
            raise InputError(
                f"template {name} has no parameter {parameter!r}: expected one of {', '.join(template.parameters)}"
            )
    filled = {
        parameter: _quoted(parameter, description, values.get(parameter, description.value), template.language)
        for parameter, description in template.parameters.items()
    }
    lines = (_filled_line(line, filled) for line in _text(template.file).splitlines(keepends=True))
    return "".join(line for line in lines if line is not None)


def _text(file: str) -> str:
    return (files("hwprobe.cluster") / "templates" / file).read_text(encoding="utf-8")


def _filled_line(line: str, filled: Mapping[str, str | None]) -> str | None:
    if any(filled[parameter] is None for parameter in _PLACEHOLDER.findall(line)):
        return None
    return _PLACEHOLDER.sub(lambda match: cast("str", filled[match[1]]), line)


def _quoted(name: str, parameter: Parameter, value: str, language: Language) -> str | None:
    """Check a value and quote it; None for an empty one, whose lines are left out."""
    if not value:
        # A script takes an empty folder as "not given" and puts its own in place.
        return "''" if parameter.kind == "folder" else None
    try:
        checked = KINDS[parameter.kind](value)
    except InputError as error:
        raise InputError(f"--set {name}={value!r}: {error}") from error
    if parameter.kind in _BARE:
        return checked
    if parameter.kind == "command":
        words = shlex.split(checked)
        return shlex.join(words) if language == "shell" else _yaml([_without_references(word) for word in words])
    return shlex.quote(checked) if language == "shell" else _yaml(checked)


def _without_references(word: str) -> str:
    """Double the dollar of `$(NAME)`, which Kubernetes would otherwise replace in a command."""
    return word.replace("$(", "$$(")


def _yaml(value: str | list[str]) -> str:
    # JSON is YAML, and its quotes leave no text that YAML would take for a number, a boolean or a structure.
    return json.dumps(value, ensure_ascii=False)
