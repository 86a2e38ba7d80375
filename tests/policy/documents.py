"""Builders of policy files for the tests."""

from pathlib import Path

MINIMAL = 'schema = "hwprobe.policy/1"\n'

FULL = """\
schema = "hwprobe.policy/1"
name = "site"
description = "Everything off its default."

[precision]
prefer = ["mixed_float16", "float32"]
cpu = ["mixed_bfloat16", "float32"]
tf32 = false

[loss_scaling]
mode = "dynamic"
initial_scale = 1024.5
growth_steps = 500

[memory]
growth = false
limit_mib = 4096
allocator = "cuda_malloc_async"

[check]
fail_on = "warning"
select = ["HWP3", "HWP204"]
ignore = ["HWP305"]

[check.severity]
HWP204 = "info"
HWP3 = "error"

[[devices]]
name = "*A100*"
allow = ["mixed_bfloat16"]
deny = ["mixed_float16"]
reason = "a \\"quoted\\" reason, with \\\\ and ü"

[[devices]]
name = "Tesla T4"
deny = ["mixed_float16"]
reason = "overheats"
"""


def written(folder: Path, text: str, name: str = "site.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
