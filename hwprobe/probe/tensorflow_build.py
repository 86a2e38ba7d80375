"""What the installed TensorFlow was built for, from files alone: TensorFlow is never imported here."""

from __future__ import annotations

import ast
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hwprobe.probe.distributions import Installed, installed, utf8
from hwprobe.probe.keras_packages import read_keras
from hwprobe.probe.libraries import xla_files
from hwprobe.report import Distribution, Keras, TensorFlow
from hwprobe.source import Source, SourceStatus

BUILD_INFO = "tensorflow/python/platform/build_info.py"

PACKAGES = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tensorflow-rocm",
    "tensorflow-aarch64",
    "tensorflow-cpu-aws",
    "tensorflow-directml",
    "tensorflow-cuda13",
    "tf-nightly",
    "tf-nightly-cpu",
    "tf-nightly-gpu",
    "tf-nightly-rocm",
    "intel-tensorflow",
    "nvidia-tensorflow",
)
"""Distributions that are a TensorFlow by their name, with code or (the stubs for Windows and macOS) without."""

PLUGINS = ("tensorflow-metal", "tensorflow-directml-plugin", "intel-extension-for-tensorflow")
"""Distributions that bring devices of their own; others are known by a `tensorflow-plugins` folder."""

NOT_CUDA_WHEELS = ("nvidia-ml-py", "nvidia-ml-py3", "nvidia-tensorflow", "nvidia-pyindex")
"""Distributions called `nvidia-*` that bring no library of CUDA."""

MAX_BUILD_INFO_BYTES = 2**20

_REQUIREMENT = re.compile(r"^Requires-Dist: ([^;\n]+);[^\n]*extra == ['\"]and-cuda['\"]", re.MULTILINE)


class _BuildInfoError(Exception):
    pass


def read_build(
    paths: Sequence[str] | None = None, distributions: Sequence[Installed] | None = None
) -> tuple[TensorFlow | None, Keras | None, Source]:
    """Read which TensorFlow and which Keras Python would import, and what they were built for.

    Args:
        paths: Module search path; None for this interpreter's.
        distributions: What is installed on it, from a caller who knows it already.

    Returns:
        TensorFlow (None where no distribution and no folder of that name is there), Keras (likewise), and how the
        reading went: `absent` without TensorFlow's code, `failed` where its build facts cannot be read.
    """
    started = time.monotonic()
    search = [path or os.curdir for path in (sys.path if paths is None else paths)]
    packages = installed(search) if distributions is None else distributions
    location = _location(search)
    owners = _owners(packages, location)
    keras = read_keras(packages)
    if location is None and not owners:
        return None, keras, _source(started, SourceStatus.ABSENT, "no TensorFlow is installed in this environment")
    tensorflow = TensorFlow(
        version=_version(owners, location),
        distributions=tuple(fact for _, fact in owners),
        location=None if location is None else utf8(str(location)),
        wheels=tuple(each.fact for each in packages if _is_cuda_wheel(each.name)),
        plugins=tuple(_plugins(packages)),
        search_paths=tuple(utf8(str(folder)) for folder in _wheel_folders(search)),
        and_cuda=_and_cuda(owners),
    )
    if location is None:
        names = ", ".join(f"{fact.name} {fact.version}" for _, fact in owners)
        reason = f"{names}: installed, without TensorFlow's code"
        return tensorflow, keras, _source(started, SourceStatus.ABSENT, reason)
    tensorflow, failure = _with_build_info(tensorflow, location)
    return tensorflow, keras, _source(started, SourceStatus.FAILED if failure else SourceStatus.OK, failure)


def parse_build_info(text: str) -> dict[str, Any]:
    """Read the dictionary in a `build_info.py`.

    Args:
        text: The file. It is parsed and never run.

    Returns:
        Its keys and values as they stand there: `cuda_version` is `12.5.1`, or `64_112` on Windows.

    Raises:
        ValueError: The file has another form.
    """
    try:
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.Assign) and any(_is_name(target, "build_info") for target in node.targets):
                value = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
                return {str(key): item for key, item in dict(ast.literal_eval(value)).items()}
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"not the Python that was expected: {error}") from error
    raise ValueError("no assignment to build_info")


def _with_build_info(tensorflow: TensorFlow, location: Path) -> tuple[TensorFlow, str | None]:
    try:
        facts = _build_info(location)
    except _BuildInfoError as error:
        return tensorflow, str(error)
    tensorflow = replace(
        tensorflow,
        is_cuda_build=_boolean(facts, "is_cuda_build"),
        is_rocm_build=_boolean(facts, "is_rocm_build"),
        cuda_version=_text(facts, "cuda_version"),
        cudnn_version=_text(facts, "cudnn_version"),
    )
    if not tensorflow.is_cuda_build:
        return tensorflow, None
    libdevice, ptxas = xla_files(str(location), os.environ)
    tensorflow = replace(tensorflow, libdevice=libdevice, ptxas=ptxas)
    listed = facts.get("cuda_compute_capabilities")
    if isinstance(listed, list) and listed:
        capabilities = tuple(str(entry) for entry in listed)
        return replace(tensorflow, compute_capabilities=capabilities, compute_capabilities_origin="build_info"), None
    return _with_fat_binaries(tensorflow, location)


def _with_fat_binaries(tensorflow: TensorFlow, location: Path) -> tuple[TensorFlow, str | None]:
    from hwprobe.probe.elf import ElfError
    from hwprobe.probe.fatbin import read_compute_capabilities

    try:
        capabilities = read_compute_capabilities(str(location))
    except ElfError as error:
        return tensorflow, f"build_info.py names no compute capabilities, and the libraries cannot be read: {error}"
    if not capabilities:
        return tensorflow, "build_info.py names no compute capabilities, and the libraries hold no GPU code"
    return replace(tensorflow, compute_capabilities=capabilities, compute_capabilities_origin="fatbin"), None


def _build_info(location: Path) -> dict[str, Any]:
    path = location.parent / BUILD_INFO
    try:
        with path.open("rb") as file:
            return parse_build_info(file.read(MAX_BUILD_INFO_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        raise _BuildInfoError(f"{utf8(str(path))}: {error}") from error


def _location(search: Sequence[str]) -> Path | None:
    """The folder that `import tensorflow` would take its modules from; None where it holds none."""
    spec = PathFinder.find_spec("tensorflow", search)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return folder if folder.name == "tensorflow" else None


def _owners(distributions: Sequence[Installed], location: Path | None) -> list[tuple[Installed, Distribution]]:
    """The distributions that own a top-level `tensorflow`, or should by their name."""
    owners = [
        each
        for each in distributions
        if each.name in PACKAGES or ("tensorflow" in each.name and each.name not in PLUGINS and _owns_package(each))
    ]
    if location is not None and not owners:
        site = os.path.realpath(location.parent)
        owners = [each for each in distributions if str(each.site) == site and _owns_package(each)]
    return [(each, _judged(each, location)) for each in owners]


def _owns_package(distribution: Installed) -> bool:
    top_level = distribution.read("top_level.txt")
    if top_level:
        return "tensorflow" in top_level.split()
    return distribution.recorded(f"{BUILD_INFO},") is not None


def _judged(distribution: Installed, location: Path | None) -> Distribution:
    """Compare the file on disk with what the distribution recorded: two that share it cannot both be in effect."""
    entry = distribution.recorded(f"{BUILD_INFO},")
    ships_code = entry is not None if distribution.has_record() else None
    in_effect: bool | None = None
    if location is None or ships_code is False or str(distribution.site) != os.path.realpath(location.parent):
        in_effect = False
    elif entry is not None:
        in_effect = _matches(location.parent / BUILD_INFO, entry)
    return Distribution(
        name=distribution.name, version=distribution.version, in_effect=in_effect, ships_code=ships_code
    )


def _matches(path: Path, entry: str) -> bool | None:
    import base64

    _, digest, size = entry.rsplit(",", 2)
    algorithm, _, expected = digest.partition("=")
    if algorithm != "sha256":
        return None
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if size.isdigit() and len(content) != int(size):
        return False
    return base64.urlsafe_b64encode(_sha256(content)).rstrip(b"=").decode() == expected


def _sha256(content: bytes) -> bytes:
    # hashlib loads OpenSSL, which takes longer than all the rest here; `random` of the standard library spares it too.
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]  # from Python 3.12 on
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found]
        except ImportError:
            from hashlib import sha256
    return bytes(sha256(content).digest())


def _version(owners: Sequence[tuple[Installed, Distribution]], location: Path | None) -> str | None:
    in_effect = [fact.version for _, fact in owners if fact.in_effect]
    if in_effect:
        return in_effect[0]
    told = None if location is None else _version_in_package(location)
    if told is not None:
        return told
    undecided = [fact.version for _, fact in owners if fact.in_effect is None or location is None]
    return undecided[0] if undecided else None


def _version_in_package(location: Path) -> str | None:
    """The version that TensorFlow's own wheel was packed with, for a build without metadata (on `PYTHONPATH`)."""
    try:
        with (location / "tools" / "pip_package" / "setup.py").open("rb") as file:
            text = file.read(MAX_BUILD_INFO_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"^_VERSION = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    # "2.22.0-rc0" there is "2.22.0rc0" for its distribution.
    return match[1].replace("-", "") if match else None


def _and_cuda(owners: Sequence[tuple[Installed, Distribution]]) -> tuple[str, ...]:
    """The requirements of the extra `and-cuda` of the TensorFlow in effect."""
    for distribution, fact in owners:
        if fact.in_effect:
            found = _REQUIREMENT.findall(distribution.read("METADATA"))
            # Older metadata writes "nvidia-cudnn-cu12 (==8.9.4.25)".
            return tuple(re.sub(r"[ ()]", "", requirement) for requirement in found)
    return ()


def _is_cuda_wheel(name: str) -> bool:
    return name.startswith("nvidia-") and name not in NOT_CUDA_WHEELS


def _wheel_folders(search: Sequence[str]) -> Iterator[Path]:
    for path in dict.fromkeys(search):
        for pattern in ("lib", "bin"):
            for folder in sorted(Path(path).glob(f"nvidia/*/{pattern}")):
                if any(".so" in file.name or file.suffix == ".dll" for file in folder.iterdir()):
                    yield folder


def _plugins(distributions: Sequence[Installed]) -> Iterator[Distribution]:
    with_folder = {site for site in {each.site for each in distributions} if (site / "tensorflow-plugins").is_dir()}
    for each in distributions:
        if each.name in PLUGINS or (each.site in with_folder and each.recorded("tensorflow-plugins/") is not None):
            yield each.fact


def _boolean(facts: Mapping[str, Any], key: str) -> bool | None:
    value = facts.get(key)
    return value if isinstance(value, bool) else None


def _text(facts: Mapping[str, Any], key: str) -> str | None:
    value = facts.get(key)
    return None if value is None or value == "" else str(value)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _source(started: float, status: SourceStatus, reason: str | None = None) -> Source:
    return Source(status=status, reason=reason, seconds=round(time.monotonic() - started, 4))
