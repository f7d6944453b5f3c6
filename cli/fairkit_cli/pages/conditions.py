"""Groups against a reference, and inside strata: tables, and forest plots of the differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.numbers import interval, number
from fairkit_cli.pages.charts import ForestRow
from fairkit_cli.pages.findings import forest_chart
from fairkit_cli.pages.parts import Cell, Note, On, Section, Span, Table, name_of, numbers, sized, words
from fairkit_cli.text.view import Stratified, against, inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

MOST_DRAWN = 30
"""So many strata are drawn at most, the largest ones; the table has the others."""


def condition_sections(report: Report) -> list[Section]:
    """Return a section for each reference group and for the strata of each column; nothing where there are none."""
    referred = [_against(*key, findings) for key, findings in against(report).items()]
    return [*referred, *(_inside(strata, report.confidence) for strata in inside(report))]


def _against(sensitive: str, reference: str, findings: Sequence[Finding]) -> Section:
    rows: list[Sequence[Cell]] = [
        (finding.metric, name_of(group.group), *sized(group.value, group.interval))
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
    title = f"{label}: differences"
    chart = forest_chart(differences, "difference", title, zero=False) if differences else None
    table = Table(label, [*words("metric", "group"), *numbers("value", "interval")], rows)
    intro = Note("Signed differences and ratios; the intervals of all groups hold together.", on=On.PAGE)
    return Section([label, Span(", intervals that hold together", on=On.TEXT)], [intro, chart, table])


def _inside(stratified: Stratified, confidence: float) -> Section:
    label = f"Groups of {stratified.sensitive} inside the strata of {stratified.within}"
    rows: list[Sequence[Cell]] = [
        (row.metric, number(row.whole), *sized(row.value, row.interval), row.agreement) for row in stratified.rows
    ]
    columns = [*words("metric"), *numbers("as a whole", "inside strata", "interval", "strata agree")]
    intro = (
        f"Pooled over the strata, with {confidence:.0%} intervals. Where the strata do not agree, read their own "
        "numbers."
        if stratified.how == "pooled"
        else f"The largest of the strata, with {confidence:.0%} intervals that hold for all of them."
    )
    table = Table(f"{label}, {stratified.how}", columns, rows)
    strata = None if stratified.strata is None else _strata(stratified.strata, stratified.within)
    return Section([label, Span(f", {stratified.how}", on=On.TEXT)], [Note(intro, on=On.PAGE), table, strata])


def _strata(finding: Finding, within: str) -> Section:
    """Return the strata's own numbers, the largest ones drawn."""
    high, low = (str(finding.evidence.get(f"{end}_group", "")) for end in ("highest", "lowest"))
    title = f"{finding.metric} in each stratum: {high} minus {low}"
    largest = sorted(finding.strata, key=lambda stratum: -stratum.rows)[:MOST_DRAWN]
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
    rows: list[Sequence[Cell]] = [
        (
            name_of(stratum.stratum),
            f"{stratum.rows:,}",
            *(number(group.value) for group in stratum.groups),
            *sized(stratum.value, stratum.interval),
            "few rows" if stratum.few else "",
        )
        for stratum in finding.strata
    ]
    names = map(name_of, (group.group for group in finding.strata[0].groups))
    columns = [*words(name_of(within)), *numbers("rows", *names, "difference", "interval"), *words("")]
    chart = forest_chart(drawn, "difference", title, zero=False) if drawn else None
    return Section([Span(title, on=On.TEXT)], [chart, Table(title, columns, rows)], "part")
