"""The schema that `hwprobe schema check` prints, held against what a command wrote."""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema

from hwprobe.preflight import Check
from hwprobe.serialize import json_schema


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema(Check))


def valid(text: str) -> dict[str, Any]:
    """Read what `hwprobe check --format json` wrote: one object, in the form of the schema."""
    answer = json.loads(text)
    _validator().validate(answer)
    assert isinstance(answer, dict)
    return answer
