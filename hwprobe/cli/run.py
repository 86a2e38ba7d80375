"""`hwprobe run`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hwprobe.configuration import DTYPE_POLICIES, DtypePolicy, LossScaling
from hwprobe.errors import InputError


def _loss_scaling(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> LossScaling | None:
    if value is None:
        return None
    try:
        return LossScaling.parse(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from error


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--policy", metavar="NAME|FILE", help="Policy to decide by; see `hwprobe policy list`.")
@click.option("--dtype-policy", type=click.Choice(DTYPE_POLICIES), help="Insist on this dtype policy.")
@click.option(
    "--loss-scaling", metavar="MODE", callback=_loss_scaling, help="none, dynamic, dynamic=SCALE or static=SCALE."
)
@click.option("--memory-growth/--no-memory-growth", default=None, help="Take GPU memory as it is needed, or at once.")
@click.option(
    "--require", multiple=True, metavar="EXPR", help="What the script needs, as for `check`. May be repeated."
)
@click.option("--allow-fallback", is_flag=True, help="Take another dtype policy where the wanted one cannot be met.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Take this plan, which `hwprobe plan` made for all nodes.",
)
@click.option("--strict", is_flag=True, help="Stop where a setting cannot be applied.")
@click.option("--quiet", is_flag=True, help="Say nothing unless something is wrong.")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m MODULE` does.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(
    policy: str | None,
    dtype_policy: DtypePolicy | None,
    loss_scaling: LossScaling | None,
    memory_growth: bool | None,
    require: tuple[str, ...],
    allow_fallback: bool,
    plan: Path | None,
    strict: bool,
    quiet: bool,
    module: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Run a training script with the precision that fits this machine.

    The script may set environment variables first: hwprobe configures when the script imports TensorFlow or Keras.
    Its exit status is the script's.
    """
    from hwprobe.auto import auto_configure
    from hwprobe.launch import run_module, run_script, when_framework_is_imported

    if module is None and not arguments:
        raise click.UsageError("name a SCRIPT or -m MODULE to run")
    if plan is not None:
        from hwprobe.cluster.joining import refuse_early

        refuse_early(plan, os.environ)

    def configure() -> None:
        auto_configure(
            policy,
            dtype_policy=dtype_policy,
            loss_scaling=loss_scaling,
            memory_growth=memory_growth,
            require=require,
            allow_fallback=allow_fallback,
            plan=plan,
            strict=strict,
            quiet=quiet,
        )

    when_framework_is_imported(configure)
    if module is not None:
        run_module(module, arguments)
    else:
        run_script(Path(arguments[0]), arguments[1:])
