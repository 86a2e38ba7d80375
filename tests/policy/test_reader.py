import os
from pathlib import Path
from typing import Any

import pytest

from hwprobe import policy_reader
from hwprobe.configuration import Memory
from hwprobe.errors import InputError
from hwprobe.findings import Severity
from hwprobe.policy import CheckWish, DeviceOverride, LossScalingWish, Policy, Precision
from hwprobe.policy_reader import read_policy
from tests.policy.documents import FULL, MINIMAL, written


@pytest.fixture(autouse=True)
def site_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-in for the machine's own file; absent until a test writes it."""
    path = tmp_path / "etc" / "policy.toml"
    monkeypatch.setattr(policy_reader, "SITE_FILE", path)
    return path


def refused(argument: str | Path | Policy | None = None, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_policy(argument, environment if environment is not None else {})
    return str(caught.value)


def test_every_key_of_a_file_arrives(tmp_path: Path) -> None:
    path = written(tmp_path, FULL)
    assert read_policy(path) == Policy(
        name="site",
        description="Everything off its default.",
        precision=Precision(prefer=("mixed_float16", "float32"), cpu=("mixed_bfloat16", "float32"), tf32=False),
        loss_scaling=LossScalingWish(mode="dynamic", initial_scale=1024.5, growth_steps=500),
        memory=Memory(growth=False, limit_mib=4096, allocator="cuda_malloc_async"),
        check=CheckWish(
            fail_on="warning",
            select=("HWP3", "HWP204"),
            ignore=("HWP305",),
            severity={"HWP204": Severity.INFO, "HWP3": Severity.ERROR},
        ),
        devices=(
            DeviceOverride(
                name="*A100*",
                allow=("mixed_bfloat16",),
                deny=("mixed_float16",),
                reason='a "quoted" reason, with \\ and ü',
            ),
            DeviceOverride(name="Tesla T4", deny=("mixed_float16",), reason="overheats"),
        ),
        path=str(path),
        origin="argument",
    )


def test_a_file_with_the_schema_alone_wishes_the_default_and_is_called_as_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL, "night-jobs.toml")
    assert read_policy(path) == Policy(name="night-jobs", path=str(path), origin="argument")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_file_from_a_windows_editor_is_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(b"\xef\xbb\xbf" + FULL.replace("\n", ending).encode())
    assert read_policy(path) == read_policy(written(tmp_path, FULL))


class TestWhichPolicyCounts:
    def test_the_argument_wins_over_everything(self, tmp_path: Path, site_file: Path) -> None:
        site_file.parent.mkdir()
        written(site_file.parent, MINIMAL, "policy.toml")
        policy = read_policy("float32", {"HWPROBE_POLICY": "prefer-float16"})
        assert (policy.name, policy.origin) == ("float32", "argument")

    def test_the_variable_wins_over_the_machines_own_file(self, site_file: Path) -> None:
        site_file.parent.mkdir()
        written(site_file.parent, MINIMAL, "policy.toml")
        policy = read_policy(None, {"HWPROBE_POLICY": "prefer-float16"})
        assert (policy.name, policy.origin) == ("prefer-float16", "environment")

    def test_the_variable_may_name_a_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, FULL)
        policy = read_policy(None, {"HWPROBE_POLICY": str(path)})
        assert (policy.path, policy.origin) == (str(path), "environment")

    def test_the_machines_own_file_wins_over_the_default(self, site_file: Path) -> None:
        site_file.parent.mkdir()
        written(site_file.parent, FULL, "policy.toml")
        policy = read_policy(None, {})
        assert (policy.path, policy.origin) == (str(site_file), "file")

    @pytest.mark.parametrize("environment", [{}, {"HWPROBE_POLICY": ""}], ids=["unset", "empty"])
    def test_without_any_of_them_it_is_the_default(self, environment: dict[str, str]) -> None:
        policy = read_policy(None, environment)
        assert (policy.name, policy.origin) == ("default", "default")

    def test_without_an_environment_it_is_this_processs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HWPROBE_POLICY", "float32")
        assert read_policy().name == "float32"

    def test_a_site_file_with_mistakes_is_an_error_and_not_the_default(self, site_file: Path) -> None:
        site_file.parent.mkdir()
        written(site_file.parent, "schema = 1\n", "policy.toml")
        assert str(site_file) in refused()

    def test_a_site_file_that_is_a_broken_link_is_an_error_and_not_the_default(self, site_file: Path) -> None:
        site_file.parent.mkdir()
        site_file.symlink_to("moved-away.toml")
        assert "No such file" in refused()

    def test_a_variable_that_names_nothing_is_named_itself(self) -> None:
        message = refused(None, {"HWPROBE_POLICY": "flat32"})
        assert message.startswith('HWPROBE_POLICY="flat32": no policy is called "flat32"; did you mean float32?')


class TestNamesAndPaths:
    def test_an_unknown_name_lists_the_shipped_ones_and_how_a_file_is_named(self) -> None:
        message = refused("defualt")
        assert 'no policy is called "defualt"; did you mean default?' in message
        assert "cpu-bfloat16, default, float32, prefer-float16" in message
        assert "a path with a / in it or with the ending .toml" in message

    def test_a_name_is_a_name_even_where_a_file_is_called_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        written(tmp_path, FULL, "float32")
        assert read_policy("float32", {}).path is None

    def test_with_a_slash_it_is_that_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        written(tmp_path, FULL, "float32")
        assert read_policy("./float32", {}).name == "site"

    def test_with_the_ending_it_is_a_file_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        written(tmp_path, FULL, "default.toml")
        assert read_policy("default.toml", {}).name == "site"

    def test_a_path_object_is_always_a_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert "cannot read the policy float32: No such file" in refused(Path("float32"))

    def test_the_empty_name_is_a_name_that_nothing_has(self) -> None:
        assert 'no policy is called ""' in refused("")


class TestFilesThatAreNone:
    def test_a_file_that_is_missing(self, tmp_path: Path) -> None:
        assert (
            refused(tmp_path / "gone.toml") == f"cannot read the policy {tmp_path}/gone.toml: No such file or directory"
        )

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "is not a regular file" in refused(tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.toml")
        assert "is not a regular file" in refused(tmp_path / "pipe.toml")

    def test_a_device_without_an_end_is_not_read(self) -> None:
        assert "is not a regular file" in refused("/dev/zero")

    def test_a_path_with_a_null_character(self) -> None:
        assert 'cannot read the policy "a\\u0000.toml"' in refused("a\0.toml")

    def test_a_path_that_is_not_text_is_shown_escaped(self, tmp_path: Path) -> None:
        path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.toml")
        assert "\\udcff.toml" in refused(path)

    def test_a_file_that_is_far_too_large(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL + "#" * (256 * 1024))
        assert refused(path) == f"{path} is larger than 256 KiB: not a policy file"

    def test_a_file_just_small_enough(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL + "#" * (256 * 1024 - len(MINIMAL)))
        assert read_policy(path).name == "site"

    def test_a_file_of_bytes_names_the_line(self, tmp_path: Path) -> None:
        path = tmp_path / "site.toml"
        path.write_bytes(MINIMAL.encode() + b'name = "\xff"\n')
        assert refused(path).startswith(f"{path}: not UTF-8 text (at line 2)")

    def test_a_file_that_is_not_toml_names_the_line(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL + "name = default\n")
        message = refused(path)
        assert message.startswith(f"{path}: not a TOML file")
        assert "line 2" in message

    def test_a_number_longer_than_python_reads(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL + f"[memory]\nlimit_mib = {'9' * 5000}\n")
        assert refused(path).startswith(str(path))

    def test_lists_in_lists_in_lists(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL + f"name = {'[' * 5000}{']' * 5000}\n")
        assert refused(path).startswith(str(path))


class TestExtending:
    def test_a_file_changes_one_key_of_a_shipped_policy(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL + 'extends = "float32"\n[memory]\nlimit_mib = 8192\n')
        policy = read_policy(path)
        base = read_policy("float32", {})
        assert policy.memory == Memory(limit_mib=8192)
        assert (policy.precision, policy.check) == (base.precision, base.check)
        assert (policy.name, policy.description) == ("site", "")

    def test_tables_are_merged_key_by_key_and_lists_are_replaced(self, tmp_path: Path) -> None:
        written(tmp_path, FULL, "base.toml")
        path = written(
            tmp_path,
            f'{MINIMAL}extends = "base.toml"\n[precision]\ntf32 = true\n'
            '[check]\nselect = ["HWP1"]\n[check.severity]\nHWP3 = "info"\n',
        )
        policy, base = read_policy(path), read_policy(tmp_path / "base.toml")
        assert policy.precision == Precision(prefer=base.precision.prefer, cpu=base.precision.cpu, tf32=True)
        assert policy.check.select == ("HWP1",)
        assert policy.check.ignore == base.check.ignore
        assert policy.check.severity == {"HWP204": Severity.INFO, "HWP3": Severity.INFO}
        assert policy.devices == base.devices

    def test_a_limit_can_be_taken_back(self, tmp_path: Path) -> None:
        written(tmp_path, FULL, "base.toml")
        path = written(tmp_path, MINIMAL + 'extends = "base.toml"\n[memory]\nlimit_mib = "none"\n')
        assert read_policy(path).memory == Memory(growth=False, allocator="cuda_malloc_async")

    def test_another_mode_leaves_the_numbers_of_the_old_one_behind(self, tmp_path: Path) -> None:
        written(tmp_path, FULL, "base.toml")
        path = written(tmp_path, MINIMAL + 'extends = "base.toml"\n[loss_scaling]\nmode = "none"\n')
        assert read_policy(path).loss_scaling == LossScalingWish(mode="none")

    def test_a_number_alone_keeps_the_mode(self, tmp_path: Path) -> None:
        written(tmp_path, FULL, "base.toml")
        path = written(tmp_path, MINIMAL + 'extends = "base.toml"\n[loss_scaling]\ninitial_scale = 2\n')
        assert read_policy(path).loss_scaling == LossScalingWish(mode="dynamic", initial_scale=2.0, growth_steps=500)

    def test_the_nearer_file_wins_along_a_chain_of_folders(self, tmp_path: Path) -> None:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "team").mkdir()
        written(
            tmp_path, MINIMAL + '[memory]\nlimit_mib = 1\ngrowth = false\nallocator = "cuda_malloc_async"\n', "a.toml"
        )
        written(
            tmp_path / "site", MINIMAL + 'extends = "../a.toml"\n[memory]\nlimit_mib = 2\ngrowth = true\n', "b.toml"
        )
        path = written(tmp_path / "site/team", MINIMAL + 'extends = "../b.toml"\n[memory]\nlimit_mib = 3\n', "c.toml")
        assert read_policy(path).memory == Memory(growth=True, limit_mib=3, allocator="cuda_malloc_async")

    def test_a_circle_is_shown_whole(self, tmp_path: Path) -> None:
        written(tmp_path, MINIMAL + 'extends = "b.toml"\n', "a.toml")
        written(tmp_path, MINIMAL + 'extends = "c.toml"\n', "b.toml")
        written(tmp_path, MINIMAL + 'extends = "b.toml"\n', "c.toml")
        links = " -> ".join(f"{tmp_path}/{name}.toml" for name in "abcb")
        assert refused(tmp_path / "a.toml") == f"{tmp_path}/a.toml: extends: goes in a circle: {links}"

    def test_a_file_that_extends_itself_by_another_way_is_a_circle(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL + f'extends = "../{tmp_path.name}/site.toml"\n')
        assert "goes in a circle" in refused(path)

    def test_mistakes_of_the_extended_file_are_told_beside_the_own_ones(self, tmp_path: Path) -> None:
        written(tmp_path, MINIMAL + "[memory]\ngrowth = 1\nlimit = 5\n", "base.toml")
        message = refused(written(tmp_path, MINIMAL + 'extends = "base.toml"\nnmae = "x"\n'))
        assert message.startswith(f"{tmp_path}/site.toml: 2 mistakes\n  nmae: no such key; did you mean name?")
        assert f"  extends: {tmp_path}/base.toml: 2 mistakes\n    memory.growth: 1 is not accepted" in message

    def test_an_extended_name_that_nothing_has(self, tmp_path: Path) -> None:
        message = refused(written(tmp_path, MINIMAL + 'extends = "defualt"\n'))
        assert message.startswith(
            f'{tmp_path}/site.toml: extends: no policy is called "defualt"; did you mean default?'
        )


class TestPoliciesMadeInPython:
    def test_one_that_keeps_the_rules_is_taken_as_it_is(self, tmp_path: Path) -> None:
        made = read_policy(written(tmp_path, FULL))
        assert read_policy(made, {"HWPROBE_POLICY": "float32"}) == made

    def test_whoever_hands_it_over_named_it(self) -> None:
        assert read_policy(Policy(name="mine"), {}) == Policy(name="mine", origin="argument")

    def test_mistakes_are_told_as_for_a_file(self) -> None:
        made = Policy(name="mine", precision=Precision(prefer=("mixed_float16",)), memory=Memory(limit_mib=0))
        message = refused(made)
        assert message.startswith('policy "mine": 2 mistakes\n  precision.prefer: must end in "float32"')
        assert "memory.limit_mib: 0 is not accepted" in message

    def test_a_static_scale_that_is_missing(self) -> None:
        assert "needs a scale" in refused(Policy(loss_scaling=LossScalingWish(mode="static")))

    @pytest.mark.parametrize("memory", [None, {"growth": True}, 3], ids=["None", "a table", "a number"])
    def test_one_that_is_made_of_something_else(self, memory: Any) -> None:
        assert "cannot be used" in refused(Policy(memory=memory))
