"""HWP312 to HWP314: notebooks, and GPUs of another make."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import PciDevice
from hwprobe.rules.presence import nvidia_gpu_expected, nvidia_pci_devices
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict
from hwprobe.usability import devices_that_compute

NOTEBOOK_ENVIRONMENT = Rule(
    id="HWP312",
    name="notebook-environment",
    title="The notebook runs in another environment than the activated one",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="In a Jupyter kernel whose TensorFlow uses no GPU although there is one: whether the Python that runs "
        "belongs to the conda environment that is activated.",
        matters="A kernel starts its own interpreter and skips the activation script, and with it the library path "
        "that the script sets. What works in a terminal then finds no GPU in the notebook.",
        fix="`python -m ipykernel install --user --name ENV` from the environment itself, and pick that kernel.",
        reference="tensorflow/tensorflow#60790, #62994",
    ),
)


def notebook_runs_in_its_environment(case: Case) -> Verdict:
    """HWP312."""
    report, host = case.report, case.report.host
    conda = host.environment.get("CONDA_PREFIX")
    if not host.notebook:
        return NotApplicable(reason="not in a Jupyter kernel")
    if not nvidia_gpu_expected(report) or devices_that_compute(report):
        return NotApplicable(reason="no NVIDIA GPU here, or the kernel's TensorFlow uses it")
    if conda is None or host.prefix is None or conda.rstrip("/") == host.prefix.rstrip("/"):
        return PASS
    return (
        Problem(
            subject="notebook",
            message=f"this kernel runs the Python of {host.prefix}, while {conda} is activated",
            evidence={
                "prefix": host.prefix,
                "CONDA_PREFIX": conda,
                "LD_LIBRARY_PATH": host.environment.get("LD_LIBRARY_PATH"),
            },
            fix=(f"{conda}/bin/python -m ipykernel install --user --name {conda.rstrip('/').rsplit('/', 1)[-1]}",),
        ),
    )


OTHER_KIND_OF_GPU = Rule(
    id="HWP313",
    name="other-kind-of-gpu",
    title="A GPU that is not NVIDIA's",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Whether TensorFlow lists a GPU of a ROCm build or of a plug-in (Metal, DirectML, oneAPI).",
        matters="hwprobe's tables speak of NVIDIA's GPUs. What 16 bits gain on others it does not know, so it stays "
        "with float32; advice about NVIDIA drivers does not apply.",
        fix="Measure with `hwprobe bench`, then ask for a policy by name, or write an override into a policy file.",
        reference="tensorflow/tensorflow PR 51705 (pluggable devices); ROCm/tensorflow-upstream#3067",
    ),
)


def every_gpu_is_nvidias(case: Case) -> Verdict:
    """HWP313."""
    others = [gpu for gpu in case.report.devices if gpu.kind == "other"]
    if not others:
        return PASS if case.report.devices else NotApplicable(reason="no GPU here")
    tensorflow = case.report.tensorflow
    plugins = [one.name for one in tensorflow.plugins] if tensorflow is not None else []
    rocm = tensorflow is not None and bool(tensorflow.is_rocm_build)
    by = "ROCm" if rocm else " and ".join(plugins)
    names = ", ".join(dict.fromkeys(gpu.label for gpu in others))
    return (
        Problem(
            subject=others[0].subject,
            message=f"TensorFlow lists {names}{f' through {by}' if by else ''}, which hwprobe has no data about: "
            "float32 by default",
            evidence={"devices": [gpu.subject for gpu in others], "plugins": plugins, "rocm": rocm},
            fix=("hwprobe bench",),
        ),
    )


NO_NVIDIA_GPU = Rule(
    id="HWP314",
    name="no-nvidia-gpu",
    title="No NVIDIA GPU: TensorFlow's CUDA messages do not matter",
    severity=Severity.INFO,
    action=Action.NONE,
    explanation=Explanation(
        checks="Whether the display controllers on the PCI bus are all Intel's or AMD's.",
        matters="A stock TensorFlow looks for CUDA on every machine and says so in its log. On a machine without an "
        "NVIDIA GPU that is no fault and needs no driver.",
        fix="Nothing. For an Intel or AMD GPU see their plug-in or build of TensorFlow.",
        reference="intel/intel-extension-for-tensorflow#61",
    ),
)

_OTHER_VENDORS = {"8086": "Intel", "1002": "AMD"}


def machine_has_an_nvidia_gpu(case: Case) -> Verdict:
    """HWP314."""
    report = case.report
    devices = report.host.pci_devices
    if devices is None:
        return NotApplicable(reason="the PCI bus cannot be read here")
    vendors = sorted({vendor for device in devices if (vendor := _vendor(device)) is not None})
    if nvidia_gpu_expected(report) or nvidia_pci_devices(report) or report.devices:
        return PASS
    if not vendors:
        return NotApplicable(reason="no GPU of a known maker on the PCI bus")
    plugins = [one.name for one in report.tensorflow.plugins] if report.tensorflow is not None else []
    return (
        Problem(
            subject="PCI bus",
            message=f"the display controllers here are {' and '.join(vendors)}'s: no NVIDIA GPU, and CUDA messages in "
            "TensorFlow's log do not matter" + (f"; installed plug-ins: {', '.join(plugins)}" if plugins else ""),
            evidence={
                "device_ids": [f"{device.vendor_id}:{device.device_id}" for device in devices],
                "plugins": plugins,
            },
        ),
    )


def _vendor(device: PciDevice) -> str | None:
    return _OTHER_VENDORS.get(device.vendor_id.lower().removeprefix("0x"))


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(NOTEBOOK_ENVIRONMENT, notebook_runs_in_its_environment),
    RuleCheck(OTHER_KIND_OF_GPU, every_gpu_is_nvidias),
    RuleCheck(NO_NVIDIA_GPU, machine_has_an_nvidia_gpu),
)
