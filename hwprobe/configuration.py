"""What to set in TensorFlow and Keras, and what was set."""

from __future__ import annotations

from typing import Literal, get_args

from hwprobe.errors import InputError
from hwprobe.findings import Finding
from hwprobe.source import Fact

DtypePolicy = Literal["mixed_bfloat16", "mixed_float16", "float32"]
DTYPE_POLICIES: tuple[DtypePolicy, ...] = get_args(DtypePolicy)

LossScalingMode = Literal["dynamic", "static", "none"]
LOSS_SCALING_MODES: tuple[LossScalingMode, ...] = get_args(LossScalingMode)

Allocator = Literal["default", "cuda_malloc_async"]
ALLOCATORS: tuple[Allocator, ...] = get_args(Allocator)

DEFAULT_INITIAL_SCALE = 2.0**15
"""Keras' own first scale, in Keras 2 and 3 (`LossScaleOptimizer`)."""

DEFAULT_GROWTH_STEPS = 2000
"""Keras' own number of clean steps before the scale doubles, in Keras 2 and 3."""


class LossScaling(Fact, frozen=True, kw_only=True):
    """How the loss is scaled; "none" is a value too.

    Attributes:
        mode: `dynamic`, `static` or `none`.
        initial_scale: First scale of the dynamic mode, the fixed scale of the static one; None with `none`.
        growth_steps: Clean steps before the dynamic scale doubles; None otherwise.
    """

    mode: LossScalingMode
    initial_scale: float | None = None
    growth_steps: int | None = None

    @classmethod
    def dynamic(
        cls, initial_scale: float = DEFAULT_INITIAL_SCALE, growth_steps: int = DEFAULT_GROWTH_STEPS
    ) -> LossScaling:
        """Scale that halves at an overflow and doubles after `growth_steps` clean steps."""
        return cls(mode="dynamic", initial_scale=float(initial_scale), growth_steps=growth_steps)

    @classmethod
    def static(cls, initial_scale: float) -> LossScaling:
        """A fixed scale; steps with a non-finite gradient are skipped and counted."""
        return cls(mode="static", initial_scale=float(initial_scale))

    @classmethod
    def none(cls) -> LossScaling:
        """No scaling."""
        return cls(mode="none")

    @classmethod
    def parse(cls, text: str) -> LossScaling:
        """Read `dynamic`, `none`, `static=1024` or `dynamic=4096`.

        Raises:
            InputError: The text is none of these, or the scale is not a positive finite number.
        """
        mode, _, number = text.partition("=")
        if mode not in LOSS_SCALING_MODES or (mode == "none" and number) or (mode == "static" and not number):
            raise InputError(
                f"loss scaling {text!r} is not understood: expected none, dynamic, dynamic=SCALE or static=SCALE"
            )
        if mode == "none":
            return cls.none()
        try:
            scale = float(number) if number else DEFAULT_INITIAL_SCALE
        except ValueError:
            raise InputError(f"loss scaling {text!r}: {number!r} is not a number") from None
        if not 0.0 < scale < float("inf"):
            raise InputError(f"loss scaling {text!r}: the scale must be a positive finite number")
        return cls.static(scale) if mode == "static" else cls.dynamic(scale)

    def __str__(self) -> str:
        if self.mode == "static":
            return f"static loss scaling at {self.initial_scale:g}"
        return {"dynamic": "dynamic loss scaling", "none": "no loss scaling"}[self.mode]


class Memory(Fact, frozen=True, kw_only=True):
    """How TensorFlow takes GPU memory.

    Attributes:
        growth: Take memory as it is needed; False takes nearly all at the first tensor.
        limit_mib: Upper bound for each GPU in MiB; None for no bound. With growth the two work together only through
            `TF_FORCE_GPU_ALLOW_GROWTH` (a limit alone is also a pre-allocation).
        allocator: `default` (BFC) or `cuda_malloc_async`.
    """

    growth: bool = True
    limit_mib: int | None = None
    allocator: Allocator = "default"


class Usable(Fact, frozen=True, kw_only=True):
    """Whether a dtype policy is usable on one device.

    Attributes:
        usable: True, False, or None for unknown. Unknown counts as no.
        reason: Why; also given for yes.
    """

    usable: bool | None
    reason: str


class DeviceUsability(Fact, frozen=True, kw_only=True):
    """Which dtype policies one device can use.

    Attributes:
        subject: The device's UUID, or `CPU`.
        label: Name and capability for a sentence.
        policies: Policy name to whether it is usable.
    """

    subject: str
    label: str
    policies: dict[str, Usable]


class Decision(Fact, frozen=True, kw_only=True):
    """The choice, with its reasons and the road not taken.

    Attributes:
        dtype_policy: Keras' name of the policy.
        loss_scaling: Mode and numbers.
        memory: Growth, limit, allocator.
        tf32: Whether float32 products may use TensorFloat-32 (capability 8.0 and newer only).
        limited_by: Subjects of the devices that ruled a preferred policy out.
        reasons: Why this policy and this scaling.
        rejected: Preferred policies that were not taken, each with the reason.
        policy: Name or path of the policy that was read.
        origin: What won: `argument`, `plan`, `environment`, `file` or `default`.
        usability: Per visible device, what it can use.
    """

    dtype_policy: DtypePolicy
    loss_scaling: LossScaling
    memory: Memory = Memory()
    tf32: bool = True
    limited_by: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    rejected: dict[str, str] = {}
    policy: str = "default"
    origin: Literal["argument", "plan", "environment", "file", "default"] = "default"
    usability: tuple[DeviceUsability, ...] = ()


StepStatus = Literal["changed", "unchanged", "skipped", "failed", "too_late", "lost"]
"""`lost`: it was set once and is not in force any more."""


class Step(Fact, frozen=True, kw_only=True):
    """One setting that the applier looked at.

    Attributes:
        setting: `memory_growth`, `memory_limit`, `tf32`, `dtype_policy`, `loss_scaling`, ...
        subject: What it belongs to: `GPU:0`, `keras`, `tf_keras`, `process`.
        status: What was done about it.
        wanted, before, after: Values as text; None if there is none or it could not be read.
        error: Why it failed, was skipped or came too late.
    """

    setting: str
    subject: str
    status: StepStatus
    wanted: str | None = None
    before: str | None = None
    after: str | None = None
    error: str | None = None


class Applied(Fact, frozen=True, kw_only=True):
    """What `auto_configure` did in this process.

    Attributes:
        decision: What was decided.
        steps: Every setting that was looked at, with before, after and error.
        findings: What is wrong on this machine, as far as it was looked at.
        thread: Name of the thread that it was done in: Keras 3 keeps its dtype policy per thread.
        process_id: Of the process that it was done in.
    """

    decision: Decision
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...] = ()
    thread: str
    process_id: int

    @property
    def complete(self) -> bool:
        """Whether every wanted setting is in force."""
        return all(step.status not in ("failed", "too_late") for step in self.steps)

    def step(self, setting: str, subject: str | None = None) -> Step | None:
        """The first step about a setting (and a subject); None if there was none."""
        return next(
            (step for step in self.steps if step.setting == setting and subject in (None, step.subject)),
            None,
        )
