"""What became of one reading, in a child process or without one."""

from __future__ import annotations

from typing import Any

from hwprobe.source import Fact, Source, SourceStatus


class Answer(Fact, frozen=True, kw_only=True):
    """What became of one reading.

    Attributes:
        status: `ok`, `absent`, `failed` or `timeout`.
        reason: Why it is not `ok`.
        code: The library's own error number, None where there is none.
        error: The library's own name for that number.
        data: What the reader returned, or knew before it failed; None if it never answered.
        seconds: Wall time from the start of the process to its answer or its end.
        stderr: The last 8 KiB that the process wrote to standard error (and to standard output).
    """

    status: SourceStatus
    reason: str | None = None
    code: int | None = None
    error: str | None = None
    data: dict[str, Any] | None = None
    seconds: float
    stderr: str = ""

    @property
    def source(self) -> Source:
        """The same as a fact of the report, without the data."""
        return Source(
            status=self.status, reason=self.reason, code=self.code, error=self.error, seconds=round(self.seconds, 4)
        )
