"""The hwprobe command: parse, call, render, exit. No judgement lives here."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from hwprobe.errors import HwprobeError, InputError
from hwprobe.version import VERSION

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""As the shell counts a program that SIGPIPE ended: 1 would say that the machine is not ready."""

_COMMANDS = {
    "audit": "hwprobe.cli.audit:audit",
    "bench": "hwprobe.cli.bench:bench",
    "calibrate": "hwprobe.cli.calibrate:calibrate",
    "capture": "hwprobe.cli.capture:capture",
    "check": "hwprobe.cli.check:check",
    "compare": "hwprobe.cli.compare:compare",
    "decide": "hwprobe.cli.decide:decide",
    "explain": "hwprobe.cli.explain:explain",
    "gpus": "hwprobe.cli.gpus:gpus",
    "plan": "hwprobe.cli.plan:plan",
    "policy": "hwprobe.cli.policy:policy",
    "rules": "hwprobe.cli.explain:rules",
    "run": "hwprobe.cli.run:run",
    "schema": "hwprobe.cli.schema:schema",
    "template": "hwprobe.cli.template:template",
    "why-not": "hwprobe.cli.why_not:why_not",
}
"""Command to where it is. Loaded when it is called, so that no command pays for the others."""


class _ReaderGoneError(Exception):
    """Whoever read standard output stopped reading: click and rich would end the process with 1."""


class _LazyGroup(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderGoneError from error
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):
                raise _ReaderGoneError from end
            raise

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="hwprobe")
def hwprobe() -> None:
    """Look at the GPUs that TensorFlow will train on, and choose the precision that fits them.

    Exit status: 0 ready, 1 not ready, 2 wrong usage or an input that cannot be read, 3 could not be determined.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit status.

    Args:
        arguments: In place of the process's own.
    """
    if arguments is None and sys.argv[1:2] == ["check"]:
        # A check lives for a fraction of a second, of which looking for garbage would take a twentieth.
        gc.disable()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] != ["run"]:
        _write_every_letter()
    try:
        result = hwprobe.main(args=arguments, prog_name="hwprobe", standalone_mode=False)
    except click.ClickException as error:
        return _refuse(error.format_message(), arguments, error)
    except InputError as error:
        return _refuse(str(error), arguments)
    except HwprobeError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except _ReaderGoneError:
        _drop_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.filename is not None:
            return _refuse(f"{error.filename}: {error.strerror or error}", arguments)
        return _output_lost(error, arguments)
    if callable(result):
        # `hwprobe run`: what the script raises is the script's own, so nothing here or in click may catch it.
        return int(result())
    return result if isinstance(result, int) else 0


def _write_every_letter() -> None:
    """Let a stream that lacks a letter of a GPU's name (a pipe on Windows, `PYTHONIOENCODING`) get its escaped form."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _output_lost(error: OSError, arguments: Sequence[str]) -> int:
    _drop_output()
    return _refuse(f"cannot write standard output: {error.strerror or error}", arguments)


def _drop_output() -> None:
    # Python would complain once more at exit, while flushing what could not be written.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str, arguments: Sequence[str], usage: click.ClickException | None = None) -> int:
    if isinstance(usage, click.UsageError):
        usage.show()
    else:
        click.echo(f"error: {message}", err=True)
    format_ = _wanted_format(arguments)
    if format_ is None:
        return EXIT_USAGE
    # A program that reads standard output gets its format in every case, and Nagios its own code.
    from hwprobe.preflight import Check
    from hwprobe.render.formats import exit_status, write

    refusal = Check(hwprobe=VERSION, verdict="unknown", error=message)
    click.echo(write(refusal, format_), nl=False)
    return exit_status(refusal, format_)


def _wanted_format(arguments: Sequence[str]) -> str | None:
    """The machine-readable format that a command line asks `check` for; None for text and for other commands."""
    from hwprobe.render.formats import FORMATS

    if "check" not in arguments:
        return None
    pairs = list(zip(arguments, (*arguments[1:], ""), strict=True))
    for name in FORMATS:
        asked = any(word == f"--format={name}" or (word, after) == ("--format", name) for word, after in pairs)
        if asked and name != "text":
            return name
    return None
