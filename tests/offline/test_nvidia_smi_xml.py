"""`nvidia-smi -q -x` of drivers 418 to 610, and files that only look like it."""

from __future__ import annotations

from typing import Any

import pytest

from hwprobe.errors import InputError
from hwprobe.gpu import Gpu
from hwprobe.offline.nvidia_smi_xml import MAX_DEPTH, report_of_xml
from hwprobe.preflight import check
from hwprobe.report import Report
from hwprobe.source import SourceStatus
from tests.offline.smi import H100, T4, gpu, xml


def report(text: str, **options: Any) -> Report:
    return report_of_xml(text, origin="smi.xml", **options)


def only(text: str) -> Gpu:
    (device,) = report(text).devices
    return device


class TestWhole:
    def test_every_fact_that_counts_arrives(self) -> None:
        facts = report(xml(gpu(H100), driver="580.105.08", cuda="13.0", dtd="v13"))
        (device,) = facts.devices
        assert (device.name, device.uuid) == ("NVIDIA H100 80GB HBM3", "GPU-9e8d35e3-0000-4000-8000-000000000001")
        assert (device.pci_bus_id, device.pci_device_id) == ("00000000:8f:00.0", "2330")
        assert str(device.compute_capability) == "9.0"
        memory = device.memory
        assert (memory.total_bytes, memory.free_bytes, memory.used_bytes, memory.reserved_bytes, memory.kind) == (
            81559 * 2**20,
            81077 * 2**20,
            2 * 2**20,
            450 * 2**20,
            "dedicated",
        )
        health = device.health
        assert (health.ecc_enabled, health.ecc_uncorrected_volatile) == (True, 0)
        assert (health.retired_pages_pending, health.remapped_rows_pending, health.remapped_rows_failed) == (
            None,
            False,
            False,
        )
        assert (health.fabric_state, health.fabric_status_code) == ("completed", 0)
        assert (device.compute_mode, device.virtualization, device.brand) == ("default", "passthrough", "NVIDIA")
        assert (device.driver_model, device.visible, device.error, device.errors) == (None, True, None, {})
        assert device.mig is not None
        assert (device.mig.enabled, device.mig.pending, device.mig.instances) == (False, False, ())
        assert facts.driver is not None
        assert (facts.driver.version, facts.driver.cuda_version, facts.driver.device_count) == ("580.105.08", "13.0", 1)
        assert (facts.sources.nvml.status, facts.sources.cuda.status) == (SourceStatus.OK, SourceStatus.SKIPPED)
        assert facts.origin == "smi.xml"

    def test_a_gpu_before_every_newer_element(self) -> None:
        old = {path: text for path, text in T4.items() if not path.startswith(("mig", "remapped", "gpu_virtual"))} | {
            "product_name": "Graphics Device",
            "pci/pci_device_id": "218410DE",
            "uuid": "N/A",
        }
        device = only(xml(gpu(old), driver="418.43", cuda="10.1", dtd="v10"))
        assert (device.name, device.uuid, device.mig) == ("Graphics Device", None, None)
        assert str(device.compute_capability) == "7.5"

    def test_the_chip_is_known_by_its_id_where_the_driver_has_no_name_for_it(self) -> None:
        nameless = {**T4, "product_name": "Graphics Device", "pci/pci_device_id": "218410DE"}
        result = check(report=report(xml(gpu(nameless))))
        assert result.decision is not None
        assert result.decision.dtype_policy == "float32"
        assert "HWP401" in [finding.id for finding in result.findings]

    def test_the_tensorflow_of_a_file_that_has_none_is_the_newest_and_the_answer_says_so(self) -> None:
        facts = report(xml(gpu(T4)))
        assert facts.tensorflow is not None
        assert facts.tensorflow.version == "2.21"
        assert "since none is named" in facts.assumptions[0]

    def test_the_tensorflow_that_is_asked_for(self) -> None:
        result = check(report=report(xml(gpu(H100), driver="580.105.08"), tensorflow="2.12"))
        assert result.decision is not None
        assert result.decision.dtype_policy == "mixed_float16"

    def test_several_gpus_keep_their_order(self) -> None:
        devices = report(xml(gpu(T4), gpu(H100), driver="580.105.08")).devices
        assert [(device.nvml_index, device.name) for device in devices] == [
            (0, "Tesla T4"),
            (1, "NVIDIA H100 80GB HBM3"),
        ]

    def test_a_file_of_some_of_the_gpus_says_so(self) -> None:
        facts = report(xml(gpu(T4), attached=4))
        assert facts.assumptions[-1] == "the machine is judged by the 1 of its 4 GPUs that the file shows"

    def test_uuids_that_were_blanked_out_do_not_make_one_gpu_of_two(self) -> None:
        blank = {**T4, "uuid": "GPU-00000000-0000-0000-0000-000000000000"}
        other = {**blank, "pci/pci_bus_id": "00000000:00:1F.0"}
        facts = report(xml(gpu(blank), gpu(other)))
        assert len({device.subject for device in facts.devices}) == 2


WORDS = {
    "absent": ("fb_memory_usage/total", "N/A", None),
    "unsupported, in older words": ("fb_memory_usage/total", "[Not Supported]", None),
    "a withdrawn fact": ("compute_mode", "Requested functionality has been deprecated", None),
    "unreadable": ("fb_memory_usage/total", "Unknown Error", "nvidia-smi says 'Unknown Error'"),
    "unreadable, in other words": ("ecc_mode/current_ecc", "ERR!", "nvidia-smi says 'ERR!'"),
    "no permission": ("compute_mode", "[Insufficient Permissions]", "nvidia-smi says 'Insufficient Permissions'"),
    "a size in another unit": ("fb_memory_usage/total", "15 GiB", "not understood: '15 GiB'"),
    "a mode of tomorrow": ("compute_mode", "Shared", "not understood: 'Shared'"),
    "a chip id that is none": ("pci/pci_device_id", "[REDACTED]", "not understood: 'REDACTED'"),
    "another vendor's chip": ("pci/pci_device_id", "744C1002", "not understood: '744C1002'"),
    "a count beyond reason": ("ecc_errors/volatile/dram_uncorrectable", "9" * 40, "not understood"),
}


@pytest.mark.parametrize(("path", "text", "error"), WORDS.values(), ids=WORDS)
def test_a_fact_that_is_not_there_is_unknown_and_says_why_where_there_is_a_reason(
    path: str, text: str, error: str | None
) -> None:
    device = only(xml(gpu({**T4, path: text})))
    errors = " ".join(device.errors.values())
    assert (error or "") in errors
    assert bool(errors) is (error is not None)
    unread = {
        "fb_memory_usage/total": device.memory.total_bytes,
        "compute_mode": device.compute_mode,
        "ecc_mode/current_ecc": device.health.ecc_enabled,
        "pci/pci_device_id": device.pci_device_id,
        "ecc_errors/volatile/dram_uncorrectable": device.health.ecc_uncorrected_volatile,
    }
    assert unread[path] is None


class TestHealth:
    @pytest.mark.parametrize(
        ("facts", "count"),
        [
            ({"ecc_errors/volatile/sram_uncorrectable": "1", "ecc_errors/volatile/dram_uncorrectable": "2"}, 3),
            (
                {
                    "ecc_errors/volatile/sram_uncorrectable_parity": "1",
                    "ecc_errors/volatile/sram_uncorrectable_secded": "0",
                    "ecc_errors/volatile/dram_uncorrectable": "4",
                },
                5,
            ),
            ({"ecc_errors/volatile/double_bit/total": "7"}, 7),
            ({"ecc_errors/volatile/double_bit/total": "N/A"}, None),
            ({"ecc_errors/volatile/sram_uncorrectable": "N/A", "ecc_errors/volatile/dram_uncorrectable": "N/A"}, None),
        ],
        ids=["Turing and Ampere", "from driver 535 on", "before Turing", "a GeForce before Turing", "a GeForce"],
    )
    def test_uncorrected_errors_are_counted_in_every_form(self, facts: dict[str, str], count: int | None) -> None:
        bare = {path: text for path, text in T4.items() if not path.startswith("ecc_errors")}
        device = only(xml(gpu({**bare, **facts})))
        assert device.health.ecc_uncorrected_volatile == count

    @pytest.mark.parametrize(
        ("facts", "id_"),
        [
            ({"ecc_errors/volatile/dram_uncorrectable": "2"}, "HWP124"),
            ({"retired_pages/pending_retirement": "Yes"}, "HWP125"),
            ({"retired_pages/pending_blacklist": "Yes", "retired_pages/pending_retirement": None}, "HWP125"),
            ({"compute_mode": "Prohibited"}, "HWP123"),
        ],
    )
    def test_what_is_wrong_with_a_board_is_found(self, facts: dict[str, str | None], id_: str) -> None:
        changed = {path: text for path, text in {**T4, **facts}.items() if text is not None}
        assert id_ in [finding.id for finding in check(report=report(xml(gpu(changed)))).findings]

    @pytest.mark.parametrize(
        ("facts", "id_"),
        [
            ({"remapped_rows/remapped_row_failure": "Yes"}, "HWP126"),
            ({"fabric/state": "In Progress", "fabric/status": "N/A"}, "HWP127"),
            ({"fabric/status": "Insufficient Resources"}, "HWP127"),
        ],
    )
    def test_what_is_wrong_with_a_newer_board_is_found(self, facts: dict[str, str], id_: str) -> None:
        text = xml(gpu({**H100, **facts}), driver="580.105.08")
        assert id_ in [finding.id for finding in check(report=report(text)).findings]

    def test_a_lost_gpu_is_lost_wherever_it_says_so(self) -> None:
        lost = {**H100, "temperature/gpu_temp": "GPU is lost", "uuid": "GPU-1"}
        result = check(report=report(xml(gpu(H100), gpu(lost), driver="580.105.08")))
        assert result.primary is not None
        assert (result.primary.id, result.primary.subject) == ("HWP120", "GPU-1")
        assert result.decision is not None
        assert result.decision.dtype_policy == "mixed_bfloat16"


class TestMig:
    INSTANCE = {
        "gpu_instance_id": "3",
        "compute_instance_id": "0",
        "device_attributes/shared/multiprocessor_count": "14",
        "fb_memory_usage/total": "19968 MiB",
        "fb_memory_usage/used": "12 MiB",
        "fb_memory_usage/free": "19955 MiB",
    }

    def test_the_instances_are_read_and_the_first_one_is_the_process_s(self) -> None:
        second = {**self.INSTANCE, "gpu_instance_id": "9"}
        device = only(xml(gpu({**H100, "mig_mode/current_mig": "Enabled"}, self.INSTANCE, second)))
        assert device.mig is not None
        assert [(one.gpu_instance_id, one.visible) for one in device.mig.instances] == [(3, True), (9, None)]
        first = device.mig.instances[0]
        assert (first.multiprocessors, first.memory.total_bytes) == (14, 19968 * 2**20)
        assert device.visible

    def test_without_instances_there_is_nothing_to_compute_on(self) -> None:
        facts = report(xml(gpu({**H100, "mig_mode/current_mig": "Enabled"}), driver="580.105.08"))
        result = check(report=facts)
        assert result.primary is not None
        assert (result.primary.id, facts.devices[0].visible) == ("HWP304", False)


class TestPlatforms:
    @pytest.mark.parametrize(
        ("model", "persistence", "system", "wsl"),
        [
            ("N/A", "Enabled", "Linux", False),
            ("WDDM", "N/A", "Windows", False),
            ("TCC", "N/A", "Windows", False),
            ("WDDM", "Enabled", "Linux", True),
        ],
    )
    def test_windows_linux_and_wsl_are_told_apart(self, model: str, persistence: str, system: str, wsl: bool) -> None:
        text = xml(gpu({**T4, "driver_model/current_dm": model, "persistence_mode": persistence}))
        host = report(text).host
        assert (host.system, host.wsl) == (system, wsl)

    def test_a_board_with_an_arm_cpu_gets_the_wheel_for_arm(self) -> None:
        gb200 = {**H100, "product_name": "NVIDIA GB200", "pci/pci_device_id": "294110DE"}
        assert report(xml(gpu(gb200))).host.machine == "aarch64"
        assert report(xml(gpu(gb200), gpu(T4))).host.machine is None

    def test_memory_that_is_the_hosts(self) -> None:
        gb10 = {**T4, "product_name": "NVIDIA GB10", "pci/pci_device_id": "2E1210DE", "fb_memory_usage/total": "N/A"}
        memory = only(xml(gpu(gb10))).memory
        assert (memory.kind, memory.total_bytes) == ("unified", None)


class TestUnknownBoards:
    def test_a_board_that_nobody_knows_has_no_capability(self) -> None:
        device = only(xml(gpu({**T4, "product_name": "NVIDIA RX 9", "pci/pci_device_id": "FFFF10DE"})))
        assert device.compute_capability is None
        assert device.errors["compute_cap"] == "nvidia-smi does not tell it here, and the board is not known"

    def test_a_name_and_an_id_that_contradict_each_other_are_not_guessed_at(self) -> None:
        device = only(xml(gpu({**T4, "product_name": "NVIDIA H100 80GB HBM3"})))
        assert device.compute_capability is None
        assert "boards of 7.5, 9.0" in device.errors["compute_cap"]

    def test_a_name_of_two_capabilities_needs_its_id(self) -> None:
        nameless = {**T4, "product_name": "NVIDIA GeForce GT 730"}
        assert only(xml(gpu({**nameless, "pci/pci_device_id": "N/A"}))).compute_capability is None
        assert str(only(xml(gpu({**nameless, "pci/pci_device_id": "128710DE"}))).compute_capability) == "3.5"


LAUGHS = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><nvidia_smi_log>&b;</nvidia_smi_log>'
READS = '<!DOCTYPE nvidia_smi_log [<!ENTITY f SYSTEM "file:///etc/passwd">]><nvidia_smi_log>&f;</nvidia_smi_log>'
PARAMETER = '<!DOCTYPE nvidia_smi_log [<!ENTITY % p "x">]><nvidia_smi_log/>'
REFUSED = {
    "entities in entities": (LAUGHS, "line 1: it declares the entity 'a'"),
    "an entity of another file": (READS, "it declares the entity 'f'"),
    "a parameter entity": (PARAMETER, "it declares the entity 'p'"),
    "depth without end": ("<a>" * (MAX_DEPTH + 1), f"elements more than {MAX_DEPTH} deep"),
    "cut off": (xml(gpu(T4))[:-40], "not well-formed XML"),
    "two documents": (xml(gpu(T4)) + xml(gpu(T4)), "not well-formed XML"),
    "a tag that is not closed": (
        "<nvidia_smi_log>\n<gpu>\n</nvidia_smi_log>",
        "line 3: not well-formed XML: mismatched tag",
    ),
    "other XML": ("<svg/>", "line 1: the element is <svg> and not <nvidia_smi_log>"),
    "no GPU": (xml(), "it lists no GPU"),
    "more GPUs than a machine has": (xml(*["<gpu/>"] * 1025), "more than 1024 GPUs"),
    "an entity that nobody declared": ("<nvidia_smi_log>&x;</nvidia_smi_log>", "undefined entity"),
}


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_its_output_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        report(text)
    assert str(caught.value).startswith("smi.xml")
    assert says in str(caught.value)


def test_the_dtd_that_every_file_names_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("something was opened")

    text = xml(gpu(T4)).replace("nvsmi_device_v12.dtd", "http://dtd.example/nvsmi.dtd")
    report(text)
    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("io.open", refuse)
    assert report(text).devices


def test_no_such_tensorflow() -> None:
    with pytest.raises(InputError, match="--tensorflow: 'x' is not a version"):
        report(xml(gpu(T4)), tensorflow="x")
