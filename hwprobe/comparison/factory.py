"""A user's own task, from `module:factory`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from hwprobe.comparison.tasks import Task
from hwprobe.comparison.training import build_under, loss_function
from hwprobe.errors import InputError
from hwprobe.model.read import keras_kind
from hwprobe.model.target import call_factory, load_factory

EVALUATION_BATCHES = 20
STEPS = 200
EXPECTED = "expected (model, loss, data), with data an iterable of batches (inputs, targets)"


def factory_task(target: str) -> Task:
    """Make a task of a function without arguments that returns `(model, loss, data)`.

    It is called once for each variant and start, with that variant's dtype policy in force, so that layers get it.
    The metric is the loss on the first 20 batches. The optimizer is a fresh one with the settings of the one that the
    model is compiled with, else Adam; `loss` may be None where the model is compiled with one.

    Raises:
        InputError: It cannot be imported or called, or returns something else.
    """
    from hwprobe.scaling.gradients import Batches, fresh_optimizer
    from hwprobe.scaling.keras_family import expect_family

    factory = load_factory(target)

    def make() -> tuple[Any, Any, Any]:
        made = call_factory(factory, target)
        if not isinstance(made, tuple) or len(made) != 3:
            raise InputError(f"{target} returned {_what(made)}: {EXPECTED}")
        return made

    model, loss, data = build_under(make, "float32")
    if keras_kind(model) != "keras3":
        raise InputError(f"{target}: a comparison needs a model of Keras 3")
    loss = getattr(model, "loss", None) if loss is None else loss
    if loss is None:
        raise InputError(f"{target} gave no loss, and the model is not compiled with one")
    given = Batches(data)
    family = expect_family(model, "a model")
    optimizer = getattr(model, "optimizer", None)
    first = next(given.take(1))
    if len(first) > 2:
        raise InputError(f"{target}: sample weights are not used by a comparison: {EXPECTED}")

    def batches(_: int) -> Iterator[tuple[Any, Any]]:
        while True:
            yield from given.take(STEPS)

    def evaluate(trained: Any) -> float:
        function = loss_function(loss)
        losses = [float(function(y, trained(x, training=False))) for x, y in islice(batches(0), EVALUATION_BATCHES)]
        return sum(losses) / len(losses)

    return Task(
        name=target,
        title=f"{type(model).__name__} {model.name}",
        metric="loss",
        higher_is_better=False,
        steps=STEPS,
        build=lambda: make()[0],
        loss=loss,
        optimizer=lambda: fresh_optimizer(optimizer, family),
        batches=batches,
        evaluate=evaluate,
    )


def _what(made: Any) -> str:
    return f"{len(made)} things" if isinstance(made, tuple) else f"a {type(made).__name__}"
