"""Lets every call that a reader makes fail with every code, in one process on a machine of the tests.

    python -c "from tests.probe.every_error import nvml; nvml()"

prints one JSON object: under `healthy` the reading without a fault, under each C function that was called the reading
for each code.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterable
from typing import Any

from hwprobe.probe.bootstrap import ReaderFailure

Reader = Callable[[dict[str, object]], dict[str, object]]


def nvml() -> None:
    """With the real binding, which asks its library for one function after the other."""
    import pynvml

    from hwprobe.probe import nvml, nvml_codes

    find = pynvml._nvmlGetFunctionPointer

    def replace(function: Callable[[str], Any]) -> None:
        pynvml._nvmlGetFunctionPointer = function

    _run(nvml.read, find, replace, [*(code for code in nvml_codes.ERRORS if code), 31337])


def cuda() -> None:
    """With the real library behind an object that can refuse."""
    from hwprobe.probe import cuda
    from hwprobe.probe.loader import CUDA_LIBRARY

    library = ctypes.CDLL(CUDA_LIBRARY)

    class Library:
        def __init__(self, find: Callable[[str], Any]) -> None:
            self.find = find

        def __getattr__(self, name: str) -> Any:
            return self.find(name)

    def replace(function: Callable[[str], Any]) -> None:
        vars(cuda)["open_library"] = lambda soname: Library(function)

    _run(cuda.read, lambda name: getattr(library, name), replace, [*cuda.ERRORS, 31337])


def _run(
    read: Reader, find: Callable[[str], Any], replace: Callable[[Callable[[str], Any]], None], codes: Iterable[int]
) -> None:
    asked: dict[str, None] = {}

    def note(name: str) -> Any:
        asked[name] = None
        return find(name)

    replace(note)
    results: dict[str, Any] = {"healthy": read({})}
    for refused in asked:
        results[refused] = {}
        for code in codes:
            replace(_refusing(find, refused, code))
            results[refused][code] = _outcome(read)
    print(json.dumps(results))


def _refusing(find: Callable[[str], Any], refused: str, code: int) -> Callable[[str], Any]:
    return lambda name: (lambda *arguments: code) if name == refused else find(name)


def _outcome(read: Reader) -> dict[str, object]:
    try:
        return {"status": "ok", "data": read({})}
    except ReaderFailure as failure:
        return {"status": failure.status, **vars(failure)}
