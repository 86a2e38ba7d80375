"""Why a dtype policy is not usable on a machine, and the least that would have to change. Pure.

Every change that is named was tried: the report is changed so and judged again. The one exception is a fault that keeps
the GPUs from being read at all: what they could do then is not known, and mending it comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from hwprobe.configuration import Decision, DeviceUsability, DtypePolicy
from hwprobe.decide import fold
from hwprobe.errors import InputError
from hwprobe.findings import Finding, Severity
from hwprobe.gpu import Gpu
from hwprobe.knowledge.drivers import driver_is_older, minimum_driver
from hwprobe.knowledge.tensorflow import Release, newest_release, release, releases
from hwprobe.offline.wheel import Wish, with_tensorflow
from hwprobe.policy import Policy
from hwprobe.preflight import Check
from hwprobe.report import Report
from hwprobe.source import Fact
from hwprobe.usability import CPU_SUBJECT, kernel_code, usability, visible_devices_value

SCHEMA: Literal["hwprobe.why-not/1"] = "hwprobe.why-not/1"

ChangeKind = Literal["none", "policy", "environment", "repair", "hide", "tensorflow", "build", "board"]

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_OF_TENSORFLOW = ("HWP201", "HWP202", "HWP203", "HWP204", "HWP208", "HWP211")
"""Findings that another TensorFlow answers."""
_LIBRARIES_OVERLOOKED = "HWP209"

_NEEDED_BOARD = {
    "mixed_bfloat16": "an NVIDIA GPU of compute capability 8.0 or newer",
    "mixed_float16": "an NVIDIA GPU with Tensor Cores: compute capability 7.0 or newer, apart from GTX 16 and its kin",
    "float32": "a GPU that a TensorFlow has code for",
}


class Change(Fact, frozen=True, kw_only=True):
    """Something that would make the dtype policy usable.

    Attributes:
        kind: What is changed: nothing but the wish, the policy file, a variable, a fault, the devices, TensorFlow, its
            build, or the board.
        what: As a sentence part.
        steps: Commands or steps for it.
    """

    kind: ChangeKind
    what: str
    steps: tuple[str, ...] = ()


class DeviceAnswer(Fact, frozen=True, kw_only=True):
    """What one device says to the dtype policy: yes, no or unknown, with the reason."""

    subject: str
    label: str
    usable: bool | None
    reason: str


class WhyNot(Fact, frozen=True, kw_only=True):
    """The whole answer.

    Attributes:
        schema: Version of this form.
        dtype_policy: What was asked about.
        usable: Whether it is usable on every device that will compute.
        decision: What hwprobe would choose.
        devices: Each device that will compute, then each GPU that will not.
        causes: Findings that keep GPUs from computing, where some do not.
        changes: What would allow it: any one of them, the smallest first. Empty where hwprobe chooses it already.
        origin, assumptions: Of the report.
    """

    schema: Literal["hwprobe.why-not/1"] = SCHEMA
    dtype_policy: DtypePolicy
    usable: bool
    decision: Decision
    devices: tuple[DeviceAnswer, ...]
    causes: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    origin: str = "machine"
    assumptions: tuple[str, ...] = ()


class _Tried(NamedTuple):
    """A machine as it would be after a change, with those of its devices that could use the dtype policy."""

    change: Change
    able: tuple[DeviceUsability, ...]
    unable: tuple[DeviceUsability, ...]

    @property
    def allows(self) -> bool:
        return bool(self.able) and not self.unable


def why_not(check: Check, policy: Policy, wanted: DtypePolicy) -> WhyNot:
    """Say why a dtype policy is not chosen, and find the least change that would allow it.

    Args:
        check: The machine, judged by the policy.
        policy: The site's policy.
        wanted: The dtype policy.

    Raises:
        InputError: The check holds no report.
    """
    report, decision = check.report, check.decision
    if report is None or decision is None:
        raise InputError(f"nothing could be checked: {check.error}")
    devices = usability(report, policy)
    usable = all(device.policies[wanted].usable is True for device in devices)
    causes = _causes(check, report, devices)
    changes = _other_preference(decision, policy, wanted) if usable else _changes(report, policy, wanted, causes)
    return WhyNot(
        dtype_policy=wanted,
        usable=usable,
        decision=decision,
        devices=(*(_answer(device, wanted) for device in devices), *_left_aside(report, devices)),
        causes=causes,
        changes=changes,
        origin=report.origin,
        assumptions=report.assumptions,
    )


def _answer(device: DeviceUsability, wanted: DtypePolicy) -> DeviceAnswer:
    verdict = device.policies[wanted]
    return DeviceAnswer(subject=device.subject, label=device.label, usable=verdict.usable, reason=verdict.reason)


def _left_aside(report: Report, devices: Sequence[DeviceUsability]) -> list[DeviceAnswer]:
    """The GPUs of the machine that will not compute, whatever they could."""
    computing = {device.subject for device in devices}
    return [
        DeviceAnswer(subject=gpu.subject, label=gpu.label, usable=False, reason=_why_aside(gpu))
        for gpu in report.devices
        if gpu.subject not in computing
    ]


def _why_aside(gpu: Gpu) -> str:
    if gpu.error is not None:
        return f"the device does not work: {gpu.error}"
    return "TensorFlow does not use it" if gpu.visible else "this process may not use it"


def _causes(check: Check, report: Report, devices: Sequence[DeviceUsability]) -> tuple[Finding, ...]:
    """What keeps GPUs from computing: the findings about devices, driver and TensorFlow, the first cause first."""
    computing = {device.subject for device in devices}
    complete = bool(report.devices) and all(gpu.subject in computing for gpu in report.devices)
    found = [
        finding
        for finding in check.findings
        if finding.id < "HWP4" and finding.severity.rank >= (Severity.ERROR if complete else Severity.WARNING).rank
    ]
    return tuple(sorted(found, key=lambda finding: (not finding.primary, -finding.severity.rank)))


def _other_preference(decision: Decision, policy: Policy, wanted: DtypePolicy) -> tuple[Change, ...]:
    if decision.dtype_policy == wanted:
        return ()
    return (
        Change(
            kind="none",
            what=f"ask for it by name: policy {policy.label} prefers {decision.dtype_policy}, which is usable too",
            steps=(f"hwprobe run --dtype-policy {wanted} train.py", f'hwprobe.auto_configure(dtype_policy="{wanted}")'),
        ),
    )


def _changes(report: Report, policy: Policy, wanted: DtypePolicy, causes: Sequence[Finding]) -> tuple[Change, ...]:
    found = [tried.change for tried in _small_changes(report, policy, wanted) if tried.allows]
    found += _repairs(report, policy, wanted, causes)
    builds = list(_builds(report, policy, wanted))
    found += [tried.change for tried in builds if tried.allows]
    if not found:
        found += [_both(tried) for tried in builds if tried.able][:1]
    return tuple(found) or (_another_board(report, wanted),)


def _small_changes(report: Report, policy: Policy, wanted: DtypePolicy) -> Iterator[_Tried]:
    """Changes of a file or a variable, without installing anything."""
    override = next((found for gpu in report.devices if (found := policy.override_for(gpu.name)) is not None), None)
    if override is not None and wanted in override.deny:
        change = Change(
            kind="policy",
            what=f"another policy: {policy.label} denies it for {override.name!r}, since {override.reason}",
            steps=("hwprobe check --policy default",),
        )
        yield _try(change, report, replace(policy, devices=()), wanted)
    if _VARIABLE in report.host.environment and any(gpu.visible is False for gpu in report.devices):
        change = Change(
            kind="environment",
            what=f"show the GPUs that {_VARIABLE}={report.host.environment[_VARIABLE]!r} hides",
            steps=(f"unset {_VARIABLE}",),
        )
        yield _try(change, _with_all_visible(report), policy, wanted)
    now = _try(Change(kind="hide", what=""), report, policy, wanted)
    if now.able and now.unable:
        yield now._replace(change=Change(kind="hide", what=_hiding(now), steps=_hide_steps(now)), unable=())


def _with_all_visible(report: Report) -> Report:
    """The machine as it would be if its process might use every GPU that works."""
    shown = tuple(replace(gpu, visible=gpu.error is None, tensorflow_name=None) for gpu in report.devices)
    tensorflow = report.tensorflow
    return replace(
        report, devices=shown, tensorflow=replace(tensorflow, devices=None) if tensorflow is not None else None
    )


def _repairs(report: Report, policy: Policy, wanted: DtypePolicy, causes: Sequence[Finding]) -> list[Change]:
    """The one first cause, where a fault leaves this process without any GPU."""
    if any(device.subject != CPU_SUBJECT for device in usability(report, policy)):
        return []
    changes = [
        Change(kind="repair", what=f"mend what is wrong: {cause.message} [{cause.id}]", steps=cause.fix)
        for cause in causes
        if cause.primary and cause.severity is Severity.ERROR and cause.id not in _OF_TENSORFLOW
    ]
    mended = _with_all_visible(report)
    if any(cause.id == _LIBRARIES_OVERLOOKED for cause in causes):
        mended = _with_found_libraries(mended)
    return [change for change in changes if not report.devices or _try(change, mended, policy, wanted).allows]


def _with_found_libraries(report: Report) -> Report:
    """The machine as it would be if its TensorFlow found the libraries that lie somewhere on it."""
    tensorflow = report.tensorflow
    if tensorflow is None:
        return report
    libraries = tuple(replace(each, loads=True) if each.found_at else each for each in tensorflow.libraries)
    return replace(report, tensorflow=replace(tensorflow, libraries=libraries))


def _builds(report: Report, policy: Policy, wanted: DtypePolicy) -> Iterator[_Tried]:
    """Another TensorFlow: the wheel of the nearest release that allows it; else a build with code for these GPUs."""
    tried = [(row, _try_release(row, report, policy, wanted)) for row in _nearest_first(report)]
    attempts = [(row, attempt) for row, attempt in tried if attempt is not None]
    allowing = {row.minor: attempt for row, attempt in attempts if attempt.allows}
    if allowing:
        nearest = next(iter(allowing))
        newer = [row.minor for row, _ in attempts if row.minor > nearest]
        attempt = allowing[nearest]
        if newer and all(minor in allowing for minor in newer):
            attempt = attempt._replace(change=replace(attempt.change, what=f"{attempt.change.what} or newer"))
        yield attempt
        return
    yield from [attempt for _, attempt in attempts if attempt.able][:1]
    others = (_try_wsl(report, policy, wanted), _try_own_build(report, policy, wanted))
    yield from [attempt for attempt in others if attempt is not None]


def _try_wsl(report: Report, policy: Policy, wanted: DtypePolicy) -> _Tried | None:
    """On Windows: the Linux wheel under WSL, which uses the Windows driver."""
    if report.host.system != "Windows":
        return None
    inside = replace(report, host=replace(report.host, system="Linux", wsl=True, python=None))
    change = Change(
        kind="tensorflow",
        what="TensorFlow under WSL2, since native Windows has none with CUDA that would do",
        steps=("wsl --install   # then, inside: pip install 'tensorflow[and-cuda]'",),
    )
    return _try(change, with_tensorflow(inside, Wish()), policy, wanted)


def _nearest_first(report: Report) -> list[Release]:
    newest = newest_release()
    final = [row for row in releases() if row.minor <= newest.minor]
    version = report.tensorflow.version if report.tensorflow is not None else None
    present = release(version) if version is not None else None
    here = final.index(present) if present is not None and present in final else len(final) - 1
    # Of two that are equally far the newer one is the smaller change: it has the more repairs.
    return sorted(final, key=lambda row: (abs(final.index(row) - here), -final.index(row)))


def _try_release(row: Release, report: Report, policy: Policy, wanted: DtypePolicy) -> _Tried | None:
    try:
        changed = with_tensorflow(report, Wish(row.version))
    except InputError:
        return None
    if changed.tensorflow is None or _same_build(changed, report):
        return None
    driver = _driver_needed(row, report)
    brings = ""
    if report.tensorflow is None or not report.tensorflow.is_cuda_build:
        brings = " with CUDA"
    elif any(library.loads is False for library in report.tensorflow.libraries):
        brings = " with the CUDA libraries that it opens"
    libraries = ""
    if not row.and_cuda:
        libraries = f"   # and CUDA {row.cuda} with cuDNN {row.cudnn_minimum} on the system"
    elif row.misses_pip_libraries(row.version):
        libraries = "   # it does not find all of its libraries by itself: hwprobe check names the folder"
    change = Change(
        kind="tensorflow",
        what=(f"NVIDIA driver {driver} or newer, and " if driver else "") + f"TensorFlow {row.version}{brings}",
        steps=(
            *((f"update the NVIDIA driver to {driver} or newer",) if driver else ()),
            f"pip install '{row.package}=={row.version}.*'{libraries}",
        ),
    )
    return _try(change, changed, policy, wanted)


def _same_build(changed: Report, report: Report) -> bool:
    """Whether the wheel is what is installed already, so that nothing would change."""
    before, after = report.tensorflow, changed.tensorflow
    if before is None or after is None or before.version is None or after.version is None:
        return False
    # What lies beside it already would not come again.
    loads = all(library.loads is not False or library.found_at for library in before.libraries)
    known, row = release(before.version), release(after.version)
    return known == row and before.compute_capabilities == after.compute_capabilities and loads


def _driver_needed(row: Release, report: Report) -> str | None:
    version = report.driver.version if report.driver is not None else None
    windows = report.host.wsl or report.host.system == "Windows"
    needed = minimum_driver(row.cuda, "Windows" if windows else "Linux")
    return needed if version is not None and needed is not None and driver_is_older(version, needed) else None


def _try_own_build(report: Report, policy: Policy, wanted: DtypePolicy) -> _Tried | None:
    """A build that carries machine code for the GPUs for which the present one has none."""
    if report.host.system == "Windows":
        return None
    present = report.tensorflow
    capabilities = sorted({gpu.compute_capability for gpu in report.devices if gpu.compute_capability is not None})
    if not capabilities or (present is not None and all(_has_code(report, capability) for capability in capabilities)):
        return None
    missing = [f"sm_{each.major}{each.minor}" for each in capabilities if not _has_code(report, each)]
    built_for = tuple(f"sm_{each.major}{each.minor}" for each in capabilities)
    version = present.version if present is not None and present.version is not None else newest_release().version
    try:
        changed = with_tensorflow(report, Wish(version, built_for))
    except InputError:
        return None
    change = Change(
        kind="build",
        what=f"a build of TensorFlow with code for {', '.join(missing)}: no wheel of the package index has it here",
        steps=("use NVIDIA's container nvcr.io/nvidia/tensorflow, or a build of your own",),
    )
    return _try(change, changed, policy, wanted)


def _has_code(report: Report, capability: object) -> bool:
    codes = [kernel_code(gpu, report.tensorflow) for gpu in report.devices if gpu.compute_capability == capability]
    return all(code is not None and code.kind != "none" for code in codes)


def _try(change: Change, report: Report, policy: Policy, wanted: DtypePolicy) -> _Tried:
    devices = [device for device in usability(report, policy) if device.subject != CPU_SUBJECT]
    able = tuple(device for device in devices if device.policies[wanted].usable is True)
    return _Tried(change, able, tuple(device for device in devices if device not in able))


def _hiding(tried: _Tried) -> str:
    hidden, left = (fold([device.label for device in devices]) for devices in (tried.unable, tried.able))
    return f"hide {hidden}, which leaves {left}"


def _hide_steps(tried: _Tried) -> tuple[str, ...]:
    return (f"export {_VARIABLE}={visible_devices_value(tried.able)}",)


def _both(tried: _Tried) -> Change:
    change = tried.change
    if not tried.unable:
        return change
    return replace(change, what=f"{change.what}, and {_hiding(tried)}", steps=(*change.steps, *_hide_steps(tried)))


def _another_board(report: Report, wanted: DtypePolicy) -> Change:
    others = [gpu for gpu in report.devices if gpu.kind == "other"]
    if others:
        return Change(
            kind="policy",
            what="measure it, and allow it for this board in a policy file, since hwprobe's tables know NVIDIA's only",
            steps=("hwprobe bench", "hwprobe policy show"),
        )
    return Change(
        kind="board",
        what=f"another board: {_NEEDED_BOARD[wanted]}",
        steps=(f"hwprobe gpus --supports {wanted}",),
    )
