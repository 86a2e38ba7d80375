"""`nvidia-smi --query-gpu=... --format=csv`, with all columns, with few, and with others than it says."""

from __future__ import annotations

from typing import Any

import pytest

from hwprobe.errors import InputError
from hwprobe.gpu import Gpu
from hwprobe.offline.nvidia_smi import FIELDS
from hwprobe.offline.nvidia_smi_csv import MAX_ROWS, is_header, report_of_csv
from hwprobe.preflight import check
from hwprobe.report import Report
from tests.offline.smi import ROW, csv


def report(text: str, **options: Any) -> Report:
    return report_of_csv(text, origin="smi.csv", **options)


def only(text: str) -> Gpu:
    (device,) = report(text).devices
    return device


def but(**cells: str) -> dict[str, str]:
    """The row with other cells: `memory_total="[N/A]"`."""
    names = {name.split(" ")[0].replace(".", "_"): name for name in ROW}
    return {**ROW, **{names[name]: cell for name, cell in cells.items()}}


class TestWhole:
    def test_every_column_that_counts_arrives(self) -> None:
        facts = report(csv(ROW))
        (device,) = facts.devices
        assert (device.name, device.nvml_index, str(device.compute_capability)) == ("NVIDIA H100 80GB HBM3", 0, "9.0")
        assert (device.pci_bus_id, device.pci_device_id) == ("00000000:00:09.0", "2330")
        assert (device.memory.total_bytes, device.memory.kind) == (81559 * 2**20, "dedicated")
        assert (device.memory.reserved_bytes, device.memory.used_bytes) == (479 * 2**20, 0)
        assert device.memory.free_bytes == 81081 * 2**20
        assert (device.health.ecc_enabled, device.health.ecc_uncorrected_volatile) == (True, 0)
        assert (device.health.remapped_rows_pending, device.health.retired_pages_pending) == (False, None)
        assert (device.health.fabric_state, device.health.fabric_status_code) == ("completed", 0)
        assert device.mig is not None
        assert (device.mig.enabled, device.compute_mode, device.errors) == (False, "default", {})
        assert facts.driver is not None
        assert (facts.driver.version, facts.driver.cuda_version) == ("590.48.01", None)

    def test_the_columns_that_the_manual_names_are_those_that_are_read(self) -> None:
        written = {name.split(" ")[0] for name in ROW}
        assert written == set(FIELDS)

    def test_the_capability_that_it_tells_goes_before_the_catalogue(self) -> None:
        assert str(only(csv(but(compute_cap="9.1"))).compute_capability) == "9.1"

    def test_several_gpus(self) -> None:
        second = but(index="1", uuid="GPU-2", pci_bus_id="00000000:00:0A.0")
        assert [device.nvml_index for device in report(csv(ROW, second)).devices] == [0, 1]


FORMS = {
    "nounits": lambda text: text.replace(" MiB,", ","),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "no blank behind the commas": lambda text: text.replace(", ", ","),
    "a byte order mark": lambda text: "\ufeff" + text,
    "empty lines": lambda text: "\n" + text.replace("\n", "\n\n"),
    "the other names of some columns": lambda text: text.replace("name", "gpu_name", 1).replace("uuid", "gpu_uuid"),
    "the driver's version in two columns": lambda text: text.replace(
        "driver_version", "driver_version, kmd_version"
    ).replace("590.48.01", "590.48.01, 590.48.01"),
    "columns that nobody asked for": lambda text: text.replace("index", "pstate, index").replace("\n0", "\nP0, 0"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_same_in_another_form(form: Any) -> None:
    assert report(form(csv(ROW))) == report(csv(ROW))


class TestFew:
    @pytest.mark.parametrize(
        ("text", "capability"),
        [
            ("name\nTesla T4\n", "7.5"),
            ("pci.device_id\n0x1EB810DE\n", "7.5"),
            ("compute_cap\n7.5\n", "7.5"),
            ("index, name, memory.total [MiB], memory.free [MiB]\n0, NVIDIA GB10, [N/A], [N/A]\n", "12.1"),
            ("name\nNVIDIA GeForce GT 730\n", "None"),
        ],
    )
    def test_one_column_that_says_what_it_is_will_do(self, text: str, capability: str) -> None:
        device = only(text)
        assert str(device.compute_capability) == capability
        assert device.memory.total_bytes is None
        assert device.visible

    def test_a_system_that_it_does_not_tell_counts_as_linux(self) -> None:
        assert report("name\nTesla T4\n").host.system == "Linux"

    def test_windows_is_told_by_its_driver_model(self) -> None:
        windows = report(csv(but(driver_model_current="WDDM", persistence_mode="[N/A]")))
        assert windows.host.system == "Windows"
        assert "HWP203" in [finding.id for finding in check(report=windows).findings]


def test_a_driver_that_does_not_tell_its_version() -> None:
    driver = report(csv(but(driver_version="[N/A]"))).driver
    assert driver is not None
    assert driver.version is None


class TestMig:
    def test_where_it_is_off_nothing_is_taken_for_granted(self) -> None:
        assert report(csv(ROW)).assumptions[-1] == "the process may use every GPU that works"

    def test_csv_does_not_list_the_instances_so_one_of_unknown_size_stands_for_them(self) -> None:
        facts = report(csv(but(mig_mode_current="Enabled", mig_mode_pending="Enabled")))
        (device,) = facts.devices
        assert device.mig is not None
        assert [(one.visible, one.memory.total_bytes) for one in device.mig.instances] == [(True, None)]
        assert facts.assumptions[-1].startswith("the process computes on one MIG device of unknown size")
        assert "HWP304" not in [finding.id for finding in check(report=facts).findings]


def test_a_lost_gpu() -> None:
    lost = but(index="1", uuid="[GPU is lost]", memory_total="[GPU is lost]", pci_bus_id="00000000:00:0A.0")
    result = check(report=report(csv(ROW, lost)))
    assert result.primary is not None
    assert (result.primary.id, result.primary.action.value) == ("HWP120", "drain")


def test_a_cell_that_cannot_be_read_is_unknown_and_says_so() -> None:
    device = only(csv(but(memory_total="[Unknown Error]", compute_mode="Sometimes")))
    assert (device.memory.total_bytes, device.compute_mode) == (None, None)
    assert device.errors == {
        "memory.total": "nvidia-smi says 'Unknown Error'",
        "compute_mode": "not understood: 'Sometimes'",
    }


REFUSED = {
    "noheader": ("0, NVIDIA H100 80GB HBM3, 590.48.01\n", "names no field of nvidia-smi (leave out noheader)"),
    "nothing that says what a GPU is": ("memory.total [MiB]\n[N/A]\n", "none of name, pci.device_id, compute_cap"),
    "only a head": ("name\n", "no line of a GPU"),
    "a line that is short": ("index, name\n0, Tesla T4\n1\n", "line 3: 1 cells under 2 columns"),
    "a line that is long": ("index, name\n0, Tesla T4, x\n", "line 2: 3 cells under 2 columns"),
    "a column twice": ("name, name\na, b\n", "the column name is there twice"),
    "a log of --loop": ("index, name\n0, Tesla T4\n1, Tesla T4\n0, Tesla T4\n", "line 4: GPU 0 is there twice"),
    "a log without indices": (
        "name, pci.bus_id\nT4, 0000:01:00.0\nT4, 0000:01:00.0\n",
        "GPU 0000:01:00.0 is there twice",
    ),
    "more lines than a machine has GPUs": ("name\n" + "T4\n" * (MAX_ROWS + 1), f"more than {MAX_ROWS} lines"),
    "columns without end": ("name" + "," * 2000 + "\n", "line 1: more than 1024 columns"),
    "a cell without end": ("name\n" + "T" * 200_000 + "\n", "field larger than field limit"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_with_its_line_or_column(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        report(text)
    assert str(caught.value).startswith("smi.csv")
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["noheader", "nothing that says what a GPU is"])
def test_the_refusal_says_what_to_run(text: str) -> None:
    with pytest.raises(InputError) as caught:
        report(REFUSED[text][0])
    assert "nvidia-smi --query-gpu=index,name,uuid," in str(caught.value)


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("index, name, memory.total [MiB]", True),
        ("GPU_NAME", True),
        ("timestamp, pci.bus_id", True),
        ("0, Tesla T4", False),
        ("+----+", False),
        ("", False),
    ],
)
def test_a_head_is_known_by_its_columns(line: str, is_one: bool) -> None:
    assert is_header(line) is is_one
