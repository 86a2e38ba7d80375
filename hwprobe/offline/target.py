"""`2 x Tesla T4, driver 535.104.05, tensorflow 2.17`: a machine in words, as a report.

The grammar: parts between commas, semicolons, line ends, ` + ` or ` and `, in any order.

    2 x NAME, NAME x 2, 2 NAME, NAME      GPUs, by any name that `hwprobe gpus` finds; `NAME-MIG-1g.5gb` is a MIG device
    no gpu                                a machine without NVIDIA GPUs
    driver 535.104.05                     version of the NVIDIA driver
    cuda 12.2                             newest CUDA that the driver supports, as nvidia-smi shows it
    tensorflow 2.17, tensorflow-cpu 2.17  the wheel of the package index
    built for sm_90 compute_90            architectures of a build that is no such wheel
    no tensorflow                         none is installed
    keras 3.15, python 3.11               their versions
    linux, windows, wsl, x86_64, aarch64  the platform; Linux without it

Between a word and its version may stand blanks, `=`, `==` or `:`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from hwprobe.errors import InputError
from hwprobe.gpu import Gpu, Mig, MigInstance
from hwprobe.knowledge.gpu_names import Match, find
from hwprobe.offline.description import Platform, arm_host, describe
from hwprobe.offline.wheel import ARCHITECTURE, Wish, build_of
from hwprobe.report import Driver, Keras, Report
from hwprobe.source import Source, SourceStatus

WHERE = "--target"
MAX_LENGTH = 4000
MAX_PART_LENGTH = 160
MAX_PARTS = 64
MAX_GPUS = 256
SHOWN_NAMES = 8

FORMS = (
    "2 x Tesla T4, no gpu, driver 535.104.05, cuda 12.2, tensorflow 2.17, tensorflow-cpu 2.17, "
    "built for sm_90 compute_90, no tensorflow, keras 3.15, python 3.11, linux, windows, wsl, x86_64, aarch64"
)

_BETWEEN_PARTS = re.compile(r"[,;\n]|\s\+\s|\sand\s", re.IGNORECASE)
_SETTING = re.compile(
    r"(?P<key>tensorflow-cpu|tensorflow|tf|keras|driver|cuda|python)(?:\s*(?:==|=|:)\s*|\s+|$)v?(?P<value>.*)",
    re.IGNORECASE,
)
_VERSION = {
    "driver": (re.compile(r"\d{2,4}(?:\.\d{1,4}){0,3}"), "535.104.05"),
    "cuda": (re.compile(r"\d{1,2}\.\d{1,2}"), "12.2"),
    "python": (re.compile(r"\d\.\d{1,2}(?:\.\d{1,2})?"), "3.11"),
    "keras": (re.compile(r"\d{1,2}(?:\.\w{1,8}){0,4}"), "3.15"),
}
_BUILT_FOR = re.compile(r"(?:built\s+for\s+)?(?P<list>[\s+/]*(?:(?:sm|compute)_\w+[\s+/]*)+)", re.IGNORECASE)
_COUNT_FIRST = re.compile(r"(?P<count>\d{1,3})\s*[x\u00d7*]\s*(?P<name>\S.*)", re.IGNORECASE)
_COUNT_LAST = re.compile(r"(?P<name>\S.*?)\s*[x\u00d7*]\s*(?P<count>\d{1,3})", re.IGNORECASE)
_COUNT_BARE = re.compile(r"(?P<count>\d{1,3})\s+(?P<name>\S.*)")
_NO_GPU = re.compile(r"no\s+gpus?|without\s+gpus?|cpu(?:\s+only)?", re.IGNORECASE)
_NO_TENSORFLOW = re.compile(r"(?:no|without)\s+tensorflow", re.IGNORECASE)
_PLATFORMS = {
    "linux": Platform(),
    "windows": Platform(system="Windows"),
    "wsl": Platform(wsl=True),
    "wsl2": Platform(wsl=True),
}
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


class Boards(NamedTuple):
    """Some equal GPUs of a target."""

    number: int
    match: Match


class Target(NamedTuple):
    """What the words say, before anything is made of them.

    Attributes:
        boards: GPUs in the order of the text.
        no_gpu, no_tensorflow: Whether it says that there is none.
        settings: Word to version, in lower case.
        built_for: Architectures of a build of somebody's own.
        platform, machine: As the text names them; None where it does not.
    """

    boards: tuple[Boards, ...] = ()
    no_gpu: bool = False
    no_tensorflow: bool = False
    settings: dict[str, str] = {}
    built_for: tuple[str, ...] = ()
    platform: str | None = None
    machine: str | None = None


def report_of_target(text: str, *, tensorflow: str | None = None) -> Report:
    """Make the report of a machine that is described in words.

    Args:
        text: As the head of this module says.
        tensorflow: Version of TensorFlow where the text names none.

    Returns:
        The report: what the text does not say is unknown in it, and `assumptions` says what was taken for granted.

    Raises:
        InputError: A part is not understood, a name could be several boards that differ in what they can do, or a part
            contradicts another one.
    """
    target = parse_target(text)
    if tensorflow is not None:
        if _names_tensorflow(target):
            raise InputError(f"{WHERE} names a TensorFlow itself: leave out --tensorflow {tensorflow!r}")
        target = target._replace(settings={**target.settings, "tensorflow": tensorflow})
    platform = _platform(target)
    build = None if target.no_tensorflow else build_of(_wish(target), platform, WHERE)
    absent = Source(status=SourceStatus.ABSENT, reason="the target has no NVIDIA GPU") if target.no_gpu else None
    keras = target.settings.get("keras")
    return describe(
        "target",
        " ".join(text.split()),
        gpus=_gpus(target.boards),
        driver=None if target.no_gpu else _driver(target),
        platform=platform,
        tensorflow=build.tensorflow if build is not None else None,
        keras=Keras(version=keras) if keras is not None else None,
        nvml=absent,
        cuda=absent,
        build=None if build is not None else Source(status=SourceStatus.ABSENT, reason="the target has no TensorFlow"),
        assumptions=(*(build.assumptions if build is not None else ()), *_doubts(target)),
    )


def parse_target(text: str) -> Target:
    """Read the words of a target.

    Args:
        text: As the head of this module says.

    Raises:
        InputError: A part is not understood, is doubtful, or contradicts another one.
    """
    if len(text) > MAX_LENGTH:
        raise InputError(f"{WHERE}: longer than {MAX_LENGTH} characters: not the description of a machine")
    parts = [part.strip() for part in _BETWEEN_PARTS.split(text) if part.strip()]
    if len(parts) > MAX_PARTS:
        raise InputError(f"{WHERE}: more than {MAX_PARTS} parts: not the description of a machine")
    target = Target()
    for part in parts:
        if len(part) > MAX_PART_LENGTH:
            raise InputError(f"{WHERE}: {part[:40]!r}... is too long for one part. Accepted: {FORMS}")
        target = _with_part(target, part)
    problem = _problem(target)
    if problem is not None:
        raise InputError(f"{WHERE} {problem}")
    return target


def _problem(target: Target) -> str | None:
    """What is wrong with the whole, where every part is understood."""
    if target.no_gpu and target.boards:
        return "names GPUs and says that there are none"
    if target.no_gpu and not target.settings.keys().isdisjoint(("driver", "cuda")):
        return "names a driver and says that there is no GPU"
    if not target.no_gpu and not target.boards:
        return f"names no GPU: name them ('2 x Tesla T4'), or say 'no gpu'. Accepted: {FORMS}"
    if target.no_tensorflow and _names_tensorflow(target):
        return "names a TensorFlow and says that there is none"
    if sum(boards.number for boards in target.boards) > MAX_GPUS:
        return f"names more than {MAX_GPUS} GPUs: not one machine"
    return None


def _with_part(target: Target, part: str) -> Target:
    readers: tuple[Callable[[Target, str], Target | None], ...] = (_words, _setting, _architectures, _named)
    for read in readers:
        changed = read(target, part)
        if changed is not None:
            return changed
    raise InputError(f"{WHERE}: {part!r} is not understood. Accepted: {FORMS}")


def _words(target: Target, part: str) -> Target | None:
    word = part.lower()
    if _NO_GPU.fullmatch(part):
        return target._replace(no_gpu=True)
    if _NO_TENSORFLOW.fullmatch(part):
        return target._replace(no_tensorflow=True)
    if word in _PLATFORMS:
        _once(target.platform, part)
        return target._replace(platform=word)
    if word in _MACHINES:
        _once(target.machine, part)
        return target._replace(machine=_MACHINES[word])
    return None


def _setting(target: Target, part: str) -> Target | None:
    match = _SETTING.fullmatch(part)
    if match is None:
        return None
    word, value = match["key"].lower(), match["value"].strip()
    key = {"tf": "tensorflow"}.get(word, word)
    if not value:
        raise InputError(f"{WHERE}: {part!r} has no version: expected a form such as '{key} {_example(key)}'")
    form = _VERSION.get(key)
    if form is not None and form[0].fullmatch(value) is None:
        raise InputError(f"{WHERE}: {value[:40]!r} is not a version of {key}: expected a form such as {form[1]}")
    family = key.removesuffix("-cpu")
    _once(target.settings.get(family) or target.settings.get(f"{family}-cpu"), part)
    return target._replace(settings={**target.settings, key: value})


def _example(key: str) -> str:
    return _VERSION[key][1] if key in _VERSION else "2.17"


def _architectures(target: Target, part: str) -> Target | None:
    match = _BUILT_FOR.fullmatch(part)
    if match is None:
        return None
    entries = tuple(filter(None, re.split(r"[\s+/]+", match["list"].lower())))
    for entry in entries:
        if ARCHITECTURE.fullmatch(entry) is None:
            raise InputError(f"{WHERE}: {entry[:40]!r} is no architecture: expected a form such as sm_90 or compute_90")
    return target._replace(built_for=(*target.built_for, *entries))


def _named(target: Target, part: str) -> Target | None:
    counted = _counted(part)
    if counted is None:
        return None
    if counted.number < 1:
        raise InputError(f"{WHERE}: {part!r}: the number of GPUs must be 1 or more")
    if counted.match.as_gpu() is None:
        raise InputError(f"{WHERE}: {counted.match.text!r} could be any of {_names(counted.match)}: name one")
    return target._replace(boards=(*target.boards, counted))


def _counted(part: str) -> Boards | None:
    whole = find(part)
    if whole.boards:
        return Boards(1, whole)
    for form in (_COUNT_FIRST, _COUNT_LAST, _COUNT_BARE):
        counted = form.fullmatch(part)
        if counted is not None:
            match = find(counted["name"])
            if match.boards:
                return Boards(int(counted["count"]), match)
            whole = match if match.similar else whole
    if whole.similar:
        raise InputError(
            f"{WHERE}: no board of the catalogue is called {whole.text[:80]!r}: did you mean "
            f"{', '.join(whole.similar)}? `hwprobe gpus` lists all of them"
        )
    return None


def _names(match: Match) -> str:
    names = [board.name for board in match.boards]
    return ", ".join(names[:SHOWN_NAMES]) + (
        f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    )


def _once(before: str | None, part: str) -> None:
    if before is not None:
        raise InputError(f"{WHERE}: {part!r} is said beside {before!r}: name one of them")


def _names_tensorflow(target: Target) -> bool:
    return bool(target.built_for) or any(key in target.settings for key in ("tensorflow", "tensorflow-cpu"))


def _wish(target: Target) -> Wish:
    cpu = target.settings.get("tensorflow-cpu")
    if cpu is not None:
        if target.built_for:
            raise InputError(f"{WHERE}: tensorflow-cpu is not built for {' '.join(target.built_for)}")
        return Wish(cpu, cpu_only=True)
    return Wish(target.settings.get("tensorflow"), target.built_for)


def _platform(target: Target) -> Platform:
    boards = tuple(board for boards in target.boards for board in boards.match.boards)
    platform = _PLATFORMS[target.platform or "linux"]
    return platform._replace(machine=target.machine or arm_host(boards), python=target.settings.get("python"))


def _driver(target: Target) -> Driver:
    return Driver(version=target.settings.get("driver"), cuda_version=target.settings.get("cuda"))


def _gpus(boards: tuple[Boards, ...]) -> list[Gpu]:
    gpus: list[Gpu] = []
    for count, match in boards:
        gpu = match.as_gpu()
        assert gpu is not None
        equal = [gpu] * count if match.mig is None else [replace(gpu, mig=_mig(match.mig, count))]
        gpus += equal
    # Without a UUID or a place on the bus a number is all that tells equal GPUs apart: they are counted as written.
    return [replace(gpu, nvml_index=index) for index, gpu in enumerate(gpus)]


def _mig(profile: str, count: int) -> Mig:
    """A GPU in MIG mode with equal instances, of which the process gets the first."""
    others = [MigInstance(name=f"MIG {profile}")] * (count - 1)
    return Mig(enabled=True, instances=(MigInstance(name=f"MIG {profile}", visible=True), *others))


def _doubts(target: Target) -> list[str]:
    doubts = []
    driver = target.settings.get("driver")
    if driver is not None and driver.isdigit():
        doubts.append(f"driver {driver} is some release of that branch: what depends on which one stays unknown")
    for count, match in target.boards:
        if not match.is_settled:
            doubts.append(f"{match.text!r} is one of {_names(match)}: alike in precision, and its memory is unknown")
        if match.mig is not None:
            several = f", one of the {count}" if count > 1 else ""
            doubts.append(f"the process computes on one MIG device{several}, whose memory is unknown")
    return doubts
