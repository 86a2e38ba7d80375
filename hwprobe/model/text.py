"""An audit for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from hwprobe.findings import Finding, Severity
from hwprobe.model.facts import Audit, LayerProbe, ModelFacts
from hwprobe.render.printable import printable
from hwprobe.render.terminal import console_on

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def write_audit(audit: Audit, stream: TextIO, *, layers: bool = False) -> None:
    """Write an audit as text, in colour on a terminal.

    Args:
        audit: The audit.
        stream: Where to.
        layers: Also write a table of the layers as the probe saw them.
    """
    print_audit(audit, console_on(stream), layers=layers)


def print_audit(audit: Audit, console: Console, *, layers: bool = False) -> None:
    """Print an audit on a console of rich's."""
    _say(console, headline(audit), "bold red" if audit.verdict == "hazards" else "bold")
    _say(console, _precision_line(audit.model))
    if audit.verdict != "unknown":  # whose first line says it
        _say(console, _probe_line(audit))
    for finding in audit.findings:
        _finding(console, finding)
    if layers and audit.probe.passes:
        console.print(_layers(audit.probe.passes[0].layers))
    unanswered = _unanswered(audit)
    if unanswered:
        console.print()
        _say(console, "not checked:")
        for reason, ids in unanswered.items():
            _say(console, f"  {', '.join(ids)}: {printable(reason)}")


def headline(audit: Audit) -> str:
    """The answer in one line."""
    counts = {
        severity: sum(each.severity is severity for each in audit.findings)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
    }
    words = [
        f"{count} {severity.value}{'s' if count != 1 and severity is not Severity.INFO else ''}"
        for severity, count in counts.items()
        if count
    ]
    name = printable(audit.model.name)
    if audit.verdict == "unknown":
        return f"{name}: nothing found, but it was not probed ({printable(audit.probe.reason or 'no reason given')})"
    return f"{name}: {', '.join(words) or 'nothing found'}"


def _precision_line(model: ModelFacts) -> str:
    everything = model.parameters()
    low = model.low_precision
    if low is None:
        return (
            f"{len(model.layers)} layers, {everything:,} parameters, none in 16 bits; "
            "to look ahead: --dtype-policy mixed_float16"
        )
    share = f"{model.parameters(low) / everything:.0%} of {everything:,} parameters" if everything else "no parameters"
    assumed = f" (assumed {model.assumed_dtype_policy})" if model.assumed_dtype_policy else ""
    return f"{len(model.layers)} layers, {share} compute in {low}{assumed}; {_scaling(model)}"


def _scaling(model: ModelFacts) -> str:
    optimizer = model.optimizer
    if optimizer is None:
        return "not compiled"
    how = {
        "none": "no loss scaling",
        "keras": "Keras' own loss scaling",
        "hwprobe": "hwprobe's loss scaling",
        "factor": "a fixed loss_scale_factor",
    }[optimizer.scaler]
    return f"{optimizer.class_name} with {how}" + (f" (scale {optimizer.scale:g})" if optimizer.scale else "")


def _probe_line(audit: Audit) -> str:
    probe = audit.probe
    if probe.status != "ok":
        return f"probe {probe.status}: {printable(probe.reason or 'no reason given')}"
    passes = ", ".join(each.batch for each in probe.passes)
    loss = "the model's own loss" if probe.loss == "compiled" else "a made-up loss (no targets were given)"
    scales = ", ".join(f"{each.scale:g}" for each in probe.gradients) or "none"
    return f"probed in float32 and {probe.dtype_policy} on: {passes}; {loss}; gradients at scale {scales}"


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, soft_wrap=True)


def _finding(console: Console, finding: Finding) -> None:
    console.print()
    head = f"{finding.severity.value} {finding.id} {printable(finding.subject)}: {printable(finding.title)}"
    _say(console, head, _STYLE[finding.severity.value])
    _say(console, f"  {printable(finding.message)}")
    for step in finding.fix:
        _say(console, f"    {printable(step)}")


def _layers(layers: tuple[LayerProbe, ...]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("layer", "class", "dtype"):
        table.add_column(title, overflow="fold")
    for title in ("largest, float32", "largest, mixed", "not finite", "zeros", "differs by"):
        table.add_column(title, justify="right", no_wrap=True)
    for layer in layers:
        table.add_row(
            printable(layer.name),
            printable(layer.class_name),
            layer.output.dtype,
            _number(layer.reference.largest),
            _number(layer.output.largest),
            str(layer.output.non_finite) if layer.output.non_finite else "-",
            f"{layer.output.share_of_zeros:.0%}",
            "-" if layer.output_difference is None else f"{layer.output_difference:.2%}",
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _unanswered(audit: Audit) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for outcome in audit.outcomes:
        if outcome.status == "skip" and not (outcome.reason or "").startswith("explained by"):
            # Said above, once.
            reason = "not probed" if outcome.reason == audit.probe.why_not_probed else outcome.reason
            reasons.setdefault(reason or "no reason given", []).append(outcome.id)
    return reasons
