"""What hwprobe would choose on a board that is not here, TensorFlow release by release."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence

from hwprobe.configuration import Decision, DtypePolicy
from hwprobe.decide import decide
from hwprobe.gpu import Gpu
from hwprobe.knowledge.tensorflow import Release, newest_release, releases
from hwprobe.policy import Policy
from hwprobe.report import Host, Report, Sources, TensorFlow
from hwprobe.source import Fact, Source, SourceStatus
from hwprobe.usability import kernel_code

_NOT_ASKED = Source(status=SourceStatus.SKIPPED, reason="a board of the catalogue, not a machine")


class Outlook(Fact, frozen=True, kw_only=True):
    """What hwprobe would choose on a board with the wheels of the package index (Linux x86_64).

    Attributes:
        tensorflow: The newest final release that hwprobe knows.
        dtype_policy: The choice with that release; None where nothing is known to be usable with it.
        usable: All dtype policies that are usable with that release.
        rejected: Those that are not, each with the reason.
        since: The release from which on this choice holds; None without a choice.
        native_since: The release from which on there is machine code, and nothing is compiled at the first start; None
            if the newest one has none.
        last: Where there is no choice, the newest release that had one; None if none ever had.
    """

    tensorflow: str
    dtype_policy: DtypePolicy | None
    usable: tuple[str, ...] = ()
    rejected: dict[str, str] = {}
    since: str | None = None
    native_since: str | None = None
    last: str | None = None


def outlooks(gpus: Iterable[Gpu], policy: Policy) -> tuple[Outlook, ...]:
    """Foresee the choice on each of many GPUs, one by one: what differs in nothing that counts is judged once.

    Args:
        gpus: Annotated GPUs.
        policy: The site's policy.
    """
    judged: dict[object, Outlook] = {}
    result = []
    for gpu in gpus:
        counts = (gpu.compute_capability, gpu.tensor_cores, gpu.tensor_cores_reason, policy.override_for(gpu.name))
        if counts not in judged:
            judged[counts] = outlook(gpu, policy)
        result.append(judged[counts])
    return tuple(result)


def outlook(gpu: Gpu, policy: Policy) -> Outlook:
    """Foresee the choice on one GPU for every final TensorFlow release that hwprobe knows.

    Args:
        gpu: An annotated GPU, visible to the process that would train.
        policy: The site's policy.
    """
    newest = newest_release()
    final = [row for row in releases() if row.minor <= newest.minor]
    decisions = {row.version: decide(_report(gpu, row), policy) for row in final}
    choices = {version: _choice(decision) for version, decision in decisions.items()}
    choice = choices[newest.version]
    holding = [version for version, each in choices.items() if each is not None and each == choice]
    codes = {row.version: kernel_code(gpu, _wheel(row)) for row in final}
    native = [version for version, code in codes.items() if code is not None and code.kind == "native"]
    policies = decisions[newest.version].usability[0].policies
    return Outlook(
        tensorflow=newest.version,
        dtype_policy=choice,
        usable=tuple(name for name, verdict in policies.items() if verdict.usable is True),
        rejected={name: verdict.reason for name, verdict in policies.items() if verdict.usable is not True},
        since=_start_of_last_run(tuple(choices), holding),
        native_since=_start_of_last_run(tuple(choices), native),
        last=None if choice else next((version for version in reversed(choices) if choices[version]), None),
    )


def _choice(decision: Decision) -> DtypePolicy | None:
    """The choice, or None where it is only the last resort and nothing is known to be usable."""
    (device,) = decision.usability
    return decision.dtype_policy if device.policies[decision.dtype_policy].usable is True else None


def _start_of_last_run(versions: Sequence[str], holding: Collection[str]) -> str | None:
    """Where the unbroken run begins that ends with the newest version; None if the newest does not hold."""
    first = None
    for version in reversed(versions):
        if version not in holding:
            break
        first = version
    return first


def _report(gpu: Gpu, row: Release) -> Report:
    return Report(
        devices=(gpu,),
        driver=None,
        tensorflow=_wheel(row),
        keras=None,
        host=Host(system="Linux", machine="x86_64", python=row.python_minimum),
        sources=Sources(
            nvml=_NOT_ASKED,
            cuda=_NOT_ASKED,
            tensorflow_build=_NOT_ASKED,
            tensorflow_runtime=_NOT_ASKED,
            host=_NOT_ASKED,
        ),
        origin="catalogue",
    )


@functools.cache
def _wheel(row: Release) -> TensorFlow:
    return TensorFlow(
        version=f"{row.version}.0",
        is_cuda_build=True,
        is_rocm_build=False,
        cuda_version=row.cuda,
        cudnn_version=row.cudnn_minimum,
        compute_capabilities=row.architectures,
        compute_capabilities_origin="build_info" if row.cuda_recorded else "fatbin",
    )
