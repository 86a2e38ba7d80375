"""Asks the real nvidia-ml-py and libcuda, in a process on the machine."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any

from tests.machine import Machine

MachineFactory = Callable[..., Machine]
MIB = 1 << 20

NVML = """
import json
from pynvml import *

def tell(ask, *arguments):
    try:
        return ask(*arguments)
    except NVMLError as error:
        return f"error {error.value}"

nvmlInit()
handles = [tell(nvmlDeviceGetHandleByIndex, index) for index in range(nvmlDeviceGetCount())]
"""

CUDA = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")

def uuid(device):
    raw = ctypes.create_string_buffer(16)
    assert cuda.cuDeviceGetUuid_v2(raw, device) == 0
    return raw.raw.hex()

def text(function, device):
    raw = ctypes.create_string_buffer(96)
    code = getattr(cuda, function)(raw, 96, device)
    return raw.value.decode() if code == 0 else f"error {code}"

def number(function, *arguments):
    value = ctypes.c_int()
    code = getattr(cuda, function)(ctypes.byref(value), *arguments)
    return value.value if code == 0 else f"error {code}"

started = cuda.cuInit(0)
count = number("cuDeviceGetCount") if started == 0 else 0
"""


def told(machine: Machine, preamble: str, source: str, **variables: str | None) -> Any:
    """What a process says that runs the source, which is one expression or ends by giving `said` a value."""
    body = textwrap.dedent(source) if "said = " in source else f"said = {source}"
    done = machine.python(f"{preamble}\n{body}\nprint(json.dumps(said, default=str))", timeout=120, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_nvml(machine: Machine, source: str, **variables: str | None) -> Any:
    """Asks a process that has initialised NVML and has `handles` of all GPUs."""
    return told(machine, NVML, source, **variables)


def ask_cuda(machine: Machine, source: str, **variables: str | None) -> Any:
    """Asks a process that has tried to initialise CUDA: `started` is the result, `count` the devices."""
    return told(machine, CUDA, source, **variables)


def names_in_nvml(machine: Machine, **variables: str | None) -> list[str]:
    return list(ask_nvml(machine, "[tell(nvmlDeviceGetName, handle) for handle in handles]", **variables))


def names_in_cuda(machine: Machine, **variables: str | None) -> list[str]:
    return list(ask_cuda(machine, "[text('cuDeviceGetName', device) for device in range(count)]", **variables))


def answers(machine: Machine, question: str) -> Any:
    """What NVML says about the first GPU: `GetTotalEccErrors, 1, 0` is a function and what follows the handle."""
    function, *arguments = question.split(", ")
    return ask_nvml(machine, f"tell({', '.join([f'nvmlDevice{function}', 'handles[0]', *arguments])})")
