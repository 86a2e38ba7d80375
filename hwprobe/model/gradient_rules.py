"""What the probe shows backwards: gradients, the terms of the loss, metrics."""

from __future__ import annotations

from hwprobe.findings import Action, EvidenceValue, Rule, Severity
from hwprobe.model.facts import Gradients, ModelFacts, ProbeFacts
from hwprobe.model.formats import FLOAT16, FORMATS
from hwprobe.model.judging import Answer, ModelCheck, problem
from hwprobe.model.seen import explain
from hwprobe.rules.verdict import NotApplicable, Skipped

ZEROS = 0.1
"""Additional share of exact zeros among the gradients, against float32, that is reported."""

METRIC_DIFFERENCE = 0.1

NON_FINITE_GRADIENT = Rule(
    id="HWP670",
    name="non-finite-gradient",
    title="The gradient is infinite or NaN in float16 without any loss scale",
    severity=Severity.ERROR,
    action=Action.USER,
    after=("HWP660", "HWP661", "HWP669", "HWP674", "HWP675"),
    explanation=explain(
        "The mixed backward pass at loss scale 1, where float32's is finite.",
        "An overflow inside the backward pass that no scale can cure (a dynamic scale falls and falls): 1/p of a "
        "float16 softmax, 1/epsilon, the derivative of exp.",
        'Give the output and its softmax dtype="float32"; see the other findings for the layer.',
    ),
)
VANISHING_GRADIENT = Rule(
    id="HWP671",
    name="gradient-becomes-zero",
    title="Gradients become zero in 16 bits at this loss scale",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP660", "HWP661", "HWP669", "HWP670", "HWP667"),
    explanation=explain(
        "Share of exact zeros among the gradients of the weights, mixed at the scale in force against float32.",
        "What underflows does not train: a regression on targets of 1e-4 lost 98% of its gradients without scaling "
        "and learned nothing, with a scale of 2^15 it lost 0.2%.",
        "Use dynamic scaling, or a calibrated static scale: hwprobe calibrate. bfloat16 needs none.",
    ),
)
LOSS_IN_16_BITS = Rule(
    id="HWP672",
    name="loss-in-16-bits",
    title="A term of the loss is computed in 16 bits",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP660", "HWP661", "HWP669", "HWP639"),
    explanation=explain(
        "The dtype of the compiled (or overridden) loss and of every add_loss and activity penalty.",
        "A float16 loss ends at 65504, and its product with a scale of 32768 is infinite from a loss of 2 on.",
        "Cast to float32 before the sum: ops.cast(x, 'float32'). Loss objects do so by themselves.",
        "Keras 3.15.1 source, losses/loss.py",
    ),
)
METRIC_IN_16_BITS = Rule(
    id="HWP673",
    name="metric-in-16-bits",
    title="A metric is wrong because the predictions are 16 bits",
    severity=Severity.WARNING,
    action=Action.USER,
    after=("HWP660", "HWP661", "HWP669"),
    explanation=explain(
        "Each compiled metric on the mixed and on the float32 predictions of the batch.",
        "Metrics that wrap a function compute in the predictions' dtype: MeanSquaredError of an error of 300 is inf "
        "in float16. What is monitored, early stopping included, is then meaningless.",
        'Give the last layer dtype="float32".',
        "Keras 3.15.1 source, metrics/reduction_metrics.py",
    ),
)
SCALE_OVERFLOWS = Rule(
    id="HWP676",
    name="gradient-overflows-at-this-scale",
    title="The gradient overflows at this loss scale and not without",
    severity=Severity.INFO,
    action=Action.NONE,
    after=("HWP660", "HWP661", "HWP669", "HWP670"),
    explanation=explain(
        "The mixed backward pass at the scale in force (2^15 where there is no scaler yet) and at scale 1.",
        "A dynamic scaler skips a few steps and comes down; nothing is wrong. A static scale of this size loses every "
        "such step, and with loss_scale_factor the weights.",
        "Nothing with dynamic scaling. Static: hwprobe calibrate finds a scale that fits.",
    ),
)


def non_finite_gradient(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP670."""
    missing = _without_gradients(probe)
    if missing is not None:
        return missing
    at_one = _at_scale_one(probe)
    if at_one is None or not at_one.mixed.non_finite or at_one.reference.non_finite:
        return []
    return [
        problem(
            at_one.worst or "gradients",
            f"{at_one.mixed.non_finite} of {at_one.mixed.elements} gradients are infinite or NaN without any loss "
            f"scale ({at_one.worst} has the most); in float32 all are finite.",
            'give the output and its softmax dtype="float32"',
            evidence=_evidence(at_one),
        )
    ]


def vanishing_gradient(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP671."""
    missing = _without_gradients(probe)
    if missing is not None:
        return missing
    finite = [each for each in probe.gradients if not each.mixed.non_finite]
    if not finite:
        return Skipped(reason="the gradients are not finite")
    seen = finite[0]
    more = seen.mixed.share_of_zeros - seen.reference.share_of_zeros
    if more < ZEROS:
        return []
    return [
        problem(
            "gradients",
            f"{seen.mixed.share_of_zeros:.0%} of the gradients are exactly zero at loss scale {seen.scale:g}, and "
            f"{seen.reference.share_of_zeros:.0%} in float32.",
            "use dynamic loss scaling, or hwprobe calibrate for a static scale",
            evidence=_evidence(seen),
        )
    ]


def loss_in_16_bits(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP672."""
    if not probe.loss_terms:
        return NotApplicable(reason="no loss was computed: give a batch with targets")
    scale = max((each.scale for each in probe.gradients), default=1.0)
    found = []
    for term in probe.loss_terms:
        if term.dtype not in FORMATS:
            continue
        scaled = None if term.value is None else abs(term.value) * scale
        overflows = scaled is None or scaled > FORMATS[term.dtype].largest
        found.append(
            problem(
                term.name,
                f"{term.name} comes out in {term.dtype} with value "
                f"{'inf or NaN' if term.value is None else f'{term.value:g}'}"
                + (f" (float32: {term.reference:g})" if term.reference is not None else "")
                + (f"; times a loss scale of {scale:g} it is infinite." if overflows and scaled else "."),
                "cast to float32 before the sum",
                evidence={"dtype": term.dtype, "value": term.value, "float32": term.reference, "scale": scale},
                severity=Severity.ERROR if overflows else None,
            )
        )
    return found


def metric_in_16_bits(_: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP673."""
    if not probe.metrics:
        return NotApplicable(reason="no metric was computed: compile with metrics and give a batch with targets")
    found = []
    for metric in probe.metrics:
        if metric.reference is None:
            continue
        apart = None if metric.value is None else abs(metric.value - metric.reference)
        if apart is None or apart > METRIC_DIFFERENCE * max(abs(metric.reference), 1.0):
            found.append(
                problem(
                    metric.name,
                    f"{metric.name} is {'inf or NaN' if metric.value is None else f'{metric.value:g}'} on mixed "
                    f"predictions and {metric.reference:g} on float32 ones.",
                    'give the last layer dtype="float32"',
                    evidence={"value": metric.value, "float32": metric.reference},
                )
            )
    return found


def scale_overflows(model: ModelFacts, probe: ProbeFacts) -> Answer:
    """HWP676."""
    missing = _without_gradients(probe)
    if missing is not None:
        return missing
    scaled, at_one = probe.gradients[0], _at_scale_one(probe)
    if scaled.scale == 1.0 or at_one is None:
        return NotApplicable(reason="nothing scales the loss")
    if not scaled.mixed.non_finite or at_one.mixed.non_finite:
        return []
    static = model.optimizer is not None and model.optimizer.dynamic is False
    largest = at_one.mixed.largest or 0.0
    return [
        problem(
            "gradients",
            f"at loss scale {scaled.scale:g} {scaled.mixed.non_finite} of {scaled.mixed.elements} gradients are "
            f"infinite or NaN; without scale the largest is {largest:g}. "
            + ("The scale is static: every such step is lost." if static else "A dynamic scale comes down by itself."),
            "hwprobe calibrate finds a static scale that fits" if static else "nothing, with dynamic scaling",
            evidence={**_evidence(scaled), "largest_at_scale_1": largest, "float16_largest": FLOAT16.largest},
            severity=Severity.ERROR if static else None,
        )
    ]


def _without_gradients(probe: ProbeFacts) -> Skipped | None:
    return None if probe.gradients else Skipped(reason="no gradients were computed")


def _at_scale_one(probe: ProbeFacts) -> Gradients | None:
    return next((each for each in probe.gradients if each.scale == 1.0), None)


def _evidence(seen: Gradients) -> dict[str, EvidenceValue]:
    return {
        "scale": seen.scale,
        "non_finite": seen.mixed.non_finite,
        "elements": seen.mixed.elements,
        "zeros": seen.mixed.share_of_zeros,
        "zeros_float32": seen.reference.share_of_zeros,
        "worst": seen.worst,
    }


GRADIENT_CHECKS = (
    ModelCheck(NON_FINITE_GRADIENT, non_finite_gradient, needs_probe=True),
    ModelCheck(VANISHING_GRADIENT, vanishing_gradient, needs_probe=True),
    ModelCheck(LOSS_IN_16_BITS, loss_in_16_bits, needs_probe=True),
    ModelCheck(METRIC_IN_16_BITS, metric_in_16_bits, needs_probe=True),
    ModelCheck(SCALE_OVERFLOWS, scale_overflows, needs_probe=True),
)
