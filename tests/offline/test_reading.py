"""Which kind of file it is, by what is in it; what is refused says what to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwprobe.errors import InputError
from hwprobe.offline.reading import MAX_BYTES, read_file, read_target
from hwprobe.offline.recording import record
from hwprobe.offline.redaction import Identity
from hwprobe.preflight import check
from hwprobe.serialize import to_json
from tests.offline.smi import ROW, T4, csv, gpu, xml
from tests.offline.test_labels import T4 as T4_LABELS
from tests.offline.test_labels import node
from tests.reports import A100, hidden, report


def file(folder: Path, content: str | bytes, name: str = "machine") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


CAPTURE = to_json(record(report(gpus=[A100]), Identity()))
READ = {
    "a capture": (CAPTURE, "NVIDIA A100-SXM4-80GB"),
    "a check": (to_json(check(report=report(gpus=[A100])), indent=2), "NVIDIA A100-SXM4-80GB"),
    "nvidia-smi's XML": (xml(gpu(T4)), "Tesla T4"),
    "nvidia-smi's XML behind blank lines": ("\n\n" + xml(gpu(T4)), "Tesla T4"),
    "nvidia-smi's csv": (csv(ROW), "NVIDIA H100 80GB HBM3"),
    "XML as PowerShell writes it": (xml(gpu(T4)).encode("utf-16"), "Tesla T4"),
    "csv as PowerShell writes it": (csv(ROW).encode("utf-16"), "NVIDIA H100 80GB HBM3"),
    "JSON with a byte order mark": ("\ufeff" + CAPTURE, "NVIDIA A100-SXM4-80GB"),
    "XML with a process name in some code page": (
        xml(gpu({**T4, "processes/process_info/process_name": "NAME"})).encode().replace(b"NAME", b"\xd6\xd0.exe"),
        "Tesla T4",
    ),
}


@pytest.mark.parametrize(("content", "name"), READ.values(), ids=READ)
def test_a_kind_that_is_known(content: str | bytes, name: str, tmp_path: Path) -> None:
    path = file(tmp_path, content)
    facts = read_file(path)
    assert [device.name for device in facts.devices] == [name]
    assert facts.origin == str(path)


TABLE = """Mon Nov 30 12:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |
"""
VERSIONS = "NVIDIA-SMI version  : 590.48.01\nNVML version        : 590.48\n"
LIST = "GPU 0: Tesla T4 (UUID: GPU-7f1c2d3e-0000-4000-8000-000000000001)\n"
LOG = "\n==============NVSMI LOG==============\n\nTimestamp                           : today\n"
EXCERPT = "GPU 00000000:DD:00.0\n    Product Name                          : NVIDIA GH200 480GB\n"
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "the table": (TABLE, "it is the table of nvidia-smi"),
    "the table without its date": (TABLE.partition("\n")[2], "it is the table of nvidia-smi"),
    "versions and a table": (VERSIONS + TABLE, "it is the table of nvidia-smi"),
    "a piece of the table": ("| NVIDIA-SMI 570.124.06   Driver Version: 570.124.06 |\n", "it is the table"),
    "the log": (LOG, "it is the log of nvidia-smi -q"),
    "a piece of the log": (EXCERPT, "it is the log of nvidia-smi -q"),
    "the list": (LIST, "it is the list of nvidia-smi -L"),
    "the versions": (VERSIONS, "it is what nvidia-smi --version says"),
    "a driver that did not answer": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        'it holds an error of nvidia-smi ("NVIDIA-SMI has failed',
    ),
    "a driver and a library that differ": ("Failed to initialize NVML: Driver/library version mismatch\n", "an error"),
    "a GPU that is lost": ("Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.\n", "an error"),
    "no devices": ("No devices were found\n", "an error"),
    "something else": ("Dear diary,\n", "it is no file that hwprobe knows"),
    "nothing": ("", "it is empty"),
    "only blanks": (" \n\n", "it is empty"),
    "labels of a node": (json.dumps(T4_LABELS), "give them with --target"),
    "bytes": (bytes(range(256)), "it is no file that hwprobe knows"),
    "UTF-16 that is cut off": (b"\xff\xfe{", "no file that hwprobe knows"),
    "more than one machine can say": (b" " * (MAX_BYTES + 1), "larger than 16 MiB"),
}


@pytest.mark.parametrize(("content", "says"), REFUSED.values(), ids=REFUSED)
def test_a_kind_that_is_not(content: str | bytes, says: str, tmp_path: Path) -> None:
    path = file(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_file(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("kind", ["the table", "the log", "the list", "the versions"])
def test_what_people_read_is_refused_with_the_command_for_programs(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_file(file(tmp_path, REFUSED[kind][0]))
    assert "\nnvidia-smi -q -x > nvidia-smi.xml\nnvidia-smi --query-gpu=index,name," in str(caught.value)


@pytest.mark.parametrize("name", ["missing.xml", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_file(tmp_path / name)


class TestAnotherTensorFlow:
    def test_it_takes_the_place_of_the_recorded_one(self, tmp_path: Path) -> None:
        before = report(gpus=[A100], tensorflow="2.12.1")
        path = file(tmp_path, to_json(record(before, Identity())))
        facts = read_file(path, tensorflow="2.17")
        old, new = check(report=read_file(path)).decision, check(report=facts).decision
        assert old is not None
        assert new is not None
        assert (old.dtype_policy, new.dtype_policy) == ("mixed_float16", "mixed_bfloat16")
        assert facts.assumptions == (
            "TensorFlow 2.17 as its wheel for Linux x86_64, with the CUDA libraries that it opens installed and found",
        )
        assert facts.sources.tensorflow_runtime.reason == (
            "not part of the recording: another TensorFlow was put in its place"
        )

    def test_it_needs_a_wheel_for_the_recorded_python(self, tmp_path: Path) -> None:
        path = file(tmp_path, to_json(record(report(gpus=[A100]), Identity())))
        with pytest.raises(InputError, match=r"no wheel of TensorFlow 2\.5 for Python 3\.11\.7"):
            read_file(path, tensorflow="2.5")

    def test_what_hides_the_gpus_hides_them_still(self, tmp_path: Path) -> None:
        path = file(tmp_path, to_json(record(report(gpus=[hidden(A100)]), Identity())))
        decision = check(report=read_file(path, tensorflow="2.17")).decision
        assert decision is not None
        assert decision.dtype_policy == "float32"


class TestTargets:
    def test_words(self) -> None:
        assert [gpu.name for gpu in read_target("2 x T4").devices] == ["Tesla T4"] * 2

    @pytest.mark.parametrize("labels", [T4_LABELS, node(T4_LABELS)], ids=["labels", "a node"])
    def test_a_file_of_labels(self, labels: object, tmp_path: Path) -> None:
        path = file(tmp_path, json.dumps(labels), "k8s-labels.json")
        facts = read_target(str(path), tensorflow="2.16")
        assert [gpu.name for gpu in facts.devices] == ["Tesla T4"] * 2
        assert facts.tensorflow is not None
        assert facts.tensorflow.version == "2.16"

    def test_a_file_that_is_not_there_is_no_description(self) -> None:
        with pytest.raises(InputError, match=r"there is no file k8s-labels\.json"):
            read_target("k8s-labels.json")

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (CAPTURE, "neither a Kubernetes node nor its labels"),
            ("{", "Input data was truncated"),
            ("2 x T4", "expected the labels of a Kubernetes node"),
            (xml(gpu(T4)), "Other files are given with --from"),
        ],
        ids=["a capture", "damaged", "words", "XML"],
    )
    def test_another_file(self, content: str, says: str, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            read_target(str(file(tmp_path, content)))
        assert says in str(caught.value)

    @pytest.mark.parametrize("text", ["x" * 5000, "T4\0", "\udcff"])
    def test_a_text_that_no_file_can_be_called(self, text: str) -> None:
        with pytest.raises(InputError, match="--target"):
            read_target(text)
