"""`hwprobe bench`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hwprobe.cli.places import expect_places
from hwprobe.cli.waiting import waiting
from hwprobe.files import write_aside


@click.command()
@click.option("--device", metavar="NAME", help="As TensorFlow lists it, for instance GPU:1. Default: the first GPU.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5, max=600.0),
    default=20.0,
    show_default=True,
    metavar="S",
    help="About how long to measure.",
)
@click.option("--quick", is_flag=True, help="The three-second form with small sizes.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write the JSON to this file, whole or not at all.")
def bench(device: str | None, seconds: float, quick: bool, format_: str, output: Path | None) -> None:
    """Time kernels in float32, TF32, float16 and bfloat16 on one device, and check their results.

    A matrix product, a convolution, attention and an optimizer's step, each in every mode in turn, at a size that the
    device takes a few milliseconds for. Soft placement is off: a kernel that the device lacks is shown as such. No
    other GPU is touched. `hwprobe decide --measured FILE` takes the file that --output writes.

    Exit status: 0 measured, 2 wrong usage or no such device.
    """
    expect_places(output)
    from hwprobe.bench.rules import judge_bench
    from hwprobe.bench.running import QUICK_SECONDS, list_devices
    from hwprobe.bench.running import bench as run_bench
    from hwprobe.bench.text import write_bench
    from hwprobe.quiet import native_log_silenced
    from hwprobe.serialize import to_json

    with native_log_silenced():
        list_devices()
    with waiting() as on_wait:
        measured = run_bench(
            device,
            seconds=QUICK_SECONDS if quick else seconds,
            quick=quick,
            progress=None if on_wait is None else lambda kernel, _done, _all: on_wait(kernel),
        )
    if output is not None:
        write_aside(output, to_json(measured, indent=2) + "\n")
        click.echo(f"wrote {output}", err=True)
    if format_ == "json":
        if output is None:
            click.echo(to_json(measured, indent=2))
        return
    write_bench(measured, judge_bench(measured), sys.stdout)
