"""Every rule of hwprobe: those of a check, and those that models, training and benches have of their own."""

from __future__ import annotations

from hwprobe.findings import Rule


def every_rule() -> tuple[Rule, ...]:
    """Give all rules by id. What they are about is not loaded: neither TensorFlow nor Keras."""
    from hwprobe.bench.rules import RULES as OF_BENCHES
    from hwprobe.model.rules import RULES as OF_MODELS
    from hwprobe.rules.catalogue import RULES as OF_CHECKS
    from hwprobe.scaling.rules import RULES as OF_SCALING

    return tuple(sorted((*OF_CHECKS, *OF_BENCHES, *OF_SCALING, *OF_MODELS), key=lambda rule: rule.id))
