"""Which dtype policies one device can use: yes, no with a reason, or unknown with a reason."""

from __future__ import annotations

from collections.abc import Sequence

from hwprobe.capability import ComputeCapability
from hwprobe.configuration import DTYPE_POLICIES, DeviceUsability, DtypePolicy, Usable
from hwprobe.gpu import Gpu
from hwprobe.knowledge.kernels import KernelCode, code_for
from hwprobe.knowledge.tensorflow import release
from hwprobe.policy import Policy
from hwprobe.report import Host, Report, TensorFlow

CPU_SUBJECT = "CPU"

_HALF_NAME = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}


def devices_that_compute(report: Report) -> tuple[Gpu, ...]:
    """The GPUs that this TensorFlow will place work on; empty means the CPU.

    TensorFlow's own list is the last word, unless Keras runs on another backend. Where it was not asked, it is
    foreseen: a build without CUDA, or one of its libraries that does not load, leaves every NVIDIA GPU aside.
    """
    tensorflow = report.tensorflow
    if tensorflow is None or other_backend(report) is not None:
        return report.visible_devices
    if tensorflow.devices is not None:
        return tuple(gpu for gpu in report.devices if gpu.tensorflow_name is not None)
    return report.visible_devices if _will_register_gpus(tensorflow) else ()


def _will_register_gpus(tensorflow: TensorFlow) -> bool:
    if tensorflow.is_cuda_build is False:
        return False
    return all(library.loads is not False for library in tensorflow.libraries)


def usability(report: Report, policy: Policy) -> tuple[DeviceUsability, ...]:
    """Judge every dtype policy on every device that will compute.

    Args:
        report: An annotated report (architectures and Tensor Cores filled in).
        policy: The site's policy; its device overrides are applied.

    Returns:
        One entry a GPU, or one for the CPU where no GPU will compute.
    """
    gpus = devices_that_compute(report)
    if not gpus:
        return (_cpu_usability(report.host),)
    return tuple(gpu_usability(gpu, report.tensorflow, policy, other_backend(report)) for gpu in gpus)


def visible_devices_value(devices: Sequence[DeviceUsability | Gpu]) -> str:
    """Write what CUDA_VISIBLE_DEVICES would have to be, to show these GPUs and no others.

    Args:
        devices: In the order in which they are to be numbered.

    Returns:
        Their UUIDs; for a device that was only described, and has none, words that stand for it.
    """
    return ",".join(
        device.subject if device.subject.startswith(("GPU-", "MIG-")) else f"<UUID of {device.label}>"
        for device in devices
    )


def other_backend(report: Report) -> str | None:
    """The backend of Keras 3 where it is not TensorFlow: then TensorFlow's build says nothing about the GPUs.

    Keras 2 and tf_keras have TensorFlow alone, whatever the variable says.
    """
    keras = report.keras
    if keras is None or keras.legacy or (keras.version or "").startswith("2."):
        return None
    return keras.backend if keras.backend != "tensorflow" else None


def runs_on_tensorflow(report: Report) -> bool:
    """Whether a script of this environment would compute with TensorFlow."""
    return report.tensorflow is not None and other_backend(report) is None


def gpu_usability(
    gpu: Gpu, tensorflow: TensorFlow | None, policy: Policy, backend: str | None = None
) -> DeviceUsability:
    """Judge every dtype policy on one GPU.

    Args:
        gpu: An annotated device.
        tensorflow: The TensorFlow that will run; None if there is none.
        policy: The site's policy.
        backend: Keras' backend where it is not TensorFlow.
    """
    verdicts = {name: _on_gpu(name, gpu, tensorflow, backend) for name in DTYPE_POLICIES}
    return DeviceUsability(subject=gpu.subject, label=gpu.label, policies=_overridden(verdicts, gpu.name, policy))


def kernel_code(gpu: Gpu, tensorflow: TensorFlow | None) -> KernelCode | None:
    """How this TensorFlow's machine code fits this GPU; None where either side is unknown."""
    if gpu.compute_capability is None or tensorflow is None or tensorflow.compute_capabilities is None:
        return None
    return code_for(gpu.compute_capability, tensorflow.compute_capabilities)


def _on_gpu(name: DtypePolicy, gpu: Gpu, tensorflow: TensorFlow | None, backend: str | None) -> Usable:
    if gpu.error is not None:
        return Usable(usable=False, reason=f"the device does not work: {gpu.error}")
    if gpu.kind == "other":
        return _on_other_gpu(name)
    if name != "float32":
        # What no other TensorFlow would change is said before what one would.
        lacking = _lacking_tensor_cores(name, gpu)
        if lacking is not None:
            return lacking
    if backend is None:
        code = _code_verdict(gpu, tensorflow)
    else:
        code = Usable(usable=True, reason=f"Keras runs on {backend}, whose own code for this GPU is not looked at")
    if code.usable is not True or name == "float32":
        return code
    if backend is None:
        release_verdict = _release_allows(name, tensorflow)
        if release_verdict is not None:
            return release_verdict
    if gpu.tensor_cores is None:
        return Usable(usable=None, reason="whether it has Tensor Cores is not known")
    return Usable(usable=True, reason=f"Tensor Cores for {_HALF_NAME[name]}; {code.reason}")


def _on_other_gpu(name: DtypePolicy) -> Usable:
    if name == "float32":
        return Usable(usable=True, reason="every device computes in float32")
    return Usable(
        usable=None,
        reason="not an NVIDIA GPU: whether 16 bits pay on it is not known; measure with `hwprobe bench`",
    )


def _code_verdict(gpu: Gpu, tensorflow: TensorFlow | None) -> Usable:
    if tensorflow is None:
        return Usable(
            usable=None, reason="no TensorFlow is installed here, so whether it has code for this GPU is unknown"
        )
    if gpu.compute_capability is None:
        return Usable(usable=None, reason="its compute capability could not be read")
    code = kernel_code(gpu, tensorflow)
    if code is None:
        return Usable(
            usable=None,
            reason="which GPUs this TensorFlow has code for could not be read from its build facts or libraries",
        )
    if code.kind == "none":
        return Usable(
            usable=False, reason=f"TensorFlow {tensorflow.version} has no code that runs on it: {code.reason}"
        )
    return Usable(usable=True, reason=code.reason)


def _lacking_tensor_cores(name: DtypePolicy, gpu: Gpu) -> Usable | None:
    half = _HALF_NAME[name]
    if gpu.tensor_cores is None or half in gpu.tensor_cores:
        return None
    return Usable(usable=False, reason=_no_tensor_cores(half, gpu, gpu.compute_capability))


def _no_tensor_cores(half: str, gpu: Gpu, capability: ComputeCapability | None) -> str:
    if gpu.tensor_cores:
        return f"no {half} in its Tensor Cores (compute capability {capability}; {half} needs 8.0)"
    return f"no Tensor Cores: {gpu.tensor_cores_reason or f'compute capability {capability}, they begin with 7.0'}"


def _release_allows(name: DtypePolicy, tensorflow: TensorFlow | None) -> Usable | None:
    if tensorflow is None or tensorflow.version is None:
        return Usable(usable=None, reason="the TensorFlow version could not be read")
    known = release(tensorflow.version)
    if known is None:
        return Usable(usable=False, reason=f"TensorFlow {tensorflow.version} is older than 2.4, the first with {name}")
    if name == "mixed_bfloat16" and known.bfloat16 != "complete":
        return Usable(
            usable=False,
            reason=f"TensorFlow {tensorflow.version} lacks bfloat16 kernels on GPUs; 2.13 is the first with them",
        )
    return None


def _cpu_usability(host: Host) -> DeviceUsability:
    policies: dict[str, Usable] = {
        "mixed_bfloat16": _cpu_bfloat16(host),
        "mixed_float16": Usable(usable=False, reason="float16 is slower than float32 on every CPU that was measured"),
        "float32": Usable(usable=True, reason="every CPU computes in float32"),
    }
    return DeviceUsability(subject=CPU_SUBJECT, label=host.cpu_model or "CPU", policies=policies)


def _cpu_bfloat16(host: Host) -> Usable:
    if host.cpu_flags is None:
        return Usable(usable=None, reason="the CPU's flags are not known")
    if "amx_bf16" in host.cpu_flags:
        return Usable(usable=True, reason="the CPU has AMX for bfloat16 (amx_bf16)")
    return Usable(
        usable=False, reason="the CPU has no AMX for bfloat16 (amx_bf16), without which bfloat16 is slower than float32"
    )


def _overridden(verdicts: dict[DtypePolicy, Usable], name: str | None, policy: Policy) -> dict[str, Usable]:
    result: dict[str, Usable] = {str(name): verdict for name, verdict in verdicts.items()}
    override = policy.override_for(name)
    if override is None:
        return result
    reason = f"policy {policy.label} says so for {override.name!r}: {override.reason}"
    # An override is a site's wish about speed or numerics; it cannot make a broken or codeless device compute.
    if verdicts["float32"].usable is True:
        result.update({allowed: Usable(usable=True, reason=reason) for allowed in override.allow})
    result.update({denied: Usable(usable=False, reason=reason) for denied in override.deny})
    return result
