"""Small comparisons, built by hand."""

from typing import Any

import msgspec

from hwprobe.comparison.facts import Comparison, Run, Spread, TaskResult, VariantResult
from hwprobe.comparison.verdict import verdict
from hwprobe.configuration import LossScaling

STEPS = 5


def run(seed: int = 0, metric: float | None = 0.9, **facts: Any) -> Run:
    """A run that went well, unless something else is said."""
    losses = tuple(2.0 / (step + 1) for step in range(STEPS))
    return Run(**{"seed": seed, "steps": STEPS, "metric": metric, "zero_share": 0.01, "losses": losses, **facts})


def variant(name: str, metrics: tuple[float | None, ...] = (0.89, 0.9, 0.91), **facts: Any) -> VariantResult:
    """A variant with one run for each metric; None makes a lost run."""
    policy, _, scaling = name.partition(":")
    runs = tuple(
        run(seed, metric)
        if metric is not None
        else run(
            seed,
            None,
            lost_because="weights are not finite",
            non_finite_steps=3,
            first_bad_step=2,
            losses=(2.0, 1.0, None, None, None),
        )
        for seed, metric in enumerate(metrics)
    )
    return VariantResult(
        **{
            "variant": name,
            "dtype_policy": policy,
            "loss_scaling": LossScaling.parse(scaling) if scaling else LossScaling.none(),
            "runs": runs,
            "time_ratio": Spread(mean=1.0, least=0.99, greatest=1.01),
            **facts,
        }
    )


def task(*variants: VariantResult, **facts: Any) -> TaskResult:
    """A task with its verdict."""
    made = TaskResult(
        **{
            "task": "digits_mlp",
            "title": "digits",
            "metric": "accuracy",
            "higher_is_better": True,
            "steps": STEPS,
            "variants": variants,
            **facts,
        }
    )
    return msgspec.structs.replace(made, verdict=verdict(made))


def comparison(*tasks: TaskResult, **facts: Any) -> Comparison:
    """A comparison of these tasks."""
    return Comparison(
        **{
            "hwprobe": "0.1.0",
            "device": "CPU (x86_64)",
            "tensorflow": "2.21.0",
            "keras": "3.15.1",
            "float32_is_tf32": False,
            "seeds": 3,
            "tasks": tasks,
            **facts,
        }
    )
