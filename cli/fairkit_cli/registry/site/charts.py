"""Disparities over versions, with intervals, limits and a table of the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.numbers import interval, number
from fairkit_cli.pages.parts import Table, numbers, words
from fairkit_cli.render.html import html_table, section
from fairkit_cli.render.markup import Content, Markup, tag
from fairkit_cli.render.trend import Point, trend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_cli.registry.site.gather import SeenModel, SeenVersion

_WIDE, _NARROW = 60, 14
_MOST = 6


def charts(model: SeenModel) -> list[Markup]:
    """Return how the newest version's numbers moved over the versions; what its policy is about comes first.

    Only evidence that holds is drawn: a claim that nobody vouches for is no point of a course.
    """
    versions = [one for one in model.versions if one.deciding is not None and one.deciding.holds][:_WIDE]
    if not versions:
        return []
    newest = versions[0].deciding
    assert newest is not None  # noqa: S101 -- it was asked above
    asked = [rule[0] for rule in newest.told["rules"]]
    titles = [one[0] for one in newest.told["numbers"]]
    between = [title for title in titles if " · " in title]
    followed = list(dict.fromkeys([*(one for one in asked if one in titles), *titles[:1], *between]))[:_MOST]
    drawn: list[Content] = [
        tag(
            "p",
            f"Of the newest {len(versions)} versions whose evidence holds, the oldest left. A dashed line is a limit "
            "of the newest certificate's policy; the table under each chart has its numbers.",
            class_="muted",
        )
    ]
    drawn += [_chart(title, versions[::-1]) for title in followed]
    return [section("Numbers over versions", *drawn)]


def _chart(title: str, versions: Sequence[SeenVersion]) -> Markup:
    points, rows = [], []
    limits: list[float] = []
    for seen in versions:
        found = seen.deciding
        told = {} if found is None else found.told
        mine = next((each for each in told.get("numbers", ()) if each[0] == title), None)
        if mine is None or mine[1] is None:
            continue
        rules = [rule for rule in told["rules"] if rule[0] == title]
        limits = [end for rule in rules for end in rule[1:3] if end is not None]
        pair = None if mine[2] is None else (mine[2], mine[3])
        name = str(seen.version.version)
        status = rules[0][3] if rules else "none"
        tip = f"version {name}: {number(mine[1])}, interval {interval(pair)}" + (f", {status}" if rules else "")
        points.append(Point(name=name, value=mine[1], interval=pair, status=status, tip=tip))
        rows.append((name, number(mine[1]), interval(pair), status if rules else "no rule"))
    said = f"{title} over {len(points)} versions, with intervals"
    both = [
        trend(points, limits, title=said, width=850, class_="wide"),
        trend(points[-_NARROW:], limits, title=said, width=330, class_="narrow"),
    ]
    columns = [*words("version"), *numbers("value", "interval"), *words("verdict")]
    folded = tag("details", tag("summary", "The numbers"), html_table(Table(title, columns, rows[::-1])))
    return tag("figure", tag("figcaption", title), both, folded)
