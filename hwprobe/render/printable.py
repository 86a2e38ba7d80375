"""Text from outside, made safe to show: a GPU's name is not allowed to move the cursor."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace control characters, terminal escapes among them, by their escaped form.

    Args:
        text: Anything that came from a driver, a file or the environment.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "replace").decode("ascii")
