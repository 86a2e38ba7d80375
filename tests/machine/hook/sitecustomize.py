"""Lets hwprobe read the test machine's files and calendar instead of those of the machine that runs the tests.

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
PREFLIGHT = "hwprobe.preflight"


class OfTestMachine(SourceFileLoader):
    """Loads the host probe and gives it another root folder, or the preflight and gives it another date."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        facts = vars(module)
        if module.__name__ == HOST_PROBE:
            facts["ROOT"] = type(facts["ROOT"])(os.environ["HWPROBE_TEST_MACHINE"]).parent / "root"
        else:
            facts["today"] = lambda: os.environ["HWPROBE_TEST_TODAY"]


class Finder:
    """Finds the two before anybody else does."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in (HOST_PROBE, PREFLIGHT):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = OfTestMachine(name, spec.origin)
        return spec


if "HWPROBE_TEST_MACHINE" in os.environ:
    sys.meta_path.insert(0, Finder)
