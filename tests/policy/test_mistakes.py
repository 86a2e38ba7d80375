"""Every mistake that a policy file can hold, with the message that it gets."""

from pathlib import Path

import pytest

from hwprobe.errors import InputError
from hwprobe.policy_reader import read_policy
from tests.policy.documents import MINIMAL, written

POLICIES = '"mixed_bfloat16", "mixed_float16", "float32"'
WHOLE_NUMBER = "accepted: a whole number from 1 to 2147483647"
SCALE = "accepted: a positive number that float32 can hold, such as 32768.0"
RULE_ID = 'accepted: a rule id such as "HWP305", or the beginning of some, such as "HWP3"'
OVERRIDE = '[[devices]]\nname = "*"\nreason = "tried"\n'

MISTAKES = [
    ("no schema", None, 'schema: missing; accepted: "hwprobe.policy/1"'),
    ("another schema", 'schema = "hwprobe.policy/2"', 'schema: "hwprobe.policy/2" is not accepted'),
    ("a schema that is a number", "schema = 1", 'schema: 1 is not accepted; accepted: "hwprobe.policy/1"'),
    (
        "an unknown table",
        "[precison]\ntf32 = true",
        "precison: no such key; did you mean precision? accepted: schema, extends, name, description, precision,",
    ),
    (
        "an unknown key in a table",
        "[precision]\ntf_32 = true",
        "precision.tf_32: no such key; did you mean tf32? accepted: prefer, cpu, tf32",
    ),
    ("an unknown key like no other", "zzz = 1", "zzz: no such key; accepted: schema, extends, name,"),
    ("an unknown key in quotes", '"a b" = 1', '"a b": no such key; accepted: schema'),
    ("an unknown key that would move the cursor", '"\\u001b[2J" = 1', '"\\u001b[2J": no such key'),
    ("an unknown key of great length", f"{'k' * 5000} = 1", '"' + "k" * 75 + "...: no such key"),
    ("a table that is a list", "precision = []", "precision: a list is not accepted; accepted: a table with the keys"),
    ("a list that is a table", "[devices]\nname = 1", "devices: a table is not accepted; accepted: a list of tables"),
    ("a name of nothing", 'name = ""', 'name: "" is not accepted; accepted: one line of printable text'),
    ("a name of spaces", 'name = "  "', 'name: "  " is not accepted'),
    ("a name of two lines", 'name = "a\\nb"', 'name: "a\\nb" is not accepted'),
    ("a name of great length", f'name = "{"n" * 101}"', "accepted: one line of printable text, up to 100 characters"),
    ("a name that is a date", "name = 2024-01-01", "name: 2024-01-01 is not accepted"),
    ("a description of two lines", 'description = "a\\nb"', 'description: "a\\nb" is not accepted'),
    (
        "a dtype policy that Keras does not have",
        '[precision]\nprefer = ["bfloat16", "float32"]',
        f'precision.prefer[0]: "bfloat16" is not accepted; did you mean mixed_bfloat16? accepted: {POLICIES}',
    ),
    (
        "a dtype policy that is a number",
        '[precision]\nprefer = [16, "float32"]',
        "precision.prefer[0]: 16 is not accepted",
    ),
    ("a preference for nothing", "[precision]\nprefer = []", 'precision.prefer: must end in "float32"'),
    (
        "a preference without an end",
        '[precision]\nprefer = ["mixed_bfloat16"]',
        "hwprobe check --require dtype_policy=NAME",
    ),
    (
        "a preference behind the end",
        '[precision]\nprefer = ["float32", "mixed_float16"]',
        'precision.prefer: must end in "float32"',
    ),
    (
        "a preference that is said twice",
        '[precision]\nprefer = ["mixed_float16", "mixed_float16", "float32"]',
        'precision.prefer: "mixed_float16" stands there more than once',
    ),
    ("a preference that is one word", '[precision]\nprefer = "float32"', "accepted: a list such as"),
    (
        "float16 on a CPU",
        '[precision]\ncpu = ["mixed_float16", "float32"]',
        "(float16 is slower than float32 on CPUs)",
    ),
    ("a switch that is a number", "[precision]\ntf32 = 1", "precision.tf32: 1 is not accepted; accepted: true, false"),
    ("a switch that is a word", '[memory]\ngrowth = "yes"', 'memory.growth: "yes" is not accepted'),
    ("a mode that does not exist", '[loss_scaling]\nmode = "Dynamic"', 'accepted: "auto", "dynamic", "static", "none"'),
    (
        "a static scale that is missing",
        '[loss_scaling]\nmode = "static"',
        'loss_scaling.initial_scale: missing; the mode "static" needs a scale, such as 1024.0',
    ),
    (
        "a scale with nothing to scale",
        '[loss_scaling]\nmode = "none"\ninitial_scale = 2.0',
        'loss_scaling.initial_scale: the mode "none" has no scale',
    ),
    (
        "growth of a scale that stands still",
        '[loss_scaling]\nmode = "static"\ninitial_scale = 2.0\ngrowth_steps = 5',
        'loss_scaling.growth_steps: with the mode "static" no scale grows; remove it',
    ),
    (
        "growth of no scale",
        '[loss_scaling]\nmode = "none"\ngrowth_steps = 5',
        'loss_scaling.growth_steps: with the mode "none" no scale grows; remove it',
    ),
    ("a scale of zero", "[loss_scaling]\ninitial_scale = 0", f"loss_scaling.initial_scale: 0 is not accepted; {SCALE}"),
    ("a negative scale", "[loss_scaling]\ninitial_scale = -2.0", f"-2.0 is not accepted; {SCALE}"),
    ("an infinite scale", "[loss_scaling]\ninitial_scale = inf", f"inf is not accepted; {SCALE}"),
    ("a scale that is no number", "[loss_scaling]\ninitial_scale = nan", f"nan is not accepted; {SCALE}"),
    ("a scale that float32 makes infinite", "[loss_scaling]\ninitial_scale = 3.5e38", SCALE),
    ("a scale that float32 flushes to zero", "[loss_scaling]\ninitial_scale = 1e-38", SCALE),
    ("a scale of 400 digits", f"[loss_scaling]\ninitial_scale = {'9' * 400}", "a number of more than 60 digits"),
    ("a scale that is a switch", "[loss_scaling]\ninitial_scale = true", f"true is not accepted; {SCALE}"),
    ("growth after no step", "[loss_scaling]\ngrowth_steps = 0", f"0 is not accepted; {WHOLE_NUMBER}"),
    ("growth after half a step", "[loss_scaling]\ngrowth_steps = 0.5", f"0.5 is not accepted; {WHOLE_NUMBER}"),
    ("growth after more steps than anybody trains", "[loss_scaling]\ngrowth_steps = 2147483648", WHOLE_NUMBER),
    (
        "a limit of nothing",
        "[memory]\nlimit_mib = 0",
        f'memory.limit_mib: 0 is not accepted; {WHOLE_NUMBER} (MiB), or "none"',
    ),
    ("a limit with a unit", '[memory]\nlimit_mib = "4GiB"', 'memory.limit_mib: "4GiB" is not accepted'),
    ("a limit that is a switch", "[memory]\nlimit_mib = true", "memory.limit_mib: true is not accepted"),
    ("an allocator of another library", '[memory]\nallocator = "bfc"', 'accepted: "default", "cuda_malloc_async"'),
    (
        "a threshold that does not exist",
        '[check]\nfail_on = "errors"',
        'did you mean error? accepted: "info", "warning"',
    ),
    (
        "a rule that looks like none",
        '[check]\nselect = ["HWP2004"]',
        f'check.select[0]: "HWP2004" is not accepted; {RULE_ID}',
    ),
    ("a rule in digits of another script", '[check]\nignore = ["HWP\u0663"]', RULE_ID),
    ("a rule in small letters", '[check]\nignore = ["HWP1", "hwp305"]', 'check.ignore[1]: "hwp305" is not accepted'),
    (
        "rules in one word",
        '[check]\nselect = "HWP1"',
        'check.select: "HWP1" is not accepted; accepted: a list of rule ids',
    ),
    (
        "a severity for no rule",
        '[check.severity]\nfoo = "info"',
        f'check.severity.foo: "foo" is not accepted; {RULE_ID}',
    ),
    (
        "a severity that does not exist",
        '[check.severity]\nHWP305 = "warn"',
        'check.severity.HWP305: "warn" is not accepted; did you mean warning? accepted: "info", "warning", "error"',
    ),
    ("severities in a list", "[check]\nseverity = []", "check.severity: a list is not accepted"),
    ("an override for no board", '[[devices]]\nallow = ["mixed_float16"]\nreason = "r"', "devices[0].name: missing"),
    (
        "an override without a reason",
        '[[devices]]\nname = "*"\nallow = ["mixed_float16"]',
        "devices[0].reason: missing",
    ),
    ("an override that says nothing", OVERRIDE, "devices[0]: says nothing; give it an entry in allow or in deny"),
    ("an override with an empty wish", OVERRIDE + "allow = []\ndeny = []", "devices[0]: says nothing"),
    (
        "an override against itself",
        OVERRIDE + 'allow = ["mixed_float16"]\ndeny = ["mixed_float16", "mixed_bfloat16"]',
        'devices[0]: "mixed_float16" is both allowed and denied',
    ),
    (
        "a board that is denied what every device can run",
        OVERRIDE + 'deny = ["float32"]',
        'devices[0].deny[0]: "float32" is not accepted; accepted: "mixed_bfloat16", "mixed_float16" (every device',
    ),
    (
        "a second override",
        OVERRIDE + 'deny = ["mixed_float16"]\n[[devices]]\nname = 1\nreason = "r"\ndeny = ["mixed_float16"]',
        "devices[1].name: 1 is not accepted",
    ),
    (
        "an override that is a word",
        'devices = ["T4"]',
        'devices[0]: "T4" is not accepted; accepted: a table with the keys name',
    ),
    ("a policy that extends a number", "extends = 3", "extends: 3 is not accepted"),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_a_mistake_is_answered_with_file_key_and_accepted_values(
    tmp_path: Path, text: str | None, expected: str
) -> None:
    schema = "" if text is None or text.startswith("schema") else MINIMAL
    path = written(tmp_path, f"{schema}{text or ''}\n")
    with pytest.raises(InputError) as caught:
        read_policy(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert "mistakes" not in message


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    texts = [
        'schema = "hwprobe.policy/9"\nnmae = "x"\nextends = "defualt"',
        '[precision]\nprefer = ["bfloat16", "mixed_float16", "mixed_float16"]\ntf32 = "on"',
        '[loss_scaling]\nmode = "static"',
        "[memory]\ngrowth = 0\nlimit_mib = -1",
        '[check]\nfail_on = "bad"\n[check.severity]\nHWP1 = "bad"',
        "[[devices]]\nname = 5",
    ]
    path = written(tmp_path, "\n".join(texts))
    with pytest.raises(InputError) as caught:
        read_policy(path)
    first, *lines = str(caught.value).splitlines()
    assert first == f"{path}: 15 mistakes"
    assert [line.split(": ")[0].strip() for line in lines] == [
        "schema",
        "nmae",
        "precision.prefer[0]",
        "precision.prefer",
        "precision.prefer",
        "precision.tf32",
        "memory.growth",
        "memory.limit_mib",
        "check.fail_on",
        "check.severity.HWP1",
        "devices[0].name",
        "devices[0].reason",
        "devices[0]",
        "extends",
        "loss_scaling.initial_scale",
    ]


def test_a_scale_with_a_mistake_is_not_called_missing_too(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL + '[loss_scaling]\nmode = "static"\ninitial_scale = -1\n')
    with pytest.raises(InputError) as caught:
        read_policy(path)
    assert str(caught.value).count("loss_scaling") == 1


@pytest.mark.parametrize("scale", ["1", "0.5", "1.1754943508222875e-38", "3.4028234663852886e38", "1024"])
def test_every_scale_that_float32_holds_is_accepted(tmp_path: Path, scale: str) -> None:
    path = written(tmp_path, MINIMAL + f'[loss_scaling]\nmode = "static"\ninitial_scale = {scale}\n')
    initial_scale = read_policy(path).loss_scaling.initial_scale
    assert type(initial_scale) is float
    assert initial_scale == float(scale)
