"""Makes any value of any of hwprobe's types: every field off its default, every union's every arm."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec import inspect as shape

from hwprobe.capability import ComputeCapability

# What a driver, a file or a variable may hold. Half of a surrogate pair is replaced where it is read.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["", "Tesla T4", "NVIDIA A100-SXM4-80GB", "2.21.0", "535.104.05", "12.2", "sm_80", "compute_90", "0", "-1", "GPU:0"]
)
capabilities = st.builds(ComputeCapability, st.integers(1, 20), st.integers(0, 9))
integers = st.integers(-(2**31), 2**53) | st.integers(0, 20)


Known = Mapping[type, st.SearchStrategy[Any]]


def values_of(type_: Any, known: Known | None = None) -> st.SearchStrategy[Any]:
    """A strategy for a type, from its annotations.

    `known` holds strategies for types inside it whose fields depend on each other.
    """
    return _of(shape.type_info(type_), known or {})


def _of(info: shape.Type, known: Known) -> st.SearchStrategy[Any]:
    if isinstance(info, shape.StructType):
        if info.cls in known:
            return known[info.cls]
        return st.builds(info.cls, **{field.name: _of(field.type, known) for field in info.fields})
    if isinstance(info, shape.UnionType):
        return st.one_of([_of(each, known) for each in info.types])
    if isinstance(info, shape.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, shape.EnumType):
        return st.sampled_from(list(info.cls))
    if isinstance(info, (shape.VarTupleType, shape.ListType)):
        made = st.lists(_of(info.item_type, known), max_size=3)
        return made if isinstance(info, shape.ListType) else made.map(tuple)
    if isinstance(info, shape.DictType):
        return st.dictionaries(_of(info.key_type, known), _of(info.value_type, known), max_size=3)
    return _scalar(info)


def _scalar(info: shape.Type) -> st.SearchStrategy[Any]:
    if isinstance(info, shape.CustomType):
        assert info.cls is ComputeCapability
        return capabilities
    scalars: dict[type[shape.Type], st.SearchStrategy[Any]] = {
        shape.NoneType: st.none(),
        shape.BoolType: st.booleans(),
        shape.FloatType: st.floats(allow_nan=False, allow_infinity=False),
        shape.DateType: st.dates(datetime.date(2020, 1, 1)),
        shape.AnyType: st.none() | texts | integers,
    }
    if isinstance(info, shape.IntType):
        return _bounded(info)
    if isinstance(info, shape.StrType):
        return texts if info.pattern is None else st.from_regex(info.pattern)
    return scalars[type(info)]


def _bounded(info: shape.IntType) -> st.SearchStrategy[int]:
    lowest = info.ge if info.ge is not None else None if info.gt is None else info.gt + 1
    highest = info.le if info.le is not None else None if info.lt is None else info.lt - 1
    return integers if lowest is None and highest is None else st.integers(lowest, highest)
