"""The code blocks of a Markdown document, with what is said about them in comments that a reader does not see.

A comment stands on a line of its own right above the fence. Several may stand there:

    <!-- skip: needs a Slurm cluster -->    the block is not run, for this reason
    <!-- machine: T4, A100 -->              it runs on a machine of ours with these GPUs; without the comment, on one
                                            without a GPU and without a driver
    <!-- output -->                         what it prints is compared; `...` stands for anything, inside a line or
                                            alone in one for any lines
    <!-- status: 1 -->                      exit status of its last command; 0 without the comment

In a `console` block, a line that begins with `$ ` is a command, one with `> ` continues it, and the others are what it
prints. All blocks of a document run in one folder, in their order. `python` blocks must be Python; with
`<!-- run -->` above them they run too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

_COMMENT = re.compile(r"<!-- (?P<key>skip|machine|output|status|run)(?:: (?P<value>.+?))? -->")
_FENCE = re.compile(r"```(?P<language>\w*)")


@dataclasses.dataclass(frozen=True)
class Command:
    text: str
    output: str = ""


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block. `line` is that of its fence, counted from 1."""

    language: str
    text: str
    line: int
    skip: str | None = None
    machine: tuple[str, ...] | None = None
    compares_output: bool = False
    status: int = 0
    runs: bool = False

    @property
    def commands(self) -> list[Command]:
        """Of a console block."""
        commands: list[Command] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
                continue
            if not commands:
                raise ValueError(f"the console block in line {self.line} begins with no command")
            last = commands.pop()
            if line[:2] in (">", "> ") and not last.output:
                commands.append(Command(f"{last.text}\n{line[2:]}"))
            else:
                commands.append(Command(last.text, f"{last.output}{line}\n"))
        return commands


def blocks(document: str) -> Iterator[Block]:
    """The fenced blocks of a document, in their order."""
    said: dict[str, str | None] = {}
    lines = iter(enumerate(document.splitlines(), start=1))
    for number, line in lines:
        if comment := _COMMENT.fullmatch(line.strip()):
            said[comment["key"]] = comment["value"]
        elif fence := _FENCE.fullmatch(line):
            body = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            else:
                raise ValueError(f"the block in line {number} is not closed")
            yield _block(fence["language"], "\n".join(body), number, said)
            said = {}
        elif said:
            raise ValueError(f"the comment above line {number} belongs to no block")


def _block(language: str, text: str, line: int, said: dict[str, str | None]) -> Block:
    if "skip" in said and not said["skip"]:
        raise ValueError(f"the block in line {line} is skipped without a reason")
    machine = said.get("machine")
    return Block(
        language=language,
        text=text,
        line=line,
        skip=said.get("skip"),
        machine=tuple(name.strip() for name in machine.split(",")) if machine else None,
        compares_output="output" in said,
        status=int(said.get("status") or 0),
        runs="run" in said,
    )


def matches(shown: str, printed: str) -> bool:
    """Whether a program printed what a document shows; `...` stands for anything, alone in a line for any lines."""
    pattern = ""
    for line in shown.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ ]*\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed.strip().splitlines())) is not None
