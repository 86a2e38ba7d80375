"""The catalogue: every rule in the order in which causes precede effects."""

from __future__ import annotations

from hwprobe.findings import Rule
from hwprobe.rules import (
    containers,
    cpu,
    cuda,
    cudnn,
    devices,
    driver,
    driver_fit,
    growth,
    health,
    keras_state,
    kernels,
    libraries,
    listing,
    memory,
    mig,
    nodes,
    nvml,
    other_packages,
    own,
    package,
    precision,
    schedulers,
    surroundings,
    visibility,
    xla,
)
from hwprobe.rules.own import REQUIREMENT_NOT_MET
from hwprobe.rules.verdict import RuleCheck

CATALOGUE: tuple[RuleCheck, ...] = (
    # Up to a driver that starts, and the GPUs behind it.
    *containers.RULES,
    *driver.RULES,
    *nodes.RULES,
    *nvml.RULES,
    *devices.RULES,
    *health.RULES,
    # What is there and was not given to this process.
    *visibility.RULES,
    *mig.RULES,
    *schedulers.RULES,
    *cuda.RULES,
    # From the TensorFlow package to the GPUs that it lists.
    *package.RULES,
    *driver_fit.RULES,
    *kernels.RULES,
    *libraries.RULES,
    *cudnn.RULES,
    *xla.RULES,
    *listing.RULES,
    # What to know about the choice.
    *other_packages.RULES,
    *surroundings.RULES,
    *keras_state.RULES,
    *cpu.RULES,
    *precision.RULES,
    *growth.RULES,
    *memory.RULES,
    *own.RULES,
)

RULES: tuple[Rule, ...] = (*(entry.rule for entry in CATALOGUE), REQUIREMENT_NOT_MET)
"""The rules that a check can report."""
