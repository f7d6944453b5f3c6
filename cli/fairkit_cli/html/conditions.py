"""The sections about groups against a reference and inside strata: a forest plot with its numbers, and the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.html.charts import ForestRow, forest
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import figure, section, table
from fairkit_cli.html.svg import draw
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.view import Stratified, against, inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

MOST_DRAWN = 30
"""So many strata are drawn at most, the largest ones; the table has the others."""


def condition_sections(report: Report) -> list[Markup]:
    """Return a section for each reference group and for the strata of each column; nothing where there are none."""
    referred = [
        _against(sensitive, reference, found) for (sensitive, reference), found in against(report).items()
    ]
    return [*referred, *(_inside(one, report.confidence) for one in inside(report))]


def _against(sensitive: str, reference: str, findings: Sequence[Finding]) -> Markup:
    rows: list[Sequence[Content]] = [
        (finding.metric, name_of(group.group), number(group.value), interval(group.interval))
        for finding in findings
        for group in finding.groups
    ]
    differences = [
        ForestRow(
            name=f"{finding.metric} · {group.group}",
            value=group.value,
            interval=group.interval,
            tip=f"{finding.metric} of {group.group} against {reference}: {number(group.value)}, interval "
            f"{interval(group.interval)}",
        )
        for finding in findings
        for group in finding.groups
        if finding.metric.endswith("_difference") and group.value is not None
    ]
    label = f"Groups of {sensitive} against {reference}"
    return section(
        label,
        tag("p", "Signed differences and ratios; the intervals of all groups hold together."),
        _forest(differences, f"{label}: differences"),
        table(("metric", "group", "value", "interval"), rows, numeric={2, 3}, label=label),
    )


def _inside(stratified: Stratified, confidence: float) -> Markup:
    label = f"Groups of {stratified.sensitive} inside the strata of {stratified.within}"
    rows: list[Sequence[Content]] = [
        (row.metric, number(row.whole), number(row.value), interval(row.interval), row.agreement)
        for row in stratified.rows
    ]
    columns = ("metric", "as a whole", "inside strata", "interval", "strata agree")
    return section(
        label,
        tag(
            "p",
            f"Pooled over the strata, with {confidence:.0%} intervals. Where the strata do not agree, read their own "
            "numbers."
            if stratified.how == "pooled"
            else f"The largest of the strata, with {confidence:.0%} intervals that hold for all of them.",
        ),
        table(columns, rows, numeric={1, 2, 3, 4}, label=f"{label}, {stratified.how}"),
        None if stratified.strata is None else _strata(stratified.strata, stratified.within),
    )


def _strata(finding: Finding, within: str) -> Markup:
    """The strata's own numbers, the largest ones drawn."""
    high, low = (str(finding.evidence.get(f"{end}_group", "")) for end in ("highest", "lowest"))
    title = f"{finding.metric} in each stratum: {high} minus {low}"
    largest = sorted(finding.strata, key=lambda one: -one.rows)[:MOST_DRAWN]
    drawn = [
        ForestRow(
            name=f"{within} {stratum.stratum}",
            value=stratum.value,
            interval=stratum.interval,
            status="inconclusive" if stratum.few else "none",
            tip=f"{within} {stratum.stratum}, {stratum.rows:,} rows: {number(stratum.value)}, interval "
            f"{interval(stratum.interval)}",
        )
        for stratum in finding.strata
        if stratum in largest and stratum.value is not None
    ]
    names = [group.group for group in finding.strata[0].groups]
    rows: list[Sequence[Content]] = [
        (
            name_of(stratum.stratum),
            f"{stratum.rows:,}",
            *(number(group.value) for group in stratum.groups),
            number(stratum.value),
            interval(stratum.interval),
            "few rows" if stratum.few else "",
        )
        for stratum in finding.strata
    ]
    columns = (name_of(within), "rows", *map(name_of, names), "difference", "interval", "")
    return tag(
        "div",
        _forest(drawn, title),
        table(columns, rows, numeric=set(range(1, len(columns) - 1)), label=title),
    )


def _forest(rows: Sequence[ForestRow], title: str) -> Markup | None:
    if not rows:
        return None
    pictures = [
        draw(
            forest(rows, "difference", narrow=narrow, zero=False),
            title=title,
            class_="narrow" if narrow else "wide",
        )
        for narrow in (False, True)
    ]
    return figure(pictures, title, None)
