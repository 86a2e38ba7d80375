"""HWP101 to HWP109: the lower rungs of the ladder, from the PCI bus to the driver's libraries."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.knowledge.tensorflow import release
from hwprobe.report import PciDevice, Report, SourceStatus
from hwprobe.rules.presence import in_container, nvidia_driver_present, nvidia_pci_devices
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict

NVML_RM_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH"""
CUDA_DRIVER_MISMATCH = 803
"""CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"""
NVML_UNKNOWN = 999
"""NVML_ERROR_UNKNOWN"""

KERNEL_MODULE_MISSING = Rule(
    id="HWP101",
    name="kernel-module-missing",
    title="The NVIDIA kernel module is not loaded",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    explanation=Explanation(
        checks="Whether a machine with an NVIDIA GPU on its PCI bus has the NVIDIA kernel module loaded "
        "(/proc/driver/nvidia/version).",
        matters="Without it there is no device to open: no NVML, no CUDA, no GPU for TensorFlow.",
        fix="Load it with `sudo modprobe nvidia`; if there is no such module, install the distribution's NVIDIA "
        "driver package. Secure Boot refuses unsigned modules: `sudo dmesg | grep -i nvidia` says so.",
        reference="NVIDIA Linux driver README, chapter on the proc file system",
    ),
)


def kernel_module_is_loaded(case: Case) -> Verdict:
    """HWP101."""
    host = case.report.host
    if host.system != "Linux" or host.wsl or host.tegra is not None:
        return NotApplicable(reason="this platform has no NVIDIA kernel module of its own")
    if host.pci_devices is None:
        return Skipped(reason="the PCI bus could not be read")
    devices = nvidia_pci_devices(case.report)
    if not devices:
        return NotApplicable(reason="no NVIDIA GPU on the PCI bus")
    if nvidia_driver_present(case.report):
        return PASS
    return (_module_problem(devices, case.report),)


def _module_problem(devices: tuple[PciDevice, ...], report: Report) -> Problem:
    others = sorted({device.driver for device in devices if device.driver not in (None, "nvidia")})
    message = f"{len(devices)} NVIDIA GPU on the PCI bus ({devices[0].bus_id}) and no NVIDIA kernel module"
    if others:
        message += f"; the kernel drives it with {', '.join(str(name) for name in others)}"
    return Problem(
        subject="driver",
        message=message,
        evidence={"pci_bus_ids": [device.bus_id for device in devices], "kernel_drivers": [str(one) for one in others]},
        fix=("sudo modprobe nvidia", "if there is no such module: install the distribution's NVIDIA driver package"),
        # nouveau or vfio-pci drive the card on purpose, and so does a container without GPUs on a host with some.
        severity=Severity.WARNING if others or in_container(report) else None,
    )


DRIVER_LIBRARY_MISMATCH = Rule(
    id="HWP102",
    name="driver-library-mismatch",
    title="Kernel module and driver libraries have different versions",
    severity=Severity.ERROR,
    action=Action.DRAIN,
    explanation=Explanation(
        checks="Whether the loaded kernel module and the user-space libraries are of one version "
        "(NVML error 18, CUDA error 803, or the two versions themselves).",
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
    mismatch = report.sources.nvml.code == NVML_RM_MISMATCH or report.sources.cuda.code == CUDA_DRIVER_MISMATCH
    library = driver.nvml_library_version or driver.version
    if not mismatch and (driver.kernel_version is None or library is None):
        return Skipped(reason="the version of the kernel module or of the libraries could not be read")
    if not mismatch and (driver.kernel_version == library or report.host.wsl):
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


DEVICE_NODES_MISSING = Rule(
    id="HWP103",
    name="device-nodes-missing",
    title="Device nodes of the driver are missing",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102"),
    explanation=Explanation(
        checks="Where CUDA did not start: whether /dev/nvidiactl, /dev/nvidia-uvm and a /dev/nvidiaN exist.",
        matters="The nodes are made by nvidia-modprobe or nvidia-persistenced at first use. On a freshly started "
        "machine without either, CUDA fails for ordinary users until somebody runs a GPU program as root. NVML works "
        "without nvidia-uvm and looks healthy.",
        fix="Install nvidia-modprobe or start nvidia-persistenced; `sudo nvidia-modprobe -c 0 -u` makes the nodes now.",
        reference="tensorflow/tensorflow#23935, #394",
    ),
)


def device_nodes_exist(case: Case) -> Verdict:
    """HWP103."""
    report = case.report
    refusal = _no_question_of_nodes(report)
    if refusal is not None:
        return refusal
    assert report.host.device_nodes is not None
    present = {node.path for node in report.host.device_nodes}
    missing = [path for path in ("/dev/nvidiactl", "/dev/nvidia-uvm") if path not in present]
    if not any(path.removeprefix("/dev/nvidia").isdigit() for path in present):
        missing.append("/dev/nvidia0")
    if not missing:
        return PASS
    return (
        Problem(
            subject="driver",
            message=f"the kernel module is loaded and {', '.join(missing)} do not exist, which CUDA opens",
            evidence={"missing": missing, "cuda_code": report.sources.cuda.code},
            fix=("sudo nvidia-modprobe -c 0 -u", "install nvidia-modprobe, or start nvidia-persistenced"),
        ),
    )


DEVICE_NODES_REFUSED = Rule(
    id="HWP104",
    name="device-nodes-refused",
    title="This user may not open the device nodes",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102", "HWP103"),
    explanation=Explanation(
        checks="Where CUDA did not start: whether this process may open the /dev/nvidia* nodes.",
        matters="Without access there is no GPU. In a container the device control group can refuse although the "
        "node's mode allows it: that happens to running containers when systemd reloads.",
        fix="Add the user to the group that owns the nodes (often `video` or `render`) and log in again. In a "
        "container: start it anew.",
        reference="NVIDIA/nvidia-docker#1730; NVIDIA Linux driver README, module option NVreg_DeviceFileMode",
    ),
)


def device_nodes_are_accessible(case: Case) -> Verdict:
    """HWP104."""
    report = case.report
    refusal = _no_question_of_nodes(report)
    if refusal is not None:
        return refusal
    assert report.host.device_nodes is not None
    refused = [node for node in report.host.device_nodes if node.accessible is False]
    if not refused:
        return PASS
    named = ", ".join(f"{node.path} ({node.mode}, {node.owner}:{node.group})" for node in refused)
    group = refused[0].group or "video"
    fix = (
        "start the container anew" if in_container(report) else f"sudo usermod -aG {group} $USER   # then log in again"
    )
    return (
        Problem(
            subject="driver",
            message=f"this process may not open {named}",
            evidence={"refused": [node.path for node in refused]},
            fix=("ls -l /dev/nvidia*", fix),
        ),
    )


def _no_question_of_nodes(report: Report) -> NotApplicable | Skipped | None:
    if report.host.wsl or report.host.system != "Linux":
        return NotApplicable(reason="this platform has no /dev/nvidia* nodes")
    if not nvidia_driver_present(report):
        return NotApplicable(reason="no NVIDIA kernel module here")
    if report.sources.cuda.status is SourceStatus.OK:
        return NotApplicable(reason="CUDA starts, so its device nodes can be opened")
    if report.host.device_nodes is None:
        return Skipped(reason="/dev could not be read")
    if in_container(report) and not report.host.device_nodes:
        return NotApplicable(reason="this container was given no GPU")
    return None


NVML_LIBRARY_MISSING = Rule(
    id="HWP105",
    name="nvml-library-missing",
    title="libnvidia-ml is missing",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101",),
    explanation=Explanation(
        checks="Whether libnvidia-ml.so.1 can be loaded where an NVIDIA driver is present.",
        matters="TensorFlow 2.21 and newer list no GPU without it, and print nothing. Older ones do without, but "
        "hwprobe then knows less: no memory, no health.",
        fix="In a container add the capability: `NVIDIA_DRIVER_CAPABILITIES=compute,utility`. On a host install the "
        "driver's utility package (Debian: libnvidia-ml1).",
        reference="listing measured with TensorFlow 2.10 to 2.22; NVIDIA Container Toolkit documentation",
    ),
)


def nvml_library_is_there(case: Case) -> Verdict:
    """HWP105."""
    report = case.report
    if report.host.tegra is not None:
        return NotApplicable(reason="Jetson boards have no NVML before JetPack 7")
    if report.sources.nvml.status is not SourceStatus.ABSENT:
        return PASS
    if not nvidia_driver_present(report) and report.sources.cuda.status is not SourceStatus.OK:
        return NotApplicable(reason="no NVIDIA driver here")
    if in_container(report) and report.sources.cuda.status is SourceStatus.ABSENT:
        return NotApplicable(reason="this container was given no GPU")
    needed = _opens_nvml(report)
    return (
        Problem(
            subject="driver",
            message="libnvidia-ml.so.1 cannot be loaded"
            + (", and this TensorFlow lists no GPU without it" if needed else "; hwprobe knows less about the GPUs"),
            evidence={"reason": report.sources.nvml.reason},
            fix=(
                ("run the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",)
                if in_container(report)
                else ("install the driver's utility package (Debian: libnvidia-ml1)",)
            ),
            severity=None if needed else Severity.WARNING,
        ),
    )


def _opens_nvml(report: Report) -> bool:
    tensorflow = report.tensorflow
    if tensorflow is None or tensorflow.version is None or not tensorflow.is_cuda_build:
        return False
    known = release(tensorflow.version)
    return known is not None and known.opens_nvml


NVML_STUB = Rule(
    id="HWP106",
    name="nvml-stub-loaded",
    title="A stub was loaded in place of the driver",
    severity=Severity.ERROR,
    action=Action.USER,
    explanation=Explanation(
        checks="Whether the libnvidia-ml or libcuda that was loaded lies in a `stubs` folder of a CUDA toolkit.",
        matters="Those files are for linking only. They load, and every call fails, as if there were no GPU.",
        fix="Take the `stubs` folder out of LD_LIBRARY_PATH.",
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
    return tuple(
        Problem(
            subject="driver",
            message=f"{path} was loaded, which is a stub for linking and no driver",
            evidence={"path": path, "LD_LIBRARY_PATH": case.report.host.environment.get("LD_LIBRARY_PATH")},
            fix=("take the folder ending in /stubs out of LD_LIBRARY_PATH",),
        )
        for path in stubs
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(KERNEL_MODULE_MISSING, kernel_module_is_loaded),
    RuleCheck(DRIVER_LIBRARY_MISMATCH, kernel_and_libraries_agree),
    RuleCheck(DEVICE_NODES_MISSING, device_nodes_exist),
    RuleCheck(DEVICE_NODES_REFUSED, device_nodes_are_accessible),
    RuleCheck(NVML_LIBRARY_MISSING, nvml_library_is_there),
    RuleCheck(NVML_STUB, no_stub_is_loaded),
)
