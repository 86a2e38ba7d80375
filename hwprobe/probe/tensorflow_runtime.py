"""What TensorFlow itself lists: the last word.

Nothing here initialises TensorFlow's context: only `list_physical_devices` and `get_device_details` are called, which
make no CUDA context either. `device_lib`, `tf.test` and `list_logical_devices` would take all memory of every GPU.

`read` runs in a child process, `read_in_process` in the user's.
"""

from __future__ import annotations

import os
import sys

from hwprobe.probe.bootstrap import ReaderFailure, json_line
from hwprobe.probe.cuda import CudaFailure, identify_in_process, silence_in_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from hwprobe.report import TensorFlowDevice
    from hwprobe.source import Source

    Listing = list[dict[str, object]]

MAX_MESSAGES = 20
MAX_MESSAGE_CHARACTERS = 500

_IGNORED_TYPES = ("CPU", "XLA_CPU", "XLA_GPU")
"""XLA_GPU appears with the driver alone, and no kernel of TensorFlow runs there (tensorflow/tensorflow#38990)."""

_NOISE = (
    "already been registered",  # a plug-in twice, 2.14 to 2.19 (tensorflow/tensorflow#62075)
    "already registered",
    "TF-TRT Warning",  # TensorRT is not installed
    "Note that this is expected",  # 2.21 on cuDNN, whose symbols it has not loaded yet
)

_listed: Listing | None = None

_IMPORT_ERRORS = (ImportError, OSError, AttributeError, TypeError, ValueError, RuntimeError, SystemError)
"""What `import tensorflow` raises beside a NumPy, protobuf or library that it was not built for."""


class _Forked(Exception):  # noqa: N818 - it ends a reading
    """TensorFlow has listed GPUs, and CUDA does not answer in this process."""

    def __init__(self, failure: CudaFailure) -> None:
        super().__init__(
            "TensorFlow listed the GPUs before this process was forked off, and in the copy CUDA does not work "
            f"({failure.reason}); configure and use them in a process that was spawned"
        )
        self.failure = failure


def read(request: dict[str, object]) -> dict[str, object]:  # noqa: ARG001 - all readers have this form
    """List TensorFlow's devices, in a child process.

    `import tensorflow` takes seconds. The module that lists devices imports in an eighth of that (2.21) under bare
    packages; since that is no public way in, it is tried in a process forked off, and whatever becomes of that one,
    the public import follows where it brought no answer.

    Args:
        request: Nothing is taken from it.

    Returns:
        `devices`: for each GPU the fields of `hwprobe.report.TensorFlowDevice`; `public`: whether the public import
        was needed. What TensorFlow logs is on standard error: see `messages`.

    Raises:
        ReaderFailure: `absent` without TensorFlow.
    """
    location = _location()
    # The reader of the log wants the warnings that users silence.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
    if hasattr(os, "fork") and not _has_plugins(location):
        line = _in_fork(lambda: json_line(_list_through_context(location)))
        if line:
            from json import loads

            return {"devices": loads(line), "public": False}
    return {"devices": _list_through_public_import(), "public": True}


def read_in_process() -> tuple[tuple[TensorFlowDevice, ...] | None, bool | None, Source]:
    """List TensorFlow's devices in this process, importing TensorFlow if that has not happened.

    Returns:
        The devices (None if TensorFlow does not import or list them); whether TensorFlow's context was initialised
        already (None if this TensorFlow does not tell); how the reading went.
    """
    import time

    from msgspec.structs import replace

    from hwprobe.report import TensorFlowDevice
    from hwprobe.serialize import from_builtins
    from hwprobe.source import Source, SourceStatus

    started = time.monotonic()

    def source(status: SourceStatus, reason: str | None = None) -> Source:
        return Source(status=status, reason=reason, seconds=round(time.monotonic() - started, 4))

    try:
        listing = _list_once()
    except ModuleNotFoundError as error:
        is_absent = error.name == "tensorflow"
        return None, None, source(SourceStatus.ABSENT if is_absent else SourceStatus.FAILED, str(error))
    except _Forked as error:
        forked = source(SourceStatus.FAILED, str(error))
        return None, _is_initialized(), replace(forked, code=error.failure.code, error=error.failure.error)
    except _expected_errors() as error:
        return None, None, source(SourceStatus.FAILED, f"{type(error).__name__}: {error}")
    devices = from_builtins(listing, tuple[TensorFlowDevice, ...], where="TensorFlow's devices")
    return devices, _is_initialized(), source(SourceStatus.OK)


def messages(log: str) -> tuple[str, ...]:
    """Pick what matters from TensorFlow's log: warnings, errors, and the GPUs that it leaves out.

    Args:
        log: What a process wrote to standard error.

    Returns:
        The texts without time and place, each once, the last ones if there are many.
    """
    import re

    # "W0000 00:00:1796067898.558485    9460 gpu_device.cc:2365] text", before 2.17
    # "2021-03-18 10:56:30.410381: W tensorflow/core/common_runtime/gpu/gpu_device.cc:1766] text"
    line = re.compile(r"(?:^|\d: )([IWEF])(?:\d{4})? [^\]\n]*?([\w./-]+\.(?:cc|h|cpp)):\d+\] (.*)$", re.MULTILINE)
    found = [
        text.strip()[:MAX_MESSAGE_CHARACTERS]
        for level, _, text in line.findall(log)
        if (level != "I" or "Ignoring visible" in text) and not any(noise in text for noise in _NOISE)
    ]
    return tuple(dict.fromkeys(found))[-MAX_MESSAGES:]


def _location() -> str:
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("tensorflow", sys.path)
    if spec is None or spec.origin is None:
        raise ReaderFailure("absent", "no TensorFlow is installed in this environment")
    return spec.origin.rpartition(os.sep)[0]


def _has_plugins(location: str) -> bool:
    # Pluggable devices are loaded by the public import alone (TensorFlow 2.21, `tensorflow/__init__.py`).
    folders = [location.rpartition(os.sep)[0], *sys.path]
    plugins = any(os.path.isdir(folder + os.sep + "tensorflow-plugins") for folder in folders)  # noqa: PTH112
    return plugins or bool(os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH"))


def _in_fork(work: Callable[[], bytes]) -> bytes:
    """Do some work in a copy of this process, and give what it made; empty if it ended in any other way."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(source)
            answer = work()
            while answer:
                answer = answer[os.write(sink, answer) :]
            os._exit(0)
        finally:
            os._exit(1)
    os.close(sink)
    with open(source, "rb") as pipe:  # noqa: PTH123 - a descriptor
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return answer if status == 0 else b""


def _list_through_context(location: str) -> Listing:
    # Bare packages: the real `tensorflow` imports everything, and so did `tensorflow.python` before 2.13.
    for name in ("tensorflow", "tensorflow.python"):
        package = type(sys)(name)
        package.__path__ = [location + name.removeprefix("tensorflow").replace(".", os.sep)]
        sys.modules[name] = package
    from tensorflow.python.eager import context

    ours = context.context()
    return _listing(ours.list_physical_devices(), ours.get_device_details)


def _list_through_public_import() -> Listing:
    import tensorflow as tf

    return _listing(tf.config.list_physical_devices(), tf.config.experimental.get_device_details)


def _list_once() -> Listing:
    """The list does not change while a process lives, and in a forked copy of it TensorFlow has no answer any more."""
    global _listed
    if _listed is None:
        _listed = _list_through_public_import()
    elif _listed:
        _refuse_copy()
    return _listed


def _refuse_copy() -> None:
    silence = silence_in_process()
    if silence is not None:
        raise _Forked(silence)


def _expected_errors() -> tuple[type[Exception], ...]:
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    own = getattr(errors, "OpError", None)
    return _IMPORT_ERRORS if own is None else (*_IMPORT_ERRORS, own)


def _is_initialized() -> bool | None:
    # There is no public way to ask (TensorFlow 2.21, `python/eager/context.py`).
    context = sys.modules.get("tensorflow.python.eager.context")
    ours = getattr(context, "_context", None)
    return bool(getattr(ours, "_initialized", False)) if hasattr(context, "_context") else None


def _listing(physical: Iterable[Any], details: Callable[[Any], dict[str, Any]]) -> Listing:
    shown = [each for each in physical if each.device_type not in _IGNORED_TYPES]
    if shown:
        # TensorFlow 2.21 would wait for ever for a thread that is not there after a fork, and hold the interpreter.
        _refuse_copy()
    devices = [_device(each, details(each)) for each in shown]
    ordinals = {str(each["name"]): _ordinal(each) for each in devices if each["compute_capability"] is not None}
    identities = identify_in_process(ordinal for ordinal in ordinals.values() if ordinal is not None)
    for each in devices:
        ordinal = ordinals.get(str(each["name"]))
        if ordinal is not None:
            each["pci_bus_id"], each["uuid"] = identities.get(ordinal, (None, None))
    return devices


def _device(physical: Any, details: dict[str, Any]) -> dict[str, object]:
    capability = details.get("compute_capability")
    return {
        "name": str(physical.name).removeprefix("/physical_device:"),
        "device_type": str(physical.device_type),
        "description": details.get("device_name"),
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
    }


def _ordinal(device: dict[str, object]) -> int | None:
    """The CUDA ordinal, which TensorFlow's name carries, not the position in its list (2.21, `gpu_device.cc`)."""
    number = str(device["name"]).rpartition(":")[2]
    return int(number) if number.isdigit() else None
