"""A report for people: the verdict, then the largest disparities with their intervals, then the groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.escaping import visible
from fairkit_cli.fields import as_options
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.plain import plain, to_text
from fairkit_cli.text.ranking import disparities, performance
from fairkit_cli.text.view import (
    NO_GROUP,
    GroupRow,
    ReportView,
    about_many,
    favorable_class,
    group_table,
    groups_that_matter,
    report_view,
    rule_for,
    survives,
)
from fairkit_comparing.headlines import as_recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

BAR_WIDTH = 26
_MOST_LEVELS = 3
_COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
_MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?"}


def table(report: Report, *, terminal: bool) -> str:
    """Return the report as text, with colours on a terminal."""
    with as_recorded(report):
        return to_text(_parts(report), terminal=terminal)


def _parts(report: Report) -> list[RenderableType]:
    from fairkit_cli.text.conditions import conditions
    from fairkit_cli.text.evidence import evidence
    from fairkit_cli.text.pairs import pairs
    from fairkit_cli.text.subgroups import subgroups
    from fairkit_cli.text.why import why

    view = report_view(report)
    parts: list[RenderableType] = [_verdict(view), _subject(view)]
    parts += [*_missing(view), *_over_all_rows(report), ""]
    parts += _bars(report)
    for sensitive in report.data.groups:
        parts += _groups(report, sensitive)
    parts += subgroups(report)
    parts += why(report)
    parts += conditions(report)
    parts += _others(report)
    parts += pairs(report)
    parts += evidence(report)
    parts += _notes(view)
    return parts


def verdict_lines(report: Report) -> list[RenderableType]:
    """Return the verdict on a policy, where there is one."""
    return [] if report.verdict is None else [_verdict(report_view(report)), ""]


def _verdict(view: ReportView) -> Text:
    from rich.text import Text

    text = Text()
    if view.verdict is None:
        text.append("No verdict", style="bold")
        text.append(": no policy was given. Add a rule, for example --max demographic_parity_difference=0.1")
        return text
    text.append(f"{_MARKS[view.verdict]} {view.verdict.upper()}", style=f"bold {_COLOURS[view.verdict]}")
    text.append(f": {view.summary}")
    for rule in view.rules:
        text.append(f"\n  {_MARKS[rule.verdict]} ", style=_COLOURS[rule.verdict])
        text.append(visible(as_options(rule.reason)))
    return text


def _subject(view: ReportView) -> Text:
    return plain(view.subject, "dim")


def _missing(view: ReportView) -> list[RenderableType]:
    from rich.text import Text

    return [Text(f"! {line}", style="yellow") for line in view.missing]


def _over_all_rows(report: Report) -> list[RenderableType]:
    """Say the numbers over all rows that come first, such as the accuracy."""
    told = [
        f"{one.metric} {number(one.value)} {interval(one.interval)}"
        for one in performance(report)[:_MOST_LEVELS]
    ]
    return [plain(f"All rows: {', '.join(told)}")] if told else []


def _bars(report: Report) -> list[RenderableType]:
    """The largest disparities, each with its interval drawn on one scale."""
    from rich.table import Table

    shown = disparities(report)
    if not shown:
        return []
    # an interval that small groups have stretched does not set the scale of the others
    drawn = [finding for finding in shown if not finding.inconclusive]
    scale = max(
        [finding.interval[1] if finding.interval else finding.value or 0 for finding in drawn]
        + [finding.value or 0.0 for finding in shown]
        + [1e-9]
    )
    level = f"{report.confidence:.0%}"
    grid = Table(
        box=None, pad_edge=False, title_justify="left", title=f"Largest disparities, {level} intervals"
    )
    grid.title_style = "bold"
    grid.add_column("metric", no_wrap=True)
    grid.add_column("groups of")
    grid.add_column("value", justify="right", no_wrap=True)
    grid.add_column("interval", justify="right", no_wrap=True)
    grid.add_column(f"0{'·' * (BAR_WIDTH - 6)}{number(scale):>5}", no_wrap=True)
    for finding in shown:
        rule = rule_for(report, finding)
        limit = None if rule is None else rule.limit
        grid.add_row(
            finding.metric + (f" ({finding.parameters['class']})" if "class" in finding.parameters else ""),
            finding.place or "-",
            number(finding.value),
            interval(finding.interval) + (" ✓" if survives(finding) else ""),
            _bar(finding, scale, limit),
        )
    return [grid, plain(about_many(report, shown), "dim"), ""]


def _bar(finding: Finding, scale: float, limit: float | None) -> Text:
    """Draw an interval: ``├──●──┤``, with the policy's limit as ``|``."""
    from rich.text import Text

    cells = ["·"] * BAR_WIDTH

    def place(value: float) -> int:
        return min(max(round(value / scale * (BAR_WIDTH - 1)), 0), BAR_WIDTH - 1)

    if finding.interval is not None:
        low, high = place(finding.interval[0]), place(finding.interval[1])
        cells[low : high + 1] = ["─"] * (high - low + 1)
        cells[low], cells[high] = "├", "┤" if finding.interval[1] <= scale else "→"
    if limit is not None and limit <= scale:
        cells[place(limit)] = "┃"
    if finding.value is not None:
        cells[place(finding.value)] = "●"
    colour = "yellow" if finding.inconclusive else "cyan"
    return Text("".join(cells), style=colour)


def _groups(report: Report, sensitive: str) -> list[RenderableType]:
    from rich.table import Table

    every, metrics = group_table(report, sensitive)
    if not metrics:
        return []
    rows, others = groups_that_matter(report, every, metrics[0])
    rates = "" if (name := favorable_class(report)) is None else f" (rates of {name})"
    grid = Table(box=None, pad_edge=False, title_justify="left", title=f"Groups of {sensitive}{rates}")
    grid.title_style = "bold"
    grid.add_column("group")
    grid.add_column("rows", justify="right")
    for metric in metrics:
        grid.add_column(metric.replace("_", " "), justify="right")
    for row in rows:
        grid.add_row(row.group, f"{row.rows:,}", *(number(value) for value in row.values))
    told = [plain(others, "dim")] if others else []
    return [grid, *told, *_without_group(rows, metrics, report.confidence), ""]


def _without_group(
    rows: Sequence[GroupRow], metrics: Sequence[str], confidence: float
) -> list[RenderableType]:
    """Return the line about rows without a group, with their intervals."""
    if rows[-1].group != NO_GROUP:
        return []
    told = [
        f"{metric.replace('_', ' ')} {number(value)} {interval(pair)}"
        for metric, value, pair in zip(metrics, rows[-1].values, rows[-1].intervals, strict=True)
        if value is not None
    ]
    text = f"{NO_GROUP}: in no comparison; {confidence:.0%} intervals: {', '.join(told)}."
    return [plain(text, "dim")]


def _others(report: Report) -> list[RenderableType]:
    """What other auditors than `group` found."""
    from rich.table import Table

    from fairkit_cli.text.subgroups import listed_apart
    from fairkit_cli.text.why import AUDITOR as WHY

    above = {one.key for one in disparities(report)}
    findings = [
        one
        for one in report.findings
        if one.auditor not in ("group", WHY)
        and not listed_apart(one)
        and one.key not in above
        and not one.strata
    ]
    if not findings:
        return []
    grid = Table(box=None, pad_edge=False, title_justify="left", title="Other findings")
    grid.title_style = "bold"
    for name in ("auditor", "metric", "on", "value", "interval"):
        grid.add_column(name, justify="right" if name in ("value", "interval") else "left")
    for finding in findings:
        grid.add_row(
            finding.auditor,
            finding.metric,
            finding.sensitive or "-",
            number(finding.value),
            interval(finding.interval),
        )
    return [grid, ""]


def _notes(view: ReportView) -> list[RenderableType]:
    if not view.notes:
        return []
    return [plain("Notes", "bold"), *(plain(f"· {note}") for note in view.notes)]
