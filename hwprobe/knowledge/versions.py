"""Version numbers as drivers, CUDA and TensorFlow's own build record write them."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"\D*(\d{1,9}(?:\.\d{1,9})*)")
_WINDOWS_CUDA = re.compile(r"64_(\d+)(\d)")
_WINDOWS_CUDNN = re.compile(r"64_(\d+)")


def numbers(version: str) -> tuple[int, ...] | None:
    """Read the dotted numbers that a version starts with, so that 535.104.05 is newer than 535.54.03.

    What a vendor puts before or behind them is left out: `535.104.05-grid`, `R570`, `580.95.05+ubuntu`.

    Args:
        version: The version as its owner writes it.

    Returns:
        Its numbers, most significant first; None if there are none.
    """
    match = _NUMBERS.match(version)
    return tuple(int(part) for part in match[1].split(".")) if match else None


def cuda_release(version: str) -> tuple[int, int] | None:
    """Read major and minor of a CUDA version.

    Args:
        version: `12.2`, `12.5.1`, or the form of TensorFlow's Windows builds, `64_112` for 11.2.

    Returns:
        Major and minor; None if the text holds no major and minor.
    """
    windows = _WINDOWS_CUDA.fullmatch(version.strip())
    if windows:
        return int(windows[1]), int(windows[2])
    parts = numbers(version)
    return (parts[0], parts[1]) if parts and len(parts) > 1 else None


def cudnn_major(version: str) -> int | None:
    """Read the major number of a cuDNN version.

    Args:
        version: `9`, `8.9.7.29`, or the form of TensorFlow's Windows builds, `64_8`.

    Returns:
        The major number; None if the text holds no number.
    """
    windows = _WINDOWS_CUDNN.fullmatch(version.strip())
    if windows:
        return int(windows[1])
    parts = numbers(version)
    return parts[0] if parts else None
