"""Whether a TensorFlow build carries code that a GPU can run: by the build's own list, never by its version."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from hwprobe.capability import ComputeCapability
from hwprobe.knowledge.architectures import Architecture, architecture_of

_ENTRY = re.compile(r"(?:(?P<kind>sm|compute)_)?(?P<major>\d{1,2})\.?(?P<minor>\d)(?P<suffix>[af]?)")


class KernelCode(msgspec.Struct, frozen=True):
    """How a GPU gets code from a build.

    Attributes:
        kind: `native`: machine code in the build. `jit`: the driver compiles the build's PTX at the first start, which
            can take many minutes, once. `none`: nothing in the build runs on it.
        by: The entry of the build's list that serves it; None with `none`.
        reason: Why, as a sentence part.
    """

    kind: Literal["native", "jit", "none"]
    by: str | None
    reason: str


class _Entry(msgspec.Struct, frozen=True):
    """One entry of a list: `sm_80`, `compute_90`, `sm_90a`, `compute_100f`, or the bare `7.5` of a build script."""

    text: str
    capability: ComputeCapability
    ptx: bool
    suffix: str

    def is_native_to(self, device: ComputeCapability) -> bool:
        """Machine code runs on its own major and any minor from its own on; with `a` on exactly its own capability."""
        if self.suffix == "a":
            return self.capability == device
        return self.capability.major == device.major and self.capability.minor <= device.minor

    def compiles_for(self, device: ComputeCapability) -> bool:
        """PTX is for its own capability and everything newer, unless `a` or `f` ties it to a chip or a family."""
        return self.ptx and not self.suffix and self.capability < device


def code_for(capability: ComputeCapability, architectures: Sequence[str]) -> KernelCode:
    """Tell how a GPU gets code from a build.

    TensorFlow lists a GPU whether or not the build has code for it; without code the first kernel fails.

    The rules are those of the CUDA Programming Guide (binary compatibility, PTX compatibility, architecture- and
    family-specific features), and the table of architectures names the GPUs on which PTX fails all the same.

    Args:
        capability: Of the GPU.
        architectures: The build's list, as `build_info.py` or the library's fatbin sections give it: `sm_80`,
            `compute_90`. An entry that is not understood serves no GPU.
    """
    entries = [entry for entry in map(_parse, architectures) if entry is not None]
    if not entries:
        return KernelCode("none", None, "its list names no architecture of NVIDIA")
    native = [entry for entry in entries if entry.is_native_to(capability)]
    if native:
        by = max(native, key=lambda entry: (entry.capability, entry.suffix, not entry.ptx))
        return KernelCode("native", by.text, f"{by.text} is machine code for {capability}")
    ptx = [entry for entry in entries if entry.compiles_for(capability)]
    if not ptx:
        return KernelCode("none", None, _why_nothing(capability, entries))
    return _compiled(architecture_of(capability), capability, max(ptx, key=lambda entry: entry.capability))


def _compiled(row: Architecture, device: ComputeCapability, by: _Entry) -> KernelCode:
    if row.oldest_working_ptx is not None and by.capability < row.oldest_working_ptx:
        where = str(device) if row.known else f"{row.capability}, by which the unknown {device} is judged"
        reason = f"the PTX of {by.text} is known to fail on {where} ({row.ptx_source})"
        return KernelCode("none", None, reason)
    return KernelCode("jit", by.text, f"the driver compiles the PTX of {by.text} for {device} at the first start")


def _why_nothing(device: ComputeCapability, entries: list[_Entry]) -> str:
    oldest = min(entry.capability for entry in entries)
    if device < oldest:
        return f"{device} is older than {oldest}, the oldest capability of this build"
    listed = ", ".join(entry.text for entry in entries)
    return f"nothing in {listed} runs on {device}"


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> _Entry | None:
    match = _ENTRY.fullmatch(text.strip().lower())
    if match is None:
        return None
    # A bare "7.5" in TF_CUDA_COMPUTE_CAPABILITIES asks for machine code and PTX (third_party/gpus/cuda_configure.bzl).
    ptx = match["kind"] != "sm"
    return _Entry(text.strip(), ComputeCapability(int(match["major"]), int(match["minor"])), ptx, match["suffix"])
