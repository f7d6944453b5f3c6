"""A report as JUnit XML: each policy rule is a test case."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from fairkit.support.escaping import visible
from fairkit_cli.fields import as_options

if TYPE_CHECKING:
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult


def junit(report: Report) -> str:
    """Return the XML: a failed rule is a failure, an inconclusive one an error."""
    verdicts = [rule.verdict for rule in report.policy]
    suite = ET.Element(
        "testsuite",
        name=visible(f"fairkit policy on {report.model.name}"),
        tests=str(len(verdicts)),
        failures=str(verdicts.count("fail")),
        errors=str(verdicts.count("inconclusive")),
    )
    for rule in report.policy:
        _case(suite, rule)
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _case(suite: ET.Element, rule: RuleResult) -> None:
    limit = rule.rule.say()
    where, metric, reason = (visible(text) for text in (rule.place or "all", rule.metric, as_options(rule.reason)))
    case = ET.SubElement(suite, "testcase", classname=f"fairkit.{where}", name=f"{metric} {limit}")
    if rule.verdict == "fail":
        ET.SubElement(case, "failure", message=reason, type="policy")
    elif rule.verdict == "inconclusive":
        ET.SubElement(case, "error", message=reason, type="inconclusive")
    else:
        ET.SubElement(case, "system-out").text = reason
