"""The data sheet of the table, what the audit does not say, and the matrix of metrics and sensitive columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit.metrics import FAVORABLE_OUTCOMES, Rate
from fairkit.reading import TERMS, disparities, headlines, metric_name, metric_term, performance, rule_for, used_terms
from fairkit.support.escaping import interval, number
from fairkit_cli.pages.parts import (
    Cell,
    Facts,
    Inline,
    Listing,
    On,
    Section,
    Span,
    Table,
    badge,
    name_of,
    numbers,
    page_only,
    words,
)

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
MOST_METRICS = 7


def limits_section(report: Report) -> Section:
    """Return the section that lists the limits of the audit."""
    limits = list(LIMITS)
    if report.data.label is None:
        limits.insert(0, "Which decisions were right: the table has no outcome.")
    if report.data.missing:
        counts = ", ".join(f"{count:,} without {name}" for name, count in report.data.missing.items())
        limits.insert(0, f"How people of unknown group fare: {counts}.")
    return Section("What this audit does not say", [Listing(limits)], on=On.PAGE)


def data_sheet(report: Report) -> Section:
    """Return the table's data sheet: rows, columns with types and missing cells, groups with their label rates."""
    data = report.data
    entries: list[tuple[Inline, Inline]] = [
        ("Table", name_of(data.name)),
        ("Rows", f"{data.rows:,} used{data.lacking}"),
    ]
    if data.weights is not None:
        entries.append(("Weights", name_of(data.weights)))
    rows: list[Sequence[Cell]] = [
        (name_of(name := str(column["name"])), str(column["type"]), f"{column['missing']:,}", _role(report, name))
        for column in data.columns
    ]
    columns = [*words("column", "type"), *numbers("missing cells"), *words("role")]
    more = f" and {data.more_columns:,} more" if data.more_columns else ""
    listed = Table("Columns of the table", columns, rows)
    folded = Section(f"{len(rows)} columns{more}", [listed], "fold") if rows else None
    return Section("The table", [Facts(entries), _sizes(report), folded], on=On.PAGE)


def _role(report: Report, column: str) -> str:
    if column == report.data.label:
        return "outcome"
    return "sensitive" if any(column in name.split("+") for name in report.data.groups) else ""


def _sizes(report: Report) -> Table | None:
    """Return the groups with their sizes, and the share of favorable outcomes where the table has outcomes."""
    rows: list[Sequence[Cell]] = []
    for sensitive, sizes in report.data.groups.items():
        positives, unknown = _positives(report, sensitive), report.data.missing.get(sensitive)
        counts = [*sizes.items(), *([("(unknown)", unknown)] if unknown else [])]
        for group, count in counts:
            rate = f"{positives[group] / count:.1%}" if group in positives and count else "-"
            share = f"{count / report.data.rows:.1%}"
            rows.append((name_of(sensitive), name_of(group), f"{count:,}", share, rate))
    if not rows:
        return None
    columns = [*words("column", "group"), *numbers("people", "share", "favorable outcomes")]
    return Table("Groups and their label rates", columns, rows)


def _positives(report: Report, sensitive: str) -> dict[str, float]:
    """Return each group's number of favorable outcomes: what its true positive rate is over."""
    if report.data.weights is not None:
        return {}
    shown = headlines()
    for finding in report.findings:
        of_column = finding.sensitive == sensitive and finding.plain and "class" not in finding.parameters
        rate = shown.base(finding.metric)
        if of_column and rate is not None and issubclass(rate, Rate) and rate.over == FAVORABLE_OUTCOMES:
            return {group.group: group.denominator for group in finding.groups if group.denominator is not None}
    return {}


def matrix(report: Report) -> Section | None:
    """Return metrics by sensitive columns, one number in each cell: where to look first."""
    shown = headlines().between(report.model.task)
    findings: dict[tuple[str, str], Finding] = {
        (str(f.sensitive), f.metric): f
        for f in report.findings
        if f.sensitive is not None and f.plain and "class" not in f.parameters and f.value is not None
    }
    ordered = dict.fromkeys([*(rule.metric for rule in report.policy), *shown])
    metrics = [m for m in ordered if any((s, m) in findings for s in report.data.groups)][:MOST_METRICS]
    if not metrics or not report.data.groups:
        return None
    rows: list[Sequence[Cell]] = [
        (
            term(metric, metric_term(metric).plain),
            *(_cell(report, findings.get((sensitive, metric))) for sensitive in report.data.groups),
        )
        for metric in metrics
    ]
    names = [Span(name, "name", f"#{anchor_of(report, name)}") for name in report.data.groups]
    table = Table("Disparities by sensitive column", [*words("between groups of"), *numbers(*names)], rows)
    return Section("At a glance", [table], on=On.PAGE)


def anchor_of(report: Report, sensitive: str) -> str:
    """Return the anchor of a sensitive column's section."""
    return f"groups-{list(report.data.groups).index(sensitive)}"


def _cell(report: Report, finding: Finding | None) -> Inline:
    if finding is None:
        return "-"
    rule = rule_for(report, finding)
    mark: Inline = None if rule is None else [" ", badge(rule.verdict)]
    return [number(finding.value), mark, Span(f" {interval(finding.interval)}", "small")]


# Metrics under their plain name with the field's name beside it, and the glossary that explains them.


def _anchor(key: str) -> str:
    return "term-" + re.sub(r"[^A-Za-z0-9_-]", "-", key)


def term(key: str, shown: str) -> Span:
    """Return a word that says its meaning while one hovers over it, and leads to it in the glossary."""
    meaning = TERMS[key].meaning if key in TERMS else metric_term(key).meaning
    return Span(shown, "term", f"#{_anchor(key)}", meaning)


def metric_cell(finding: Finding) -> list[Inline]:
    """Return a finding's metric: on pages its plain name and the field's in small, elsewhere the field's."""
    about = metric_name(finding).removeprefix(finding.metric)
    return [
        *page_only(term(finding.metric, metric_term(finding.metric).plain), about, " ", Span(finding.metric, "small")),
        Span(metric_name(finding), on=On.TEXT),
    ]


def glossary(report: Report) -> Section:
    """Return the section that explains every metric of the page, and the words that it uses."""
    linked = {finding.metric for finding in [*disparities(report), *performance(report)]}
    metrics = [
        metric
        for metric in dict.fromkeys(finding.metric for finding in report.findings)
        if metric in linked or not metric.endswith(("_group_min", "_group_max"))  # their names say what they are
    ]
    entries: list[tuple[Inline, Inline]] = [
        (
            Span(known.plain, "anchor", title=_anchor(key)),
            [known.meaning, None if key in TERMS else [" ", Span(key, "small")]],
        )
        for key, known in used_terms(metrics)
    ]
    return Section("What the words mean", [Facts(entries, "glossary")], on=On.PAGE)
