"""Whatever a file or a description holds, the answer is a check or one sentence, never a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwprobe.errors import InputError
from hwprobe.knowledge.annotate import annotate
from hwprobe.offline.labels import report_of_labels
from hwprobe.offline.nvidia_smi_csv import report_of_csv
from hwprobe.offline.nvidia_smi_xml import report_of_xml
from hwprobe.offline.reading import read_file, read_target
from hwprobe.offline.recording import record, report_of_recording
from hwprobe.offline.redaction import Identity, redact
from hwprobe.offline.target import report_of_target
from hwprobe.policy import Policy
from hwprobe.preflight import assess
from hwprobe.render.formats import FORMATS, write
from hwprobe.report import Report
from hwprobe.serialize import to_builtins, to_json
from hwprobe.why_not import why_not
from tests.offline.smi import H100, ROW, csv, gpu, xml
from tests.offline.smi import T4 as T4_XML
from tests.offline.test_labels import MIXED, SINGLE, T4, node
from tests.reports import A100, mig, report
from tests.reports import T4 as T4_GPU

QUICK = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
Reader = Callable[[str], Report]


def survives(read: Callable[[], Report]) -> None:
    """Reads, judges and shows: all that a command does with a machine."""
    try:
        facts = annotate(read())
    except InputError:
        return
    result = assess(facts, Policy())
    for format_ in FORMATS:
        write(result, format_)
    why_not(result, Policy(), "mixed_bfloat16")
    to_json(redact(facts, Identity(("/home/alice",), "alice", ("node",))))


def of_xml(text: str) -> Report:
    return report_of_xml(text, origin="smi.xml")


def of_csv(text: str) -> Report:
    return report_of_csv(text, origin="smi.csv")


def of_labels(text: str) -> Report:
    return report_of_labels(text, origin="labels.json")


def of_recording(text: str) -> Report:
    return report_of_recording(text, origin="machine.json")


MIG_INSTANCE = {"gpu_instance_id": "3", "compute_instance_id": "0", "fb_memory_usage/total": "19968 MiB"}
CAPTURE = to_json(record(report(gpus=[T4_GPU, A100, mig(A100)], environment={"CUDA_VISIBLE_DEVICES": "0"}), Identity()))
SAMPLES: dict[str, tuple[Reader, str]] = {
    "words": (
        report_of_target,
        "2 x Tesla T4, A100-SXM4-40GB-MIG-1g.5gb, driver 535.104.05, tensorflow 2.17, built for sm_90",
    ),
    "labels": (of_labels, json.dumps(node(T4))),
    "labels of MIG devices": (of_labels, json.dumps(MIXED)),
    "XML": (of_xml, xml(gpu(T4_XML), gpu({**H100, "mig_mode/current_mig": "Enabled"}, MIG_INSTANCE))),
    "csv": (of_csv, csv(ROW, {**ROW, "index": "1", "pci.bus_id": "00000000:00:0A.0"})),
    "a capture": (of_recording, CAPTURE),
}
every_form = pytest.mark.parametrize(("read", "sample"), SAMPLES.values(), ids=SAMPLES)
BITS = [
    *("", " ", ",", "\n", "\0", '"', "<", ">", "&x;", "{", "}", "[]", "null", "-1", "0", "1e400", "9" * 25, "\x1b[2J"),
    *("\u202e", "\ufeff", "a" * 300, "N/A", "[N/A]", "GPU is lost", "None", "Enabled", "2 x", "MIG-1g.5gb", "7.5"),
    *("tensorflow", "GPU-", "Yes", "WDDM"),
]


@every_form
@given(data=st.data())
@QUICK
def test_a_good_one_with_anything_in_the_middle_of_it(read: Reader, sample: str, data: st.DataObject) -> None:
    text = sample
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.sampled_from([0, 0, 1, 3, 10, 100])))
        bit = data.draw(st.sampled_from(BITS) | st.text(max_size=8))
        text = text[:start] + bit + text[end:]
    survives(lambda: read(text))


@every_form
@given(text=st.text(max_size=200))
@QUICK
def test_any_text(read: Reader, sample: str, text: str) -> None:
    survives(lambda: read(text))


@every_form
@given(seed=st.integers(0, 2**32))
@QUICK
def test_its_own_words_in_another_order(read: Reader, sample: str, seed: int) -> None:
    pieces = sample.replace(">", ">\1").replace(",", ",\1").replace("\n", "\n\1").split("\1")
    random.Random(seed).shuffle(pieces)
    survives(lambda: read("".join(pieces)))


TEXTS = st.sampled_from(BITS) | st.text(max_size=20)


@given(facts=st.fixed_dictionaries({}, optional=dict.fromkeys(H100, TEXTS)))
@QUICK
def test_xml_with_any_text_in_any_place(facts: dict[str, str]) -> None:
    escaped = {path: text.replace("&", "&amp;").replace("<", "&lt;") for path, text in facts.items()}
    survives(lambda: of_xml(xml(gpu({**H100, **escaped}, escaped))))


@given(cells=st.fixed_dictionaries({}, optional=dict.fromkeys(ROW, TEXTS)))
@QUICK
def test_csv_with_any_text_in_any_cell(cells: dict[str, str]) -> None:
    quoted = {name: '"' + text.replace('"', '""') + '"' for name, text in cells.items()}
    survives(lambda: of_csv(csv(ROW, {**ROW, "index": "1", **quoted})))


@given(labels=st.fixed_dictionaries({}, optional=dict.fromkeys({**SINGLE, **MIXED}, TEXTS | st.integers() | st.none())))
@QUICK
def test_labels_with_any_value(labels: dict[str, object]) -> None:
    survives(lambda: of_labels(json.dumps({**T4, **labels})))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
@QUICK
def test_a_capture_with_any_value_at_any_key(data: st.DataObject) -> None:
    document = to_builtins(json.loads(CAPTURE))
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(JSON)
    survives(lambda: of_recording(json.dumps(document)))


@given(content=st.binary(max_size=300) | st.sampled_from([text.encode("utf-16") for _, text in SAMPLES.values()]))
@settings(QUICK, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_any_bytes_in_a_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    survives(lambda: read_file(path))
    survives(lambda: read_target(str(path)))


@given(version=TEXTS)
@QUICK
def test_any_version_of_tensorflow(version: str) -> None:
    survives(lambda: report_of_target("T4", tensorflow=version))


def leaves(value: object, *path: str | int) -> list[tuple[str | int, ...]]:
    """Paths to everything in a document that holds nothing else."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, *path, key)]
    if isinstance(value, list) and value:
        return [leaf for number, inner in enumerate(value) for leaf in leaves(inner, *path, number)]
    return [path]


def with_leaf(path: tuple[str | int, ...], value: object) -> str:
    document = place = json.loads(CAPTURE)
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize("value", ["x", "", -1], ids=["a word", "nothing", "a number"])
def test_a_capture_with_the_wrong_value_at_each_key_in_turn(value: object) -> None:
    for path in leaves(json.loads(CAPTURE)):
        with suppress(InputError):
            facts = of_recording(with_leaf(path, value))
            why_not(assess(annotate(facts), Policy()), Policy(), "mixed_bfloat16")
            to_json(redact(facts, Identity(("/home/alice",), "alice", ("node",))))


NESTED = {
    "XML in depth": (of_xml, "<a>" * 100_000),
    "XML in breadth": (of_xml, "<nvidia_smi_log>" + "<a/>" * 200_000 + "</nvidia_smi_log>"),
    "XML text in a million pieces": (of_xml, "<nvidia_smi_log>" + "x<!-- -->" * 300_000 + "</nvidia_smi_log>"),
    "JSON in depth": (of_recording, "[" * 200_000),
    "labels in depth": (of_labels, '{"a":' * 200_000),
    "a csv of commas": (of_csv, "name" + "," * 1_000_000 + "\n" + "," * 1_000_000 + "\n"),
    "a long name": (of_xml, xml(gpu({**T4_XML, "product_name": "RTX " * 500_000}))),
    "a long capability": (of_csv, f"name,compute_cap\nT4,{'7' * 100_000}\n"),
    "a long version": (of_csv, f"name,driver_version\nT4,{'5.' * 50_000}\n"),
    "a long name in a capture": (of_recording, CAPTURE.replace("Tesla T4", "RTX " * 500_000)),
    "more devices than a machine has": (
        of_recording,
        CAPTURE.replace('"devices":[', '"devices":[' + '{"name":"T4","visible":true},' * 5000),
    ),
    "many parts": (report_of_target, "T4," * 1300),
    "a doubtful name without end": (report_of_target, "RTX " * 30),
}


@pytest.mark.parametrize(("read", "text"), NESTED.values(), ids=NESTED)
def test_size_alone_breaks_nothing(read: Reader, text: str) -> None:
    survives(lambda: read(text))
