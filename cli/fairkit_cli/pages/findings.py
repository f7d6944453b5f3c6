"""Findings as tables and forest plots: the numbers over all rows, the disparities, each with its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fairkit.reading import (
    answer,
    disparities,
    headlines,
    kind_of,
    metric_name,
    metric_term,
    performance,
    rule_for,
    share_of,
    survives,
)
from fairkit.results.evidence import HighestGroup, LowestGroup, evidence_of
from fairkit.support.escaping import interval, number
from fairkit_cli.pages.charts import ForestRow, forest
from fairkit_cli.pages.individuals import rows_about
from fairkit_cli.pages.parts import (
    Bar,
    Cell,
    Chart,
    Inline,
    Listing,
    Note,
    On,
    Part,
    Section,
    Span,
    Table,
    badge,
    name_of,
    numbers,
    page_only,
    sized,
    words,
)
from fairkit_cli.pages.sheet import metric_cell
from fairkit_cli.text.view import about_many

if TYPE_CHECKING:
    from fairkit.results.findings import Finding, GroupValue
    from fairkit.results.report import Report

_UNIT_SCALE = 1.5
_MOST_LEVELS = 3


def performance_section(report: Report) -> Section | None:
    """Return the numbers over all rows: how good the decisions are at all."""
    findings = performance(report)
    if not findings:
        return None
    title = "Performance over all rows"
    spoken = {name for name, cls in headlines().metrics.items() if cls.headline.sentence}
    sentences = [str(answer(report, each)) for each in findings if each.metric in spoken]
    first = [f"{each.metric} {number(each.value)} {interval(each.interval)}" for each in findings[:_MOST_LEVELS]]
    drawn = []
    for axis, part in _by_axis(findings, _axis):
        named = f"{title}, {axis}"
        rows = [forest_row(report, each) for each in part]
        drawn.append(forest_chart(rows, axis, named, findings_table(report, part, named)))
    return Section(
        page_only(title),
        [
            Note(f"All rows: {', '.join(first)}", on=On.SCREEN),
            Listing(sentences, on=On.PAGE) if sentences else None,
            *drawn,
            Section("Performance", [findings_table(report, findings, title, on=On.SUMMARY)], on=On.SUMMARY),
        ],
    )


def _axis(finding: Finding) -> str:
    """Return the axis that a number over all rows is drawn on: accuracy and log loss do not share one."""
    metric = headlines().base(finding.metric)
    better = "none" if metric is None else metric.better
    within = "from 0 to 1" if metric is None or metric.range == (0.0, 1.0) else "in its own unit"
    return f"{within}; lower is better" if better == "lower" else within


def _by_axis(findings: Sequence[Finding], axis: Callable[[Finding], str]) -> list[tuple[str, list[Finding]]]:
    """Return the findings of each axis, in the order in which the axes come."""
    drawn: dict[str, list[Finding]] = {}
    for finding in findings:
        drawn.setdefault(axis(finding), []).append(finding)
    return list(drawn.items())


def disparity_section(report: Report) -> Section | None:
    """Return the largest disparities between groups, with the policy's limits."""
    findings = disparities(report)
    if not findings:
        return None
    level = f"{report.confidence:.0%} intervals"
    limits = " A vertical bar marks the policy's limit." if any(rule_for(report, f) for f in findings) else ""
    listed = findings_table(report, findings, "Largest disparities", bars=True, on=On.SUMMARY)
    intro = f"What the policy limits, and the largest other differences between groups, with {level}.{limits}"
    title = [*page_only("Disparities"), Span(f"Largest disparities, {level}", on=On.SUMMARY)]
    details = Section("Each disparity and its groups", [_opened(report, each) for each in findings], "part", on=On.PAGE)
    charts = list(_charts(report, findings))
    about = Note(about_many(report, findings), "muted")
    return Section(title, [listed, Note(intro, on=On.PAGE), about, *charts, details])


_ON_SCREEN = 9


def largest_of(report: Report, sensitive: str) -> list[Part]:
    """Return the largest disparities of one column, for a screen."""
    largest = disparities(report, most=len(report.findings))
    chosen = sorted((f for f in largest if f.sensitive == sensitive), key=lambda each: rule_for(report, each) is None)
    most = max(_ON_SCREEN // max(len(report.data.groups), 1), 4)
    more = len(chosen) - most
    table = findings_table(report, chosen[:most], sensitive, bars=True, place=False, on=On.SCREEN)
    rest = [Note(f"{more} more: --format json", "muted", on=On.SCREEN)] if more > 0 else []
    return [table, *rest, Note("", on=On.SCREEN)] if chosen else []


def _charts(report: Report, findings: Sequence[Finding]) -> Iterator[Chart]:
    """Yield the forest plots: disparities that share a unit share an axis."""

    def axis(finding: Finding) -> str:
        kind = kind_of(finding)
        if kind == "ratio":
            return "ratio between groups; 1 is parity"
        if kind == "level":
            return "of the group that is worst off"
        own_scale = max(finding.value or 0, finding.interval[1] if finding.interval else 0) > _UNIT_SCALE
        return (
            "difference, in the metric's own unit; 0 is parity"
            if own_scale
            else "difference between groups; 0 is parity"
        )

    for label, chosen in _by_axis(findings, axis):
        rows = [forest_row(report, each) for each in chosen]
        table = findings_table(report, chosen, label)
        yield forest_chart(rows, label, f"Disparities: {label}", table, name="disparities")


def forest_row(report: Report, finding: Finding) -> ForestRow:
    """Say about a finding what its line in a forest plot shows."""
    rule = rule_for(report, finding)
    about = metric_name(finding).removeprefix(finding.metric)
    between = f" · {finding.place}" if finding.sensitive else ""
    name = f"{metric_term(finding.metric).plain}{about}{between}{' ✓' if survives(finding) else ''}"
    tip = f"{name}: {number(finding.value)}, interval {interval(finding.interval)}"
    if rule is not None:
        tip += f", {rule.rule.say()}: {rule.verdict}"
    return ForestRow(
        name=name,
        value=finding.value or 0.0,
        tip=tip,
        interval=finding.interval,
        limit=None if rule is None else rule.limit,
        status=rule.verdict if rule is not None else "inconclusive" if finding.inconclusive else "none",
    )


def forest_chart(
    rows: Sequence[ForestRow],
    axis: str,
    title: str,
    table: Table | None = None,
    *,
    zero: bool = True,
    name: str = "",
    of: str | None = None,
) -> Chart:
    """Return a forest plot with its table."""
    return Chart(
        title,
        lambda narrow: forest(rows, axis, narrow=narrow, zero=zero) if rows else None,
        table, on=On.PAGE, name=name, of=of,
    )  # fmt: skip


def findings_table(
    report: Report,
    findings: Sequence[Finding],
    label: str,
    *,
    everything: bool = False,
    bars: bool = False,
    place: bool = True,
    on: On = On.ALL,
) -> Table:
    """Return findings as numbers; `everything`: under the field's names only, and to be sorted and filtered."""
    rows: list[Sequence[Cell]] = []
    drawn: list[Bar] = []
    for finding in findings:
        rule = rule_for(report, finding)
        value, pair = sized(finding.value, finding.interval)
        metric: Inline = metric_name(finding) if everything else metric_cell(finding)
        where = name_of(finding.place) if finding.place else "all rows"
        judged = badge(None if rule is None else rule.verdict)
        rows.append((metric, where, value, pair + (" ✓" if survives(finding) else ""), _between(finding), judged))
        limit = None if rule is None else rule.limit
        drawn.append(Bar(finding.value, finding.interval, limit, bool(finding.inconclusive)))
    columns = [*words("metric"), *words("groups of", on=On.ALL if place else On.PAGE), *numbers("value", "interval")]
    columns += words("lowest to highest group", "policy", on=On.PAGE)
    return Table(label, columns, rows, bars=drawn if bars else (), sortable=everything, on=on)


def _between(finding: Finding) -> Inline:
    lowest, highest = evidence_of(finding, LowestGroup), evidence_of(finding, HighestGroup)
    if lowest is None or highest is None:
        return "-"
    return [name_of(lowest.group), " to ", name_of(highest.group)]


def _opened(report: Report, finding: Finding) -> Section:
    """Return a disparity that opens to its groups: who was decided how, and what the interval means."""
    rule = rule_for(report, finding)
    head: list[Inline] = [
        metric_term(finding.metric).plain,
        " ",
        Span(metric_name(finding), "small"),
        f" · {finding.place}: {number(finding.value)} ",
        None if rule is None else badge(rule.verdict),
    ]
    means = (
        "There is no interval."
        if finding.interval is None
        else f"The interval {interval(finding.interval)} holds the number that all people of this kind would give in "
        f"{finding.confidence:.0%} of such audits; it says nothing about errors in the table."
    )
    return Section(
        head,
        [
            Note(str(answer(report, finding))),
            _groups(report, finding) if finding.groups else None,
            Note(means),
            _links(report, finding),
            Listing(finding.notes) if finding.notes else None,
        ],
        "fold",
    )


def _links(report: Report, finding: Finding) -> Note | None:
    """Return links to the rows that the evidence has about these groups; None where it has none."""
    anchors = [] if finding.sensitive is None else rows_about(report, finding.sensitive)
    if not anchors:
        return None
    links = [Span(text, link=f"#{anchor}") for anchor, text in anchors]
    return Note(["Its rows: ", links[0], *(["; ", link] for link in links[1:]), "."], "more")


def _groups(report: Report, finding: Finding) -> Table:
    share = share_of(report, finding)
    counted = report.data.weights is None and share is not None
    rows: list[Sequence[Cell]] = [
        (
            name_of(group.group),
            f"{group.rows:,}",
            *((_count(group),) if counted else ()),
            *sized(group.value, group.interval),
        )
        for group in finding.groups
    ]
    who = [f"of {share.whom}, so many {share.do}"] if counted and share is not None else []
    columns = [*words("group"), *numbers("people", *who, "value", "interval")]
    return Table(f"Groups of {finding.place}: {finding.metric}", columns, rows)


def _count(group: GroupValue) -> str:
    if group.value is None or group.denominator is None:
        return "-"
    return f"{round(group.value * group.denominator):,} of {round(group.denominator):,}"
