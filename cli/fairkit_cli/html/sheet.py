"""The data sheet of the table, what the audit does not say, and the matrix of sensitive columns and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit.metrics import FAVORABLE_OUTCOMES, Rate
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import facts, section, table
from fairkit_cli.html.terms import term_link
from fairkit_cli.text.glossary import metric_term
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.view import rule_for
from fairkit_comparing.headlines import headlines

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

LIMITS = (
    "Whether the labels are right, or were decided fairly: the audit takes the table as it is.",
    "Whether these people are those whom the model will decide about: it speaks of this table.",
    "Whether a difference is justified, and what caused it.",
    "Anything about groups that are in no column of the table, or smaller than the audit can see.",
    "Whether the model is fair: each number is a statement under its metric, on this data.",
    "Whether a law is kept: that is for people to say, with advice.",
)


def not_said(report: Report) -> Markup:
    """Return the section that lists the limits of the audit."""
    said = list(LIMITS)
    if report.data.label is None:
        said.insert(0, "Which decisions were right: the table has no outcome.")
    if report.data.missing:
        told = ", ".join(f"{count:,} without {name}" for name, count in report.data.missing.items())
        said.insert(0, f"How people of unknown group fare: {told}.")
    return section("What this audit does not say", tag("ul", [tag("li", line) for line in said]))


def data_sheet(report: Report) -> Markup:
    """Return the table's data sheet: rows, columns with types and missing cells, groups with their label rates."""
    data = report.data
    entries: list[tuple[str, Content]] = [
        ("Table", name_of(data.name)),
        ("Rows", f"{data.rows:,} used, {data.dropped_rows:,} left out"),
    ]
    if data.weights is not None:
        entries.append(("Weights", name_of(data.weights)))
    columns = None
    if data.columns:
        rows: list[Sequence[Content]] = [
            (
                name_of(str(column["name"])),
                str(column["type"]),
                f"{column['missing']:,}",
                _role(report, str(column["name"])),
            )
            for column in data.columns
        ]
        more = f" and {data.more_columns:,} more" if data.more_columns else ""
        listed = table(
            ("column", "type", "missing cells", "role"), rows, numeric={2}, label="Columns of the table"
        )
        columns = tag("details", tag("summary", f"{len(data.columns)} columns{more}"), listed)
    return section("The table", facts(entries), _sizes(report), columns)


def _role(report: Report, column: str) -> str:
    if column == report.data.label:
        return "outcome"
    return "sensitive" if any(column in name.split("+") for name in report.data.groups) else ""


def _sizes(report: Report) -> Markup | None:
    """Return the groups with their sizes, and the share of favorable outcomes where the table has outcomes."""
    rows: list[Sequence[Content]] = []
    for sensitive, sizes in report.data.groups.items():
        positives = _positives(report, sensitive)
        for group, count in sizes.items():
            rate = f"{positives[group] / count:.1%}" if group in positives and count else "-"
            rows.append(
                (name_of(sensitive), name_of(group), f"{count:,}", f"{count / report.data.rows:.1%}", rate)
            )
        unknown = report.data.missing.get(sensitive)
        if unknown:
            rows.append(
                (name_of(sensitive), "(unknown)", f"{unknown:,}", f"{unknown / report.data.rows:.1%}", "-")
            )
    if not rows:
        return None
    columns = ("column", "group", "people", "share", "favorable outcomes")
    return table(columns, rows, numeric={2, 3, 4}, label="Groups and their label rates")


def _positives(report: Report, sensitive: str) -> dict[str, float]:
    """Return each group's number of favorable outcomes: what its true positive rate is over."""
    if report.data.weights is not None:
        return {}
    shown = headlines()
    for finding in report.findings:
        own = finding.sensitive == sensitive and finding.plain and "class" not in finding.parameters
        rate = shown.base(finding.metric)
        if own and rate is not None and issubclass(rate, Rate) and rate.over == FAVORABLE_OUTCOMES:
            return {one.group: one.denominator for one in finding.groups if one.denominator is not None}
    return {}


def matrix(report: Report) -> Markup | None:
    """Return sensitive columns by metrics, one number in each cell: where to look first."""
    shown = headlines().between(report.model.task)
    findings: dict[tuple[str, str], Finding] = {
        (str(f.sensitive), f.metric): f
        for f in report.findings
        if f.sensitive is not None and f.plain and "class" not in f.parameters and f.value is not None
    }
    asked = [rule.metric for rule in report.policy]
    metrics = [
        m for m in dict.fromkeys([*asked, *shown]) if any((s, m) in findings for s in report.data.groups)
    ][:7]
    if not metrics or not report.data.groups:
        return None
    rows: list[Sequence[Content]] = [
        (
            tag("a", broken_at_plus(sensitive), href=f"#{place_of(report, sensitive)}"),
            *(_cell(report, findings.get((sensitive, metric))) for metric in metrics),
        )
        for sensitive in report.data.groups
    ]
    columns = ("groups of", *(term_link(metric, metric_term(metric).plain) for metric in metrics))
    listed = table(
        columns, rows, numeric=set(range(1, len(columns))), label="Disparities by sensitive column"
    )
    return section("At a glance", listed)


def broken_at_plus(sensitive: str) -> Markup:
    """Return a column's name, which may go on in the next line after a +."""
    parts = sensitive.split("+")
    return tag("bdi", [[part, "+", tag("wbr")] for part in parts[:-1]], parts[-1])


def place_of(report: Report, sensitive: str) -> str:
    """Return the anchor of a sensitive column's section."""
    return f"groups-{list(report.data.groups).index(sensitive)}"


def _cell(report: Report, finding: Finding | None) -> Content:
    if finding is None:
        return "-"
    rule = rule_for(report, finding)
    mark = None if rule is None else [" ", tag("span", rule.verdict, class_=f"badge {rule.verdict}")]
    return [number(finding.value), mark, tag("span", f" {interval(finding.interval)}", class_="muted small")]
