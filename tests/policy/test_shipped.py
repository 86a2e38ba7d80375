"""Laws over every policy that hwprobe ships."""

import ast
import re
from importlib import resources

import msgspec
import pytest

from hwprobe.policy import SCHEMA, Policy
from hwprobe.policy_format import policy_to_document
from hwprobe.policy_keys import check_document
from hwprobe.policy_reader import read_policy, shipped_policies
from tests.toml import parsed

FOLDER = resources.files("hwprobe.policies")
every_policy = pytest.mark.parametrize("name", shipped_policies())


def text_of(name: str) -> str:
    return FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def test_the_four_policies_are_there() -> None:
    assert shipped_policies() == ("cpu-bfloat16", "default", "float32", "prefer-float16")


@every_policy
def test_a_shipped_policy_reads_and_is_called_as_its_file(name: str) -> None:
    policy = read_policy(name, {})
    assert (policy.name, policy.path, policy.label) == (name, None, name)
    assert policy.schema == SCHEMA


@every_policy
def test_a_shipped_policy_says_in_one_sentence_what_it_is_for(name: str) -> None:
    description = read_policy(name, {}).description
    assert description.endswith(".")
    assert len(description) > 20


@every_policy
def test_a_shipped_policy_begins_with_a_comment_for_people(name: str) -> None:
    assert text_of(name).startswith("# ")


@every_policy
def test_no_two_shipped_policies_wish_the_same(name: str) -> None:
    def wish(policy_name: str) -> Policy:
        return msgspec.structs.replace(read_policy(policy_name, {}), name="", description="")

    assert [other for other in shipped_policies() if wish(other) == wish(name)] == [name]


@every_policy
def test_the_name_of_a_shipped_policy_is_never_taken_for_a_path(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)


def test_default_says_what_a_policy_without_a_file_says() -> None:
    default = read_policy("default", {})
    assert msgspec.structs.replace(default, description="", origin="default") == Policy()


def test_default_toml_shows_every_key_and_says_what_it_means() -> None:
    shown = parsed(re.sub(r"(?m)^# (?=\[|[\w\"]+ = )", "", text_of("default")))
    _, mistakes = check_document(shown)
    assert mistakes == []
    document = policy_to_document(Policy())
    assert shown.keys() == document.keys() | {"extends"}
    assert shown["precision"].keys() == document["precision"].keys()
    assert shown["loss_scaling"].keys() == set(msgspec.structs.asdict(Policy().loss_scaling))
    assert shown["memory"].keys() == document["memory"].keys()
    assert shown["check"].keys() == document["check"].keys()
    assert shown["check"]["severity"]
    assert shown["devices"][0].keys() == {"name", "allow", "deny", "reason"}


def test_every_line_with_a_key_in_default_toml_has_its_meaning_beside_it() -> None:
    lines = [line for line in text_of("default").splitlines() if re.match(r"(# )?[\w\"]+ = ", line)]
    assert len(lines) > 15
    assert [line for line in lines if not re.search(r" # \w", line)] == []


def test_the_wishes_are_what_their_names_promise() -> None:
    assert read_policy("prefer-float16", {}).precision.prefer[0] == "mixed_float16"
    assert read_policy("float32", {}).precision.prefer == ("float32",)
    assert read_policy("float32", {}).precision.tf32 is False
    assert read_policy("cpu-bfloat16", {}).precision.cpu == ("mixed_bfloat16", "float32")


def test_the_package_of_the_policies_holds_no_code() -> None:
    module = ast.parse(FOLDER.joinpath("__init__.py").read_text(encoding="utf-8"))
    assert [type(node).__name__ for node in module.body] == ["Expr"]
