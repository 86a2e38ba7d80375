"""What a user's own code raises: which exceptions it may be, and how they are told in one line."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hwprobe.errors import HwprobeError, InputError

ORDINARY = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a user's own code raises by mistake."""

LONGEST = 400

_NOT_THE_USERS = (*(str(path) for path in sysconfig.get_paths().values()), str(Path(__file__).parents[1]))
"""Folders of the standard library, of installed packages and of this one: a mistake is shown in the user's own file."""

_TRACED = "in user code:\n\n"
"""How AutoGraph begins what was raised in a `tf.function`: the calls come next, and what was said after them."""

_ARGUMENTS = re.compile(r"\n\s*Arguments received by ")
"""How Keras goes on after what was wrong: a list of tensors."""

_GENERATED = "__autograph_generated_file"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def one_line(error: BaseException) -> str:
    """Give what an exception says without line ends, terminal colours (Keras adds them) and its last full stop."""
    said = str(error)
    if said.startswith(_TRACED):
        said = said.split("\n\n", 2)[-1].strip().removeprefix(f"{type(error).__name__}: ")
    text = " ".join(_COLOUR.sub("", _ARGUMENTS.split(said)[0]).split())
    return f"{text[:LONGEST]}..." if len(text) > LONGEST else text.rstrip(".")


def with_place(error: BaseException) -> str:
    """Give the type of an exception, what it says, and the last line of the user's own files that it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith(_NOT_THE_USERS) and not Path(frame.filename).name.startswith(_GENERATED)
    ]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {one_line(error)}{place}"


@contextmanager
def running_users_code(what: str) -> Iterator[None]:
    """Turn what a user's model, loss or data raises into an error that names it.

    Args:
        what: Whose code runs, for the message.

    Raises:
        InputError: It raised an ordinary exception, or one of TensorFlow's.
    """
    try:
        yield
    except HwprobeError:
        raise
    except (ImportError, *ORDINARY) as error:
        raise InputError(f"{what}: {with_place(error)}") from error
    except _tensorflow_errors() as error:
        raise InputError(f"{what}: {with_place(error)}") from error


def _tensorflow_errors() -> tuple[type[Exception], ...]:
    import tensorflow as tf

    return (tf.errors.OpError,)
