"""The section about groups that a search found: the bound by size, the groups, and which are the same people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.html.charts import NARROW, WHOLE
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import figure, section, table
from fairkit_cli.html.svg import draw
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.subgroups import (
    Searched,
    bound_sentence,
    described,
    found_groups,
    found_in,
    searches,
    share_of,
    told,
)
from fairkit_cli.text.view import MEANING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.comparisons import Change
    from fairkit.results.report import Report


def subgroup_section(report: Report) -> Markup | None:
    """Return the section of the subgroup searches; None where none was made."""
    searched = searches(report)
    if not searched:
        return None
    intro = tag(
        "p",
        "Every group that a few conditions describe was compared with all other rows. The intervals hold for all "
        "groups at once, so that the worst one may be picked afterwards.",
    )
    return section("Groups that nobody named", intro, *(_search(one, report.confidence) for one in searched))


def _search(searched: Searched, confidence: float) -> Markup:
    parts: list[Content] = [tag("h3", searched.name[0].upper() + searched.name[1:])]
    parts.append(tag("p", bound_sentence(searched, confidence)))
    parts.append(
        _groups(searched)
        if searched.listed
        else tag("p", "No group was found whose disadvantage is certain.")
    )
    if len(searched.covers) > 1:
        parts.append(_covers(searched))
    if len(searched.curve) > 1:
        parts.append(_curve(searched))
    return tag("div", parts)


def _groups(searched: Searched) -> Markup:
    rows: list[Sequence[Content]] = [
        (
            name_of(described(finding)),
            f"{finding.evidence.get('rows', 0):,}",
            share_of(finding),
            told(finding, "rate"),
            told(finding, "rest"),
            number(finding.value),
            interval(finding.interval),
        )
        for finding in searched.listed
    ]
    columns = ("group", "rows", "share", *searched.columns, "difference", "interval")
    return table(columns, rows, numeric=set(range(1, 7)), label=f"Groups that differ in {searched.name}")


def _covers(searched: Searched) -> Markup:
    """Which part of each group is in each other one."""
    rows: list[Sequence[Content]] = [
        (name_of(f"{place}: {described(finding)}"), *(f"{part:.0%}" for part in parts))
        for place, (finding, parts) in enumerate(zip(searched.listed, searched.covers, strict=True), 1)
    ]
    columns = ("part of this group", *(f"in {place}" for place in range(1, len(rows) + 1)))
    label = f"Which groups are the same people: {searched.name}"
    numbers = table(columns, rows, numeric=set(range(1, len(rows) + 1)), label=label)
    return tag("details", tag("summary", "Which groups are the same people"), numbers)


def _curve(searched: Searched) -> Markup:
    title = f"How much a group may differ at most, by its share of the rows: {searched.name}"
    points = [
        {
            "share": share,
            "bound": bound,
            "tip": f"no group of at least {share:.3g} of the rows differs by more than {number(bound)}",
        }
        for share, bound in searched.curve
    ]
    pictures = [
        draw(curve(points, narrow=narrow), title=title, class_="narrow" if narrow else "wide")
        for narrow in (False, True)
    ]
    rows = [(f"{share:.3g}", number(bound)) for share, bound in searched.curve]
    return figure(pictures, title, table(("share of the rows", "at most"), rows, numeric={0, 1}, label=title))


def curve(points: Sequence[dict[str, Any]], *, narrow: bool) -> dict[str, Any]:
    """Draw the bound against the share as steps; what lies above is excluded."""
    x = {
        "field": "share",
        "type": "quantitative",
        "title": "share of the rows",
        "scale": {"type": "log", "nice": False},
        "axis": {"values": [point["share"] for point in points], "format": ".2~g"},
    }
    y = {"field": "bound", "type": "quantitative", "title": "difference at most", "scale": {"zero": True}}
    tip = {"field": "tip", "type": "nominal"}
    line = {"type": "line", "interpolate": "step-before", "color": "var(--accent)", "strokeWidth": 2}
    dots = {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": "var(--accent)"}
    return {
        "width": NARROW - 40 if narrow else WHOLE - 70,
        "height": 220,
        "data": {"values": list(points)},
        "layer": [
            {"mark": line, "encoding": {"x": x, "y": y}},
            {"mark": dots, "encoding": {"x": x, "y": y, "description": tip}},
        ],
    }


def group_changes(changes: Sequence[Change], names: tuple[str, str]) -> Markup | None:
    """Return the table of changes of the groups listed for either of two models; None without such groups."""
    listed = found_groups(changes)
    if not listed:
        return None
    rows: list[Sequence[Content]] = [
        (
            name_of(change.group or "-"),
            str(change.parameters.get("measure", "-")).replace("_", " "),
            number(change.before),
            number(change.after),
            number(change.difference),
            interval(change.interval),
            tag("span", MEANING[change.outcome], class_=change.outcome),
            found_in(change),
        )
        for change in listed
    ]
    columns = (
        "group",
        "metric",
        name_of(names[0]),
        name_of(names[1]),
        "change",
        "interval",
        "meaning",
        "listed in",
    )
    title = "Groups that nobody named"
    told = (
        "Each group that a search found in either model, and how it differs from all others in both; the intervals "
        "hold for all groups at once."
    )
    return tag(
        "div", tag("h3", title), tag("p", told), table(columns, rows, numeric={2, 3, 4, 5}, label=title)
    )
