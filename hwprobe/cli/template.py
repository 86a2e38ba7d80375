"""`hwprobe template`."""

from __future__ import annotations

import click

from hwprobe.errors import InputError


@click.command()
@click.argument("name", required=False)
@click.option(
    "--set", "settings", multiple=True, metavar="PARAMETER=VALUE", help="Fill in a parameter. May be repeated."
)
def template(name: str | None, settings: tuple[str, ...]) -> None:
    """Print a job file with the preflight step in its place.

    Without NAME: the templates and what can be filled in.
    """
    from hwprobe.cluster.template import fill

    if name is None:
        if settings:
            raise InputError("--set: name the template that is to be filled in")
        click.echo(_listing(), nl=False)
        return
    click.echo(fill(name, dict(_setting(text) for text in settings)), nl=False)


def _setting(text: str) -> tuple[str, str]:
    parameter, equals, value = text.partition("=")
    if not equals or not parameter:
        raise InputError(f"--set {text!r}: expected PARAMETER=VALUE")
    return parameter, value


def _listing() -> str:
    from hwprobe.cluster.template import templates

    lines = []
    for template in templates().values():
        lines.append(f"{template.name}: {template.summary}")
        lines += [
            f"    {name}={parameter.value}".ljust(44) + parameter.help
            for name, parameter in template.parameters.items()
        ]
    return "\n".join(lines) + "\n"
