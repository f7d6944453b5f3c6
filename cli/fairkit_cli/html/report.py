"""A report as a page, in the order in which people ask: verdict, disparities, groups, scores, single people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit.results.evidence import HighestGroup, LowestGroup, evidence_of
from fairkit_cli.html.charts import ForestRow, forest
from fairkit_cli.html.conditions import condition_sections
from fairkit_cli.html.disparity_details import opened
from fairkit_cli.html.everybody import all_inputs_section
from fairkit_cli.html.evidence import evidence_section
from fairkit_cli.html.groups import group_sections
from fairkit_cli.html.individuals import individual_section
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import facts, figure, page, section, table
from fairkit_cli.html.sheet import data_sheet, matrix, not_said
from fairkit_cli.html.subgroups import subgroup_section
from fairkit_cli.html.summary import header
from fairkit_cli.html.svg import draw
from fairkit_cli.html.terms import glossary, metric_link
from fairkit_cli.text.answers import answer
from fairkit_cli.text.glossary import metric_term
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.ranking import disparities, kind_of, performance
from fairkit_cli.text.view import about_many, metric_name, report_view, rule_for, survives
from fairkit_comparing.headlines import headlines

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

_UNIT_SCALE = 1.5


def report_page(report: Report) -> str:
    """Return a report as one HTML file.

    Parameters
    ----------
    report
        Of an audit.

    Raises
    ------
    MissingRendererError
        vl-convert-python is not installed.
    """
    return page(f"Fairness audit of {report.model.name}", [header(report), *sections(report)])


def sections(report: Report) -> list[Markup | None]:
    """Return all that comes after the first screen."""
    return [
        matrix(report),
        performance_section(report),
        disparity_section(report),
        *group_sections(report),
        *condition_sections(report),
        subgroup_section(report),
        individual_section(report),
        all_inputs_section(report),
        evidence_section(report),
        data_sheet(report),
        not_said(report),
        details(report),
        glossary(report),
    ]


def performance_section(report: Report) -> Markup | None:
    """Return the numbers over all rows: how good the decisions are at all."""
    findings = performance(report)
    if not findings:
        return None
    small = [f for f in findings if _upper(f) <= 1]
    rows = [forest_row(report, finding) for finding in small]
    title = "Performance over all rows"
    spoken = {name for name, cls in headlines().metrics.items() if cls.headline.sentence}
    numbers = findings_table(report, findings, title)
    drawn = forest_figure(rows, "over all rows", title, numbers) if rows else numbers
    says = [tag("li", str(answer(report, one))) for one in findings if one.metric in spoken]
    return section("Performance over all rows", tag("ul", says) if says else None, drawn)


def disparity_section(report: Report) -> Markup | None:
    """The largest disparities between groups as forest plots, with the policy's limits."""
    findings = disparities(report)
    if not findings:
        return None
    differences = [f for f in findings if kind_of(f) == "difference"]
    charts = (
        ("difference between groups; 0 is parity", [f for f in differences if _upper(f) <= _UNIT_SCALE]),
        (
            "difference, in the metric's own unit; 0 is parity",
            [f for f in differences if _upper(f) > _UNIT_SCALE],
        ),
        ("ratio between groups; 1 is parity", [f for f in findings if kind_of(f) == "ratio"]),
        ("of the group that is worst off", [f for f in findings if kind_of(f) == "level"]),
    )
    parts: list[Content] = []
    for title, chosen in charts:
        if chosen:
            rows = [forest_row(report, finding) for finding in chosen]
            parts.append(
                forest_figure(rows, title, f"Disparities: {title}", findings_table(report, chosen, title))
            )
    limits = " A vertical bar marks the policy's limit." if any(rule_for(report, f) for f in findings) else ""
    return section(
        "Disparities",
        tag(
            "p",
            f"What the policy limits, and the largest other differences between groups, with {report.confidence:.0%} "
            f"intervals.{limits}",
        ),
        tag("p", about_many(report, findings)),
        *parts,
        opened(report, findings),
    )


def _upper(finding: Finding) -> float:
    return max(finding.value or 0, finding.interval[1] if finding.interval else 0)


def forest_row(report: Report, finding: Finding) -> ForestRow:
    """Say about a finding what its line in a forest plot shows."""
    rule = rule_for(report, finding)
    limit = None if rule is None else rule.limit
    about = metric_name(finding).removeprefix(finding.metric)
    name = f"{metric_term(finding.metric).plain}{about}" + (
        f" · {finding.place}" if finding.sensitive else ""
    )
    name += " ✓" if survives(finding) else ""
    told = f"{name}: {number(finding.value)}, interval {interval(finding.interval)}"
    if rule is not None and limit is not None:
        told += f", {rule.rule.say()}: {rule.verdict}"
    status = rule.verdict if rule is not None else "inconclusive" if finding.inconclusive else "none"
    return ForestRow(
        name=name, value=finding.value or 0.0, tip=told, interval=finding.interval, limit=limit, status=status
    )


def forest_figure(
    rows: Sequence[ForestRow], axis: str, title: str, numbers: Markup, *, zero: bool = True
) -> Markup:
    """A forest plot for wide and one for narrow screens, with its table."""
    charts = [
        draw(forest(rows, axis, narrow=False, zero=zero), title=title, class_="wide"),
        draw(forest(rows, axis, narrow=True, zero=zero), title=title, class_="narrow"),
    ]
    return figure(charts, title, numbers)


def findings_table(report: Report, findings: Sequence[Finding], label: str, *, plain: bool = False) -> Markup:
    """Return findings as numbers; `plain`: under the field's names only, and to be sorted and filtered."""
    rows: list[Sequence[Content]] = []
    for finding in findings:
        rule = rule_for(report, finding)
        lowest, highest = evidence_of(finding, LowestGroup), evidence_of(finding, HighestGroup)
        ends = None if lowest is None or highest is None else (lowest.group, highest.group)
        between: Content = "-" if ends is None else [name_of(ends[0]), " to ", name_of(ends[1])]
        rows.append(
            (
                metric_name(finding) if plain else metric_link(finding),
                name_of(finding.sensitive) if finding.sensitive else "all rows",
                number(finding.value),
                interval(finding.interval) + (" ✓" if survives(finding) else ""),
                between,
                "-" if rule is None else tag("span", rule.verdict, class_=f"badge {rule.verdict}"),
            )
        )
    columns = ("metric", "groups of", "value", "interval", "lowest to highest group", "policy")
    return table(columns, rows, numeric={2, 3}, label=label, sortable=plain)


def details(report: Report) -> Markup:
    """How the numbers were made, what to keep in mind, and all of them."""
    view = report_view(report)
    environment = report.environment
    plugins = ", ".join(f"{one['name']} {one['version']}" for one in environment.get("plugins", ()))
    entries = [
        ("Model", [name_of(report.model.name), f", {report.model.task}"]),
        ("SHA-256 of the model", tag("code", report.model.sha256 or "none: an object in memory")),
        (
            "Data",
            [
                name_of(report.data.name),
                f", {report.data.rows:,} rows, {report.data.dropped_rows:,} left out",
            ],
        ),
        ("SHA-256 of the data", tag("code", report.data.sha256)),
        (
            "Confidence",
            f"{report.confidence:.0%}" + (f", adjusted: {report.adjustment}" if report.adjustment else ""),
        ),
        ("Seed", str(report.seed)),
        (
            "Made with",
            f"fairkit {environment.get('fairkit', '?')}, Python {environment.get('python', '?')}; plugins {plugins}",
        ),
    ]
    notes = tag("ul", [tag("li", note) for note in view.notes]) if view.notes else tag("p", "None.")
    everything = tag(
        "details",
        tag("summary", f"All {len(report.findings)} findings"),
        findings_table(report, report.findings, "All findings", plain=True),
    )
    return section(
        "How the numbers were made",
        facts(entries),
        tag("h3", "To keep in mind"),
        notes,
        tag(
            "p",
            "A finding is a statement under its metric, on this data. An interval says how far the number would "
            "move if other people of the same kind had been drawn; it says nothing about errors in the labels.",
        ),
        everything,
    )
