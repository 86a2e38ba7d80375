"""Reading numbers and names out of compiled code."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from hwprobe.model.code import own_functions, read_code

TINY = 1e-8


def helper(x: Any) -> Any:
    return x + 1e9


def _values(function: Callable[..., Any]) -> list[float]:
    return [number.value for number in read_code([function]).numbers]


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x: x * -1e9, [-1e9]),
        (lambda x: x + (-(10**9)), [-1e9]),
        (lambda x: x / (x + 1e-8), [1e-8]),
        (lambda x: x * 0.5 + 3e4 - 65504.0, []),
        (lambda x: x[:100_000], []),
        (lambda x: [y * 1e6 for y in x], [1e6]),
        (lambda x: helper(x), [1e9]),
        (lambda x: x if x is True else None, []),
    ],
    ids=["mask", "integer mask", "epsilon", "harmless", "a size", "nested", "helper", "no number"],
)
def test_numbers_are_found_however_they_were_written(function: Callable[..., Any], values: list[float]) -> None:
    assert _values(function) == values


def test_a_helper_that_was_closed_over_is_read() -> None:
    def add_mask(x: Any) -> Any:
        return x - 1e9

    assert _values(lambda x: add_mask(x)) == [1e9]


def test_functions_of_other_modules_are_not_read() -> None:
    assert "floor" in read_code([lambda x: math.floor(x)]).names
    assert read_code([lambda x: pytest.approx(x)]).numbers == ()


def test_the_place_of_a_number_is_named() -> None:
    def call(x: Any) -> Any:
        return x - 1e9

    where = read_code([call]).numbers[0].where
    assert where.startswith("call, line ")
    assert where.endswith(" of test_code.py")


@pytest.mark.parametrize(
    "function", [lambda tf, x: tf.cast(x, "float32") - 1e9, lambda tf, x: tf.cast(x, tf.float32) - 1e9]
)
def test_code_that_names_float32_protects_itself(function: Callable[..., Any]) -> None:
    assert read_code([function]).mentions_float32


def test_built_in_functions_have_nothing_to_read() -> None:
    assert read_code([len, print]).numbers == ()


def test_only_methods_that_run_in_a_call_are_looked_at() -> None:
    class Base:
        def inherited(self) -> int:
            return 1

    class Layer(Base):
        def __init__(self) -> None:
            self.size = 1e9

        def build(self, shape: Any) -> float:
            return 1e9

        def call(self, x: Any) -> Any:
            return self.inherited()

    names = {function.__name__ for function in own_functions(Layer(), outside=("keras",))}
    assert names == {"call", "inherited"}
    assert own_functions(Layer(), outside=("tests", "conftest", __name__.partition(".")[0])) == []
