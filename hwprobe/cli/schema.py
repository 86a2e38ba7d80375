"""`hwprobe schema`."""

from __future__ import annotations

import json

import click

from hwprobe.cluster.plan import Plan
from hwprobe.cluster.record import NodeRecord
from hwprobe.offline.recording import Capture
from hwprobe.preflight import Check
from hwprobe.report import Report
from hwprobe.serialize import json_schema
from hwprobe.why_not import WhyNot

_TYPES = {"capture": Capture, "check": Check, "node": NodeRecord, "plan": Plan, "report": Report, "why-not": WhyNot}


@click.command()
@click.argument("name", type=click.Choice(sorted(_TYPES)), default="check")
def schema(name: str) -> None:
    """Print the JSON Schema (2020-12) of what hwprobe writes."""
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"hwprobe {name}"}
    click.echo(json.dumps(document | json_schema(_TYPES[name]), indent=2))
