"""What every fact and every source of facts has in common."""

from __future__ import annotations

import enum

import msgspec


class Fact(msgspec.Struct, frozen=True):
    """Base of all facts. msgspec does not inherit `kw_only`, nor mypy `frozen`, so each fact says both."""


class SourceStatus(str, enum.Enum):
    """How the reading of one source ended."""

    OK = "ok"
    ABSENT = "absent"
    """The thing is not there: no driver library, no TensorFlow, a reading that only Linux has."""
    FAILED = "failed"
    """It is there and did not work; the reason and, where there is one, the code say how."""
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    """Nobody asked it; the reason says why."""


class Source(Fact, frozen=True, kw_only=True):
    """How one source of facts answered.

    Attributes:
        status: The outcome.
        reason: Why it is not `ok`, in the source's own words where it has some.
        code: The library's own error number (an `nvmlReturn_t` or a `CUresult`), None where there is none.
        error: The library's own name for that number, for instance `CUDA_ERROR_SYSTEM_NOT_READY`.
        seconds: Wall time that the reading took.
    """

    status: SourceStatus
    reason: str | None = None
    code: int | None = None
    error: str | None = None
    seconds: float | None = None
