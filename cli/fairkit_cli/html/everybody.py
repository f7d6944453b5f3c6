"""The section about all inputs: what could happen to anybody, by proof and by example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit.results.evidence import Bounded, evidence_of
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import section, table
from fairkit_cli.html.terms import metric_link
from fairkit_cli.text.evidence import Shown, cell, plugin_evidence
from fairkit_cli.text.numbers import interval, number

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


def bounded_auditors(report: Report) -> set[str]:
    """Return the auditors whose findings are bounds for every input."""
    return {one.auditor for one in report.findings if evidence_of(one, Bounded) is not None}


def all_inputs_section(report: Report) -> Markup | None:
    """Return the section of bounds over all inputs, each with its witness; None without such bounds."""
    auditors = bounded_auditors(report)
    findings = [one for one in report.findings if one.auditor in auditors]
    if not findings:
        return None
    rows: list[Sequence[Content]] = [
        (
            metric_link(finding),
            name_of(finding.sensitive) if finding.sensitive else "all rows",
            _said(finding),
            number(finding.value),
            interval(finding.interval),
        )
        for finding in findings
    ]
    columns = ("question", "when these change", "answer", "value", "from, to")
    witnesses = [one for one in plugin_evidence(report)[0] if one.finding.auditor in auditors]
    intro = (
        "About every input that the model's domain allows, not only about the people in the table. An example is an "
        "input that the model was run on; it need not be a person who exists."
    )
    return section(
        "Anybody: all inputs",
        tag("p", intro),
        table(columns, rows, numeric={3, 4}, label="What holds for all inputs"),
        [_witness(one, is_open=place == 0) for place, one in enumerate(witnesses)],
    )


def _said(finding: Finding) -> str:
    evidence = evidence_of(finding, Bounded)
    if evidence is None:
        return "estimated from people drawn at random"
    if not evidence.decided:
        return "undecided: the truth is in this range"
    if finding.metric.endswith("flip"):
        return "there is such an input" if finding.value else "proved: there is none"
    return "proved"


def _witness(chart: Shown, *, is_open: bool) -> Markup:
    rows: list[Sequence[Content]] = [
        tuple(
            tag("bdi", cell(value), class_="differs")
            if row[-1] == "changes" and place in (1, 2)
            else name_of(cell(value))
            for place, value in enumerate(row)
        )
        for row in chart.table.rows
    ]
    return tag(
        "details",
        tag("summary", chart.title),
        table(chart.table.columns, rows, label=chart.title),
        open=is_open,
    )
