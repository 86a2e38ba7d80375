"""The errors that hwprobe raises. Each carries a sentence that a user can act on."""

from __future__ import annotations


class HwprobeError(Exception):
    """Base of everything that hwprobe raises on purpose."""


class InputError(HwprobeError, ValueError):
    """A file, an argument or a variable that hwprobe was given cannot be used.

    The command answers it with exit status 2. The message names the file, the key and the accepted values.
    """


class RequirementError(HwprobeError):
    """A requirement of the caller (`require=`, `--require`) is not met on this machine."""


class UnsupportedError(HwprobeError):
    """An explicit request that this hardware or this TensorFlow cannot meet, with no fallback allowed."""


class ApplyError(HwprobeError):
    """A setting could not be applied, and the caller asked for strictness."""


class AgreementError(HwprobeError):
    """The workers of one job do not agree, or could not be asked."""
