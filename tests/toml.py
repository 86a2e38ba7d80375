"""Reads TOML with whatever this Python has for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parsed(text: str) -> dict[str, Any]:
    """A document from its text."""
    document: dict[str, Any] = tomllib.loads(text)
    return document


def read_toml(path: Path) -> dict[str, Any]:
    """A document from its file."""
    return parsed(path.read_text(encoding="utf-8"))
