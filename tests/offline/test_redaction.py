"""What a capture must not tell, and what it must keep all the same."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hwprobe.offline.recording import record
from hwprobe.offline.redaction import Identity, own_identity, redact
from hwprobe.preflight import check
from hwprobe.report import DeviceNode, Report, SharedLibrary
from hwprobe.rules.visible_devices import read_entries
from hwprobe.serialize import to_builtins, to_json
from tests.offline.filled import filled
from tests.reports import A100, T4, report, source, tensorflow_wheel

ALICE = Identity(homes=("/home/alice", "/mnt/nfs/home/alice"), user="alice", hosts=("gpu07.example.org", "gpu07"))
UUIDS = ("GPU-9e8d35e3-1111-4000-8000-0123456789ab", "GPU-7f1c2d3e-2222-4000-8000-ba9876543210")


def of_alice() -> Report:
    """A machine whose report is full of alice."""
    home = "/home/alice/miniconda3/envs/tf"
    wheel = tensorflow_wheel(
        "2.21.0",
        location=f"{home}/lib/python3.11/site-packages/tensorflow",
        search_paths=(f"{home}/lib/python3.11/site-packages/nvidia/cudnn/lib",),
        libraries=(
            SharedLibrary(
                soname="libcudnn.so.9",
                loads=False,
                error=f"libcudnn.so.9: cannot open {home}/lib/libcudnn.so.9 for alice",
                found_at=("/scratch/alice/cuda/lib64/libcudnn.so.9",),
            ),
        ),
        messages=("retrieving CUDA diagnostic information for host: gpu07", "hostname: gpu07.example.org"),
    )
    return report(
        gpus=[replace(T4, uuid=UUIDS[0]), replace(A100, uuid=UUIDS[1])],
        tensorflow=wheel,
        environment={
            "CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},{UUIDS[0][:12]}",
            "CONDA_PREFIX": home,
            "LD_LIBRARY_PATH": "/home/alice/lib:/home/bob/lib:/usr/local/cuda/lib64",
        },
        host={
            "prefix": "/mnt/nfs/home/alice/miniconda3/envs/tf",
            "executable": "/mnt/nfs/home/alice/miniconda3/envs/tf/bin/python",
            "name": "gpu07.example.org",
            "absent": {"pci_devices": "/home/alice/sys: Permission denied"},
            "device_nodes": (DeviceNode(path="/dev/nvidia0", owner="alice", group="alice"),),
        },
        sources={"cuda": source("failed", "cuInit: refused to alice on gpu07", code=999)},
    )


def texts(value: Any) -> Iterator[str]:
    """Every text in a value, keys not among them."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from texts(inner)


def shape(value: Any) -> Any:
    """A document without its texts: keys, lengths, numbers."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shape(inner) for inner in value]
    return None if isinstance(value, str) else value


class TestAlice:
    def test_nothing_in_a_capture_names_her_her_machine_or_its_gpus(self) -> None:
        told = "\n".join(texts(to_builtins(redact(of_alice(), ALICE))))
        for secret in ("alice", "bob", "gpu07", "example.org", *UUIDS, "0123456789ab", "/mnt/nfs"):
            assert secret not in told

    def test_what_a_reader_needs_stays(self) -> None:
        kept = redact(of_alice(), ALICE)
        assert kept.tensorflow is not None
        (library,) = kept.tensorflow.libraries
        assert library.found_at == ("/scratch/<user>/cuda/lib64/libcudnn.so.9",)
        assert library.error == "libcudnn.so.9: cannot open ~/miniconda3/envs/tf/lib/libcudnn.so.9 for <user>"
        assert kept.tensorflow.location == "~/miniconda3/envs/tf/lib/python3.11/site-packages/tensorflow"
        assert kept.tensorflow.messages == (
            "retrieving CUDA diagnostic information for host: <host>",
            "hostname: <host>",
        )
        assert kept.host.environment["LD_LIBRARY_PATH"] == "~/lib:/home/<user>/lib:/usr/local/cuda/lib64"
        assert kept.host.absent == {"pci_devices": "~/sys: Permission denied"}
        assert kept.host.device_nodes == (DeviceNode(path="/dev/nvidia0", owner="<user>", group="<user>"),)
        assert (kept.host.name, kept.sources.cuda.reason) == (None, "cuInit: refused to <user> on <host>")

    def test_a_folder_stays_the_same_folder(self) -> None:
        host = redact(of_alice(), ALICE).host
        assert host.environment["CONDA_PREFIX"] == host.prefix == "~/miniconda3/envs/tf"

    def test_findings_and_decision_stay_the_same(self) -> None:
        before, after = check(report=of_alice()), check(report=redact(of_alice(), ALICE))
        assert before.findings
        assert [(one.id, one.primary, one.severity) for one in after.findings] == [
            (one.id, one.primary, one.severity) for one in before.findings
        ]
        assert after.decision is not None
        assert before.decision is not None
        assert after.decision.dtype_policy == before.decision.dtype_policy
        assert len(after.decision.limited_by) == len(before.decision.limited_by)

    def test_twice_is_as_good_as_once(self) -> None:
        once = redact(of_alice(), ALICE)
        assert redact(once, ALICE) == once

    def test_identifiers_are_kept_where_somebody_asks_for_it(self) -> None:
        kept = record(of_alice(), ALICE, include_identifiers=True)
        assert kept.identifiers == "included"
        assert kept.report.devices[0].uuid == UUIDS[0]
        assert kept.report.host.name == "gpu07.example.org"
        assert "/home/alice" in to_json(kept)


class TestUuids:
    def test_they_still_tell_which_gpu_is_which(self) -> None:
        kept = redact(of_alice(), ALICE)
        assert [gpu.uuid for gpu in kept.devices] == ["GPU-9e8d35e3", "GPU-7f1c2d3e"]
        assert kept.tensorflow is not None
        entries = read_entries(kept.host.environment["CUDA_VISIBLE_DEVICES"], kept.devices)
        assert [(entry.subject, entry.problem) for entry in entries] == [("GPU-7f1c2d3e", None), ("GPU-9e8d35e3", None)]

    def test_those_that_begin_alike_keep_as_much_as_tells_them_apart(self) -> None:
        near = (UUIDS[0], UUIDS[0].replace("1111", "1112"))
        facts = report(gpus=[replace(T4, uuid=near[0]), replace(T4, uuid=near[1])])
        kept = redact(facts, ALICE)
        assert [gpu.uuid for gpu in kept.devices] == ["GPU-9e8d35e3-1111", "GPU-9e8d35e3-1112"]

    @pytest.mark.parametrize(
        ("value", "kept"),
        [
            (UUIDS[0].replace("GPU", "MIG"), "MIG-9e8d35e3"),
            (f"MIG-{UUIDS[0]}/1/0", "MIG-GPU-9e8d35e3/1/0"),
            (UUIDS[0].upper(), "GPU-9E8D35E3"),
            ("GPU-9e8d", "GPU-9e8d"),
            ("0,1", "0,1"),
            ("", ""),
        ],
    )
    def test_every_form_that_the_driver_takes(self, value: str, kept: str) -> None:
        facts = report(gpus=[T4], environment={"CUDA_VISIBLE_DEVICES": value})
        assert redact(facts, ALICE).host.environment["CUDA_VISIBLE_DEVICES"] == kept


PATHS = {
    "the home folder itself": (ALICE, "/home/alice", "~"),
    "a folder in it": (ALICE, "/home/alice/x", "~/x"),
    "one of another, whose name begins alike": (ALICE, "/home/alicen/x", "/home/<user>/x"),
    "the home of somebody else": (ALICE, "/home/bob/x", "/home/<user>/x"),
    "the same path elsewhere": (ALICE, "/srv/home/alice/x", "/srv/home/<user>/x"),
    "in a sentence": (ALICE, "cannot open /home/alice: no", "cannot open ~: no"),
    "a folder with the user's name": (ALICE, "/data/alice/cuda", "/data/<user>/cuda"),
    "a folder whose name has it in it": (ALICE, "/data/alice-cuda", "/data/alice-cuda"),
    "a folder with the host's name": (ALICE, "/sw/gpu07/lib", "/sw/<host>/lib"),
    "on macOS": (ALICE, "/Users/carol/x", "/Users/<user>/x"),
    "on Windows": (
        Identity(("C:\\Users\\Al",), "Al"),
        "C:\\Users\\Al\\x;C:\\Users\\Bo\\y",
        "~\\x;C:\\Users\\<user>\\y",
    ),
    "root, as in every container": (
        Identity(("/root",), "root"),
        "/root/x:/rootfs:/srv/root/y",
        "~/x:/rootfs:/srv/root/y",
    ),
    "a user called python": (Identity(("/home/python",), "python"), "/home/python/bin/python", "~/bin/python"),
    "a user called home": (Identity(("/home/home",), "home"), "/home/home/x:/opt/x", "~/x:/opt/x"),
    "a user called nvidia, as on a Jetson": (
        Identity(("/home/nvidia",), "nvidia"),
        "/home/nvidia/e/site-packages/nvidia/cudnn/lib:/usr/lib/x",
        "~/e/site-packages/nvidia/cudnn/lib:/usr/lib/x",
    ),
    "a home that is the root of the disk": (Identity(("/",), "nobody"), "/usr/lib", "/usr/lib"),
    "a home that is no path": (Identity(("lib",), None), "/usr/lib/x", "/usr/lib/x"),
    "nobody": (Identity(), "/usr/lib/x", "/usr/lib/x"),
}


@pytest.mark.parametrize(("identity", "path", "kept"), PATHS.values(), ids=PATHS)
def test_a_path(identity: Identity, path: str, kept: str) -> None:
    facts = report(gpus=[T4], environment={"LD_LIBRARY_PATH": path})
    assert redact(facts, identity).host.environment["LD_LIBRARY_PATH"] == kept


WORDS = [
    "root",
    "python",
    "home",
    "name",
    "devices",
    "report",
    "host",
    "nvidia",
    "ok",
    "T4",
    "tensorflow",
    "visible",
    "a",
]


@pytest.mark.parametrize("user", WORDS)
def test_no_user_s_name_touches_a_key_or_a_word_that_programs_read(user: str) -> None:
    facts = of_alice()
    identity = Identity((f"/home/{user}",), user, (user,))
    assert shape(to_builtins(redact(facts, identity))) == shape(to_builtins(facts)) | {
        "host": shape(to_builtins(facts))["host"] | {"name": None}
    }
    before, after = check(report=facts), check(report=redact(facts, identity))
    assert [finding.id for finding in after.findings] == [finding.id for finding in before.findings]


@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12), st.text(max_size=40))
@settings(deadline=None, max_examples=150)
def test_no_name_and_no_text_breaks_it(user: str, host: str, text: str) -> None:
    identity = Identity((f"/home/{user}", user), user, (host,))
    facts = filled(Report, text)
    kept = redact(facts, identity)
    assert list(to_builtins(kept)) == list(to_builtins(facts))
    assert redact(kept, identity).host.environment.keys() == facts.host.environment.keys()


class TestOwnIdentity:
    def test_it_is_this_process_s(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        monkeypatch.setenv("HOME", str(tmp_path / "link"))
        monkeypatch.setattr(getpass, "getuser", lambda: "alice")
        monkeypatch.setattr(platform, "node", lambda: "gpu07.example.org")
        assert own_identity() == Identity(
            (str(tmp_path / "link"), str(tmp_path / "real")), "alice", ("gpu07.example.org", "gpu07")
        )

    def test_a_container_may_run_under_a_number_without_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown() -> str:
            raise KeyError("getpwuid(): uid not found: 12345")

        def homeless() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(getpass, "getuser", unknown)
        monkeypatch.setattr(Path, "home", homeless)
        monkeypatch.setattr(platform, "node", lambda: "")
        monkeypatch.setenv("HOME", "/nonexistent")
        assert own_identity() == Identity(("/nonexistent",), None, ())
        monkeypatch.delenv("HOME")
        assert own_identity() == Identity()
