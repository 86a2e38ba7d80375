"""Requirements on a machine: `gpus>=2`, `memory>=40GiB`, `dtype_policy=mixed_bfloat16`, and which one is not met."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import msgspec
from packaging.version import InvalidVersion, Version

from hwprobe.capability import ComputeCapability
from hwprobe.configuration import DTYPE_POLICIES, Decision
from hwprobe.errors import InputError
from hwprobe.gpu import Gpu
from hwprobe.report import Report
from hwprobe.source import Fact
from hwprobe.usability import devices_that_compute, kernel_code

Operator = Literal[">=", "<=", "==", "!=", ">", "<"]

_EXPRESSION = re.compile(r"\s*([a-z_0-9]+)\s*(>=|<=|==|!=|>|<|=)?\s*(.*?)\s*", re.DOTALL)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b|b)", re.IGNORECASE)
_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

_OPERATORS: dict[str, Operator] = {**{name: name for name in get_args(Operator)}, "=": "=="}

MEMORY_TOLERANCE = 0.07
"""Share by which a board's memory may fall short of its nominal size.

NVML shows 15360 MiB for a 16 GB T4, 23034 MiB for a 24 GB L4, 81559 MiB for an 80 GB H100 (public nvidia-smi outputs).
"""


class Requirement(Fact, frozen=True, kw_only=True):
    """One parsed requirement.

    Attributes:
        text: As it was written.
        subject: What is asked about: one of `SUBJECTS`.
        operator: The comparison.
        value: The wanted value as text, in the subject's own form.
    """

    text: str
    subject: str
    operator: Operator
    value: str


class _Machine(msgspec.Struct, frozen=True):
    report: Report
    decision: Decision


class Unmet(Fact, frozen=True, kw_only=True):
    """A requirement that does not hold.

    Attributes:
        requirement: Which.
        found: What the machine has, as text; None if it could not be read.
        message: What is missing, on which device, and by how much.
    """

    requirement: Requirement
    found: str | None
    message: str


def parse_requirements(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """Read requirements. One text may hold several, separated by commas.

    Args:
        texts: For instance `["gpus>=2", "memory>=40GiB, tensor_cores"]`.

    Raises:
        InputError: One of them is not understood; the message names the accepted forms.
    """
    parts = [part for text in texts for part in text.split(",")]
    return tuple(_parse(part) for part in parts)


def unmet_requirements(requirements: Sequence[Requirement], report: Report, decision: Decision) -> tuple[Unmet, ...]:
    """Say which requirements do not hold, and by how much. What could not be read does not hold.

    Args:
        requirements: From `parse_requirements`.
        report: The facts.
        decision: The choice made from them.
    """
    machine = _Machine(report, decision)
    results = (_CHECKS[requirement.subject](requirement, machine) for requirement in requirements)
    return tuple(unmet for unmet in results if unmet is not None)


def _parse(text: str) -> Requirement:
    match = _EXPRESSION.fullmatch(text)
    if match is None or match[1] not in _CHECKS:
        raise InputError(f"requirement {text.strip()!r} is not understood: expected one of {ACCEPTED}")
    subject, operator, value = match[1], match[2], match[3]
    if subject == "tensor_cores":
        if operator or value:
            raise InputError(f"requirement {text.strip()!r}: tensor_cores stands alone")
        return Requirement(text=subject, subject=subject, operator="==", value="yes")
    if not operator or not value:
        raise InputError(f"requirement {text.strip()!r} lacks a comparison: expected one of {ACCEPTED}")
    requirement = Requirement(text=text.strip(), subject=subject, operator=_OPERATORS[operator], value=value)
    _validate(requirement)
    return requirement


def _validate(requirement: Requirement) -> None:
    parser = _PARSERS[requirement.subject]
    try:
        parser(requirement.value)
    except (ValueError, InvalidVersion):
        raise InputError(
            f"requirement {requirement.text!r}: {requirement.value!r} is not {_FORMS[requirement.subject]}"
        ) from None
    if requirement.subject == "dtype_policy" and requirement.operator not in ("==", "!="):
        raise InputError(f"requirement {requirement.text!r}: a dtype policy is compared with = or != only")


def _policy_name(text: str) -> str:
    if text not in DTYPE_POLICIES:
        raise ValueError(text)
    return text


def parse_size(text: str) -> int:
    """Read a size with its unit, such as `40GiB` or `16 GB`, as bytes.

    Raises:
        ValueError: The text is no size, or has no unit.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    size = float(match[1]) * _UNITS[match[2].lower()]
    if size == math.inf:
        raise ValueError(f"no size of anything: {text!r}")
    return int(size)


_PARSERS: dict[str, Callable[[str], object]] = {
    "gpus": int,
    "compute_capability": ComputeCapability.parse,
    "memory": parse_size,
    "dtype_policy": _policy_name,
    "tensorflow": Version,
    "driver": Version,
}
_FORMS = {
    "gpus": "a whole number",
    "compute_capability": "a compute capability such as 8.0",
    "memory": "a size with its unit, such as 40GiB or 16GB",
    "dtype_policy": f"one of {', '.join(DTYPE_POLICIES)}",
    "tensorflow": "a version such as 2.16",
    "driver": "a driver version such as 535.104.05",
}
ACCEPTED = (
    "gpus>=N, compute_capability>=8.0, memory>=40GiB, tensor_cores, dtype_policy=mixed_bfloat16, tensorflow>=2.16, "
    "driver>=535.104.05"
)


def _compare(found: object, operator: Operator, wanted: object) -> bool:
    comparisons: dict[str, Callable[[], bool]] = {
        ">=": lambda: found >= wanted,  # type: ignore[operator]
        "<=": lambda: found <= wanted,  # type: ignore[operator]
        ">": lambda: found > wanted,  # type: ignore[operator]
        "<": lambda: found < wanted,  # type: ignore[operator]
        "==": lambda: found == wanted,
        "!=": lambda: found != wanted,
    }
    return comparisons[operator]()


def usable_gpus(report: Report) -> tuple[Gpu, ...]:
    """The GPUs that count for `gpus`: TensorFlow will place work on them, they work, and it has code for them."""
    gpus = []
    for gpu in devices_that_compute(report):
        code = kernel_code(gpu, report.tensorflow)
        if gpu.error is None and (code is None or code.kind != "none"):
            gpus.append(gpu)
    return tuple(gpus)


def _gpus(requirement: Requirement, machine: _Machine) -> Unmet | None:
    count, wanted = len(usable_gpus(machine.report)), int(requirement.value)
    if _compare(count, requirement.operator, wanted):
        return None
    present = len(machine.report.devices)
    difference = f"{wanted - count} missing" if count < wanted else f"{count - wanted} too many"
    known = f", of {present} that the machine shows" if present != count else ""
    return Unmet(
        requirement=requirement,
        found=str(count),
        message=f"{requirement.text} is not met: {count} usable for TensorFlow{known}; {difference}",
    )


def _each_gpu(
    requirement: Requirement,
    machine: _Machine,
    read: Callable[[Gpu], object | None],
    holds: Callable[[object], bool],
    say: Callable[[object], str],
) -> Unmet | None:
    gpus = usable_gpus(machine.report)
    if not gpus:
        return Unmet(requirement=requirement, found=None, message=f"{requirement.text} is not met: no usable GPU")
    for gpu in gpus:
        value = read(gpu)
        if value is None:
            message = f"{requirement.text} cannot be shown: it could not be read on {gpu.label}"
            return Unmet(requirement=requirement, found=None, message=message)
        if not holds(value):
            message = f"{requirement.text} is not met: {gpu.label} has {say(value)}"
            return Unmet(requirement=requirement, found=say(value), message=message)
    return None


def _compute_capability(requirement: Requirement, machine: _Machine) -> Unmet | None:
    wanted = ComputeCapability.parse(requirement.value)
    return _each_gpu(
        requirement,
        machine,
        lambda gpu: gpu.compute_capability,
        lambda found: _compare(found, requirement.operator, wanted),
        str,
    )


def _memory(requirement: Requirement, machine: _Machine) -> Unmet | None:
    wanted = parse_size(requirement.value)

    def holds(found: object) -> bool:
        assert isinstance(found, int)
        nominal = found / (1 - MEMORY_TOLERANCE) if requirement.operator in (">=", ">") else found
        return _compare(nominal, requirement.operator, wanted)

    def say(found: object) -> str:
        assert isinstance(found, int)
        return f"{found / 2**30:.1f} GiB, {abs(wanted - found) / 2**30:.1f} GiB {'less' if found < wanted else 'more'}"

    return _each_gpu(requirement, machine, lambda gpu: _memory_total(gpu, machine.report), holds, say)


def _memory_total(gpu: Gpu, report: Report) -> int | None:
    instances = [instance for instance in (gpu.mig.instances if gpu.mig else ()) if instance.visible]
    if instances:
        totals = [instance.memory.total_bytes for instance in instances]
        return min(total for total in totals if total is not None) if None not in totals else None
    if gpu.memory.total_bytes is None and gpu.memory.kind == "unified":
        return report.host.memory_total_bytes
    return gpu.memory.total_bytes


def _tensor_cores(requirement: Requirement, machine: _Machine) -> Unmet | None:
    return _each_gpu(
        requirement,
        machine,
        lambda gpu: gpu.tensor_cores,
        bool,
        lambda _: "no Tensor Cores",
    )


def _dtype_policy(requirement: Requirement, machine: _Machine) -> Unmet | None:
    if _compare(machine.decision.dtype_policy, requirement.operator, requirement.value):
        return None
    why = machine.decision.rejected.get(requirement.value)
    return Unmet(
        requirement=requirement,
        found=machine.decision.dtype_policy,
        message=f"{requirement.text} is not met: the decision is {machine.decision.dtype_policy}"
        + (f" ({why})" if why else ""),
    )


def _version(requirement: Requirement, found: str | None, part: str) -> Unmet | None:
    if found is None:
        return Unmet(
            requirement=requirement,
            found=None,
            message=f"{requirement.text} cannot be shown: no version of {part} was read",
        )
    try:
        version = Version(found)
    except InvalidVersion:
        return Unmet(
            requirement=requirement,
            found=found,
            message=f"{requirement.text} cannot be shown: {part} calls itself {found!r}, which is not a version",
        )
    # 2.22.0rc0 is meant by tensorflow>=2.22 as little as by a package installer, hence no special case for it.
    if _compare(version, requirement.operator, Version(requirement.value)):
        return None
    return Unmet(requirement=requirement, found=found, message=f"{requirement.text} is not met: {part} is {found}")


def _tensorflow(requirement: Requirement, machine: _Machine) -> Unmet | None:
    return _version(requirement, machine.report.tensorflow.version if machine.report.tensorflow else None, "TensorFlow")


def _driver(requirement: Requirement, machine: _Machine) -> Unmet | None:
    return _version(requirement, machine.report.driver.version if machine.report.driver else None, "the NVIDIA driver")


_CHECKS: dict[str, Callable[[Requirement, _Machine], Unmet | None]] = {
    "gpus": _gpus,
    "compute_capability": _compute_capability,
    "memory": _memory,
    "tensor_cores": _tensor_cores,
    "dtype_policy": _dtype_policy,
    "tensorflow": _tensorflow,
    "driver": _driver,
}
SUBJECTS = tuple(_CHECKS)
