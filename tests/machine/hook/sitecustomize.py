"""Lets hwprobe's host probe read the test machine's files instead of those of the machine that runs the tests.

Python runs a module of this name at start. Only processes of a test machine have this folder on their path.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

HOST_PROBE = "hwprobe.probe.host"


class RootOfTestMachine(SourceFileLoader):
    """Loads the host probe and gives it another root folder."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        description = os.environ["HWPROBE_TEST_MACHINE"]
        facts = vars(module)
        facts["ROOT"] = type(facts["ROOT"])(description).parent / "root"


class Finder:
    """Finds the host probe before anybody else does."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != HOST_PROBE:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = RootOfTestMachine(name, spec.origin)
        return spec


if "HWPROBE_TEST_MACHINE" in os.environ:
    sys.meta_path.insert(0, Finder)
