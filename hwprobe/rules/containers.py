"""HWP306 and HWP307: what a container was given of its host's GPUs."""

from __future__ import annotations

from hwprobe.findings import Action, EvidenceValue, Explanation, Rule, Severity
from hwprobe.report import Report
from hwprobe.rules.presence import container_without_gpu, in_container, nvidia_pci_devices
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.source import SourceStatus

_GIVEN = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_NO_GPU_MEANT = ("", "void", "none")

CONTAINER_WITHOUT_GPU = Rule(
    id="HWP306",
    name="container-without-gpu",
    title="This container was given no GPU, or not all of the driver",
    severity=Severity.WARNING,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="In a container: whether the host's NVIDIA GPUs were handed over, with device nodes and with the "
        "capabilities `compute` (libcuda) and `utility` (libnvidia-ml).",
        matters="A container sees the host's PCI bus and kernel module also when it was given no GPU. Without "
        "`compute` there is no CUDA; without `utility` TensorFlow 2.21 and newer list no GPU, and print nothing.",
        fix="Docker: `--gpus all`, Podman: `--device nvidia.com/gpu=all`, Apptainer: `--nv`, Kubernetes: a limit on "
        "`nvidia.com/gpu`; and `NVIDIA_DRIVER_CAPABILITIES=compute,utility`. A pod that asked for no GPU is left "
        "alone: there it is information.",
        reference="NVIDIA Container Toolkit, specialized configurations with Docker; tensorflow/tensorflow#62412",
    ),
)


def container_has_the_driver(case: Case) -> Verdict:
    """HWP306."""
    report = case.report
    if not in_container(report):
        return NotApplicable(reason="not in a container")
    if report.host.device_nodes is None:
        return Skipped(reason="/dev could not be read")
    if container_without_gpu(report):
        return _nothing_given(report)
    return _part_of_the_driver(report)


def _nothing_given(report: Report) -> Verdict:
    environment = report.host.environment
    driver = report.driver is not None and report.driver.kernel_version is not None
    allotted = environment.get(_GIVEN, "") not in (*_NO_GPU_MEANT, "all")
    if not nvidia_pci_devices(report) and not driver and not allotted:
        if not report.host.wsl or environment.get(_GIVEN, "") in _NO_GPU_MEANT:
            return NotApplicable(reason="the host shows no NVIDIA GPU")
        return (_given_problem(report, "this image is made for NVIDIA GPUs and the container was given none", True),)
    if allotted:
        said = f"{_GIVEN}={environment[_GIVEN]} allots GPUs to this container and none was handed over"
        return (_given_problem(report, f"{said}: no /dev/nvidia* here", False),)
    message = "the host has an NVIDIA GPU and this container was given none: no /dev/nvidia* here"
    return (_given_problem(report, message, report.host.container == "kubernetes"),)


def _given_problem(report: Report, message: str, calm: bool) -> Problem:
    fixes = {
        "kubernetes": "in the pod: resources: {limits: {nvidia.com/gpu: 1}}",
        "podman": "podman run --device nvidia.com/gpu=all ...",
        "apptainer": "apptainer exec --nv ...",
    }
    return Problem(
        subject="container",
        message=message,
        evidence=_evidence(report),
        fix=(fixes.get(report.host.container or "", "docker run --gpus all ..."),),
        severity=Severity.INFO if calm else None,
    )


def _part_of_the_driver(report: Report) -> Verdict:
    listed = report.host.environment.get(_CAPABILITIES)
    words = {word.strip() for word in (listed or "").split(",") if word.strip()}
    if not words or "all" in words:
        return PASS
    sources = {"compute": report.sources.cuda.status, "utility": report.sources.nvml.status}
    missing = [word for word, status in sources.items() if word not in words and status is SourceStatus.ABSENT]
    if not missing:
        return PASS
    libraries = {"compute": "libcuda", "utility": "libnvidia-ml"}
    return (
        Problem(
            subject="container",
            message=f"{_CAPABILITIES}={listed} leaves out {' and '.join(missing)}, and with it "
            f"{' and '.join(libraries[word] for word in missing)}",
            evidence=_evidence(report),
            fix=(f"docker run -e {_CAPABILITIES}={','.join(sorted(words | set(sources)))} ...",),
            severity=Severity.ERROR,
        ),
    )


def _evidence(report: Report) -> dict[str, EvidenceValue]:
    environment = report.host.environment
    return {
        _GIVEN: environment.get(_GIVEN),
        _CAPABILITIES: environment.get(_CAPABILITIES),
        "container": report.host.container,
    }


POD_SEES_ALL_GPUS = Rule(
    id="HWP307",
    name="pod-sees-all-gpus",
    title="This pod sees every GPU of its node",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="In Kubernetes: whether NVIDIA_VISIBLE_DEVICES=all gives the pod several GPUs past the device plugin, "
        "as many as the PCI bus of the node has.",
        matters="CUDA images set it to `all`. A pod that asks for no GPU then computes on GPUs that belong to others.",
        fix="Ask for GPUs with a limit on `nvidia.com/gpu`, or set `NVIDIA_VISIBLE_DEVICES=void` in a pod that needs "
        "none.",
        reference="NVIDIA/k8s-device-plugin#61, #87",
    ),
)


def pod_sees_its_own_gpus(case: Case) -> Verdict:
    """HWP307."""
    report = case.report
    if "KUBERNETES_SERVICE_HOST" not in report.host.environment and report.host.container != "kubernetes":
        return NotApplicable(reason="not in a Kubernetes pod")
    count = sum(gpu.kind == "nvidia" for gpu in report.devices)
    if report.host.environment.get(_GIVEN) != "all" or count < 2 or len(nvidia_pci_devices(report)) > count:
        return PASS
    return (
        Problem(
            subject="container",
            message=f"{_GIVEN}=all shows this pod all {count} GPUs of the node, which others may be using",
            evidence={"gpus": count},
            fix=(
                f"in the pod: resources: {{limits: {{nvidia.com/gpu: {count}}}}}",
                f"or, in one without GPUs: {_GIVEN}=void",
            ),
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(CONTAINER_WITHOUT_GPU, container_has_the_driver),
    RuleCheck(POD_SEES_ALL_GPUS, pod_sees_its_own_gpus),
)
