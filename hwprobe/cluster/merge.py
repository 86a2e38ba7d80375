"""Records of many nodes in, one plan out. Pure.

Nodes that say the same are counted together, so what is kept while ten thousand records stream by is one entry for each
kind of node, and the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

from hwprobe.cluster.gathering import MAX_LISTED, Expectation, Gathering
from hwprobe.cluster.job import Job
from hwprobe.cluster.nodeset import fold
from hwprobe.cluster.plan import Difference, NodeNote, Plan, sealed
from hwprobe.cluster.record import NodeRecord, Wishes
from hwprobe.cluster.record_files import UnreadableRecord
from hwprobe.configuration import DtypePolicy, Memory, Usable
from hwprobe.version import VERSION

Kinds = Sequence[tuple[NodeRecord, list[str]]]
"""One record for each kind of node, with the names of all that said the same."""


class _Choice:
    """What the nodes can agree on, and what stood in the way."""

    def __init__(self, kinds: Kinds, wishes: Wishes, prefer: Sequence[DtypePolicy] | None) -> None:
        site = wishes.cpu if all(record.on_cpu for record, _ in kinds) else wishes.prefer
        self.prefer: tuple[DtypePolicy, ...] = tuple(prefer) if prefer is not None else site
        self.dtype_policy: DtypePolicy | None = None
        self.rejected: dict[str, str] = {}
        self.limiting: list[str] = []
        total = sum(len(names) for _, names in kinds)
        for policy in self.prefer:
            blocking = [(record.policies.of(policy), names) for record, names in kinds]
            blocking = [(answer, names) for answer, names in blocking if answer.usable is not True]
            if not blocking:
                self.dtype_policy = policy
                return
            self.rejected[policy] = "; ".join(_objection(answer, names, total) for answer, names in blocking)
            self.limiting += [name for _, names in blocking for name in names]


def merge(
    records: Iterable[NodeRecord | UnreadableRecord],
    *,
    expect: Expectation | str | int | None = None,
    prefer: Sequence[DtypePolicy] | None = None,
    wishes: Wishes | None = None,
    job: Job | None = None,
) -> Plan:
    """Find the one policy that every node of a job can use.

    It is the first of the preference that is usable on all of them; unknown counts as no. Where the job must not start
    (a node is missing, not ready, or of another TensorFlow) the plan is negative and says why.

    Args:
        records: As `read_records` gives them; they are read once and not kept.
        expect: The nodes of the job: their number, or a node list of Slurm or ClusterShell.
        prefer: Preference to use in place of the nodes' own, best first.
        wishes: Wishes to use in place of the nodes' own.
        job: The job whose records count; None takes that of the first record.

    Returns:
        The plan, with its digest.

    Raises:
        InputError: `expect` cannot be read, or the records belong to several jobs and `job` was not given.
    """
    expectation = Expectation.parse(expect) if isinstance(expect, (str, int)) else expect
    gathering = Gathering(job)
    for item in records:
        gathering.add(item)
    kinds = gathering.kinds
    counting = wishes or (kinds[0][0].wishes if kinds else None)
    choice = _Choice(kinds, counting, prefer) if kinds and counting is not None else None
    differences = _differences(kinds, wishes_matter=wishes is None, preference_matters=prefer is None)
    problems = [
        *_reading_problems(gathering),
        *_attendance_problems(gathering, expectation),
        *_readiness_problems(kinds),
        *(_difference_problem(difference) for difference in differences if difference.blocks),
        *_choice_problems(choice),
    ]
    settings = {} if problems or choice is None or counting is None else _settings(choice, counting, kinds, wishes)
    missing, unexpected = _attendance(gathering, expectation)
    return sealed(
        Plan(
            hwprobe=VERSION,
            agreed=bool(settings),
            job=gathering.job,
            nodes=fold(gathering.hosts),
            node_count=len(gathering.hosts),
            record_count=sum(len(names) for _, names in kinds),
            expected=expectation.count if expectation is not None else None,
            prefer=choice.prefer if choice is not None else (),
            limited_by=fold(choice.limiting) if choice is not None else "",
            rejected=choice.rejected if choice is not None else {},
            missing=missing,
            unexpected=unexpected,
            unreadable=gathering.unreadable,
            differences=differences,
            problems=tuple(problems),
            notes=_notes(gathering, kinds, choice),
            hosts=tuple(sorted(gathering.hosts)),
            **settings,
        )
    )


def _objection(answer: Usable, names: Sequence[str], total: int) -> str:
    unknown = "unknown, which counts as no: " if answer.usable is None else ""
    return f"{len(names)} of {total} nodes, {fold(names)}: {unknown}{answer.reason}"


def _settings(choice: _Choice, counting: Wishes, kinds: Kinds, given: Wishes | None) -> dict[str, Any]:
    assert choice.dtype_policy is not None
    memory = given.memory if given is not None else _common_memory([record.wishes.memory for record, _ in kinds])
    return {
        "dtype_policy": choice.dtype_policy,
        "loss_scaling": counting.loss_scaling[choice.dtype_policy],
        "tf32": counting.tf32,
        "memory": memory,
    }


def _common_memory(wanted: Sequence[Memory]) -> Memory:
    """The most careful of what the nodes want; memory may differ without harm to what is computed."""
    limits = [memory.limit_mib for memory in wanted if memory.limit_mib is not None]
    allocators = {memory.allocator for memory in wanted}
    return Memory(
        growth=any(memory.growth for memory in wanted),
        limit_mib=min(limits, default=None),
        allocator=allocators.pop() if len(allocators) == 1 else "default",
    )


def _reading_problems(gathering: Gathering) -> list[str]:
    problems = [f"{where}: {reason}" for where, reason in gathering.unreadable.items()]
    if gathering.unreadable_count > len(problems):
        problems.append(f"{gathering.unreadable_count - len(problems)} more records cannot be read")
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, fields in gathering.conflicting.items():
        alike.setdefault(fields, []).append(name)
    problems += [
        f"two different records of one node, {fold(names)}: they differ in {', '.join(fields)}; leave the older one out"
        for fields, names in alike.items()
    ]
    return problems


def _attendance(gathering: Gathering, expectation: Expectation | None) -> tuple[str, str]:
    if expectation is None or expectation.names is None:
        return "", ""
    return fold(expectation.names - gathering.hosts), fold(gathering.hosts - expectation.names)


def _attendance_problems(gathering: Gathering, expectation: Expectation | None) -> list[str]:
    came = len(gathering.hosts)
    if expectation is None:
        whose = f" of {gathering.job}" if gathering.job.id is not None else ""
        return [] if came else [f"no record{whose} was found"]
    missing, unexpected = _attendance(gathering, expectation)
    if expectation.names is None and came != expectation.count:
        unnamed = "; a node list after --expect would name the missing" if came < expectation.count else ""
        return [f"{came} of {expectation.count} expected nodes sent a record{unnamed}"]
    problems = []
    if missing:
        absent = len(expectation.names or ()) - len((expectation.names or frozenset()) & gathering.hosts)
        problems.append(f"{absent} of {expectation.count} expected nodes sent no record: {missing}")
    if unexpected:
        problems.append(f"nodes that are not expected sent a record: {unexpected}")
    return problems


def _readiness_problems(kinds: Kinds) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for record, names in kinds:
        if record.verdict != "ready":
            state = "not ready" if record.verdict == "not_ready" else "of unknown state, which counts as not ready"
            by_reason.setdefault(f"{state}: {record.problem}", []).extend(names)
    return [f"{fold(names)}: {reason}" for reason, names in by_reason.items()]


def _choice_problems(choice: _Choice | None) -> list[str]:
    if choice is None or choice.dtype_policy is not None:
        return []
    reasons = "; ".join(f"{policy}: {reason}" for policy, reason in choice.rejected.items())
    return [f"no policy of {', '.join(choice.prefer)} is usable on every node ({reasons})"]


def _differences(kinds: Kinds, *, wishes_matter: bool, preference_matters: bool) -> tuple[Difference, ...]:
    found = [_difference(what, kinds, _version(what), _minor_versions_differ) for what in _MUST_MATCH]
    found += [
        _difference("hwprobe", kinds, lambda record: record.versions.hwprobe),
        _difference("python", kinds, lambda record: record.versions.python),
        _difference("driver", kinds, lambda record: record.driver or "none"),
        _difference("gpus", kinds, _gpus),
        _difference("gpu_count", kinds, lambda record: str(record.gpu_count)),
    ]
    if wishes_matter:
        found.append(_difference("wishes", kinds, _wishes(kinds, preference_matters), lambda _: True))
    return tuple(difference for difference in found if difference is not None)


_MUST_MATCH = ("tensorflow", "keras", "tf_keras")


def _difference(
    what: str,
    kinds: Kinds,
    value_of: Callable[[NodeRecord], str],
    blocks: Callable[[Sequence[str]], bool] = lambda _: False,
) -> Difference | None:
    values: dict[str, list[str]] = {}
    for record, names in kinds:
        values.setdefault(value_of(record), []).extend(names)
    if len(values) < 2:
        return None
    frequent_first = sorted(values.items(), key=lambda item: (-len(item[1]), item[0]))
    return Difference(
        what=what, values={value: fold(names) for value, names in frequent_first}, blocks=blocks(list(values))
    )


def _version(what: str) -> Callable[[NodeRecord], str]:
    return lambda record: getattr(record.versions, what) or "not installed"


def _minor_versions_differ(versions: Sequence[str]) -> bool:
    return len({_minor(version) for version in versions}) > 1


def _minor(version: str) -> object:
    try:
        return Version(version).release[:2]
    except InvalidVersion:
        return version


def _gpus(record: NodeRecord) -> str:
    return ", ".join(f"{kind.count} x {kind.label}" for kind in record.gpus) or "no GPU"


def _wishes(kinds: Kinds, preference_matters: bool) -> Callable[[NodeRecord], str]:
    """Give what a node wants, as far as the nodes do not all want it."""
    all_wishes = [_single_wishes(record, preference_matters) for record, _ in kinds]
    differing = [place for place, wishes in enumerate(zip(*all_wishes, strict=True)) if len(set(wishes)) > 1]

    def text(record: NodeRecord) -> str:
        wishes = _single_wishes(record, preference_matters)
        return ", ".join(wishes[place] for place in differing)

    return text


def _single_wishes(record: NodeRecord, preference_matters: bool) -> list[str]:
    wishes = record.wishes
    single = [f"{name}: {scaling}" for name, scaling in sorted(wishes.loss_scaling.items())]
    single.append(f"TF32 {'allowed' if wishes.tf32 else 'off'}")
    if preference_matters:
        single += [" before ".join(wishes.prefer), f"{' before '.join(wishes.cpu)} on a CPU"]
    return single


def _difference_problem(difference: Difference) -> str:
    values = "; ".join(f"{value} on {nodes}" for value, nodes in difference.values.items())
    if difference.what == "wishes":
        return (
            f"what the policies want differs between the nodes: {values}. Give all of them one policy, or name it for "
            "all: hwprobe plan --policy"
        )
    return f"the version of {difference.what} differs between the nodes: {values}"


def _notes(gathering: Gathering, kinds: Kinds, choice: _Choice | None) -> tuple[NodeNote, ...]:
    by_text: dict[str, list[str]] = {}
    for record, names in kinds:
        for text in record.notes:
            by_text.setdefault(text, []).extend(names)
    notes = [NodeNote(nodes=fold(names), text=text) for text, names in by_text.items()]
    notes += _held_back(kinds, choice)
    if len({record.gpu_count for record, _ in kinds}) > 1:
        notes.append(
            NodeNote(
                nodes="", text="GPU counts differ; MultiWorkerMirroredStrategy needs the same number on every worker"
            )
        )
    if len({record.wishes.memory for record, _ in kinds}) > 1:
        notes.append(
            NodeNote(nodes="", text="memory settings differ between the nodes; the most careful of them count")
        )
    notes += [
        NodeNote(nodes="", text=f"{count} {'record was' if count == 1 else 'records were'} left aside, of {whose}")
        for whose, count in list(gathering.left_aside.items())[:MAX_LISTED]
    ]
    return tuple(notes)


def _held_back(kinds: Kinds, choice: _Choice | None) -> list[NodeNote]:
    if choice is None or choice.dtype_policy is None or not choice.limiting:
        return []
    limiting = set(choice.limiting)
    better: dict[DtypePolicy, list[str]] = {}
    for record, names in kinds:
        first = next((policy for policy in choice.prefer if record.policies.of(policy).usable is True), None)
        if first is not None and first != choice.dtype_policy:
            better.setdefault(first, []).extend(name for name in names if name not in limiting)
    return [
        NodeNote(nodes=fold(names), text=f"could use {policy} without {fold(limiting)}")
        for policy, names in better.items()
        if names
    ]
