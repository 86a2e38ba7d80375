"""`hwprobe.audit`: what in a model does not survive 16 bits."""

from __future__ import annotations

from typing import Any, get_args

from hwprobe.configuration import DtypePolicy
from hwprobe.errors import InputError
from hwprobe.findings import Finding, Severity
from hwprobe.model.facts import Audit, AuditVerdict, ModelFacts, ProbeFacts
from hwprobe.model.judging import findings_of, judge
from hwprobe.model.probe import probe_model
from hwprobe.model.read import read_model
from hwprobe.model.rules import CHECKS
from hwprobe.version import VERSION


def audit(model: Any, batch: Any = None, *, dtype_policy: str | None = None) -> Audit:
    """Look at a Keras model for what goes wrong in float16 or bfloat16.

    Its layers, optimizer and losses are read; then it is run on one batch in float32 and as it is, on zeros, and on a
    fully masked batch, and the passes are compared layer by layer. Weights, optimizer, statistics, random state and
    attributes of the model are the same afterwards. The model must not be used by another thread meanwhile.

    Args:
        model: A model of Keras 3, Keras 2 or tf_keras. The last two, and Keras 3 on another backend than TensorFlow,
            are read and not run.
        batch: Inputs, `(inputs, targets)`, `(inputs, targets, sample_weight)` or a `tf.data.Dataset`. None makes
            inputs up from the model's shapes. Targets let losses and metrics be judged too.
        dtype_policy: Judge layers that were built under float32 as if they had this policy (`mixed_float16` or
            `mixed_bfloat16`): a look ahead, before the policy is switched on. A float32 that was written out for a
            layer cannot be told from the default and is replaced too.

    Raises:
        InputError: This is not a Keras model, the batch does not have one of these forms, or the policy is unknown.
    """
    if dtype_policy is not None and dtype_policy not in get_args(DtypePolicy):
        raise InputError(f"dtype_policy={dtype_policy!r} is unknown: expected {', '.join(get_args(DtypePolicy))}")
    facts = read_model(model, dtype_policy)
    probe = probe_model(model, facts, batch)
    outcomes = judge(CHECKS, facts, probe)
    findings = findings_of(outcomes)
    return Audit(
        hwprobe=VERSION,
        verdict=_verdict(findings, facts, probe),
        findings=findings,
        outcomes=outcomes,
        model=facts,
        probe=probe,
    )


def _verdict(findings: tuple[Finding, ...], facts: ModelFacts, probe: ProbeFacts) -> AuditVerdict:
    if any(each.severity.rank >= Severity.WARNING.rank for each in findings):
        return "hazards"
    return "unknown" if facts.low_precision is not None and probe.status != "ok" else "clean"
