from pathlib import Path

import pytest

from hwprobe import policy_reader
from hwprobe.cli import main
from hwprobe.policy_reader import read_policy, shipped_policies
from tests.policy.documents import FULL, MINIMAL, written


@pytest.fixture(autouse=True)
def nobody_names_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HWPROBE_POLICY", raising=False)
    monkeypatch.setattr(policy_reader, "SITE_FILE", tmp_path / "no-such-folder" / "policy.toml")


def test_list_gives_one_line_for_each_policy_with_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped_policies())
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        read_policy(name).description for name in shipped_policies()
    ]


@pytest.mark.parametrize("name", shipped_policies())
def test_what_show_prints_is_a_file_with_the_same_wishes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "show", name]) == 0
    path = written(tmp_path, capsys.readouterr().out)
    copy, original = read_policy(path), read_policy(name)
    assert (copy.name, copy.precision, copy.loss_scaling, copy.memory, copy.check, copy.devices) == (
        original.name,
        original.precision,
        original.loss_scaling,
        original.memory,
        original.check,
        original.devices,
    )


def test_show_without_a_name_prints_the_one_that_counts_here_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "show"]) == 0
    assert capsys.readouterr().out.startswith("# default: nobody named another one (by --policy, HWPROBE_POLICY or ")
    monkeypatch.setenv("HWPROBE_POLICY", "float32")
    assert main(["policy", "show"]) == 0
    assert capsys.readouterr().out.startswith("# float32: named by HWPROBE_POLICY\n")


def test_show_of_a_file_merges_what_it_extends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MINIMAL + 'extends = "float32"\n')
    assert main(["policy", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"# {path}: named on the command line\n")
    assert 'prefer = ["float32"]' in out
    assert "extends" not in out


def test_show_of_a_name_that_nothing_has_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", "defualt"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert 'no policy is called "defualt"; did you mean default?' in captured.err


def test_validate_says_that_a_file_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MINIMAL)
    assert main(["policy", "validate", str(path)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"{path}: valid (hwprobe.policy/1)\n", "")


def test_validate_reports_every_mistake_and_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MINIMAL + "zzz = 1\n[memory]\ngrowth = 1\n")
    assert main(["policy", "validate", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2 mistakes" in captured.err
    assert "zzz: no such key" in captured.err
    assert "memory.growth: 1 is not accepted; accepted: true, false" in captured.err


def test_validate_takes_a_file_and_never_a_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["policy", "validate", "default"]) == 2
    assert "cannot read the policy default: No such file" in capsys.readouterr().err


def test_validate_warns_of_ids_that_no_rule_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(
        tmp_path, MINIMAL + '[check]\nselect = ["HWP1", "HWP8"]\nignore = ["HWP899"]\nseverity = {HWP8 = "info"}\n'
    )
    assert main(["policy", "validate", str(path)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {path}: no rule of this hwprobe has an id that begins with HWP8",
        f"warning: {path}: no rule of this hwprobe has an id that begins with HWP899",
    ]


def test_validate_is_silent_about_ids_that_rules_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, MINIMAL + '[check]\nselect = ["HWP", "HWP1"]\n')
    assert main(["policy", "validate", str(path)]) == 0
    assert capsys.readouterr().err == ""


def test_a_full_file_is_valid(tmp_path: Path) -> None:
    assert main(["policy", "validate", str(written(tmp_path, FULL))]) == 0
