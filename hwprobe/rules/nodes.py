"""HWP103 and HWP104: the device nodes through which CUDA reaches the kernel module."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import DeviceNode, Report
from hwprobe.rules.presence import (
    HIDDEN,
    container_without_gpu,
    gpus_are_hidden,
    in_container,
    nvidia_driver_present,
    nvidia_nodes,
)
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.source import SourceStatus

DEVICE_NODES_MISSING = Rule(
    id="HWP103",
    name="device-nodes-missing",
    title="Device nodes of the driver are missing",
    severity=Severity.ERROR,
    action=Action.ADMIN,
    after=("HWP101", "HWP102"),
    explanation=Explanation(
        checks="Where CUDA does not start: whether /dev/nvidiactl, /dev/nvidia-uvm and a /dev/nvidiaN exist.",
        matters="The nodes are made by nvidia-modprobe or nvidia-persistenced at first use. On a freshly started "
        "machine without either, CUDA fails for ordinary users until somebody runs a GPU program as root. NVML works "
        "without nvidia-uvm and looks healthy.",
        fix="Install nvidia-modprobe or start nvidia-persistenced; `sudo nvidia-modprobe -c 0 -u` makes the nodes "
        "now. A container gets the nodes of its host as they were when it started: make them there, start it anew.",
        reference="tensorflow/tensorflow#23935, #394",
    ),
)


def device_nodes_exist(case: Case) -> Verdict:
    """HWP103."""
    report = case.report
    refusal = _no_question_of_nodes(report)
    if refusal is not None:
        return refusal
    present = {node.path for node in nvidia_nodes(report)}
    missing = [path for path in ("/dev/nvidiactl", "/dev/nvidia-uvm") if path not in present]
    if not any(path.removeprefix("/dev/nvidia").isdigit() for path in present):
        missing.append("/dev/nvidia0")
    if not missing:
        return PASS
    where = "on the host: " if in_container(report) else ""
    fix = (f"{where}sudo nvidia-modprobe -c 0 -u", f"{where}install nvidia-modprobe, or start nvidia-persistenced")
    return (
        Problem(
            subject="driver",
            message=f"the kernel module is loaded and {' and '.join(missing)}, which CUDA opens, "
            f"{'does' if len(missing) == 1 else 'do'} not exist",
            evidence={"missing": missing, "cuda_code": report.sources.cuda.code},
            fix=(*fix, "then start the container anew") if in_container(report) else fix,
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
        checks="Where CUDA does not start: whether owner and mode of the /dev/nvidia* nodes let this process in.",
        matters="Without access there is no GPU. The nodes are not opened here, so a device control group that "
        "refuses although the mode allows it shows only in what NVML and CUDA answer (HWP107, HWP111).",
        fix="Add the user to the group that owns the nodes (often `video` or `render`) and log in again. In a "
        "container: run it as a user who may open them.",
        reference="NVIDIA Linux driver README, module option NVreg_DeviceFileMode; NVIDIA/nvidia-docker#1730",
    ),
)


def device_nodes_are_accessible(case: Case) -> Verdict:
    """HWP104."""
    report = case.report
    refusal = _no_question_of_nodes(report)
    if refusal is not None:
        return refusal
    refused = [node for node in nvidia_nodes(report) if node.accessible is False and _is_needed(node)]
    if not refused:
        return PASS
    named = ", ".join(f"{node.path} ({node.mode}, {node.owner}:{node.group})" for node in refused)
    group = refused[0].group or "video"
    return (
        Problem(
            subject="driver",
            message=f"this process may not open {named}",
            evidence={"refused": [node.path for node in refused]},
            fix=(
                "ls -l /dev/nvidia*",
                f"docker run --group-add {group} ...   # or as another user"
                if in_container(report)
                else f"sudo usermod -aG {group} $USER   # then log in again",
            ),
        ),
    )


def _is_needed(node: DeviceNode) -> bool:
    # nvidia-modeset and nvidia-uvm-tools are for displays and debuggers.
    return node.path in ("/dev/nvidiactl", "/dev/nvidia-uvm") or node.path.removeprefix("/dev/nvidia").isdigit()


def _no_question_of_nodes(report: Report) -> NotApplicable | Skipped | None:
    cuda = report.sources.cuda.status
    if report.host.wsl or report.host.system != "Linux" or report.host.tegra is not None:
        return NotApplicable(reason="this platform reaches its GPUs through other nodes")
    if not nvidia_driver_present(report):
        return NotApplicable(reason="no NVIDIA kernel module here")
    if container_without_gpu(report):
        return NotApplicable(reason="this container was given no GPU, which HWP306 looks at")
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    if cuda is SourceStatus.OK:
        return NotApplicable(reason="CUDA starts, so its device nodes can be opened")
    if cuda is not SourceStatus.FAILED:
        return Skipped(reason=f"CUDA did not say whether it starts: {report.sources.cuda.reason}")
    if report.host.device_nodes is None:
        return Skipped(reason="/dev could not be read")
    return None


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(DEVICE_NODES_MISSING, device_nodes_exist),
    RuleCheck(DEVICE_NODES_REFUSED, device_nodes_are_accessible),
)
