"""Whose `pynvml` was imported: nvidia-ml-py's, or another distribution's that lies in its way.

`pynvml` up to 11.5.3 installs a package of that name, which wins over nvidia-ml-py's module beside it;
`nvidia-ml-py3` overwrites the module itself (gpuopenanalytics/pynvml#47, XuehaiPan/nvitop#44).
"""

from __future__ import annotations

import os

GENUINE = "nvidia_ml_py"
NEEDED = "nvmlDeviceGetMigDeviceHandleByIndex"
"""A function that nvidia-ml-py has from its release 11 and nvidia-ml-py3 (of 2017) lacks."""

# This module runs in a child process that counts milliseconds: os.path is there already, pathlib is not.
# ruff: noqa: PTH118, PTH120, PTH123, PTH208


def installed_version(folder: str) -> str | None:
    """Give the version of the nvidia-ml-py that is installed in a folder of packages."""
    for name, version in _distributions(folder):
        if name == GENUINE:
            return version
    return None


def foreign_owner(path: str, functions: object) -> str | None:
    """Tell whether an imported `pynvml` is another distribution's.

    Args:
        path: The file that was imported.
        functions: The module, for the names that it has.

    Returns:
        The file and whoever installed it; None if it is nvidia-ml-py's own.
    """
    folder, file = os.path.split(path)
    if file == "__init__.py":
        return _describe(path, _owners(os.path.dirname(folder), "pynvml/__init__.py"))
    if hasattr(functions, NEEDED):
        return None
    owners = _owners(folder, "pynvml.py")
    others = [owner for owner in owners if owner[0] != GENUINE]
    return None if owners and not others else _describe(path, others)


def packages_folder(path: str) -> str:
    """Give the folder that holds an imported `pynvml`, whether it is a module or a package."""
    folder, file = os.path.split(path)
    return os.path.dirname(folder) if file == "__init__.py" else folder


def _describe(path: str, owners: list[tuple[str, str]]) -> str:
    names = ", ".join(f"{name.replace('_', '-')} {version}" for name, version in owners)
    return f"{path} ({names or 'of no installed distribution'})"


def _owners(folder: str, file: str) -> list[tuple[str, str]]:
    return [
        (name, version)
        for name, version in _distributions(folder)
        if "nvml" in name or "nvidia_ml" in name
        if _records(os.path.join(folder, f"{name}-{version}.dist-info", "RECORD"), file)
    ]


def _records(path: str, file: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return any(line.startswith(f"{file},") for line in lines)
    except OSError:
        return False


def _distributions(folder: str) -> list[tuple[str, str]]:
    try:
        names = sorted(os.listdir(folder or os.curdir))
    except OSError:
        return []
    stems = [name.rpartition(".")[0] for name in names if name.endswith((".dist-info", ".egg-info"))]
    # An egg-info folder may name the Python too: nvidia_ml_py-12.535.161-py3.11.egg-info.
    return [(parts[0].lower(), parts[1]) for parts in (stem.split("-") for stem in stems) if len(parts) > 1]
