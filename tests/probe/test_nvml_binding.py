"""NVML through other bindings than the installed nvidia-ml-py: old ones, foreign ones, and none at all."""

from __future__ import annotations

import sys
from pathlib import Path

import pynvml
import pytest

from hwprobe.probe.nvml_binding import foreign_owner, installed_version
from hwprobe.source import SourceStatus
from tests.machine import A100, H100, T4
from tests.probe.nvml import MIB, ROOT, MakeMachine, answer_of, gpus_of, reading_of


class Bindings:
    """Makes folders with a `pynvml` that lies before the installed one, over the real binding's code."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.syspath_prepend(str(folder))

    def write(self, changes: str = "", *, package: bool = False, owner: str | None = None) -> Path:
        file = self.folder / ("pynvml/__init__.py" if package else "pynvml.py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            "import sys, types\n"
            "real = sys.modules['_real_pynvml'] = types.ModuleType('_real_pynvml')\n"
            f"exec(compile(open({pynvml.__file__!r}).read(), 'pynvml', 'exec'), real.__dict__)\n"
            "globals().update({k: v for k, v in vars(real).items() if not k.startswith('__')})\n" + changes
        )
        if owner:
            info = self.folder / f"{owner}.dist-info"
            info.mkdir()
            (info / "RECORD").write_text(f"{file.relative_to(self.folder)},sha256=x,1\n{info.name}/RECORD,,\n")
        return file


@pytest.fixture
def bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bindings:
    return Bindings(tmp_path, monkeypatch)


BYTES = """
def nvmlDeviceGetName(handle): return real.nvmlDeviceGetName(handle).encode()
def nvmlDeviceGetUUID(handle): return real.nvmlDeviceGetUUID(handle).encode()
def nvmlSystemGetDriverVersion(): return real.nvmlSystemGetDriverVersion().encode()
"""
OLD = (
    BYTES
    + """
for name in ('nvmlMemory_v2', 'c_nvmlGpuFabricInfoV_t', 'nvmlDeviceGetGpuFabricInfoV', 'NVMLLibraryMismatchError'):
    del globals()[name]
"""
)
ANCIENT = OLD + "for name in [name for name in globals() if 'Mig' in name]: del globals()[name]\n"


def test_bytes_from_an_old_binding_become_text(machine: MakeMachine, bindings: Bindings) -> None:
    bindings.write(OLD, owner="nvidia_ml_py-11.495.46")
    reading = reading_of(machine(gpus=[H100], driver="470.82.01"))
    assert reading.binding == "11.495.46"
    assert reading.foreign is None
    assert reading.driver_version == "470.82.01"
    assert reading.devices is not None
    (gpu,) = reading.devices
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert str(gpu.uuid).startswith("GPU-")
    assert gpu.memory.total_bytes == 81559 * MIB
    assert gpu.memory.reserved_bytes is None
    assert gpu.health.fabric_state is None
    assert gpu.errors == {}


def test_the_old_pynvml_package_is_named_and_still_used(machine: MakeMachine, bindings: Bindings) -> None:
    file = bindings.write(package=True, owner="pynvml-11.5.3")
    (bindings.folder / "nvidia_ml_py-13.615.71.dist-info").mkdir()
    reading = reading_of(machine(gpus=[T4]))
    assert reading.foreign == f"{file} (pynvml 11.5.3)"
    assert reading.binding == "13.615.71"
    assert reading.devices is not None
    assert reading.devices[0].name == "Tesla T4"


def test_nvidia_ml_py3_in_place_of_the_module_is_named(machine: MakeMachine, bindings: Bindings) -> None:
    file = bindings.write(ANCIENT, owner="nvidia_ml_py3-7.352.0")
    reading = reading_of(machine(gpus=[A100.mig_on("1g.10gb")]))
    assert reading.foreign == f"{file} (nvidia-ml-py3 7.352.0)"
    assert reading.devices is not None
    assert reading.devices[0].mig is None
    assert reading.devices[0].errors == {}


def test_a_module_that_is_no_binding_is_a_failure_that_names_it(machine: MakeMachine, bindings: Bindings) -> None:
    file = bindings.folder / "pynvml.py"
    file.write_text("x = 1\n")
    answer = answer_of(machine(gpus=[T4]))
    assert answer.status is SourceStatus.FAILED
    assert answer.reason == f"the module {file} is not a binding to NVML"
    assert answer.data == {"binding": None, "foreign": f"{file} (of no installed distribution)"}


def test_without_any_binding_the_source_says_so(machine: MakeMachine, bindings: Bindings) -> None:
    (bindings.folder / "pynvml.py").write_text("raise ModuleNotFoundError(\"No module named 'pynvml'\")\n")
    answer = answer_of(machine(gpus=[T4]))
    assert answer.status is SourceStatus.FAILED
    assert answer.reason == "nvidia-ml-py cannot be imported: No module named 'pynvml'"


def test_a_name_that_is_not_utf8_is_an_error_of_that_fact(machine: MakeMachine, bindings: Bindings) -> None:
    bindings.write("def nvmlDeviceGetName(handle): return b'\\xff\\xfe'.decode()\n")
    (gpu,) = gpus_of(machine(gpus=[T4]))
    assert gpu.name is None
    assert "UnicodeDecodeError in nvmlDeviceGetName" in gpu.errors["name"]
    assert gpu.uuid is not None


def test_a_warning_at_import_is_no_error_even_where_warnings_are(machine: MakeMachine, bindings: Bindings) -> None:
    bindings.write("import warnings\nwarnings.warn('The pynvml package is deprecated', FutureWarning)\n")
    source = (
        f"import sys; sys.path.insert(0, {str(bindings.folder)!r})\n"
        "from hwprobe.probe.nvml import read\n"
        "print(read({})['devices'][0]['name'])"
    )
    done = machine(gpus=[T4]).run([sys.executable, "-W", "error", "-c", source], cwd=ROOT)
    assert (done.stdout, done.returncode) == ("Tesla T4\n", 0), done.stderr


def test_reading_leaves_ctypes_util_to_whoever_wants_it(machine: MakeMachine) -> None:
    source = (
        "import sys\n"
        "from hwprobe.probe.nvml import read\n"
        "sys.modules.pop('ctypes.util', None)\n"
        "read({})\n"
        "import ctypes.util\n"
        "print(callable(ctypes.util.find_library))"
    )
    done = machine(gpus=[T4]).run([sys.executable, "-c", source], cwd=ROOT)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["nvidia_ml_py-12.535.161.dist-info"], "12.535.161"),
        (["nvidia_ml_py-12.535.161-py3.11.egg-info"], "12.535.161"),
        (["nvidia_ml_py3-7.352.0.dist-info", "pynvml-11.5.3.dist-info"], None),
        ([], None),
    ],
)
def test_the_bindings_version_is_its_folders(tmp_path: Path, names: list[str], version: str | None) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    assert installed_version(str(tmp_path)) == version
    assert installed_version(str(tmp_path / "missing")) is None


def test_the_installed_binding_is_its_own() -> None:
    assert foreign_owner(pynvml.__file__, pynvml) is None
