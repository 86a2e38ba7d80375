"""A site's wishes as frozen types: which precision it prefers, what fails its check, what it says about single boards.

A policy is a wish and never a fact: it is read from a file by `hwprobe.policy_reader` and changed by nothing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal, get_args

from hwprobe.configuration import DtypePolicy, Memory
from hwprobe.findings import Action, Severity
from hwprobe.source import Fact

SCHEMA: Literal["hwprobe.policy/1"] = "hwprobe.policy/1"

FailOn = Literal["info", "warning", "error", "drain", "never"]
FAIL_ON: tuple[FailOn, ...] = get_args(FailOn)

LossScalingWishMode = Literal["auto", "dynamic", "static", "none"]
LOSS_SCALING_WISH_MODES: tuple[LossScalingWishMode, ...] = get_args(LossScalingWishMode)

PolicyOrigin = Literal["argument", "environment", "file", "default"]


class Precision(Fact, frozen=True, kw_only=True):
    """Which dtype policies a site prefers.

    Attributes:
        prefer: Best first, for machines with a GPU. It ends in `float32`, which every device can run.
        cpu: The same for machines without one.
        tf32: Whether float32 products may use TensorFloat-32.
    """

    prefer: tuple[DtypePolicy, ...] = ("mixed_bfloat16", "mixed_float16", "float32")
    cpu: tuple[DtypePolicy, ...] = ("float32",)
    tf32: bool = True


class LossScalingWish(Fact, frozen=True, kw_only=True):
    """How a site wants losses scaled.

    Attributes:
        mode: `auto` scales dynamically with `mixed_float16` and not at all otherwise.
        initial_scale: First scale of the dynamic mode, the fixed one of the static mode; None for Keras' own.
        growth_steps: Clean steps before the dynamic scale doubles; None for Keras' own.
    """

    mode: LossScalingWishMode = "auto"
    initial_scale: float | None = None
    growth_steps: int | None = None


class CheckWish(Fact, frozen=True, kw_only=True):
    """What `hwprobe check` looks at, and what makes it fail.

    Ids are whole (`HWP305`) or the beginning of some (`HWP3`, `HWP`). Where several match, the longest one counts.

    Attributes:
        fail_on: Lowest severity that fails the check; `drain` fails only for a node that is unfit for any job,
            `never` reports and lets pass.
        select: Rules to run; empty for all.
        ignore: Rules to leave out.
        severity: Rule id to the severity that its findings get here.
    """

    fail_on: FailOn = "error"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: dict[str, Severity] = {}

    def selects(self, rule_id: str) -> bool:
        """Whether a rule is to run: the longest id in `select` and `ignore` that it begins with decides."""
        selected = 0 if not self.select else _longest_match(rule_id, self.select)
        return selected is not None and (_longest_match(rule_id, self.ignore) or -1) < selected

    def severity_of(self, rule_id: str) -> Severity | None:
        """The severity that this site gives a rule's findings; None to leave it to the rule."""
        length = _longest_match(rule_id, tuple(self.severity))
        return None if length is None else self.severity[rule_id[:length]]

    def fails(self, severity: Severity, action: Action) -> bool:
        """Whether a finding of this severity and action fails the check."""
        if self.fail_on == "never":
            return False
        if self.fail_on == "drain":
            return action is Action.DRAIN
        return severity.rank >= Severity(self.fail_on).rank


class DeviceOverride(Fact, frozen=True, kw_only=True):
    """What a site knows about some boards that hwprobe's tables do not say.

    Attributes:
        name: Pattern on the device's name, as a shell would match it: `*A100*`. Upper and lower case are the same.
        allow: Dtype policies that are usable on these boards whatever the tables say, where float32 is.
        deny: Dtype policies that must not be used on them.
        reason: Why; it is shown beside the decision.
    """

    name: str
    allow: tuple[DtypePolicy, ...] = ()
    deny: tuple[DtypePolicy, ...] = ()
    reason: str

    def matches(self, device_name: str) -> bool:
        """Whether a device of this name is meant."""
        return fnmatchcase(device_name.lower(), self.name.lower())


class Policy(Fact, frozen=True, kw_only=True):
    """Everything that a site can wish for.

    Attributes:
        schema: Version of the file format.
        name: What the policy is called.
        description: One sentence for people who choose among policies.
        precision: Preferred dtype policies.
        loss_scaling: Wish for loss scaling.
        memory: How TensorFlow takes GPU memory.
        check: What the check looks at and what fails it.
        devices: Overrides for boards; for each device the first one that matches counts.
        path: File that it was read from; None for a policy that hwprobe ships.
        origin: Who named it: `argument`, `environment`, `file` (the machine's own) or `default`.
    """

    schema: Literal["hwprobe.policy/1"] = SCHEMA
    name: str = "default"
    description: str = ""
    precision: Precision = Precision()
    loss_scaling: LossScalingWish = LossScalingWish()
    memory: Memory = Memory()
    check: CheckWish = CheckWish()
    devices: tuple[DeviceOverride, ...] = ()
    path: str | None = None
    origin: PolicyOrigin = "default"

    @property
    def label(self) -> str:
        """What names this policy in a message: its file, or the name of one that hwprobe ships."""
        return self.path or self.name

    def override_for(self, device_name: str | None) -> DeviceOverride | None:
        """The first override whose pattern matches this device; None for a device without one, or without a name."""
        if device_name is None:
            return None
        return next((override for override in self.devices if override.matches(device_name)), None)


def _longest_match(rule_id: str, ids: tuple[str, ...]) -> int | None:
    return max((len(id_) for id_ in ids if rule_id.startswith(id_)), default=None)
