import pytest

from hwprobe.findings import Action, Severity
from hwprobe.policy import FAIL_ON, CheckWish, DeviceOverride, FailOn, Policy

SELECTIONS = [
    ("no wish runs every rule", CheckWish(), "HWP305", True),
    ("a selected family runs", CheckWish(select=("HWP3",)), "HWP305", True),
    ("another family does not", CheckWish(select=("HWP3",)), "HWP204", False),
    ("an ignored rule does not run", CheckWish(ignore=("HWP305",)), "HWP305", False),
    ("its neighbour does", CheckWish(ignore=("HWP305",)), "HWP306", True),
    ("everything can be ignored", CheckWish(ignore=("HWP",)), "HWP305", False),
    (
        "a selected rule comes back from an ignored family",
        CheckWish(select=("HWP305",), ignore=("HWP3",)),
        "HWP305",
        True,
    ),
    ("and it alone", CheckWish(select=("HWP305",), ignore=("HWP3",)), "HWP306", False),
    ("a rule can be taken out of a selected family", CheckWish(select=("HWP3",), ignore=("HWP305",)), "HWP305", False),
    ("selected and ignored alike is ignored", CheckWish(select=("HWP305",), ignore=("HWP305",)), "HWP305", False),
]


@pytest.mark.parametrize(("wish", "rule_id", "runs"), [case[1:] for case in SELECTIONS], ids=[c[0] for c in SELECTIONS])
def test_the_longest_id_decides_which_rules_run(wish: CheckWish, rule_id: str, runs: bool) -> None:
    assert wish.selects(rule_id) is runs


SEVERITIES = [
    ("nothing is said", {}, None),
    ("another family", {"HWP2": Severity.INFO}, None),
    ("its family", {"HWP3": Severity.INFO}, Severity.INFO),
    ("the rule itself, against its family", {"HWP3": Severity.INFO, "HWP305": Severity.ERROR}, Severity.ERROR),
    ("all rules, against its family", {"HWP3": Severity.INFO, "HWP": Severity.ERROR}, Severity.INFO),
]


@pytest.mark.parametrize(("severity", "expected"), [c[1:] for c in SEVERITIES], ids=[c[0] for c in SEVERITIES])
def test_the_longest_id_decides_the_severity_of_a_rule(
    severity: dict[str, Severity], expected: Severity | None
) -> None:
    assert CheckWish(severity=severity).severity_of("HWP305") is expected


FAILING = {
    "info": {Severity.INFO, Severity.WARNING, Severity.ERROR},
    "warning": {Severity.WARNING, Severity.ERROR},
    "error": {Severity.ERROR},
    "never": set(),
}


@pytest.mark.parametrize("fail_on", sorted(FAILING))
@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize("action", list(Action))
def test_a_check_fails_from_the_named_severity_on_whoever_has_to_act(
    fail_on: FailOn, severity: Severity, action: Action
) -> None:
    assert CheckWish(fail_on=fail_on).fails(severity, action) is (severity in FAILING[fail_on])


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize("action", list(Action))
def test_a_check_for_draining_fails_only_for_a_node_that_is_unfit(severity: Severity, action: Action) -> None:
    assert CheckWish(fail_on="drain").fails(severity, action) is (action is Action.DRAIN)


def test_every_threshold_is_tried_above() -> None:
    assert set(FAIL_ON) == {*FAILING, "drain"}


MATCHES = [
    ("Tesla T4", "Tesla T4", True),
    ("tesla t4", "Tesla T4", True),
    ("*T4", "Tesla T4", True),
    ("Tesla T4", "Tesla T40", False),
    ("T4", "Tesla T4", False),
    ("*A100*", "NVIDIA A100-SXM4-80GB", True),
    ("*A10?", "NVIDIA A10", False),
    ("*", "", True),
]


@pytest.mark.parametrize(("pattern", "name", "matches"), MATCHES)
def test_an_override_matches_a_device_by_name_as_a_shell_would(pattern: str, name: str, matches: bool) -> None:
    override = DeviceOverride(name=pattern, deny=("mixed_float16",), reason="tried here")
    assert override.matches(name) is matches


def test_of_several_overrides_the_first_that_matches_counts() -> None:
    wide = DeviceOverride(name="*A100*", deny=("mixed_bfloat16",), reason="all of them")
    narrow = DeviceOverride(name="*A100-SXM4*", allow=("mixed_bfloat16",), reason="these were tried")
    policy = Policy(devices=(narrow, wide))
    assert policy.override_for("NVIDIA A100-SXM4-80GB") is narrow
    assert policy.override_for("NVIDIA A100 80GB PCIe") is wide
    assert policy.override_for("Tesla T4") is None
    assert policy.override_for(None) is None


def test_a_policy_is_called_by_its_file_where_it_has_one() -> None:
    assert Policy(name="site").label == "site"
    assert Policy(name="site", path="/etc/hwprobe/policy.toml").label == "/etc/hwprobe/policy.toml"
