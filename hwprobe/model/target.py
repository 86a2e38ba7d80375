"""Finding what a command line names: a saved `.keras` file, or a function that makes a model."""

from __future__ import annotations

import difflib
import json
import os
import sys
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hwprobe.errors import InputError
from hwprobe.model.users_code import ORDINARY, one_line, running_users_code, with_place

FACTORY_FORM = "module:factory, for instance train:make_model"
FORMS = f"FILE.keras or {FACTORY_FORM}"


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
        raise InputError(f"{path} cannot be loaded: {one_line(error)}.{hint}") from error


def load_factory(target: str, expected: str = FACTORY_FORM) -> Callable[[], Any]:
    """Import the function that `module:factory` names, with the current folder importable as for `python -m`.

    Args:
        target: `module:factory`.
        expected: What the caller takes, for the message.

    Raises:
        InputError: The form is wrong, the module cannot be imported, or it has no such function.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name or ":" in name:
        raise InputError(f"{target!r} is not understood: expected {expected}")
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
        raise InputError(f"{target}: {with_place(error)}") from error
    except (ImportError, SyntaxError, *ORDINARY) as error:
        raise InputError(f"{target}: importing {module_name} failed: {with_place(error)}") from error
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


def call_factory(factory: Callable[[], Any], target: str) -> Any:
    """Call a factory, without arguments.

    Raises:
        InputError: It needs arguments or raised an ordinary exception; the message says where.
    """
    try:
        return factory()
    except (ImportError, *ORDINARY) as error:
        raise InputError(f"{target}: {with_place(error)}") from error


def first_batch(data: Any, target: str) -> Any:
    """Take the first batch of a factory's data; None where there is none.

    Raises:
        InputError: The data is no iterable, or it raised an ordinary exception.
    """
    with running_users_code(f"{target}: its data gives no batch"):
        return next(iter(data), None)


def build_on(model: Any, batch: Any, target: str) -> None:
    """Call a model that a factory left without weights once on its batch, which makes them.

    Raises:
        InputError: The model cannot be called on that batch; the message says where it stopped.
    """
    if batch is None or getattr(model, "built", True) or not callable(model):
        return
    from hwprobe.model.batches import given_batch

    given = given_batch(batch)
    with running_users_code(f"{target}: the model cannot be called on its batch"):
        model(given.x)


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
        raise InputError(f"{path} is not a .keras file: {one_line(error)}") from error
