"""`hwprobe run`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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


class _OptionsBeforeScript(click.Command):
    """A command whose options end at the script or module: what follows is the script's, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        position = self._after_module(args)
        return super().parse_args(ctx, args if position is None else [*args[:position], "--", *args[position:]])

    def _after_module(self, args: Sequence[str]) -> int | None:
        """The place behind `-m MODULE`; None where a script, or nothing, is named first."""
        with_value = {name for option in self.params if _takes_value(option) for name in option.opts}
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] != "--":
            name = args[position]
            position += 2 if name in with_value else 1
            if name.startswith("-m"):
                return position if position <= len(args) else None
        return None


def _takes_value(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and not parameter.is_flag


@click.command(cls=_OptionsBeforeScript, context_settings={"allow_interspersed_args": False})
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
) -> Callable[[], int]:
    """Run a training script with the precision that fits this machine.

    The script may set environment variables first: hwprobe configures when the script imports TensorFlow or Keras.
    Its exit status is the script's; 2 where an option of hwprobe cannot be used, 1 where a request cannot be met.
    """
    from hwprobe.auto import auto_configure
    from hwprobe.launch import Launch, expect_module, expect_script, run_module, run_script
    from hwprobe.policy_reader import read_policy
    from hwprobe.requirements import parse_requirements

    if module is None and not arguments:
        raise click.UsageError("name a SCRIPT or -m MODULE to run")
    # What can be known to be wrong is said before the script has worked for an hour.
    read_policy(policy)
    parse_requirements(require)
    if module is not None:
        expect_module(module)
    else:
        expect_script(Path(arguments[0]))
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

    def script() -> int:
        launch = Launch(configure)
        launch.watch()
        try:
            if module is not None:
                run_module(module, arguments)
            else:
                run_script(Path(arguments[0]), arguments[1:])
        finally:
            if not launch.configured:
                name = module or arguments[0]
                click.echo(f"hwprobe: nothing was configured: {name} imported neither TensorFlow nor Keras", err=True)
        return 0

    return script
