"""Which TensorFlow is installed and what it was built for, from files."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.probe.tensorflow_build import parse_build_info, read_build
from hwprobe.report import TensorFlow
from hwprobe.source import SourceStatus
from tests.probe.elf_files import code_for, elf
from tests.probe.site_packages import BUILD_INFO, CPU_BUILD, CUDA_BUILD, Site, build_info


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site-packages")


def read(*sites: Site) -> TensorFlow:
    tensorflow, _, source = read_build([str(site.folder) for site in sites])
    assert source.status is SourceStatus.OK, source
    assert tensorflow is not None
    return tensorflow


def in_effect(tensorflow: TensorFlow) -> dict[str, bool | None]:
    return {each.name: each.in_effect for each in tensorflow.distributions}


def distribution(*names: str) -> importlib.metadata.Distribution:
    for name in names:
        try:
            return importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    pytest.skip(f"not installed: {', '.join(names)}")


def test_the_installed_tensorflow_is_read_without_importing_it() -> None:
    expected = distribution("tensorflow", "tensorflow-cpu")
    before = "tensorflow" in sys.modules
    tensorflow, _, source = read_build()
    assert ("tensorflow" in sys.modules) == before
    assert source.status is SourceStatus.OK
    assert tensorflow is not None
    assert tensorflow.version == expected.version
    assert tensorflow.location == str(Path(str(expected.locate_file("tensorflow"))))
    assert [(each.version, each.in_effect, each.ships_code) for each in tensorflow.distributions] == [
        (expected.version, True, True)
    ]


def test_the_installed_keras_is_read() -> None:
    expected = distribution("keras", "keras-nightly").version
    _, keras, _ = read_build()
    assert keras is not None
    assert keras.version == expected


def test_every_fact_of_a_cuda_build(site: Site) -> None:
    site.tensorflow()
    tensorflow = read(site)
    assert tensorflow.location == str(site.folder / "tensorflow")
    assert (tensorflow.is_cuda_build, tensorflow.is_rocm_build) == (True, False)
    assert (tensorflow.cuda_version, tensorflow.cudnn_version) == ("12.5.1", "9")
    assert tensorflow.compute_capabilities == ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")
    assert tensorflow.compute_capabilities_origin == "build_info"


@pytest.mark.parametrize(
    ("name", "version", "text", "expected"),
    [
        ("tensorflow-cpu", "2.21.0", CPU_BUILD, (False, False, None, None)),
        (
            "tensorflow-rocm",
            "2.14.0.600",
            build_info(is_cuda_build=False, is_rocm_build=True, is_tensorrt_build=False),
            (False, True, None, None),
        ),
        (
            "tensorflow",
            "2.10.1",
            build_info(
                cuda_compute_capabilities=["sm_35", "compute_80"],
                cuda_version="64_112",
                cudnn_version="64_8",
                is_cuda_build=True,
                is_rocm_build=False,
                nvcuda_dll_name="nvcuda.dll",
            ),
            (True, False, "64_112", "64_8"),
        ),
        ("tf-nightly", "2.23.0.dev20261026", build_info(cuda_version="", is_cuda_build=None), (None, None, None, None)),
    ],
)
def test_builds_say_what_they_are_in_their_own_words(
    site: Site, name: str, version: str, text: str, expected: tuple[bool | None, bool | None, str | None, str | None]
) -> None:
    site.tensorflow(name, version, text)
    tensorflow = read(site)
    facts = tensorflow.is_cuda_build, tensorflow.is_rocm_build, tensorflow.cuda_version, tensorflow.cudnn_version
    assert facts == expected
    assert tensorflow.version == version


def test_a_build_that_names_no_architectures_is_read_from_its_libraries(site: Site) -> None:
    site.tensorflow(version="2.22.0rc0", text=build_info(is_cuda_build=True, is_rocm_build=False))
    library = site.folder / "tensorflow/libtensorflow_cc.so.2"
    library.write_bytes(elf({".nv_fatbin": code_for("sm_80", "sm_90", "compute_90")}))
    tensorflow = read(site)
    assert tensorflow.compute_capabilities == ("sm_80", "sm_90", "compute_90")
    assert tensorflow.compute_capabilities_origin == "fatbin"


def test_a_build_whose_architectures_cannot_be_read_keeps_its_other_facts(site: Site) -> None:
    site.tensorflow(text=build_info(is_cuda_build=True, cuda_version="12.5.1"))
    (site.folder / "tensorflow/libtensorflow_cc.so.2").write_text("damaged")
    tensorflow, _, source = read_build([str(site.folder)])
    assert tensorflow is not None
    assert (tensorflow.cuda_version, tensorflow.compute_capabilities) == ("12.5.1", None)
    assert source.status is SourceStatus.FAILED
    assert source.reason is not None
    assert "libtensorflow_cc.so.2" in source.reason


def test_a_cuda_build_in_which_no_gpu_code_is_found_is_unknown_and_not_empty(site: Site) -> None:
    site.tensorflow(text=build_info(is_cuda_build=True, cuda_compute_capabilities=[]))
    (site.folder / "tensorflow/libtensorflow_cc.so.2").write_bytes(elf({".text": b"x"}))
    tensorflow, _, source = read_build([str(site.folder)])
    assert tensorflow is not None
    assert (tensorflow.compute_capabilities, source.status) == (None, SourceStatus.FAILED)


def test_a_cpu_build_is_not_searched_for_gpu_code(site: Site) -> None:
    site.tensorflow("tensorflow-cpu", text=CPU_BUILD)
    (site.folder / "tensorflow/libtensorflow_cc.so.2").write_bytes(elf({".nv_fatbin": code_for("sm_80")}))
    assert read(site).compute_capabilities is None


def test_nothing_installed_is_absent(site: Site) -> None:
    site.install("numpy", "2.4.6")
    tensorflow, keras, source = read_build([str(site.folder), "", "/nonexistent", "/nonexistent.zip"])
    assert (tensorflow, keras, source.status) == (None, None, SourceStatus.ABSENT)


@pytest.mark.parametrize(
    ("names", "winner"),
    [(("tensorflow", "tensorflow-cpu"), "tensorflow-cpu"), (("tensorflow-cpu", "tensorflow"), "tensorflow")],
)
def test_of_two_that_share_their_files_the_one_unpacked_last_is_in_effect(
    site: Site, names: tuple[str, str], winner: str
) -> None:
    for name in names:
        version, text = ("2.21.0", CUDA_BUILD) if name == "tensorflow" else ("2.20.0", CPU_BUILD)
        site.tensorflow(name, version, text)
    tensorflow = read(site)
    assert in_effect(tensorflow) == {name: name == winner for name in names}
    assert tensorflow.version == ("2.21.0" if winner == "tensorflow" else "2.20.0")
    assert tensorflow.is_cuda_build is (winner == "tensorflow")


def test_files_that_no_record_matches_belong_to_none(site: Site) -> None:
    site.tensorflow()
    (site.folder / BUILD_INFO).write_text(CPU_BUILD)
    tensorflow = read(site)
    assert in_effect(tensorflow) == {"tensorflow": False}
    assert tensorflow.version is None


def test_a_distribution_without_a_record_leaves_it_open(site: Site) -> None:
    metadata = site.tensorflow()
    (metadata / "RECORD").unlink()
    tensorflow = read(site)
    assert (tensorflow.distributions[0].in_effect, tensorflow.distributions[0].ships_code) == (None, None)
    assert tensorflow.version == "2.21.0"


def test_the_stub_for_windows_ships_no_code_and_the_package_behind_it_does(site: Site) -> None:
    site.install("tensorflow", "2.15.1", requires=["tensorflow-intel==2.15.1; platform_system == 'Windows'"])
    site.tensorflow("tensorflow-intel", "2.15.1", CPU_BUILD)
    tensorflow = read(site)
    assert [(each.name, each.ships_code, each.in_effect) for each in tensorflow.distributions] == [
        ("tensorflow", False, False),
        ("tensorflow-intel", True, True),
    ]


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-gpu", "tensorflow-cuda13", "tensorflow-macos"])
def test_a_package_that_ships_no_code_is_no_tensorflow_but_named(site: Site, name: str) -> None:
    site.install(name, "0.0.1rc1", {f"{name.replace('-', '_')}_placeholder.py": ""})
    tensorflow, _, source = read_build([str(site.folder)])
    assert tensorflow is not None
    assert (tensorflow.location, tensorflow.is_cuda_build) == (None, None)
    assert tensorflow.distributions[0].ships_code is False
    assert source.status is SourceStatus.ABSENT
    assert source.reason == f"{name} 0.0.1rc1: installed, without TensorFlow's code"


def test_packages_that_only_carry_tensorflow_in_their_name_do_not_count(site: Site) -> None:
    site.tensorflow()
    site.install("tensorflow-estimator", "2.15.0", top_level=["tensorflow_estimator"])
    site.install("tensorflow-datasets", "4.9.9", {"tensorflow_datasets/__init__.py": ""})
    site.install("tensorflow-metal", "1.2.0", {"tensorflow-plugins/libmetal_plugin.dylib": ""})
    assert in_effect(read(site)) == {"tensorflow": True}


@pytest.mark.parametrize("name", ["tensorflow-acme", "acme-ml"])
def test_a_vendors_package_counts_by_what_it_owns(site: Site, name: str) -> None:
    site.tensorflow(name, "2.18.0+acme1", CPU_BUILD)
    tensorflow = read(site)
    assert (tensorflow.version, in_effect(tensorflow)) == ("2.18.0+acme1", {name: True})


def test_an_own_build_on_the_path_tells_its_version_itself(site: Site, tmp_path: Path) -> None:
    site.tensorflow()
    own = Site(tmp_path / "own")
    for name, text in [
        ("tensorflow/__init__.py", ""),
        (BUILD_INFO, CPU_BUILD),
        ("tensorflow/tools/pip_package/setup.py", "# a\n_VERSION = '2.22.0-rc0'\n"),
    ]:
        (own.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (own.folder / name).write_text(text)
    tensorflow = read(own, site)
    assert tensorflow.location == str(own.folder / "tensorflow")
    assert tensorflow.version == "2.22.0rc0"
    assert in_effect(tensorflow) == {"tensorflow": False}


def test_an_own_build_that_does_not_tell_its_version_has_none(site: Site) -> None:
    (site.folder / "tensorflow/python/platform").mkdir(parents=True)
    (site.folder / "tensorflow/__init__.py").write_text("")
    (site.folder / BUILD_INFO).write_text(CPU_BUILD)
    tensorflow = read(site)
    assert (tensorflow.version, tensorflow.distributions) == (None, ())


def test_a_folder_that_an_uninstall_left_behind_is_no_tensorflow(site: Site) -> None:
    (site.folder / "tensorflow/python/__pycache__").mkdir(parents=True)
    assert read_build([str(site.folder)])[0] is None


def test_a_module_of_that_name_is_no_tensorflow(site: Site) -> None:
    (site.folder / "tensorflow.py").write_text("")
    assert read_build([str(site.folder)])[0] is None


def test_build_facts_that_are_missing_are_a_failure_with_the_path(site: Site) -> None:
    site.tensorflow()
    (site.folder / BUILD_INFO).unlink()
    tensorflow, _, source = read_build([str(site.folder)])
    assert tensorflow is not None
    assert tensorflow.is_cuda_build is None
    assert source.status is SourceStatus.FAILED
    assert source.reason is not None
    assert BUILD_INFO in source.reason


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ("empty", ""),
        ("another form", "is_cuda_build = True\n"),
        ("not Python", "build_info = {"),
        ("an expression", "build_info = collections.OrderedDict(read())\n"),
        ("no pairs", "build_info = [1, 2]\n"),
        ("a NUL", "build_info = {}\0"),
        ("too deep", "build_info = " + "[" * 5000),
        ("code that would run", "import os\nbuild_info = os.system('exit 1')\n"),
    ],
)
def test_another_form_is_refused(description: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_build_info(text)


def test_a_plain_dictionary_is_as_good() -> None:
    assert parse_build_info("build_info = {'is_cuda_build': True}\n") == {"is_cuda_build": True}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_build_info(f"build_info = {text}")
    except ValueError:
        return


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.text() | st.lists(st.text())))
def test_what_the_wheels_write_is_read_back(facts: dict[str, object]) -> None:
    text = f"import collections\nbuild_info = collections.OrderedDict({list(facts.items())!r})\n"
    assert parse_build_info(text) == facts


def test_the_wheels_of_cuda_are_listed_with_their_folders(site: Site) -> None:
    site.tensorflow()
    site.install(
        "nvidia-cudnn-cu12", "9.3.0.75", {"nvidia/cudnn/lib/libcudnn.so.9": "", "nvidia/cudnn/include/x.h": ""}
    )
    site.install("nvidia-cuda-nvcc-cu12", "12.5.82", {"nvidia/cuda_nvcc/bin/ptxas": ""})
    site.install("nvidia-ml-py", "13.615.71", {"pynvml.py": ""})
    tensorflow = read(site)
    assert [each.name for each in tensorflow.wheels] == ["nvidia-cuda-nvcc-cu12", "nvidia-cudnn-cu12"]
    assert tensorflow.search_paths == (str(site.folder / "nvidia/cudnn/lib"),)


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        (['nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"'], ("nvidia-cudnn-cu12<10.0,>=9.3.0.75",)),
        (["nvidia-cudnn-cu12 (==8.9.4.25) ; extra == 'and-cuda'"], ("nvidia-cudnn-cu12==8.9.4.25",)),
        (["keras>=3.12.0", 'gcs>=1; (python_version < "3.13") and extra == "gcs-filesystem"'], ()),
    ],
)
def test_what_the_extra_asks_for_is_read(site: Site, requires: list[str], expected: tuple[str, ...]) -> None:
    site.tensorflow(requires=requires)
    assert read(site).and_cuda == expected


def test_plugins_are_known_by_name_or_by_their_folder(site: Site) -> None:
    site.tensorflow(text=CPU_BUILD)
    site.install("tensorflow-directml-plugin", "0.4.0")
    site.install("acme-accelerator", "1.0", {"tensorflow-plugins/libacme.so": ""})
    site.install("numpy", "2.4.6", {"numpy/__init__.py": ""})
    assert [each.name for each in read(site).plugins] == ["acme-accelerator", "tensorflow-directml-plugin"]


def test_a_broken_installation_of_pip_is_not_counted(site: Site) -> None:
    site.tensorflow()
    (site.folder / "~ensorflow-2.20.0.dist-info").mkdir()
    assert in_effect(read(site)) == {"tensorflow": True}


@pytest.mark.parametrize("folder", ["tensorflow-2.14.0.egg-info", "tensorflow-2.14.0-py3.11.egg-info"])
def test_older_metadata_counts(site: Site, folder: str) -> None:
    site.tensorflow(name="numpy", version="1.0")
    (site.folder / folder).mkdir()
    found = {(each.name, each.version) for each in read(site).distributions}
    assert ("tensorflow", "2.14.0") in found
