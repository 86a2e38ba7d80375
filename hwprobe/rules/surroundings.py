"""HWP306 to HWP314: containers, schedulers, notebooks and GPUs of another make."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.rules.presence import in_container, nvidia_gpu_expected, nvidia_pci_devices
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Skipped, Verdict
from hwprobe.rules.visibility import VARIABLE

CONTAINER_WITHOUT_GPU = Rule(
    id="HWP306",
    name="container-without-gpu",
    title="This container was given no GPU, or not all of the driver",
    severity=Severity.WARNING,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="In a container: whether the host's NVIDIA driver was handed over, with device nodes and with the "
        "capabilities `compute` (libcuda) and `utility` (libnvidia-ml).",
        matters="A container sees the host's PCI bus and kernel module also when it was given no GPU. Without "
        "`compute` "
        "there is no CUDA; without `utility` TensorFlow 2.21 and newer list no GPU, and print nothing.",
        fix="Docker: `--gpus all`, Podman: `--device nvidia.com/gpu=all`, Kubernetes: a limit on `nvidia.com/gpu`; and "
        "`NVIDIA_DRIVER_CAPABILITIES=compute,utility`.",
        reference="NVIDIA Container Toolkit, specialized configurations with Docker; tensorflow/tensorflow#62412",
    ),
)


def container_has_the_driver(case: Case) -> Verdict:
    """HWP306."""
    report = case.report
    if not in_container(report):
        return NotApplicable(reason="not in a container")
    host = report.host
    if host.wsl:
        return NotApplicable(reason="WSL hands the driver over in its own way")
    if host.device_nodes is None:
        return Skipped(reason="/dev could not be read")
    expected = bool(nvidia_pci_devices(report)) or (report.driver is not None and bool(report.driver.kernel_version))
    if not expected and not host.device_nodes:
        return NotApplicable(reason="the host shows no NVIDIA GPU")
    capabilities = host.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    evidence = {
        "NVIDIA_VISIBLE_DEVICES": host.environment.get("NVIDIA_VISIBLE_DEVICES"),
        "NVIDIA_DRIVER_CAPABILITIES": capabilities,
        "container": host.container,
    }
    if not host.device_nodes:
        return (
            Problem(
                subject="container",
                message="the host has an NVIDIA GPU and this container was given none: no /dev/nvidia* here",
                evidence=evidence,
                fix=("docker run --gpus all ...", "Kubernetes: resources.limits: {nvidia.com/gpu: 1}"),
            ),
        )
    words = {word.strip() for word in (capabilities or "").split(",") if word.strip()}
    missing = [word for word in ("compute", "utility") if words and "all" not in words and word not in words]
    return tuple(
        Problem(
            subject="container",
            message=f"NVIDIA_DRIVER_CAPABILITIES={capabilities} leaves out {word}, "
            + ("and with it libcuda" if word == "compute" else "and with it libnvidia-ml"),
            evidence=evidence,
            fix=("run the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",),
        )
        for word in missing
    )


POD_SEES_ALL_GPUS = Rule(
    id="HWP307",
    name="pod-sees-all-gpus",
    title="This pod sees every GPU of its node",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="In Kubernetes: whether NVIDIA_VISIBLE_DEVICES=all gives the pod several GPUs past the device plugin.",
        matters="CUDA images set it to `all`. A pod that asks for no GPU then computes on GPUs that belong to others.",
        fix="Ask for GPUs with a limit on `nvidia.com/gpu`, or set `NVIDIA_VISIBLE_DEVICES=void` in a pod that needs "
        "none.",
        reference="NVIDIA/k8s-device-plugin#61, #87",
    ),
)


def pod_sees_its_own_gpus(case: Case) -> Verdict:
    """HWP307."""
    host = case.report.host
    if "KUBERNETES_SERVICE_HOST" not in host.environment and host.container != "kubernetes":
        return NotApplicable(reason="not in a Kubernetes pod")
    count = len(case.report.devices)
    if host.environment.get("NVIDIA_VISIBLE_DEVICES") != "all" or count < 2:
        return PASS
    return (
        Problem(
            subject="container",
            message=f"NVIDIA_VISIBLE_DEVICES=all shows this pod all {count} GPUs of the node, which others may be "
            f"using",
            evidence={"gpus": count},
            fix=("resources.limits: {nvidia.com/gpu: N}", "or, without GPUs: NVIDIA_VISIBLE_DEVICES=void"),
        ),
    )


SLURM_WITHOUT_GPU = Rule(
    id="HWP308",
    name="slurm-no-gpu",
    title="This Slurm job was given no GPU",
    severity=Severity.WARNING,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="In a Slurm job: whether it was allotted GPUs.",
        matters="Slurm writes the word NoDevFiles into CUDA_VISIBLE_DEVICES, or sets nothing at all. Nothing hides the "
        "node's GPUs in the second case: the job then computes on GPUs that belong to other jobs.",
        fix="Ask for GPUs: `#SBATCH --gres=gpu:1` (or `--gpus=1`).",
        reference="ray-project/ray#7014; Slurm generic resources guide",
    ),
)

_ALLOTTED = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS")


def slurm_gave_gpus(case: Case) -> Verdict:
    """HWP308."""
    host = case.report.host
    if host.scheduler != "slurm":
        return NotApplicable(reason="not in a Slurm job")
    if not nvidia_gpu_expected(case.report):
        return NotApplicable(reason="this node has no NVIDIA GPU")
    value = host.environment.get(VARIABLE)
    if value is not None and value.strip() != "NoDevFiles":
        return PASS
    if value is None and any(name in host.environment for name in _ALLOTTED):
        return PASS
    seen = len(case.report.visible_devices)
    others = (
        f"; it sees {seen} GPUs of the node all the same, which may be other jobs'" if value is None and seen else ""
    )
    return (
        Problem(
            subject="slurm",
            message="this Slurm job was given no GPU" + (f" ({VARIABLE}=NoDevFiles)" if value is not None else others),
            evidence={VARIABLE: value, "visible": seen},
            fix=("#SBATCH --gres=gpu:1",),
        ),
    )


LOCAL_RANK = Rule(
    id="HWP311",
    name="local-rank-exceeds-gpus",
    title="The local rank is no index of a visible GPU",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Under a launcher of several processes: whether the local rank is below the number of visible GPUs.",
        matters="Scripts that pick the GPU with their local rank as its index fail where each process sees one GPU "
        "of its "
        "own, as with one MIG instance each.",
        fix="Let each process use GPU 0 of those that it sees, or show every process all GPUs of the node.",
        reference="tensorflow/tensorflow#57385",
    ),
)

_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID")


def local_rank_is_an_index(case: Case) -> Verdict:
    """HWP311."""
    environment = case.report.host.environment
    name = next((one for one in _LOCAL_RANKS if environment.get(one, "").isdigit()), None)
    seen = len(case.report.visible_devices)
    if name is None or seen == 0:
        return NotApplicable(reason="no launcher of several processes, or no visible GPU")
    rank = int(environment[name])
    if rank < seen:
        return PASS
    mig = any(gpu.mig is not None and gpu.mig.enabled for gpu in case.report.visible_devices)
    return (
        Problem(
            subject=name,
            message=f"local rank {rank} and {seen} visible GPU{'' if seen == 1 else 's'}: no GPU has the rank as its "
            f"index" + (", since a process sees one MIG instance" if mig else ""),
            evidence={name: rank, "visible": seen},
            fix=("use the first GPU that the process sees: tf.config.list_physical_devices('GPU')[0]",),
            severity=Severity.WARNING if mig else None,
        ),
    )


NOTEBOOK_ENVIRONMENT = Rule(
    id="HWP312",
    name="notebook-environment",
    title="The notebook runs in another environment than the activated one",
    severity=Severity.WARNING,
    action=Action.USER,
    explanation=Explanation(
        checks="In a Jupyter kernel: whether the Python that runs belongs to the conda environment that is activated.",
        matters="A kernel starts its own interpreter and skips the activation script, and with it the library path "
        "that "
        "the script sets. What works in a terminal then finds no GPU in the notebook.",
        fix="`python -m ipykernel install --user --name ENV` from the environment itself, and pick that kernel.",
        reference="tensorflow/tensorflow#60790, #62994",
    ),
)


def notebook_runs_in_its_environment(case: Case) -> Verdict:
    """HWP312."""
    host = case.report.host
    conda = host.environment.get("CONDA_PREFIX")
    if not host.notebook:
        return NotApplicable(reason="not in a Jupyter kernel")
    if conda is None or host.prefix is None or conda.rstrip("/") == host.prefix.rstrip("/"):
        return PASS
    return (
        Problem(
            subject="notebook",
            message=f"this kernel runs the Python of {host.prefix}, while {conda} is activated",
            evidence={"prefix": host.prefix, "CONDA_PREFIX": conda},
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
        "with "
        "float32; advice about NVIDIA drivers does not apply.",
        fix="Measure with `hwprobe bench`, then ask for a policy by name, or write an override into a policy file.",
        reference="tensorflow/tensorflow PR 51705 (pluggable devices); ROCm/tensorflow-upstream#3067",
    ),
)


def every_gpu_is_nvidias(case: Case) -> Verdict:
    """HWP313."""
    if not case.report.devices:
        return NotApplicable(reason="no GPU here")
    others = [gpu for gpu in case.report.devices if gpu.kind == "other"]
    return tuple(
        Problem(
            subject=gpu.subject,
            message=f"TensorFlow lists {gpu.label}, which is not an NVIDIA GPU; float32 by default",
            evidence={"tensorflow_name": gpu.tensorflow_name},
            fix=("hwprobe bench",),
        )
        for gpu in others
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
    vendors = {_OTHER_VENDORS.get(device.vendor_id.lower().removeprefix("0x")) for device in devices} - {None}
    if nvidia_gpu_expected(report) or not vendors or report.devices:
        return PASS
    return (
        Problem(
            subject="PCI bus",
            message=f"the display controllers here are {' and '.join(sorted(str(vendor) for vendor in vendors))}'s: "
            "no NVIDIA GPU, and CUDA messages in TensorFlow's log do not matter",
            evidence={"device_ids": [f"{device.vendor_id}:{device.device_id}" for device in devices]},
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(CONTAINER_WITHOUT_GPU, container_has_the_driver),
    RuleCheck(POD_SEES_ALL_GPUS, pod_sees_its_own_gpus),
    RuleCheck(SLURM_WITHOUT_GPU, slurm_gave_gpus),
    RuleCheck(LOCAL_RANK, local_rank_is_an_index),
    RuleCheck(NOTEBOOK_ENVIRONMENT, notebook_runs_in_its_environment),
    RuleCheck(OTHER_KIND_OF_GPU, every_gpu_is_nvidias),
    RuleCheck(NO_NVIDIA_GPU, machine_has_an_nvidia_gpu),
)
