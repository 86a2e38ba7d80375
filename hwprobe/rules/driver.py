"""HWP101, HWP102 and HWP106: the kernel module, its libraries, and files that only look like them."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Driver, PciDevice
from hwprobe.rules.boards import last_driver_branch
from hwprobe.rules.presence import (
    HIDDEN,
    container_without_gpu,
    gpus_are_hidden,
    in_container,
    nvidia_driver_answers,
    nvidia_driver_present,
    nvidia_gpu_expected,
    nvidia_pci_devices,
)
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict

NVML_RM_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH"""
CUDA_DRIVER_MISMATCH = 803
"""CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"""

_PASSED_ON = "vfio-pci"
"""The kernel driver of a device that is handed to a virtual machine."""

KERNEL_MODULE_MISSING = Rule(
    id="HWP101",
    name="kernel-module-missing",
    title="The NVIDIA kernel module is not loaded",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    hides_gpus=True,
    explanation=Explanation(
        checks="Whether a machine with an NVIDIA GPU on its PCI bus has the NVIDIA kernel module loaded "
        "(/proc/driver/nvidia/version).",
        matters="Without it there is no device to open: no NVML, no CUDA, no GPU for TensorFlow.",
        fix="Load it with `sudo modprobe nvidia`; if there is no such module, install the distribution's NVIDIA "
        "driver package. Secure Boot refuses unsigned modules: `sudo dmesg | grep -i nvidia` says so. An old GPU "
        "needs an old driver branch, which the finding names where it is known.",
        reference="NVIDIA Linux driver README, chapter on the proc file system",
    ),
)


def kernel_module_is_loaded(case: Case) -> Verdict:
    """HWP101."""
    report, host = case.report, case.report.host
    if host.system != "Linux" or host.wsl or host.tegra is not None:
        return NotApplicable(reason="this platform has no NVIDIA kernel module of its own")
    if host.pci_devices is None:
        return Skipped(reason="the PCI bus could not be read")
    devices = nvidia_pci_devices(report)
    if not devices:
        return NotApplicable(reason="no NVIDIA GPU on the PCI bus")
    if nvidia_driver_present(report):
        return PASS
    if container_without_gpu(report):
        return NotApplicable(reason="this container was given no GPU, which HWP306 looks at")
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    return (_module_problem(devices, in_container(report)),)


def _module_problem(devices: tuple[PciDevice, ...], container: bool) -> Problem:
    others = sorted({device.driver for device in devices if device.driver not in (None, "nvidia")})
    branches = sorted({branch for device in devices if (branch := last_driver_branch(device)) is not None})
    count = f"{len(devices)} NVIDIA GPU{'' if len(devices) == 1 else 's'}"
    message = f"{count} on the PCI bus ({devices[0].bus_id}) and no NVIDIA kernel module"
    if others:
        message += f"; the kernel drives {'it' if len(devices) == 1 else 'them'} with {', '.join(map(str, others))}"
    if branches:
        message += f"; the last driver branch for this GPU is R{branches[0]}"
    package = f"the NVIDIA driver package of branch {branches[0]}" if branches else "the NVIDIA driver package"
    severity = Severity.WARNING if others or container else None
    return Problem(
        subject="driver",
        message=message,
        evidence={
            "pci_bus_ids": [device.bus_id for device in devices],
            "kernel_drivers": [str(one) for one in others],
            "last_driver_branch": branches[0] if branches else None,
        },
        fix=("sudo modprobe nvidia", f"if there is no such module: install {package} of this distribution"),
        severity=Severity.INFO if others == [_PASSED_ON] else severity,
    )


DRIVER_LIBRARY_MISMATCH = Rule(
    id="HWP102",
    name="driver-library-mismatch",
    title="Kernel module and driver libraries have different versions",
    severity=Severity.ERROR,
    action=Action.DRAIN,
    explanation=Explanation(
        checks="Where the driver's libraries do not start: whether the loaded kernel module and they are of one "
        "version (NVML error 18, CUDA error 803, or the two versions themselves).",
        matters="A package update replaced the libraries under a running kernel module. Programs that run already go "
        "on; none that starts now gets a GPU.",
        fix="Restart the node, or stop everything that uses the GPUs and reload the modules. Hold the NVIDIA packages "
        "back from unattended upgrades. Nothing in TensorFlow or Python can mend this.",
        reference="NVIDIA/nvidia-docker#584; NVIDIA/k8s-device-plugin restarts after host upgrades",
    ),
)


def kernel_and_libraries_agree(case: Case) -> Verdict:
    """HWP102."""
    report, driver = case.report, case.report.driver
    if driver is None:
        return NotApplicable(reason="no NVIDIA driver here")
    library = driver.nvml_library_version or _own_cuda_library_version(driver)
    if report.sources.nvml.code != NVML_RM_MISMATCH and report.sources.cuda.code != CUDA_DRIVER_MISMATCH:
        if nvidia_driver_answers(report):
            return PASS
        if driver.kernel_version is None or library is None:
            return Skipped(reason="the version of the kernel module or of the libraries could not be read")
        if driver.kernel_version == library:
            return PASS
    return (
        Problem(
            subject="driver",
            message=f"the loaded kernel module is {driver.kernel_version or 'of an unread version'}, the driver "
            f"libraries are {library or 'of another one'}",
            evidence={"kernel": driver.kernel_version, "library": library, "nvml_code": report.sources.nvml.code},
            fix=("cat /proc/driver/nvidia/version", "restart the node; drain it until then"),
        ),
    )


def _own_cuda_library_version(driver: Driver) -> str | None:
    # A forward-compatibility libcuda is newer than the kernel module on purpose.
    return None if "/compat/" in (driver.cuda_library or "") else driver.cuda_library_version


STUB_LOADED = Rule(
    id="HWP106",
    name="stub-loaded",
    title="A stub was loaded in place of the driver",
    severity=Severity.ERROR,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="Whether the libnvidia-ml or libcuda that was loaded lies in a `stubs` folder of a CUDA toolkit.",
        matters="Those files are for linking only. They load, and every call fails, as if there were no GPU.",
        fix="Take the `stubs` folder out of LD_LIBRARY_PATH. On a machine that only builds software, with no GPU in "
        "it, that is a warning.",
        reference="CUDA toolkit layout; XuehaiPan/nvitop#78",
    ),
)


def no_stub_is_loaded(case: Case) -> Verdict:
    """HWP106."""
    driver = case.report.driver
    paths = [] if driver is None else [path for path in (driver.nvml_library, driver.cuda_library) if path]
    if not paths:
        return NotApplicable(reason="no driver library was loaded")
    stubs = [path for path in paths if "/stubs/" in path]
    if not stubs:
        return PASS
    searched = case.report.host.environment.get("LD_LIBRARY_PATH", "")
    kept = ":".join(folder for folder in searched.split(":") if not folder.rstrip("/").endswith("/stubs"))
    return (
        Problem(
            subject="driver",
            message=f"{' and '.join(stubs)} {'was' if len(stubs) == 1 else 'were'} loaded, which is for linking only "
            "and no driver",
            evidence={"paths": stubs, "LD_LIBRARY_PATH": searched or None},
            fix=(f"export LD_LIBRARY_PATH={kept}   # without the folder that ends in /stubs",),
            severity=None if nvidia_gpu_expected(case.report) else Severity.WARNING,
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(KERNEL_MODULE_MISSING, kernel_module_is_loaded),
    RuleCheck(DRIVER_LIBRARY_MISMATCH, kernel_and_libraries_agree),
    RuleCheck(STUB_LOADED, no_stub_is_loaded),
)
