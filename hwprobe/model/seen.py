"""What the rules that need the probe have in common."""

from __future__ import annotations

from collections.abc import Iterator

from hwprobe.findings import Explanation
from hwprobe.model.facts import BatchPass, LayerProbe, ProbeFacts

ON_ONE_BATCH = "One float32 and one mixed pass on the same batch, compared layer by layer. "


def explain(checks: str, matters: str, fix: str, reference: str = "IEEE 754-2019, binary16") -> Explanation:
    """Write an explanation of a rule that the probe answers."""
    return Explanation(checks=checks, matters=matters, fix=fix, reference=reference)


def first_pass(probe: ProbeFacts) -> BatchPass:
    """Give the pass on the caller's batch, or on the made-up one."""
    return probe.passes[0]


def pass_on(probe: ProbeFacts, batch: str) -> BatchPass | None:
    """Give the pass on `zeros` or `masked`; None if none was made."""
    return next((each for each in probe.passes if each.batch == batch), None)


def where_it_begins(batch: BatchPass, *, mixed_only: bool) -> Iterator[LayerProbe]:
    """Yield the layers where non-finite values begin.

    A layer around another one that was yielded already is left out.

    Args:
        batch: The pass.
        mixed_only: Look at the mixed pass, and at what is finite in float32; else at the float32 pass.
    """
    named: list[str] = []
    for layer in batch.layers:
        values, inputs = (layer.output, layer.inputs) if mixed_only else (layer.reference, layer.inputs_reference)
        begins = values.non_finite > 0 and (inputs is None or inputs.non_finite == 0)
        broken_anyway = mixed_only and layer.reference.non_finite > 0
        if begins and not broken_anyway and not any(name.startswith(f"{layer.name}/") for name in named):
            named.append(layer.name)
            yield layer
