"""`hwprobe.verify()`: is what was decided really in force?"""

from __future__ import annotations

import sys
from typing import Any

from hwprobe.auto import last_applied
from hwprobe.configuration import Step
from hwprobe.errors import HwprobeError
from hwprobe.findings import Finding, Severity
from hwprobe.source import Fact


class Verification(Fact, frozen=True, kw_only=True):
    """What is in force now.

    Attributes:
        in_force: Whether everything that was decided is in force here.
        steps: One for every setting; `lost` where it is not in force.
        findings: About a model, where one was given.
    """

    in_force: bool
    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __bool__(self) -> bool:
        return self.in_force

    def __str__(self) -> str:
        lines = ["in force" if self.in_force else "not in force"]
        lines += [f"{step.setting} of {step.subject}: {step.error}" for step in self.steps if step.error]
        for finding in self.findings:
            lines.append(f"{finding.severity.value} {finding.id}: {finding.message}")
            lines += [f"  {line}" for line in finding.fix]
        return "\n  ".join(lines)


def verify(target: Any = None) -> Verification:
    """Read back what `auto_configure` set, in this process and this thread.

    Args:
        target: None to verify the process; a `tf.distribute.Strategy` to compare policy, loss scaling and versions
            over all its replicas as well, which every worker has to do right after it has made the strategy; a model
            to say which scaler it has and whether the dtype policy took effect on it, for instance after `load_model`.

    Returns:
        The verification; it is true where everything is in force.

    Raises:
        HwprobeError: `auto_configure` was not called in this process and there is no target.
        InputError: The target is neither a strategy nor a model.
        AgreementError: The replicas of the strategy differ; the text names which, and in what.
    """
    from hwprobe.readback import read_back

    findings: tuple[Finding, ...] = ()
    if _is_strategy(target):
        from hwprobe.cluster.verify_strategy import verify_strategy

        # Before anything can raise here alone: the other workers wait in this reduction.
        verify_strategy(target)
    elif target is not None:
        from hwprobe.scaling.model_check import verify_model

        findings = verify_model(target).findings
    applied = last_applied()
    if applied is None and target is None:
        raise HwprobeError("nothing to verify: hwprobe.auto_configure() was not called in this process")
    steps = read_back(applied.decision) if applied is not None else ()
    lost = any(step.status == "lost" for step in steps)
    mild = all(finding.severity is Severity.INFO for finding in findings)
    return Verification(in_force=not lost and mild, steps=steps, findings=findings)


def _is_strategy(target: Any) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(target, tensorflow.distribute.Strategy)
