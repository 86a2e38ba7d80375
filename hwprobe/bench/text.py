"""A bench for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from hwprobe.bench.facts import POLICY_MODES, Bench, Measurement
from hwprobe.findings import Finding
from hwprobe.render.printable import printable
from hwprobe.render.terminal import console_on

if TYPE_CHECKING:
    from rich.console import Console

_LOG_WIDTH = 120
_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def write_bench(measured: Bench, findings: tuple[Finding, ...], stream: TextIO) -> None:
    """Write a bench as text, in colour on a terminal."""
    print_bench(measured, findings, console_on(stream))


def print_bench(measured: Bench, findings: tuple[Finding, ...], console: Console) -> None:
    """Print a bench on a console of rich's."""
    from rich import box
    from rich.table import Table

    console.print(_headline(measured), style="bold", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("kernel", "size", "mode"):
        table.add_column(title, overflow="fold")
    for title in ("time", f"speed / {measured.baseline}", "between", "error to float64"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("ran on", overflow="fold")
    before = None
    for seen in measured.measurements:
        table.add_row(*_row(seen, first=seen.kernel != before))
        before = seen.kernel
    console.print(table)
    for policy in POLICY_MODES:
        console.print(_policy_line(measured, policy), soft_wrap=True)
    for finding in findings:
        head = f"{finding.severity.value} {finding.id} {printable(finding.title)}"
        console.print()
        console.print(head, style=_STYLE[finding.severity.value], soft_wrap=True)
        console.print(f"  {printable(finding.message)}", soft_wrap=True)
        for step in finding.fix:
            console.print(f"    {printable(step)}", soft_wrap=True)


def _headline(measured: Bench) -> str:
    capability = f" ({measured.compute_capability})" if measured.compute_capability else ""
    form = "quick bench" if measured.quick else "bench"
    return printable(
        f"{form} of {measured.device}, {measured.description}{capability}, TensorFlow {measured.tensorflow}, "
        f"{measured.seconds:.0f} s"
    )


def _row(seen: Measurement, *, first: bool) -> tuple[str, ...]:
    named = (seen.kernel, seen.size) if first else ("", "")
    if seen.error is not None:
        return (*named, seen.mode, "-", "-", "-", "-", printable(seen.error))
    ratio = seen.ratio
    return (
        *named,
        seen.mode,
        "-" if seen.seconds is None else f"{seen.seconds * 1e3:.3g} ms",
        "-" if ratio is None else f"{ratio.median:.2f}",
        "-" if ratio is None else f"{ratio.low:.2f} to {ratio.high:.2f}",
        f"{seen.non_finite} not finite" if seen.non_finite else f"{seen.relative_error or 0.0:.1e}",
        seen.ran_on or "-",
    )


def _policy_line(measured: Bench, policy: str) -> str:
    ratio = measured.policy_ratio(policy)
    if ratio is None:
        return f"{policy}: not usable on this device"
    return f"{policy}: {ratio:.2f} times the speed of {measured.baseline} (product, convolution, attention)"
