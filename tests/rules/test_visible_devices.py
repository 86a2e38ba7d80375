"""CUDA_VISIBLE_DEVICES by the driver's own rules (CUDA Programming Guide; PyTorch's tests against driver 525)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.gpu import Gpu, Mig, MigInstance
from hwprobe.rules.visible_devices import read_entries

GPUS = tuple(Gpu(uuid=f"GPU-{letter * 8}-0000-0000-0000-000000000000") for letter in "abcdef")
INSTANCE = MigInstance(uuid="MIG-12345678-0000-0000-0000-000000000000", gpu_instance_id=7, compute_instance_id=0)
PARTITIONED = (msgspec.structs.replace(GPUS[0], mig=Mig(enabled=True, instances=(INSTANCE,))), *GPUS[1:])

LISTS = [
    ("", [], None),
    ("0,2,-1,1", ["0", "2"], "a negative number ends the list"),
    ("1,9,0", ["1"], "there are 6 GPUs, numbered from 0"),
    ("-1", [], "a negative number ends the list"),
    ("2, +3, -0, 5", ["2", "+3", "-0", "5"], None),
    ("1gpu2,2ampere", ["1", "2"], None),
    ("one,two,3", [], "neither a number nor a UUID"),
    ("4,3,two,one", ["4", "3"], "neither a number nor a UUID"),
    ("0,0", ["0"], "the same device twice, which empties the whole list"),
    ("0,+0", ["0"], "the same device twice, which empties the whole list"),
    ("GPU-aaaa", ["GPU-aaaa"], None),
    ("gpu-AAAA,GPU-bbbb", ["gpu-AAAA", "GPU-bbbb"], None),
    ("GPU-", [], "6 of them begin so"),
    ("GPU-ffff0000", [], "no GPU has a UUID that begins so"),
    ("GPU-aaaa,0", ["GPU-aaaa"], "a number after a UUID: the first entry fixes the kind"),
    ("0,GPU-aaaa", ["0"], "a UUID after a number: the first entry fixes the kind"),
    ("GPU-aaaa,GPU-aaaaaaaa", ["GPU-aaaa"], "the same device twice, which empties the whole list"),
    ("MIG-1234", ["MIG-1234"], None),
    ("MIG-GPU-aaaaaaaa-0000-0000-0000-000000000000/7/0", ["MIG-GPU-aaaaaaaa-0000-0000-0000-000000000000/7/0"], None),
    ("MIG-GPU-aaaaaaaa-0000-0000-0000-000000000000/3/0", [], "no MIG device has a UUID that begins so"),
    ("MIG-ffff", [], "no MIG device has a UUID that begins so"),
    ("NoDevFiles", [], "Slurm's word for a job without GPUs"),
]


@pytest.mark.parametrize(("value", "counting", "problem"), LISTS, ids=[value or "empty" for value, _, _ in LISTS])
def test_a_list_is_read_up_to_its_first_bad_entry(value: str, counting: list[str], problem: str | None) -> None:
    entries = read_entries(value, PARTITIONED)
    assert [entry.text.strip() for entry in entries if entry.problem is None] == counting
    assert [entry.problem for entry in entries if entry.problem is not None] == ([] if problem is None else [problem])


def test_a_uuid_names_its_device_and_an_index_none() -> None:
    (by_uuid,) = read_entries("GPU-bbbb", GPUS)
    assert by_uuid.subject == GPUS[1].uuid
    (by_index,) = read_entries("1", GPUS)
    assert by_index.subject is None


@given(st.text(max_size=60))
def test_no_text_makes_a_traceback(value: str) -> None:
    entries = read_entries(value, PARTITIONED)
    assert all(entry.problem is None for entry in entries[:-1])
