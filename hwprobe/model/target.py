"""Finding what a command line names: a saved `.keras` file, or a function that makes a model."""

from __future__ import annotations

import difflib
import json
import os
import sys
import sysconfig
import traceback
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hwprobe.errors import InputError

FORMS = "FILE.keras or module:factory, for instance model.keras or train:make_model"


def is_file(target: str) -> bool:
    """Whether a target is meant as a file."""
    return target.endswith((".keras", ".h5", ".hdf5")) or os.sep in target


def load_file(path: Path) -> Any:
    """Load a `.keras` file with the Keras that wrote it, in safe mode: code inside of it is refused.

    Raises:
        InputError: The file is missing, no `.keras` file, or cannot be loaded.
    """
    version = _keras_version_of(path)
    try:
        loader = import_module("tf_keras" if version.startswith("2.") else "keras")
    except ImportError as error:
        raise InputError(f"{path} was written by Keras {version}, which is not installed: {error}") from error
    try:
        return loader.saving.load_model(path, safe_mode=True)
    except (ValueError, TypeError, OSError, ImportError, KeyError, AttributeError) as error:
        hint = (
            " Code in a file is never run here; a factory can load it: see module:factory."
            if "safe_mode" in str(error) or "unsafe" in str(error)
            else " Classes of your own are known to a factory: name module:factory, with a function that loads it."
        )
        raise InputError(f"{path} cannot be loaded: {_one_line(error)}.{hint}") from error


def load_factory(target: str) -> Callable[[], Any]:
    """Import the function that `module:factory` names, with the current folder importable as for `python -m`.

    Raises:
        InputError: The form is wrong, the module cannot be imported, or it has no such function.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name or ":" in name:
        raise InputError(f"{target!r} is not understood: expected {FORMS}")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"{target!r}: {module_name!r} is not the name of a module (write train, not train.py)")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise InputError(f"{target}: there is no module {error.name!r} here ({here}) or installed") from error
        raise InputError(f"{target}: {_with_place(error)}") from error
    except (ImportError, SyntaxError, *ORDINARY) as error:
        raise InputError(f"{target}: importing {module_name} failed: {_with_place(error)}") from error
    factory = getattr(module, name, None)
    if factory is None:
        functions = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        close = difflib.get_close_matches(name, functions)
        raise InputError(
            f"{target}: {module_name} has no {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else "")
        )
    if not callable(factory):
        raise InputError(f"{target}: {name} is a {type(factory).__name__}, not a function")
    return factory  # type: ignore[no-any-return]


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


def call_factory(factory: Callable[[], Any], target: str) -> Any:
    """Call a factory, without arguments.

    Raises:
        InputError: It needs arguments or raised an ordinary exception; the message says where.
    """
    try:
        return factory()
    except (ImportError, *ORDINARY) as error:
        raise InputError(f"{target}: {_with_place(error)}") from error


def _keras_version_of(path: Path) -> str:
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if path.suffix != ".keras":
        raise InputError(f"{path}: expected {FORMS} (save the model with model.save('model.keras'))")
    try:
        with zipfile.ZipFile(path) as archive:
            metadata = json.loads(archive.read("metadata.json"))
        return str(metadata["keras_version"])
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError) as error:
        raise InputError(f"{path} is not a .keras file: {_one_line(error)}") from error


def _with_place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {_one_line(error)}{place}"


_NOT_THE_USERS = (*(str(path) for path in sysconfig.get_paths().values()), str(Path(__file__).parent))
"""Folders of the standard library, of installed packages and of this one: a mistake is shown in the user's own file."""


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{text[:400]}..." if len(text) > 400 else text.rstrip(".")
