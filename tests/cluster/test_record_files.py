"""Records on disk: written whole, keyed, and read back whatever holds them."""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path

import pytest

from hwprobe.cluster import record_files
from hwprobe.cluster.record import NodeRecord
from hwprobe.cluster.record_files import MAX_RECORD_BYTES, UnreadableRecord, read_records, record_path, write_record
from hwprobe.errors import InputError
from hwprobe.files import write_aside
from hwprobe.serialize import to_json
from tests.cluster.records import a100, job, t4


def read(*paths: Path | str) -> tuple[list[NodeRecord], dict[str, str]]:
    """Records, and what cannot be read by the last part of its place."""
    items = list(read_records(paths))
    records = [item for item in items if isinstance(item, NodeRecord)]
    broken = {item.where.rpartition("/")[2]: item.reason for item in items if isinstance(item, UnreadableRecord)}
    return records, broken


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = [t4("n1", job=job()), a100("n2", job=job(), task="task-1")]
    paths = [write_record(tmp_path / "records", record) for record in written]
    assert [str(path.relative_to(tmp_path / "records")) for path in paths] == [
        "slurm-42.0.0/n1.json",
        "slurm-42.0.0/n2.task-1.json",
    ]
    assert read(tmp_path) == (written, {})


def test_another_step_and_another_start_have_other_files(tmp_path: Path) -> None:
    keys = (job(), job(step="1"), job(restart=1), job("43"))
    assert len({record_path(tmp_path, t4("n1", job=key)) for key in keys}) == len(keys)
    assert record_path(tmp_path, t4("n1")) == tmp_path / "n1.json"


def test_a_large_job_is_spread_over_64_folders(tmp_path: Path) -> None:
    records = [t4(f"n{number:04}", job=job()) for number in range(300)]
    folders = {record_path(tmp_path, record, nodes=5000).parent for record in records}
    assert len(folders) == 64
    assert record_path(tmp_path, records[0], nodes=1000).parent == tmp_path / "slurm-42.0.0"
    write_record(tmp_path, records[0], nodes=5000)
    assert read(tmp_path) == ([records[0]], {})


def test_a_record_is_replaced_and_no_half_of_one_is_left(tmp_path: Path) -> None:
    write_record(tmp_path, t4("n1"))
    write_record(tmp_path, a100("n1"))
    assert read(tmp_path) == ([a100("n1")], {})
    assert [path.name for path in tmp_path.iterdir()] == ["n1.json"]


def test_a_stale_handle_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = write_aside
    failures = [errno.ESTALE, errno.ENOENT]

    def stale_twice(path: Path, text: str) -> None:
        if failures:
            raise InputError("cannot write") from OSError(failures.pop(), "stale file handle")
        write(path, text)

    monkeypatch.setattr(record_files, "write_aside", stale_twice)
    monkeypatch.setattr(record_files, "RETRY_SECONDS", 0)
    write_record(tmp_path, t4("n1"))
    assert read(tmp_path) == ([t4("n1")], {})


def test_a_rename_that_the_server_did_and_reported_as_failed_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_aside

    def written_and_failed(path: Path, text: str) -> None:
        write(path, text)
        raise InputError("cannot write") from OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(record_files, "write_aside", written_and_failed)
    write_record(tmp_path, t4("n1"))
    assert read(tmp_path) == ([t4("n1")], {})


def test_a_full_disk_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def full(path: Path, text: str) -> None:
        calls.append(path)
        raise InputError(f"cannot write {path}: no space left") from OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(record_files, "write_aside", full)
    with pytest.raises(InputError, match="no space left"):
        write_record(tmp_path, t4("n1"))
    assert len(calls) == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot make the folder .*file"):
        write_record(tmp_path / "file" / "records", t4("n1"))


def test_ndjson_is_read_line_by_line(tmp_path: Path) -> None:
    lines = [to_json(t4("n1")), "", to_json(a100("n2"))]
    (tmp_path / "all.ndjson").write_text("\n".join(lines) + "\n")
    assert read(tmp_path / "all.ndjson") == ([t4("n1"), a100("n2")], {})
    (tmp_path / "without-end.txt").write_text("\n".join(lines))
    assert read(tmp_path / "without-end.txt") == ([t4("n1"), a100("n2")], {})


def test_records_larger_together_than_one_may_be_are_read(tmp_path: Path) -> None:
    hosts = [f"n{number}" for number in range(300)]
    (tmp_path / "all.json").write_text("".join(to_json(t4(host)) + "\n" for host in hosts))
    assert (tmp_path / "all.json").stat().st_size > 2 * MAX_RECORD_BYTES
    records, broken = read(tmp_path)
    assert ([record.host for record in records], broken) == (hosts, {})


def test_an_indented_record_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "n1.json").write_text(to_json(t4("n1"), indent=2))
    assert read(tmp_path) == ([t4("n1")], {})


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO((to_json(t4("n1")) + "\n").encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert read("-") == ([t4("n1")], {})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (to_json(t4("n1")).encode()[:300], "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "object"),
        (b'{"schema": "hwprobe.check/1"}', "'hwprobe.check/1', expected 'hwprobe.node/1'"),
        (b'{"schema": "hwprobe.node/2"}', "'hwprobe.node/2', expected 'hwprobe.node/1'"),
        (b'{"schema": "hwprobe.node/1"}', "missing required field"),
        (to_json(t4("n1")).encode().replace(b'"usable":true', b'"usable":"yes"'), "usable"),
        (b"[" * 100_000, "longer than 64 KiB"),
        (b'{"schema": "' + b"x" * 100_000 + b'"}', "longer than 64 KiB"),
    ],
)
def test_what_is_no_record_is_named_with_its_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "n1.json").write_bytes(content)
    records, broken = read(tmp_path)
    assert records == []
    assert len(broken) == 1
    place, why = broken.popitem()
    assert place.startswith("n1.json")
    assert reason in why.lower() if reason == "malformed" else reason in why


def test_a_broken_line_names_its_number_and_the_others_count(tmp_path: Path) -> None:
    (tmp_path / "all.ndjson").write_text(f"{to_json(t4('n1'))}\n{{oops}}\n{to_json(t4('n3'))}\n")
    records, broken = read(tmp_path)
    assert [record.host for record in records] == ["n1", "n3"]
    assert list(broken) == ["all.ndjson, line 2"]


def test_plans_asides_and_other_files_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    write_record(tmp_path, t4("n1"))
    (tmp_path / "plan.json").write_text('{"schema": "hwprobe.plan/1", "agreed": false}\n')
    (tmp_path / ".n2.json.abc.tmp").write_text("half")
    (tmp_path / "check-n1.txt").write_text("ready")
    assert read(tmp_path) == ([t4("n1")], {})


def test_a_link_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    """As one into a folder that may not be entered; one to nowhere holds nothing."""
    write_record(tmp_path, t4("n1"))
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "long.json").symlink_to("x" * 300)
    (tmp_path / "gone.json").symlink_to("nowhere")
    records, broken = read(tmp_path)
    assert records == [t4("n1")]
    assert broken["long.json"] == "File name too long"
    assert broken["loop.json"].startswith("Too many")
    assert len(broken) == 2


def test_a_plan_that_is_named_as_a_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"schema": "hwprobe.plan/1", "agreed": false}\n')
    _, broken = read(tmp_path / "plan.json")
    assert broken == {"plan.json": "its schema is 'hwprobe.plan/1', expected 'hwprobe.node/1'"}


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert read(tmp_path / "nowhere") == ([], {"nowhere": "No such file or directory"})
