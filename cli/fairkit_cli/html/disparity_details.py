"""Each disparity opens to its groups: who was decided how, the number and its interval, and what the interval means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit_cli.html.individuals import rows_about
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import table
from fairkit_cli.text.answers import answer, share_of
from fairkit_cli.text.glossary import metric_term
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.view import metric_name, rule_for

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.values import GroupValue


def opened(report: Report, findings: Sequence[Finding]) -> Markup:
    """Return the disparities as a list; each opens to its groups."""
    return tag(
        "div", tag("h3", "Each disparity and its groups"), [_one(report, finding) for finding in findings]
    )


def _one(report: Report, finding: Finding) -> Markup:
    rule = rule_for(report, finding)
    badge = None if rule is None else tag("span", rule.verdict, class_=f"badge {rule.verdict}")
    name = metric_term(finding.metric).plain
    told = f" · {finding.place}: {number(finding.value)} "
    head = tag("summary", name, " ", tag("span", metric_name(finding), class_="muted small"), told, badge)
    level = f"{finding.confidence:.0%}"
    means = (
        "There is no interval."
        if finding.interval is None
        else f"The interval {interval(finding.interval)} holds the number that all people of this kind would give in "
        f"{level} of such audits; it says nothing about errors in the table."
    )
    notes = tag("ul", [tag("li", note) for note in finding.notes]) if finding.notes else None
    return tag(
        "details",
        head,
        tag("p", str(answer(report, finding))),
        _groups(report, finding),
        tag("p", means),
        _rows(report, finding),
        notes,
    )


def _rows(report: Report, finding: Finding) -> Markup | None:
    """Return links to the rows that the evidence has about these groups; None where it has none."""
    found = [] if finding.sensitive is None else rows_about(report, finding.sensitive)
    if not found:
        return None
    links = [tag("a", told, href=f"#{place}") for place, told in found]
    return tag("p", "Its rows: ", links[0], *(["; ", link] for link in links[1:]), ".", class_="more")


def _groups(report: Report, finding: Finding) -> Markup | None:
    if not finding.groups:
        return None
    share = share_of(report, finding)
    counted = report.data.weights is None and share is not None
    rows: list[Sequence[Content]] = [
        (
            name_of(group.group),
            f"{group.rows:,}",
            *((_count(group),) if counted else ()),
            number(group.value),
            interval(group.interval),
        )
        for group in finding.groups
    ]
    who: tuple[Content, ...] = (
        (f"of {share.whom}, so many {share.do}",) if counted and share is not None else ()
    )
    columns = ("group", "people", *who, "value", "interval")
    label = f"Groups of {finding.place}: {finding.metric}"
    return table(columns, rows, numeric=set(range(1, len(columns))), label=label)


def _count(one: GroupValue) -> str:
    if one.value is None or one.denominator is None:
        return "-"
    return f"{round(one.value * one.denominator):,} of {round(one.denominator):,}"
