"""`auto_configure()`: the first line of a training script."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hwprobe.configuration import DTYPE_POLICIES, Applied, Decision, DtypePolicy, Step
from hwprobe.decide import Request
from hwprobe.errors import ApplyError, InputError
from hwprobe.findings import Finding, Severity
from hwprobe.gpu import Gpu
from hwprobe.policy import Policy
from hwprobe.preflight import Check, assess, raise_unmet
from hwprobe.report import Report
from hwprobe.usability import runs_on_tensorflow

if TYPE_CHECKING:
    from hwprobe.cluster.plan import Plan
    from hwprobe.scaling.wrap import LossScalingLike

_lock = threading.RLock()
_applied: Applied | None = None


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    # Another thread may hold the lock while this process forks; the child has no such thread to release it.
    os.register_at_fork(after_in_child=_renew_lock)


def auto_configure(
    policy: str | Path | Policy | None = None,
    *,
    dtype_policy: DtypePolicy | None = None,
    loss_scaling: LossScalingLike | None = None,
    memory_growth: bool | None = None,
    require: str | Sequence[str] | None = None,
    allow_fallback: bool = False,
    plan: str | Path | Plan | None = None,
    strict: bool = False,
    quiet: bool = False,
) -> Applied:
    """Choose the precision that fits the GPUs of this process, and set it in TensorFlow and Keras.

    To be called before the first tensor, model or distribution strategy. It may be called again: what is in force
    already is left as it is. TensorFlow's context is not initialised by it.

    Args:
        policy: Name or path of a policy file, or a policy; None searches `HWPROBE_POLICY`,
            `/etc/hwprobe/policy.toml`, then the default.
        dtype_policy: `mixed_bfloat16`, `mixed_float16` or `float32`, to insist on it.
        loss_scaling: A `LossScaling`, a `Calibration`, or text such as `"dynamic"`, `"static=1024"`, `"none"`.
        memory_growth: Take GPU memory as it is needed (True) or nearly all at once (False); None asks the policy.
        require: Requirements such as `"gpus>=1"`; where one does not hold, nothing is set and RequirementError raised.
        allow_fallback: Take another dtype policy where `dtype_policy` cannot be met, and say so.
        plan: The plan of a job of many nodes, or its file (`hwprobe plan`); None takes what `HWPROBE_PLAN` names. A
            process that trains together with others and has no plan agrees with them, or raises AgreementError.
        strict: Raise ApplyError where a setting cannot be applied, after all others were.
        quiet: Do not print the line that says what was chosen. Warnings are printed all the same.

    Returns:
        The decision, and each setting with before, after and error.

    Raises:
        UnsupportedError: `dtype_policy` cannot be met and no fallback was allowed.
        RequirementError: A requirement does not hold.
        AgreementError: The plan is refused, or the workers of this job could not agree; nothing is set.
        ApplyError: With `strict`, a setting could not be applied.
        InputError: An argument or a policy file cannot be used.
    """
    request = _request(dtype_policy, loss_scaling, memory_growth, allow_fallback)
    with _lock:
        applied = _configure(policy, request, [require] if isinstance(require, str) else list(require or ()), plan)
        _remember(applied)
    _say(applied, quiet, dtype_policy)
    if strict and not applied.complete:
        raise ApplyError("; ".join(f"{step.setting} of {step.subject}: {step.error}" for step in _undone(applied)))
    return applied


def last_applied() -> Applied | None:
    """What `auto_configure` did last in this process; None if it was not called here."""
    return _applied


def _request(
    dtype_policy: str | None, loss_scaling: LossScalingLike | None, memory_growth: bool | None, allow_fallback: bool
) -> Request:
    from hwprobe.scaling.wrap import as_loss_scaling

    if dtype_policy is not None and dtype_policy not in DTYPE_POLICIES:
        raise InputError(f"dtype_policy={dtype_policy!r} is not known: expected one of {', '.join(DTYPE_POLICIES)}")
    if memory_growth is not None and not isinstance(memory_growth, bool):
        raise InputError(f"memory_growth={memory_growth!r} is not understood: expected True, False or None")
    return Request(
        dtype_policy=dtype_policy,
        loss_scaling=None if loss_scaling is None else as_loss_scaling(loss_scaling),
        memory_growth=memory_growth,
        allow_fallback=allow_fallback,
    )


def _configure(
    policy: str | Path | Policy | None, request: Request, require: Sequence[str], plan: str | Path | Plan | None
) -> Applied:
    from hwprobe.cluster.joining import decision_of_job, refuse_early
    from hwprobe.decide import decide
    from hwprobe.policy_reader import read_policy
    from hwprobe.requirements import parse_requirements

    requirements = parse_requirements(require) if require else ()
    site = read_policy(policy)
    refuse_early(plan, os.environ)
    report = _report(agree_first=plan is None and _trains_with_others())
    decision = decide(report, site, request)
    check = assess(report, site, requirements=requirements, request=request)
    raise_unmet(check)
    decision = decision_of_job(decision, report=report, policy=site, request=request, environment=os.environ, plan=plan)
    return _apply(decision, check)


def _trains_with_others() -> bool:
    from hwprobe.cluster.joining import PLAN_VARIABLE
    from hwprobe.cluster.workers import find_workers

    return not os.environ.get(PLAN_VARIABLE) and find_workers(os.environ) is not None


def _report(*, agree_first: bool) -> Report:
    from hwprobe.knowledge.annotate import annotate
    from hwprobe.probe.collect import collect, collect_in_process

    if agree_first and "tensorflow" not in sys.modules:
        # A worker that is missing is then named after the time limit of the agreement, before anybody has paid for the
        # import of TensorFlow, whose strategy would wait for it up to an hour.
        return annotate(collect())
    return annotate(_without_hidden(collect_in_process()))


def _without_hidden(report: Report) -> Report:
    """A GPU that the script has taken from its TensorFlow (`set_visible_devices`) limits nothing."""
    from hwprobe.apply import visible_names

    names = visible_names()
    if names is None:
        return report

    def seen(gpu: Gpu) -> Gpu:
        hidden = gpu.tensorflow_name is not None and gpu.tensorflow_name not in names
        return replace(gpu, visible=False, tensorflow_name=None) if hidden else gpu

    return replace(report, devices=tuple(seen(gpu) for gpu in report.devices))


def _apply(decision: Decision, check: Check) -> Applied:
    from hwprobe.apply import apply_dtype_policy, apply_to_tensorflow, keras_in_use
    from hwprobe.keras_watch import watch_for_keras
    from hwprobe.scaling.in_force import set_in_force
    from hwprobe.scaling.wrap import register_optimizers

    assert check.report is not None
    steps: list[Step] = []
    if "tensorflow" in sys.modules or runs_on_tensorflow(check.report):
        steps += apply_to_tensorflow(decision)
    in_use, wanted = keras_in_use(), decision.dtype_policy
    steps += [apply_dtype_policy(name, module, wanted) for name, module in in_use.modules.items()]
    if in_use.error is not None:
        steps.append(
            Step(setting="dtype_policy", subject="tf.keras", status="failed", wanted=wanted, error=in_use.error)
        )
    steps += watch_for_keras(wanted, in_use.modules, check.report.keras)
    set_in_force(decision.loss_scaling)
    register_optimizers()
    return Applied(
        decision=decision,
        steps=tuple(steps),
        findings=check.findings,
        thread=threading.current_thread().name,
        process_id=os.getpid(),
    )


def _remember(applied: Applied) -> None:
    global _applied
    _applied = applied


def _undone(applied: Applied) -> list[Step]:
    return [step for step in applied.steps if step.status in ("failed", "too_late")]


def _say(applied: Applied, quiet: bool, asked_for: DtypePolicy | None = None) -> None:
    from hwprobe.render.headline import decision_line

    lines = [] if quiet else [decision_line(applied.decision) + _how_to_scale(applied)]
    lines += _stepped_down(applied.decision, asked_for)
    lines += [f"warning: {_finding_line(finding)}" for finding in applied.findings if _worth_a_line(finding)]
    lines += [f"warning: {step.setting} of {step.subject} was not set: {step.error}" for step in _undone(applied)]
    if threading.current_thread() is not threading.main_thread() and _keras_3_in_use():
        # Keras 3.15.1, src/backend/common/global_state.py: a threading.local.
        lines.append(
            f"warning: set for the thread {applied.thread!r} alone: Keras 3 keeps its dtype policy per thread; "
            "call hwprobe.auto_configure() in the one that makes the model"
        )
    for line in lines:
        # Standard error and not a logger: absl, which TensorFlow loads, hides what is below a warning.
        sys.stderr.write(f"hwprobe: {line}\n")


def _stepped_down(decision: Decision, asked_for: DtypePolicy | None) -> list[str]:
    """Say that another dtype policy was taken than the one that the caller named, which a fallback allows."""
    from hwprobe.render.printable import printable

    if asked_for is None or decision.dtype_policy == asked_for:
        return []
    why = decision.rejected.get(asked_for) or ", ".join(decision.reasons)
    return [printable(f"warning: {asked_for} was asked for, and {decision.dtype_policy} taken, as allowed: {why}")]


def _how_to_scale(applied: Applied) -> str:
    """What a user of Keras 3 has to do for the loss scaling that was decided: its `compile` has no public seam."""
    if not _keras_3_in_use():
        return ""
    if applied.decision.loss_scaling.mode == "none":
        by_itself = applied.decision.dtype_policy == "mixed_float16"
        return "; give compile() auto_scale_loss=False, or Keras 3 scales the loss all the same" if by_itself else ""
    return "; give compile() hwprobe.wrap_optimizer(optimizer), or Keras 3 takes its own dynamic scaler"


def _keras_3_in_use() -> bool:
    from hwprobe.scaling.keras_family import loaded_families

    return any(family.generation == 3 for family in loaded_families())


def _worth_a_line(finding: Finding) -> bool:
    return finding.primary and finding.severity in (Severity.ERROR, Severity.WARNING)


def _finding_line(finding: Finding) -> str:
    from hwprobe.render.printable import printable

    return printable(f"{finding.message} [{finding.id}; hwprobe explain {finding.id}]")
