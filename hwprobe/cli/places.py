"""Files that a command is to write after minutes of work."""

from __future__ import annotations

from pathlib import Path

import click


def expect_places(*paths: Path | None) -> None:
    """Refuse a file that cannot be written before the work is done, not after.

    Args:
        paths: None stands for an option that was not given.

    Raises:
        click.UsageError: One is a folder, or its folder does not exist.
    """
    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise click.UsageError(f"{path} cannot be written: it is a folder, or its folder does not exist")
