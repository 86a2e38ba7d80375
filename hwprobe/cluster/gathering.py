"""Records of one job as they stream by: one entry for each kind of node, and the names."""

from __future__ import annotations

import msgspec

from hwprobe.cluster.job import Job
from hwprobe.cluster.nodeset import expand, is_plain_name, short_host_name
from hwprobe.cluster.record import NodeRecord
from hwprobe.cluster.record_files import UnreadableRecord
from hwprobe.errors import InputError

MAX_LISTED = 20
"""Most unreadable records, or other jobs, that a plan names one by one."""

_NO_JOB = Job()


class Expectation:
    """Which nodes, or how many, a job has.

    Args:
        names: Their names, without domains; None where only the number is known.
        count: How many they are.
    """

    __slots__ = ("count", "names")

    def __init__(self, names: frozenset[str] | None, count: int) -> None:
        self.names = names
        self.count = count

    @classmethod
    def parse(cls, text: str | int) -> Expectation:
        """Read a number or a node list of Slurm or ClusterShell.

        Args:
            text: `4`, `n[1-4]`, `rack[1-2]n[01-03],login`.

        Raises:
            InputError: It is neither.
        """
        if isinstance(text, int) or text.strip().isdecimal():
            count = int(text)
            if count < 1:
                raise InputError(f"expected nodes: {count}: at least 1")
            return cls(None, count)
        listed = expand(text)
        for name in listed:
            if not is_plain_name(name):
                raise InputError(f"expected nodes: {name[:80]!r} is neither a number nor the name of a node")
        names = frozenset(map(short_host_name, listed))
        return cls(names, len(names))


class Gathering:
    """Records of one job while they stream by: one entry a kind of node, and the names.

    Args:
        job: The job whose records count; None takes the first record's, and refuses any other.

    Attributes:
        conflicting: Each node of which two records came that differ, and in which fields.
    """

    def __init__(self, job: Job | None = None) -> None:
        self._job_is_given = job is not None and job.id is not None
        self._job = msgspec.structs.replace(job, step=None) if job is not None and self._job_is_given else None
        self._kinds: dict[bytes, tuple[NodeRecord, list[str]]] = {}
        self._group_of: dict[str, list[str]] = {}
        self.hosts: set[str] = set()
        self.conflicting: dict[str, tuple[str, ...]] = {}
        self.unreadable: dict[str, str] = {}
        self.unreadable_count = 0
        self.left_aside: dict[str, int] = {}

    @property
    def job(self) -> Job:
        """The job, with the step that counts."""
        return self._job or Job()

    @property
    def kinds(self) -> list[tuple[NodeRecord, list[str]]]:
        """One record of each kind of node with the names of all that said the same, the largest first."""
        return sorted(self._kinds.values(), key=lambda kind: (-len(kind[1]), kind[1][0]))

    def add(self, item: NodeRecord | UnreadableRecord) -> None:
        """Take one more record.

        Raises:
            InputError: It belongs to another job, and nobody said which job is meant.
        """
        if isinstance(item, UnreadableRecord):
            self.unreadable_count += 1
            if len(self.unreadable) < MAX_LISTED:
                self.unreadable[item.where] = item.reason
        elif self._counts(item.job):
            self._group(item)

    def _counts(self, job: Job) -> bool:
        if self._job is None:
            self._job = job
        if not job.is_same_start(self._job):
            if not self._job_is_given:
                raise InputError(
                    f"the records belong to several jobs ({self._job}; {job}): name the folder of one job, "
                    f"or run this inside the job"
                )
            return self._leave_aside(str(job))
        if job.step_number < self._job.step_number:
            return self._leave_aside(f"{job}, step {job.step}")
        if job.step_number > self._job.step_number:
            if self._group_of:
                self.left_aside[f"{self._job}, step {self._job.step}"] = len(self._group_of)
            self._job = job
            self._kinds, self._group_of, self.hosts, self.conflicting = {}, {}, set(), {}
        return True

    def _leave_aside(self, whose: str) -> bool:
        if whose in self.left_aside or len(self.left_aside) < MAX_LISTED:
            self.left_aside[whose] = self.left_aside.get(whose, 0) + 1
        return False

    def _group(self, record: NodeRecord) -> None:
        kind = msgspec.structs.replace(record, host="-", task=None, job=_NO_JOB)
        key = msgspec.json.encode(kind)
        entry, group = self._kinds.get(key), self._group_of.get(record.name)
        if group is not None:
            if entry is None or entry[1] is not group:
                self.conflicting.setdefault(record.name, self._difference(kind, group))
            return
        if entry is None:
            entry = self._kinds[key] = (kind, [])
        entry[1].append(record.name)
        self._group_of[record.name] = entry[1]
        self.hosts.add(record.host)

    def _difference(self, kind: NodeRecord, group: list[str]) -> tuple[str, ...]:
        """In which fields a record differs from those of a group."""
        first = next(record for record, names in self._kinds.values() if names is group)
        return tuple(name for name in kind.__struct_fields__ if getattr(kind, name) != getattr(first, name))
