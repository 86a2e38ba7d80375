"""Reading a site's policy: where it is looked for, what it extends, and every mistake in it at once."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from hwprobe.errors import InputError
from hwprobe.policy import Policy, PolicyOrigin
from hwprobe.policy_format import build_policy, merge, policy_to_document
from hwprobe.policy_keys import Document, check_document, check_merged, shown, suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VARIABLE = "HWPROBE_POLICY"
SITE_FILE = Path("/etc/hwprobe/policy.toml")
DEFAULT = "default"
LARGEST_FILE_BYTES = 256 * 1024


class _Source(msgspec.Struct, frozen=True):
    """Where a document comes from: a file, or a shipped policy where there is no path."""

    label: str
    path: Path | None = None

    def is_same(self, other: _Source) -> bool:
        if self.path is None or other.path is None:
            return self == other
        return os.path.realpath(self.path) == os.path.realpath(other.path)


def read_policy(argument: str | Path | Policy | None = None, environment: Mapping[str, str] | None = None) -> Policy:
    """Read the policy that counts here.

    The first of these that is given wins: the argument, the variable `HWPROBE_POLICY`, the machine's own
    `/etc/hwprobe/policy.toml`, the policy `default` that hwprobe ships. Text with a `/` in it or with the ending
    `.toml` is a path; any other text is the name of a shipped policy, whatever files there are.

    Args:
        argument: A name, a path, or a policy made in Python; None to look further.
        environment: Where to look for `HWPROBE_POLICY`; None for this process's environment. Empty counts as unset.

    Returns:
        The policy, with the origin that won.

    Raises:
        InputError: What was named does not exist, cannot be read or has mistakes; all of a file's mistakes are
            listed, each with its key and the accepted values.
    """
    if isinstance(argument, Policy):
        return _read_made(argument)
    if argument is not None:
        return _read(_named(argument), "argument")
    variable = (os.environ if environment is None else environment).get(VARIABLE)
    if variable:
        return _read_variable(variable)
    if _exists(SITE_FILE):
        return _read(_named(SITE_FILE), "file")
    return _read(_named(DEFAULT), "default")


def shipped_policies() -> tuple[str, ...]:
    """Give the names of the policies that hwprobe ships, in alphabetical order."""
    return tuple(sorted(file.stem for file in _shipped_folder().iterdir() if file.suffix == ".toml"))


def _read_variable(variable: str) -> Policy:
    try:
        return _read(_named(variable), "environment")
    except InputError as error:
        raise InputError(f"{VARIABLE}={shown(variable)}: {error}") from error


def _read_made(policy: Policy) -> Policy:
    """Hold a policy made in Python, which msgspec does not check, to the rules of a file."""
    try:
        document, mistakes = check_document(policy_to_document(policy))
    except (AttributeError, TypeError) as error:
        raise InputError(f"this policy cannot be used: {error}") from error
    mistakes = mistakes or check_merged(document)
    if mistakes:
        raise InputError(_listed(f"policy {shown(policy.name)}", mistakes))
    return build_policy(document, path=policy.path, origin="argument")


def _read(source: _Source, origin: PolicyOrigin) -> Policy:
    document, mistakes = _load(source)
    try:
        merged = merge(_inherited(document, source), document)
    except InputError as error:
        mistakes.append(f"extends: {error}")
        merged = document
    if not any(mistake.startswith("loss_scaling") for mistake in mistakes):
        mistakes += check_merged(merged)
    if mistakes:
        raise InputError(_listed(source.label, mistakes))
    if source.path is None:
        return build_policy({"name": source.label, **merged}, path=None, origin=origin)
    return build_policy({"name": _stem(source.path), **merged}, path=source.label, origin=origin)


def _inherited(document: Document, source: _Source) -> Document:
    """Merge everything that a document extends, directly and further up."""
    documents: list[Document] = []
    chain = [source]
    while "extends" in document:
        chain.append(_named(document["extends"], beside=chain[-1].path))
        if any(chain[-1].is_same(earlier) for earlier in chain[:-1]):
            raise InputError(f"goes in a circle: {' -> '.join(link.label for link in chain)}")
        document, mistakes = _load(chain[-1])
        if mistakes:
            raise InputError(_listed(chain[-1].label, mistakes))
        documents.insert(0, document)
    return reduce(merge, documents, {})


def _named(argument: str | Path, beside: Path | None = None) -> _Source:
    """Tell a path from a name: a path has a separator in it or ends in `.toml`."""
    text = str(argument)
    if isinstance(argument, Path) or _is_path(text):
        path = beside.parent / text if beside else Path(text)
        return _Source(_printable(str(path)), path)
    names = shipped_policies()
    if text not in names:
        raise InputError(
            f"no policy is called {shown(text)};{suggestion(text, names)} hwprobe ships: {', '.join(names)};"
            f" a file is named by a path with a / in it or with the ending .toml"
        )
    return _Source(text)


def _is_path(text: str) -> bool:
    return os.sep in text or "/" in text or text.lower().endswith(".toml")


def _load(source: _Source) -> tuple[Document, list[str]]:
    return check_document(_parsed(_content(source), source.label))


def _content(source: _Source) -> bytes:
    if source.path is None:
        return (_shipped_folder() / f"{source.label}.toml").read_bytes()
    try:
        # Opening a pipe or a terminal would wait for somebody to write.
        is_file = stat.S_ISREG(source.path.stat().st_mode)
        content = _beginning(source.path) if is_file else b""
    except OSError as error:
        raise InputError(f"cannot read the policy {source.label}: {error.strerror or error}") from error
    except ValueError as error:  # a null character
        raise InputError(f"cannot read the policy {source.label}: {error}") from error
    if not is_file:
        raise InputError(f"{source.label} is not a regular file; a policy is a TOML file")
    if len(content) > LARGEST_FILE_BYTES:
        raise InputError(f"{source.label} is larger than {LARGEST_FILE_BYTES // 1024} KiB: not a policy file")
    return content


def _shipped_folder() -> Path:
    # importlib.resources reads archives too, for the price of zipfile: as much time as all the rest of a policy.
    return Path(str(import_module("hwprobe.policies").__file__)).parent


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_FILE_BYTES + 1)


def _parsed(content: bytes, label: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{label}: not UTF-8 text (at line {line}): {error.reason}") from error
    except RecursionError as error:
        raise InputError(f"{label}: not a policy file: nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{label}: not a TOML file: {error}") from error
    return document


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"cannot tell whether there is a policy file {path}: {error.strerror or error}") from error
    return True


def _stem(path: Path) -> str:
    return path.stem if path.stem.isprintable() and 0 < len(path.stem) <= 100 else "unnamed"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    import json

    return json.dumps(text)


def _listed(label: str, mistakes: list[str]) -> str:
    if len(mistakes) == 1:
        return f"{label}: {mistakes[0]}"
    return "\n  ".join([f"{label}: {len(mistakes)} mistakes", *(mistake.replace("\n", "\n  ") for mistake in mistakes)])
