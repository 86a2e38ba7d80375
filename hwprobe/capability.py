"""Compute capability, the one number that NVIDIA uses to name what a GPU can run."""

from __future__ import annotations

import re
from functools import total_ordering

_TEXT = re.compile(r"(\d{1,3})\.(\d{1,2})[a-z]?")


@total_ordering
class ComputeCapability:
    """A major and a minor number, ordered; never a float, never a string.

    "12.1" is newer than "9.0", which neither floats ("8.10") nor strings get right.

    Args:
        major: Generation, for instance 8 for Ampere.
        minor: Variant inside the generation, for instance 6.
    """

    __slots__ = ("major", "minor")

    major: int
    minor: int

    def __init__(self, major: int, minor: int) -> None:
        object.__setattr__(self, "major", int(major))
        object.__setattr__(self, "minor", int(minor))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ComputeCapability is immutable: cannot set {name}")

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read "8.6".

        A trailing letter is accepted, since TensorFlow 2.21 logs "9.0a" for 9.0.

        Args:
            text: Major and minor, separated by a dot.

        Raises:
            ValueError: The text has another form.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a compute capability: {text!r} (expected a form such as 8.6)")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def __repr__(self) -> str:
        return f"ComputeCapability({self.major}, {self.minor})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComputeCapability):
            return NotImplemented
        return (self.major, self.minor) == (other.major, other.minor)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ComputeCapability):
            return NotImplemented
        return (self.major, self.minor) < (other.major, other.minor)

    def __hash__(self) -> int:
        return hash((self.major, self.minor))

    def __reduce__(self) -> tuple[type[ComputeCapability], tuple[int, int]]:
        return ComputeCapability, (self.major, self.minor)
