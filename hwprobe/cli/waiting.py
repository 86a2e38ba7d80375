"""A spinner on the terminal while a source takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


@contextmanager
def waiting() -> Iterator[Callable[[str], None] | None]:
    """Give a function that shows what is waited for; None where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    spinner = _Spinner()
    try:
        yield spinner.show
    finally:
        spinner.stop()


class _Spinner:
    def __init__(self) -> None:
        self._status: Status | None = None

    def show(self, source: str) -> None:
        from rich.console import Console
        from rich.status import Status

        text = f"waiting for {source}"
        if self._status is None:
            self._status = Status(text, console=Console(stderr=True))
            self._status.start()
        else:
            self._status.update(text)

    def stop(self) -> None:
        if self._status is not None:
            self._status.stop()
