"""Readers for test_tensorflow_runtime.py that run in a child process."""

from __future__ import annotations

import sys
from pathlib import Path


def in_process_listing(request: dict[str, object]) -> dict[str, object]:
    """Calls `read_in_process` where a folder holds the only TensorFlow."""
    # Imported before the folder that holds TensorFlow, and most likely msgspec, is taken away.
    import hwprobe.serialize  # noqa: F401
    from hwprobe.probe.tensorflow_runtime import read_in_process

    others = [path for path in sys.path if not (Path(path or ".") / "tensorflow").is_dir()]
    sys.path[:] = [str(request["folder"]), *others]
    devices, initialized, source = read_in_process()
    return {
        "devices": devices,
        "initialized": initialized,
        "status": source.status.value,
        "reason": source.reason,
    }
