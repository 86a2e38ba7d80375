"""HWP208 and HWP209: the shared libraries that this TensorFlow opens at start."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.tensorflow import brings, release
from hwprobe.report import Host, SharedLibrary, TensorFlow
from hwprobe.rules.boards import newest_wheel_that, pip_install_last
from hwprobe.rules.cuda_build import cuda_build
from hwprobe.rules.verdict import PASS, Case, Problem, RuleCheck, Skipped, Verdict

_PACKAGE = re.compile(r"[A-Za-z0-9_.-]+")

WHEEL_LIBRARIES_NOT_FOUND = Rule(
    id="HWP209",
    name="wheel-libraries-not-found",
    title="TensorFlow does not find the CUDA libraries that are installed beside it",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="Whether every library that does not load lies in a folder of the nvidia-* wheels all the same.",
        matters="TensorFlow 2.16.1 looks only into the CUDA runtime's folder and 2.21.0 not into that of cuSOLVER. "
        'It then says "Cannot dlopen some GPU libraries" and computes on the CPU, although everything is installed.',
        fix="Put the folders on LD_LIBRARY_PATH before Python starts (inside a running Python it is too late), or take "
        "a release that finds them, such as 2.20.",
        reference="tensorflow/tensorflow#63362, #63341; RUNPATH of libtensorflow_framework.so.2 in the wheels of "
        "2.15.1 to 2.22.0rc0",
    ),
)


def wheel_libraries_are_found(case: Case) -> Verdict:
    """HWP209."""
    tensorflow = _tried(case)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    missing = _missing(tensorflow)
    hidden = [library for library in missing if _in_wheel(library, tensorflow) and _not_reached(library)]
    if not hidden or len(hidden) < len(missing):
        return PASS
    folders = list(dict.fromkeys(_folder(path) for library in hidden for path in library.found_at))
    return (
        Problem(
            subject="libraries",
            message=f"{', '.join(library.soname for library in hidden)}: installed by the nvidia-* wheels, where "
            f"TensorFlow {tensorflow.version} does not find {'it' if len(hidden) == 1 else 'them'}",
            evidence={
                "libraries": [library.soname for library in hidden],
                "folders": folders,
                "wheels": [f"{one.name} {one.version}" for one in tensorflow.wheels],
            },
            fix=(
                f"export LD_LIBRARY_PATH={':'.join(folders)}:$LD_LIBRARY_PATH   # before Python starts",
                *_release_that_finds_them(tensorflow, case.report.host),
            ),
        ),
    )


def _release_that_finds_them(tensorflow: TensorFlow, host: Host) -> tuple[str, ...]:
    """Another release, where the one that is here is known not to find the libraries of the wheels."""
    known = release(tensorflow.version) if tensorflow.version is not None else None
    if known is None or tensorflow.version is None or not known.misses_pip_libraries(tensorflow.version):
        return ()
    finding = newest_wheel_that(lambda row: row.and_cuda and not row.pip_libraries_fault)
    return (f"or {pip_install_last(finding, 'that finds all of them by itself', host)}",) if finding is not None else ()


LIBRARY_MISSING = Rule(
    id="HWP208",
    name="library-missing",
    title="A shared library that TensorFlow opens is missing",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    after=("HWP209",),
    explanation=Explanation(
        checks="Each CUDA library that this TensorFlow opens at start, tried on its own as TensorFlow would open it.",
        matters="If a single one is missing TensorFlow registers no GPU at all, and at its default log level it does "
        "not say which one.",
        fix="`pip install 'tensorflow[and-cuda]'` brings all of them into this environment. Where they come from the "
        "system or from modules: load them all, and append to LD_LIBRARY_PATH instead of overwriting it.",
        reference="tensorflow/tensorflow#60646, #66987, #110956",
    ),
)


def every_library_loads(case: Case) -> Verdict:
    """HWP208."""
    tensorflow = _tried(case)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    missing = _missing(tensorflow)
    absent = [library for library in missing if not library.found_at]
    present = [library for library in missing if library.found_at]
    problems = [_absent_problem(absent, tensorflow, case.report.host)] if absent else []
    return (*problems, *(_present_problem(library, tensorflow) for library in present))


def _absent_problem(absent: Sequence[SharedLibrary], tensorflow: TensorFlow, host: Host) -> Problem:
    """All that are nowhere to be found have one cause and one remedy."""
    names = [library.soname for library in absent]
    others = [path for library in absent for path in library.other_versions]
    packages = _packages_not_installed(absent, tensorflow)
    message = f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not load"
    message += (
        f" ({_said(absent[0])}), and no file of that name was found" if len(names) == 1 else " and were not found"
    )
    message += f"; of another version there is {', '.join(others[:2])}" if others else ""
    message += f"; not installed in this environment: {', '.join(packages)}" if packages else ""
    return Problem(
        subject=names[0] if len(names) == 1 else "libraries",
        message=message,
        evidence={
            "libraries": names,
            "errors": [library.error or "" for library in absent],
            "other_versions": others,
            "packages_not_installed": packages,
            "built_with_cuda": tensorflow.cuda_version,
        },
        fix=(*_absent_fix(tensorflow), *_release_that_finds_them(tensorflow, host)),
    )


def _absent_fix(tensorflow: TensorFlow) -> tuple[str, ...]:
    known = release(tensorflow.version) if tensorflow.version is not None else None
    if tensorflow.version is not None and (known is None or not known.and_cuda):
        # The extra `and-cuda` is of 2.14 and newer: before, CUDA comes from the system.
        cuda = tensorflow.cuda_version or (known.cuda if known is not None else "of its release notes")
        cudnn = known.cudnn_minimum if known is not None else tensorflow.cudnn_version or "of its release notes"
        return (
            f"install CUDA {cuda} and cuDNN {cudnn}, then, with their folders:",
            f"export LD_LIBRARY_PATH=/usr/local/cuda-{cuda}/lib64:$LD_LIBRARY_PATH",
        )
    pin = f"=={tensorflow.version}" if tensorflow.version is not None else ""
    return (f"pip install 'tensorflow[and-cuda]{pin}'",)


def _packages_not_installed(absent: Sequence[SharedLibrary], tensorflow: TensorFlow) -> list[str]:
    """What the extra `and-cuda` asks for, brings one of these libraries, and is not installed."""
    installed = {one.name.lower().replace("_", "-") for one in tensorflow.wheels}
    wanted = [match[0] for text in tensorflow.and_cuda if (match := _PACKAGE.match(text)) is not None]
    return [name for name in wanted if name.lower().replace("_", "-") not in installed and _brings_any(name, absent)]


def _brings_any(package: str, libraries: Sequence[SharedLibrary]) -> bool:
    return any(brings(package, library.soname) for library in libraries)


def _present_problem(library: SharedLibrary, tensorflow: TensorFlow) -> Problem:
    path = library.found_at[0]
    if _not_reached(library):
        message = f"{library.soname} does not load ({_said(library)}), though there is {path}"
        fix: tuple[str, ...] = (f"export LD_LIBRARY_PATH={_folder(path)}:$LD_LIBRARY_PATH   # before Python starts",)
    else:
        message = f"{library.soname} was found and does not load: {_said(library)}"
        fix = (f"ls -lL {path}   # whole, and for this kind of machine?", _again(library, tensorflow))
    return Problem(
        subject=library.soname,
        message=message,
        evidence={"soname": library.soname, "error": library.error, "found_at": list(library.found_at)},
        fix=fix,
    )


def _not_reached(library: SharedLibrary) -> bool:
    """Whether the loader did not look where the file lies; else it came to it and could not use it or what it needs."""
    return library.error is None or library.error.startswith(f"{library.soname}: cannot open shared object file")


def _again(library: SharedLibrary, tensorflow: TensorFlow) -> str:
    """How to get a library anew that is damaged, or what it needs itself."""
    for wheel in tensorflow.wheels if _in_wheel(library, tensorflow) else ():
        if brings(wheel.name, library.soname):
            return f"pip install --force-reinstall --no-deps '{wheel.name}=={wheel.version}'"
    return _absent_fix(tensorflow)[0]


def _said(library: SharedLibrary) -> str:
    """The loader's own words, without the name that it begins with."""
    return (library.error or "no reason given").removeprefix(f"{library.soname}: ")


def _tried(case: Case) -> TensorFlow | Verdict:
    tensorflow = cuda_build(case.report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    if not tensorflow.libraries or all(library.loads is None for library in tensorflow.libraries):
        return Skipped(reason="the shared libraries were not tried")
    return tensorflow


def _missing(tensorflow: TensorFlow) -> list[SharedLibrary]:
    return [library for library in tensorflow.libraries if library.loads is False]


def _in_wheel(library: SharedLibrary, tensorflow: TensorFlow) -> bool:
    return any(
        _folder(path) in tensorflow.search_paths or "/site-packages/nvidia/" in path for path in library.found_at
    )


def _folder(path: str) -> str:
    return path.rsplit("/", 1)[0]


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(WHEEL_LIBRARIES_NOT_FOUND, wheel_libraries_are_found),
    RuleCheck(LIBRARY_MISSING, every_library_loads),
)
