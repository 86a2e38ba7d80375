"""The TensorFlow that the rules about CUDA's libraries, driver and kernels are about."""

from __future__ import annotations

from hwprobe.report import Report, TensorFlow
from hwprobe.rules.presence import HIDDEN, gpus_are_hidden, nvidia_gpu_expected
from hwprobe.rules.verdict import NotApplicable, Skipped
from hwprobe.usability import other_backend


def cuda_build(report: Report) -> TensorFlow | NotApplicable | Skipped:
    """Give the TensorFlow with CUDA in it that could use an NVIDIA GPU here, or why there is none."""
    tensorflow = report.tensorflow
    if tensorflow is None:
        return NotApplicable(reason="no TensorFlow here")
    backend = other_backend(report)
    if backend is not None:
        return NotApplicable(reason=f"Keras runs on {backend}, which brings code of its own")
    if not nvidia_gpu_expected(report):
        return NotApplicable(reason="no NVIDIA GPU for this process")
    if gpus_are_hidden(report):
        return NotApplicable(reason=HIDDEN)
    if tensorflow.is_cuda_build is None:
        return Skipped(reason="whether this TensorFlow is built with CUDA could not be read")
    if not tensorflow.is_cuda_build:
        return NotApplicable(reason="this TensorFlow is built without CUDA")
    return tensorflow
