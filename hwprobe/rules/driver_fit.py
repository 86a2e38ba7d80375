"""HWP206 and HWP207: the driver against the CUDA that this TensorFlow was built with."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.drivers import driver_for_ptx, driver_is_older, minimum_driver
from hwprobe.knowledge.versions import cuda_release
from hwprobe.report import Report, TensorFlow
from hwprobe.rules.boards import newest_wheel_under, pip_install_last
from hwprobe.rules.cuda_build import cuda_build
from hwprobe.rules.verdict import PASS, Case, Problem, RuleCheck, Skipped, Verdict
from hwprobe.usability import devices_that_compute, kernel_code

DRIVER_TOO_OLD = Rule(
    id="HWP206",
    name="driver-too-old",
    title="The driver is too old for the CUDA in this TensorFlow",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    hides_gpus=True,
    after=("HWP102",),
    explanation=Explanation(
        checks="Whether the driver runs machine code of the CUDA release that TensorFlow was built with. Within one "
        "CUDA major every driver from the first of that major on does (minor-version compatibility).",
        matters="With an older driver the devices may still be listed; the first call of the CUDA runtime fails "
        '("driver version is insufficient"). The "CUDA Version" that nvidia-smi shows is this limit of the driver '
        "and no installed toolkit.",
        fix="Update the driver, or install a TensorFlow that was built for an older CUDA.",
        reference="CUDA Compatibility guide, minor-version compatibility; tensorflow/tensorflow#31319",
    ),
)


def driver_runs_this_cuda(case: Case) -> Verdict:
    """HWP206."""
    report = case.report
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    built = tensorflow.cuda_version
    minimum = minimum_driver(built, _system(report)) if built is not None else None
    if built is None or minimum is None:
        return Skipped(reason="the CUDA that TensorFlow was built with, or its minimum driver, is not known")
    version = report.driver.version if report.driver is not None else None
    ceiling = report.driver.cuda_version if report.driver is not None else None
    if version is not None:
        too_old, found = driver_is_older(version, minimum), f"driver {version}"
    else:
        too_old, found = _is_of_an_older_major(ceiling, built), f"the driver, which supports CUDA up to {ceiling},"
    if too_old is None:
        return Skipped(reason="the driver's version is not known, or not in full")
    if not too_old:
        return PASS
    return (
        Problem(
            subject="driver",
            message=f"{found} is older than {minimum}, which CUDA {built} in TensorFlow {tensorflow.version} needs",
            evidence={"driver": version, "driver_cuda": ceiling, "minimum": minimum, "cuda": built},
            fix=(
                f"update the NVIDIA driver to {minimum} or newer",
                f"or {_older_tensorflow(report, version, ceiling)}",
            ),
        ),
    )


def _older_tensorflow(report: Report, version: str | None, ceiling: str | None) -> str:
    system = _system(report)
    # A driver that supports CUDA up to a release is at least the one that came with that release.
    driver = version or driver_for_ptx(ceiling or "", system)
    capabilities = [gpu.compute_capability for gpu in report.visible_devices if gpu.compute_capability is not None]
    row = newest_wheel_under(driver, system, capabilities) if driver is not None else None
    if row is None:
        return "build TensorFlow for an older CUDA: no wheel that hwprobe knows is old enough for this driver"
    return pip_install_last(row, f"that this driver runs: built for CUDA {row.cuda}", report.host)


def _is_of_an_older_major(ceiling: str | None, built: str) -> bool | None:
    have, need = cuda_release(ceiling or ""), cuda_release(built)
    return None if have is None or need is None else have[0] < need[0]


PTX_NEWER_THAN_DRIVER = Rule(
    id="HWP207",
    name="ptx-newer-than-driver",
    title="The driver cannot compile this TensorFlow's PTX",
    severity=Severity.WARNING,
    action=Action.ADMIN,
    after=("HWP102", "HWP206"),
    explanation=Explanation(
        checks="Where the driver has to compile PTX itself, because the build has no machine code for a GPU or XLA "
        "finds no ptxas: whether it is at least the driver of the CUDA release of that PTX. Minor-version "
        "compatibility covers machine code and not PTX.",
        matters="What is compiled then fails: CUDA_ERROR_UNSUPPORTED_PTX_VERSION. With a ptxas beside TensorFlow, as "
        "the extra `and-cuda` installs one, XLA hands machine code to the driver, and an older driver is fine.",
        fix="Update the driver; for XLA alone `pip install nvidia-cuda-nvcc-cu12` is enough.",
        reference="CUDA Compatibility guide; googlecolab/colabtools#5081",
    ),
)


def driver_compiles_this_ptx(case: Case) -> Verdict:
    """HWP207."""
    report = case.report
    tensorflow = cuda_build(report)
    if not isinstance(tensorflow, TensorFlow):
        return tensorflow
    needed = driver_for_ptx(tensorflow.cuda_version, _system(report)) if tensorflow.cuda_version is not None else None
    older = _cannot_compile(report, tensorflow, needed)
    if needed is None or older is None:
        return Skipped(reason="the driver's version, or the driver that this TensorFlow's PTX needs, is not known")
    compiled = [
        gpu.label
        for gpu in devices_that_compute(report)
        if (code := kernel_code(gpu, tensorflow)) is not None and code.kind == "jit"
    ]
    if not older or (not compiled and tensorflow.ptxas is not None):
        return PASS
    if not compiled and not tensorflow.libraries:
        return Skipped(reason="the files beside TensorFlow, a ptxas among them, were not looked at")
    version = report.driver.version if report.driver is not None else None
    what = f"{', '.join(compiled)} has no other code" if compiled else "XLA finds no ptxas that would do it"
    return (
        Problem(
            subject="driver",
            message=f"driver {version or 'here'} cannot compile PTX of CUDA {tensorflow.cuda_version} (from {needed} "
            f"on), and {what}",
            evidence={"driver": version, "needed": needed, "compiled_only": compiled, "ptxas": tensorflow.ptxas},
            fix=(f"update the NVIDIA driver to {needed} or newer",)
            if compiled
            else ("pip install nvidia-cuda-nvcc-cu12", f"or update the NVIDIA driver to {needed} or newer"),
            severity=Severity.ERROR if compiled else None,
            action=None if compiled else Action.USER,
        ),
    )


def _cannot_compile(report: Report, tensorflow: TensorFlow, needed: str | None) -> bool | None:
    driver = report.driver
    if driver is None or needed is None or tensorflow.cuda_version is None:
        return None
    if driver.version is not None:
        return driver_is_older(driver.version, needed)
    have, built = cuda_release(driver.cuda_version or ""), cuda_release(tensorflow.cuda_version)
    return None if have is None or built is None else have < built


def _system(report: Report) -> str:
    # Under WSL the driver is the one of Windows, with Windows' version numbers.
    return "Windows" if report.host.wsl else report.host.system


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(DRIVER_TOO_OLD, driver_runs_this_cuda),
    RuleCheck(PTX_NEWER_THAN_DRIVER, driver_compiles_this_ptx),
)
