"""Lets hwprobe's host probe read the test machine's files instead of those of the machine that runs the tests.

Python runs a module of this name at start. Only processes of a test machine have this folder on their path.
"""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

HOST_PROBE = "hwprobe.probe.host"


class RootOfTestMachine(SourceFileLoader):
    """Loads the host probe and gives it another root folder."""

    def exec_module(self, module):
        super().exec_module(module)
        description = os.environ["HWPROBE_TEST_MACHINE"]
        module.ROOT = type(module.ROOT)(description).parent / "root"


class Finder:
    """Finds the host probe before anybody else does."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != HOST_PROBE:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = RootOfTestMachine(name, spec.origin)
        return spec


if "HWPROBE_TEST_MACHINE" in os.environ:
    sys.meta_path.insert(0, Finder)
