"""`hwprobe run`: configure before a script's first tensor, and after its own environment variables.

The script runs in this process. hwprobe comes to it when the script has imported TensorFlow or Keras: earlier would
freeze variables such as CUDA_VISIBLE_DEVICES before the script sets them, later would be too late for memory growth.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from hwprobe.errors import HwprobeError, InputError

FRAMEWORKS = ("tensorflow", "keras", "tf_keras")


def expect_script(script: Path) -> None:
    """Refuse what is no file, before anything else is done.

    Raises:
        InputError: There is no such file.
    """
    if not script.is_file():
        raise InputError(f"{script} is not a file that can be run")


def expect_module(module: str) -> None:
    """Refuse the name of a module that cannot be found, before anything else is done.

    Raises:
        InputError: There is no such module.
    """
    _put_first_on_path(Path.cwd())
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError) as error:
        # A parent that does not import, or is no package.
        raise InputError(f"no module named {module} can be run: {error}") from error
    if found is None:
        raise InputError(f"no module named {module} can be run")


def run_script(script: Path, arguments: Sequence[str]) -> None:
    """Run a Python file as `__main__`, as `python FILE ARGUMENTS` would. What it raises is its own.

    Args:
        script: The file.
        arguments: What it sees after its own name in `sys.argv`.
    """
    sys.argv = [str(script), *arguments]
    # Python puts the folder of a script first on the path, its real one where the script is a link.
    _put_first_on_path(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


def run_module(module: str, arguments: Sequence[str]) -> None:
    """Run a module as `__main__`, as `python -m MODULE ARGUMENTS` would. What it raises is its own.

    Args:
        module: Dotted name.
        arguments: What it sees after its own name in `sys.argv`.
    """
    sys.argv = [module, *arguments]
    _put_first_on_path(Path.cwd())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _put_first_on_path(folder: Path) -> None:
    # With -P or PYTHONSAFEPATH (Python 3.11) there is no such entry, and the first one is Python's own library.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(folder)


class Launch:
    """Configures once, when TensorFlow or Keras has been imported completely.

    `import tensorflow` imports Keras on its way, and `import keras` imports TensorFlow on its way: the call comes when
    the outermost of them is done. Where one is loaded already, it comes at once.

    An error of the configuration ends the process with one line and a status: it is no error of the script, and rises
    through the script's `import tensorflow`.

    Args:
        configure: What to call.

    Attributes:
        configured: Whether it was called.
    """

    def __init__(self, configure: Callable[[], object]) -> None:
        self._configure = configure
        self.configured = False

    def watch(self) -> None:
        """Begin to look for the imports."""
        from wrapt import register_post_import_hook

        for name in FRAMEWORKS:
            register_post_import_hook(self._imported, name)
        if any(sys.modules.get(name) is not None for name in FRAMEWORKS):
            self._imported(None)

    def _imported(self, module: ModuleType | None) -> None:
        """A framework has been imported; the others may still be on their way."""
        if self.configured or any(_is_on_its_way(name, module) for name in FRAMEWORKS):
            return
        self.configured = True
        try:
            self._configure()
        except HwprobeError as error:
            _end(error)


def _end(error: HwprobeError) -> NoReturn:
    sys.stderr.write(f"hwprobe: error: {error}\n")
    raise SystemExit(2 if isinstance(error, InputError) else 1) from None


def _is_on_its_way(name: str, just_imported: ModuleType | None) -> bool:
    module = sys.modules.get(name)
    if module is None or module is just_imported:
        return False
    # importlib marks a module so while its code runs; import itself relies on it for circular imports.
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
