"""Ask every source side by side and join the answers into one report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from hwprobe.errors import InputError
from hwprobe.probe import cuda as cuda_driver
from hwprobe.probe.absence import absent_library
from hwprobe.probe.answer import Answer
from hwprobe.probe.distributions import Installed, installed
from hwprobe.probe.host import collect_host, read_kernel_module
from hwprobe.probe.join import join
from hwprobe.probe.libraries import request as libraries_request
from hwprobe.probe.loader import CUDA_LIBRARY, NVML_LIBRARY
from hwprobe.probe.readings import CudaDevice, CudaReading, NvmlReading
from hwprobe.probe.tensorflow_build import read_build
from hwprobe.probe.tensorflow_runtime import messages, read_in_process
from hwprobe.report import Driver, Host, Keras, Report, SharedLibrary, Sources, TensorFlow, TensorFlowDevice
from hwprobe.serialize import from_builtins
from hwprobe.source import Fact, Source, SourceStatus

if TYPE_CHECKING:
    from hwprobe.probe.child import Child

DEFAULT_TIMEOUT_SECONDS = 30.0
NOTICE_SECONDS = 1.0
"""After so long a source counts as slow, and whoever watches is told its name."""

QUICK_SECONDS = 0.2
"""How long the answer of CUDA is waited for before more work is begun that only matters if it is there."""

NVML, CUDA, RUNTIME, LIBRARIES = "NVML", "CUDA", "TensorFlow", "TensorFlow's libraries"
READERS = {
    NVML: "hwprobe.probe.nvml:read",
    CUDA: "hwprobe.probe.cuda:read",
    RUNTIME: "hwprobe.probe.tensorflow_runtime:read",
    LIBRARIES: "hwprobe.probe.libraries:read",
}
DRIVER_LIBRARIES = {NVML: NVML_LIBRARY, CUDA: CUDA_LIBRARY}

FAST = Source(status=SourceStatus.SKIPPED, reason="TensorFlow's own answer was left out, as asked (--fast)")
OTHER_BACKEND = Source(status=SourceStatus.SKIPPED, reason="TensorFlow is not imported where Keras runs without it")
NOT_NEEDED = Source(status=SourceStatus.SKIPPED, reason="CUDA and TensorFlow told everything in this process")

SLOW_WAKING = "without persistence mode the first client wakes every GPU, which can take 30 s or more"
"""Azure/aks-gpu PR 105; NVIDIA/nvidia-container-toolkit#1053."""

Reading = TypeVar("Reading", bound=Fact)


class _Environment(msgspec.Struct, frozen=True):
    """What this process reads itself, from files."""

    tensorflow: TensorFlow | None
    keras: Keras | None
    build: Source
    host: Host
    host_source: Source


class _Listed(msgspec.Struct, frozen=True):
    """What TensorFlow said."""

    devices: tuple[TensorFlowDevice, ...] | None
    source: Source
    initialized: bool | None = None
    log: str = ""


class _Drivers(msgspec.Struct, frozen=True):
    """What NVML and the CUDA driver said."""

    nvml: NvmlReading | None
    nvml_source: Source
    cuda: CudaReading | None
    cuda_source: Source


class _RuntimeReading(Fact, frozen=True, kw_only=True):
    """What `hwprobe.probe.tensorflow_runtime.read` gives."""

    devices: tuple[TensorFlowDevice, ...]
    public: bool


class _LibrariesReading(Fact, frozen=True, kw_only=True):
    """What `hwprobe.probe.libraries.read` gives."""

    libraries: tuple[SharedLibrary, ...]


def collect(
    *,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    runtime: bool = True,
    on_wait: Callable[[str], None] | None = None,
) -> Report:
    """Read everything about this machine and this Python environment. TensorFlow is not imported in this process.

    Args:
        timeout_seconds: When a source that does not answer is killed.
        runtime: Whether to ask TensorFlow itself, which takes most of the time.
        on_wait: Told the name of a source that takes long, at most once each.

    Returns:
        The report. A source that failed, hung or crashed says so in `Report.sources`.
    """
    with _Asking(timeout_seconds, on_wait) as asking:
        if runtime:
            asking.start(RUNTIME)
        packages = installed(sys.path)
        host, host_source = collect_host(distributions=packages)
        asking.start_drivers(host)
        environment = _read_environment(packages, host, host_source)
        environment, drivers = _ask_drivers(asking, environment)
        listed = _listed(asking.answer(RUNTIME)) if runtime else _Listed(None, FAST)
    return _report(environment, listed, drivers)


def collect_in_process(*, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Report:
    """Read what this process needs to configure its own TensorFlow, which is imported here.

    Where TensorFlow lists every GPU that CUDA gives this process, both have told everything that a decision needs, and
    no other process is started. Otherwise the reason is looked for as `collect` does.

    Args:
        timeout_seconds: When a source that does not answer is killed.

    Returns:
        The report. TensorFlow's context is left as it was.
    """
    packages = installed(sys.path)
    environment = _read_environment(packages, *collect_host(distributions=packages))
    listed = _list_in_process(environment.keras)
    own = cuda_driver.read_in_process()
    if own is not None and listed.devices is not None:
        cuda = from_builtins(own, CudaReading, where="the CUDA driver")
        if cuda.devices and len(cuda.devices) == len(listed.devices):
            return _report(environment, listed, _Drivers(None, NOT_NEEDED, cuda, Source(status=SourceStatus.OK)))
    with _Asking(timeout_seconds, None) as asking:
        asking.start_drivers(environment.host)
        environment, drivers = _ask_drivers(asking, environment)
    return _report(environment, listed, drivers)


class _Asking:
    """The children of one collection, all ended with it, and what was known without one."""

    def __init__(self, timeout_seconds: float, on_wait: Callable[[str], None] | None) -> None:
        self._timeout_seconds = timeout_seconds
        self._on_wait = on_wait
        self._children: dict[str, Child] = {}
        self._known: dict[str, Answer] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Asking:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self, source: str, request: dict[str, object] | None = None) -> None:
        """Start asking a source."""
        # It needs subprocess, which a machine without GPUs can do without.
        from hwprobe.probe.child import Child

        child = Child(READERS[source], request or {}, timeout_seconds=self._timeout_seconds)
        # Before its start: an interrupt may come at any time.
        self._stack.callback(child.close)
        child.start()
        self._children[source] = child

    def start_drivers(self, host: Host) -> None:
        """Start asking NVML and CUDA, apart from one that this host cannot have."""
        for source, soname in DRIVER_LIBRARIES.items():
            absent = absent_library(soname, host)
            if absent is None:
                self.start(source)
            else:
                self._known[source] = absent

    def is_absent(self, source: str) -> bool:
        """Whether a source has said, quickly, that it is not there."""
        if source in self._known:
            return True
        child = self._children[source]
        return child.wait(QUICK_SECONDS) and child.answer().status is SourceStatus.ABSENT

    def answer(self, source: str) -> Answer:
        """Wait for a source."""
        if source in self._known:
            return self._known[source]
        child = self._children[source]
        if self._on_wait is not None and not child.wait(NOTICE_SECONDS):
            self._on_wait(source)
        return child.answer()


def _list_in_process(keras: Keras | None) -> _Listed:
    if "tensorflow" not in sys.modules and not _keras_needs_tensorflow(keras):
        return _Listed(None, OTHER_BACKEND)
    devices, initialized, source = read_in_process()
    return _Listed(devices, source, initialized)


def _keras_needs_tensorflow(keras: Keras | None) -> bool:
    return keras is None or keras.legacy or keras.backend in (None, "tensorflow")


def _read_environment(packages: Sequence[Installed], host: Host, host_source: Source) -> _Environment:
    tensorflow, keras, build = read_build(distributions=packages)
    return _Environment(tensorflow, keras, build, host, host_source)


def _ask_drivers(asking: _Asking, environment: _Environment) -> tuple[_Environment, _Drivers]:
    """Wait for NVML and CUDA, which are being asked, and meanwhile try the libraries that TensorFlow opens."""
    tensorflow = environment.tensorflow
    names = _sonames(environment)
    # Without libcuda TensorFlow does not open them, and the time of another process is saved.
    needed = bool(names) and not asking.is_absent(CUDA)
    if tensorflow is not None and needed:
        asking.start(LIBRARIES, libraries_request(tensorflow.location, names, tensorflow.search_paths))
    nvml, nvml_source = _typed(asking.answer(NVML), NvmlReading)
    cuda, cuda_source = _typed(asking.answer(CUDA), CudaReading)
    if tensorflow is not None:
        environment = replace(
            environment, tensorflow=replace(tensorflow, libraries=tuple(SharedLibrary(soname=name) for name in names))
        )
    if needed:
        environment = _with_libraries(environment, asking.answer(LIBRARIES))
    return environment, _Drivers(nvml, _with_waking(nvml_source), cuda, cuda_source)


def _sonames(environment: _Environment) -> tuple[str, ...]:
    tensorflow = environment.tensorflow
    if tensorflow is None or not tensorflow.is_cuda_build:
        return ()
    from hwprobe.knowledge.tensorflow import sonames

    return sonames(tensorflow.cuda_version, tensorflow.cudnn_version, environment.host.system)


def _with_libraries(environment: _Environment, answer: Answer) -> _Environment:
    reading, source = _typed(answer, _LibrariesReading)
    if reading is None:
        reason = f"its shared libraries could not be tried: {source.reason}"
        return replace(environment, build=replace(environment.build, status=source.status, reason=reason))
    assert environment.tensorflow is not None
    return replace(environment, tensorflow=replace(environment.tensorflow, libraries=reading.libraries))


def _listed(answer: Answer) -> _Listed:
    reading, source = _typed(answer, _RuntimeReading)
    return _Listed(None if reading is None else reading.devices, source, log=answer.stderr)


def _typed(answer: Answer, type_: type[Reading]) -> tuple[Reading | None, Source]:
    """Turn the plain data of an answer into a reading; what does not have its form is a failure of the source."""
    if answer.data is None:
        return None, answer.source
    try:
        return from_builtins(answer.data, type_), answer.source
    except InputError as error:
        return None, replace(answer.source, status=SourceStatus.FAILED, reason=f"not understood: {error}")


def _with_waking(source: Source) -> Source:
    if source.status is not SourceStatus.TIMEOUT:
        return source
    return replace(source, reason=f"{source.reason}; {SLOW_WAKING}")


def _report(environment: _Environment, listed: _Listed, drivers: _Drivers) -> Report:
    host = environment.host
    nvml = drivers.nvml.devices if drivers.nvml is not None else None
    return Report(
        devices=join(nvml, _cuda_devices(drivers), listed.devices, pci=host.pci_devices),
        driver=_driver(drivers),
        tensorflow=_tensorflow(environment.tensorflow, listed),
        keras=environment.keras,
        host=host,
        sources=Sources(
            nvml=drivers.nvml_source,
            cuda=drivers.cuda_source,
            tensorflow_build=environment.build,
            tensorflow_runtime=listed.source,
            host=environment.host_source,
        ),
    )


def _cuda_devices(drivers: _Drivers) -> tuple[CudaDevice, ...] | None:
    if drivers.cuda_source.code == cuda_driver.NO_DEVICE:
        # cuInit says so too where the variable hides all: a list without entries, not a list that nobody has.
        return ()
    return drivers.cuda.devices if drivers.cuda is not None else None


def _driver(drivers: _Drivers) -> Driver | None:
    kernel_version = read_kernel_module()
    gone = (SourceStatus.ABSENT, SourceStatus.SKIPPED)
    if kernel_version is None and drivers.nvml_source.status in gone and drivers.cuda_source.status in gone:
        return None
    nvml = drivers.nvml or NvmlReading()
    cuda = drivers.cuda or CudaReading()
    return Driver(
        version=nvml.driver_version,
        kernel_version=kernel_version,
        # What CUDA says counts for this process: with a forward-compatibility libcuda it is newer than the driver's.
        cuda_version=cuda.cuda_version or nvml.cuda_version,
        nvml_library=nvml.library,
        nvml_library_version=nvml.library_version,
        cuda_library=cuda.library,
        cuda_library_version=cuda.library_version,
        nvml_binding=nvml.binding,
        foreign_pynvml=nvml.foreign,
        device_count=None if nvml.devices is None else len(nvml.devices),
    )


def _tensorflow(tensorflow: TensorFlow | None, listed: _Listed) -> TensorFlow | None:
    if tensorflow is None:
        return None if listed.devices is None else TensorFlow(devices=listed.devices, initialized=listed.initialized)
    return replace(tensorflow, devices=listed.devices, initialized=listed.initialized, messages=messages(listed.log))
