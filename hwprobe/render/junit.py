"""A check as JUnit XML: every rule is a test case, and what was skipped says why."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as Xml

from hwprobe.findings import Finding
from hwprobe.preflight import Check, RuleStatus
from hwprobe.render.printable import printable


def write_junit(check: Check) -> str:
    """Write a check as a JUnit test suite.

    Args:
        check: The check.
    """
    suite = Xml.Element("testsuite", name="hwprobe")
    by_rule: dict[str, list[Finding]] = {}
    for finding in check.findings:
        by_rule.setdefault(finding.id, []).append(finding)
    for status in check.rules:
        _case(suite, status, by_rule.pop(status.id, ()), check)
    for id_, findings in by_rule.items():
        _case(suite, RuleStatus(id=id_, status="fail"), findings, check)
    if check.error is not None:
        case = Xml.SubElement(suite, "testcase", classname="hwprobe", name="input")
        Xml.SubElement(case, "error", message=_clean(check.error))
    _count(suite)
    Xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(suite, encoding="unicode") + "\n"


def _case(suite: Xml.Element, status: RuleStatus, findings: Iterable[Finding], check: Check) -> None:
    case = Xml.SubElement(suite, "testcase", classname="hwprobe", name=status.id)
    if status.status in ("skip", "not_applicable", "ignored"):
        word = status.status.replace("_", " ")
        Xml.SubElement(case, "skipped", message=_clean(f"{word}: {status.reason}"))
        return
    for finding in findings:
        name = "failure" if check.fails(finding) else "system-out"
        element = Xml.SubElement(case, name)
        if name == "failure":
            element.set("type", finding.severity.value)
            element.set("message", _clean(f"{finding.title}: {finding.message}"))
        element.text = _clean("\n".join((f"{finding.severity.value}: {finding.message}", *finding.fix)))


def _count(suite: Xml.Element) -> None:
    counts = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
    for name, path in counts.items():
        suite.set(name, str(len(suite.findall(path))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))


def _clean(text: str) -> str:
    # Some of what is not printable XML 1.0 cannot carry, even escaped.
    return "\n".join(printable(line) for line in text.split("\n"))
