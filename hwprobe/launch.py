"""`hwprobe run`: configure before a script's first tensor, and after its own environment variables.

The script runs in this process. hwprobe comes to it when the script has imported TensorFlow or Keras: earlier would
freeze variables such as CUDA_VISIBLE_DEVICES before the script sets them, later would be too late for memory growth.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from hwprobe.errors import InputError

FRAMEWORKS = ("tensorflow", "keras", "tf_keras")


def run_script(script: Path, arguments: Sequence[str]) -> None:
    """Run a Python file as `__main__`, as `python FILE ARGUMENTS` would.

    Args:
        script: The file.
        arguments: What it sees after its own name in `sys.argv`.

    Raises:
        InputError: There is no such file.
    """
    if not script.is_file():
        raise InputError(f"{script} is not a file that can be run")
    sys.argv = [str(script), *arguments]
    # Python puts the folder of a script first on the path, its real one where the script is a link.
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


def run_module(module: str, arguments: Sequence[str]) -> None:
    """Run a module as `__main__`, as `python -m MODULE ARGUMENTS` would.

    Args:
        module: Dotted name.
        arguments: What it sees after its own name in `sys.argv`.
    """
    sys.argv = [module, *arguments]
    sys.path[0] = str(Path.cwd())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def when_framework_is_imported(configure: Callable[[], None]) -> None:
    """Call a function once, when TensorFlow or Keras has been imported completely.

    `import tensorflow` imports Keras on its way, and `import keras` imports TensorFlow on its way: the call comes when
    the outermost of them is done. Where one is loaded already, it comes at once.

    Args:
        configure: The function.

    Raises:
        InputError: wrapt, whose import hook this rests on, is not installed. TensorFlow brings it along.
    """
    trigger = _Trigger(configure)
    for name in FRAMEWORKS:
        _when_imported(name, trigger.imported)
    if any(name in sys.modules for name in FRAMEWORKS):
        trigger.imported(None)


def _when_imported(name: str, hook: Callable[[ModuleType], None]) -> None:
    try:
        from wrapt import register_post_import_hook
    except ImportError as error:
        raise InputError("hwprobe run needs wrapt, which TensorFlow brings along: pip install wrapt") from error
    register_post_import_hook(hook, name)


class _Trigger:
    """Calls a function once, at the end of the outermost framework import."""

    def __init__(self, configure: Callable[[], None]) -> None:
        self._configure = configure
        self._done = False

    def imported(self, module: ModuleType | None) -> None:
        """A framework has been imported; the others may still be on their way."""
        if self._done or any(_is_on_its_way(name, module) for name in FRAMEWORKS):
            return
        self._done = True
        self._configure()


def _is_on_its_way(name: str, just_imported: ModuleType | None) -> bool:
    module = sys.modules.get(name)
    if module is None or module is just_imported:
        return False
    # importlib marks a module so while its code runs; import itself relies on it for circular imports.
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
