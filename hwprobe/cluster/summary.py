"""A plan in words, the answer first."""

from __future__ import annotations

from hwprobe.cluster.plan import Difference, Plan
from hwprobe.render.printable import printable


def plan_summary(plan: Plan) -> str:
    """Say what was agreed, or why nothing was, in a few lines.

    Args:
        plan: The plan.
    """
    lines = [_answer(plan)]
    lines += [f"  {problem}" for problem in plan.problems]
    if plan.limited_by and plan.agreed:
        lines.append(f"limited by {plan.limited_by}")
    said = "\n".join(plan.problems)
    lines += [f"  not {policy}: {reason}" for policy, reason in plan.rejected.items() if reason not in said]
    lines += [_difference(difference) for difference in plan.differences if not difference.blocks]
    lines += [
        f"note: {note.nodes}: {note.text}" if note.nodes else f"note: {note.text}"
        for note in plan.notes
        if note.text not in said
    ]
    return "\n".join(printable(line) for line in lines)


def _answer(plan: Plan) -> str:
    if not plan.agreed:
        return (
            f"not agreed: {plan.job} must not start" if plan.job.id is not None else "not agreed: do not start the job"
        )
    tf32 = "TF32 allowed" if plan.tf32 else "TF32 off"
    return f"{plan.dtype_policy} with {plan.loss_scaling}, {tf32}, for {plan.extent}"


def _difference(difference: Difference) -> str:
    values = "; ".join(f"{value} on {nodes}" for value, nodes in difference.values.items())
    return f"differs: {difference.what.replace('_', ' ')}: {values}"
