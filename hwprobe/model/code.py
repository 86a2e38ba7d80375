"""Numbers and names in the compiled code of layers that a user wrote.

Bytecode is read instead of source text: it is there for a notebook cell and for a Lambda that came out of a file, and
`-1e9` is one constant in it however it was written.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from hwprobe.model.facts import Code, CodeNumber
from hwprobe.model.formats import FLOAT16

SMALL = 1e-4
"""Positive numbers below this are recorded: an epsilon, as a rule."""


def read_code(functions: list[Callable[..., Any]]) -> Code:
    """Read what these functions mention, and the functions of the same module that they call.

    Args:
        functions: Functions or bound methods; those without Python code (built-ins) are passed over.
    """
    numbers: list[CodeNumber] = []
    names: set[str] = set()
    for function in _with_helpers(functions):
        for part in _with_nested(function.__code__):
            numbers.extend(_numbers(part))
            names.update(part.co_names)
            names.update(word for word in part.co_consts if word in ("float32", "float64"))
    return Code(
        numbers=tuple(numbers),
        names=tuple(sorted(names)),
        mentions_float32=bool(names & {"float32", "float64"}),
    )


def own_functions(layer: object, *, outside: tuple[str, ...]) -> list[Callable[..., Any]]:
    """Find the methods of a layer that run in a call and come from classes outside of the named packages.

    Args:
        layer: The layer.
        outside: Top-level packages whose classes are not looked at.
    """
    found: dict[str, Callable[..., Any]] = {}
    for class_ in type(layer).__mro__:
        if class_.__module__.partition(".")[0] in (*outside, "builtins"):
            continue
        for name, value in vars(class_).items():
            if callable(value) and name not in _NOT_IN_A_CALL and not name.startswith("__"):
                found.setdefault(name, value)
    return list(found.values())


_NOT_IN_A_CALL = ("build", "get_config", "from_config", "compute_output_shape", "compute_output_spec")


def _with_helpers(functions: list[Callable[..., Any]]) -> list[FunctionType]:
    found: list[FunctionType] = []
    waiting: list[Any] = list(functions)
    while waiting:
        function = getattr(waiting[0], "__func__", waiting[0])
        del waiting[0]
        if not isinstance(function, FunctionType) or function in found:
            continue
        found.append(function)
        closure = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        named = [function.__globals__.get(name) for name in function.__code__.co_names]
        waiting.extend(
            helper
            for helper in (*closure, *named)
            if isinstance(helper, FunctionType) and helper.__module__ == function.__module__
        )
    return found


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def _numbers(code: CodeType) -> Iterator[CodeNumber]:
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        starts = instruction.starts_line
        if starts is not None and not isinstance(starts, bool):
            line = starts
        elif getattr(instruction, "line_number", None) is not None:
            line = instruction.line_number  # type: ignore[attr-defined,unused-ignore]  # Python 3.13
        if not instruction.opname.startswith("LOAD_CONST"):
            continue
        value = instruction.argval
        # A large positive integer is a size as a rule (a vocabulary), a large negative one a mask.
        number = isinstance(value, float) or (isinstance(value, int) and value < 0)
        if number and (abs(value) > FLOAT16.largest or 0.0 < value < SMALL):
            where = f"{code.co_name}, line {line} of {Path(code.co_filename).name}"
            yield CodeNumber(value=float(value), where=where)
