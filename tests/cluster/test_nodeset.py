"""Node lists: folded and unfolded as Slurm and ClusterShell do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprobe.cluster import nodeset
from hwprobe.cluster.nodeset import expand, fold, is_plain_name, short_host_name
from hwprobe.errors import InputError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n1,n2 n3", ["n1", "n2", "n3"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("v100-[07-08,11]", ["v100-07", "v100-08", "v100-11"]),
        ("rack[1-2]n[01-02]", ["rack1n01", "rack1n02", "rack2n01", "rack2n02"]),
        ("n[0-4/2]", ["n0", "n2", "n4"]),
        ("gpu.cluster.example,n1,n1", ["gpu.cluster.example", "n1"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
    ],
)
def test_a_list_unfolds(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected names and ranges"),
        ("   ", "expected names and ranges"),
        ("@group", "expected names and ranges"),
        ("n1!n2", "expected names and ranges"),
        ("*", "expected names and ranges"),
        ("n[1-3", "missing bracket"),
        ("n[3-1]", "bad range"),
        ("n[x]", "bad range"),
        ("n[1-99999999]", "more than 200,000"),
        ("r[1-1000]n[1-1000]", "more than 200,000"),
        ("a[1-150000],b[1-150000]", "more than 200,000"),
        ("n1;reboot", "expected names and ranges"),
    ],
)
def test_what_is_no_list_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        expand(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["v100-08", "v100-07"], "v100-[07-08]"),
        (["n9", "n10", "n9"], "n[9-10]"),
        (["n08", "n09", "n10", "n1"], "n1,n[08-10]"),
        (["rack1n01", "rack2n01", "rack1n02", "rack2n02"], "rack[1-2]n[01-02]"),
        (["login", "n1", "n3"], "login,n[1,3]"),
        (["h:worker-0", "h:worker-1"], "h:worker-[0-1]"),
    ],
)
def test_names_fold(names: list[str], text: str) -> None:
    assert fold(names) == text


@given(st.sets(st.from_regex(r"[a-z]{0,3}-?[0-9]{1,4}([a-z-][0-9]{0,3})?", fullmatch=True), min_size=1, max_size=30))
def test_what_is_folded_unfolds_to_the_same(names: set[str]) -> None:
    assert set(expand(fold(names))) == names


def test_names_without_ranges_need_no_clustershell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeset, "find_spec", lambda name: None)
    assert expand("n1,n2") == ("n1", "n2")
    assert fold(["n1", "n2"]) == "n[1-2]"
    with pytest.raises(InputError, match=r"tf-hwprobe\[cluster\]"):
        expand("n[1-2]")


@pytest.mark.parametrize(
    ("name", "short"), [("n1.cluster.example", "n1"), ("n1", "n1"), ("10.0.0.7", "10.0.0.7"), ("fe80::1", "fe80::1")]
)
def test_a_domain_is_cut_off_and_an_address_is_not(name: str, short: str) -> None:
    assert short_host_name(name) == short


@pytest.mark.parametrize(
    ("name", "plain"), [("n-1_a.b", True), ("", False), ("a b", False), ("../n1", False), ("-3", False), (".", False)]
)
def test_a_plain_name_has_no_separators(name: str, plain: bool) -> None:
    assert is_plain_name(name) is plain
    assert not is_plain_name("x" * 254)
