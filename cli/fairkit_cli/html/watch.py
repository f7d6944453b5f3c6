"""A watch as a page: bands over time with the limits, what changed when, the groups' shares, and the numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from fairkit_cli.html import timelines
from fairkit_cli.html.markup import Content, Markup, join, name_of, tag
from fairkit_cli.html.page import facts, figure, page, section, table
from fairkit_cli.html.svg import draw, warm
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.watch import gaps, lately, promise, remarks, title

if TYPE_CHECKING:
    from fairkit_watch.results import WatchSnapshot
    from fairkit_watch.snapshot import Course

_CLASS = {"pass": "pass", "fail": "fail", "undecided": "inconclusive"}
_LEVELS = {"fail": "fails", "changed": "broken lately", "shares": "shares changed", "late": "no data"}
MOST_GROUPS = 8


def watch_page(
    snapshot: WatchSnapshot,
    courses: Sequence[Course],
    shares: Mapping[str, tuple[tuple[str, ...], Any]],
    groups: Mapping[str, Sequence[str]],
    statements: Mapping[str, Any] | None,
) -> str:
    """Return a watch as one HTML file.

    Parameters
    ----------
    snapshot
        The newest look.
    courses
        Of each rule, in their order.
    shares
        By split: the first days of the weeks, and each group's share, [W, G].
    groups
        By split: the groups' names.
    statements
        What the signed statements say; None where there are none.

    Raises
    ------
    MissingRendererError
        vl-convert-python is not installed.
    """
    with warm():
        body: list[Content] = [_head(snapshot), _alarms(snapshot)]
        body += [rule_section(snapshot, place, course) for place, course in enumerate(courses)]
        body += [
            _shares(name, days, values, groups[name]) for name, (days, values) in shares.items() if len(days)
        ]
    body += [_groups(snapshot), _details(snapshot, statements)]
    return page(title(snapshot), body)


def _head(snapshot: WatchSnapshot) -> Markup:
    verdict = None
    if snapshot.verdict is not None:
        words = {"pass": "Pass", "fail": "Fail", "undecided": "Undecided"}[snapshot.verdict]
        failed = [one for one in snapshot.rules if one.verdict == snapshot.verdict]
        told = f": of all decisions since {snapshot.since or 'the start'}, {len(failed)} of {len(snapshot.rules)} rules"
        verdict = tag("p", tag("strong", words), told, class_=f"verdict {_CLASS[snapshot.verdict]}")
    return tag(
        "header",
        tag("h1", title(snapshot)),
        tag("p", f"Looked at on {snapshot.today}. {promise(snapshot)}", class_="subject"),
        verdict,
        tag("p", tag("strong", "Broken lately"), f": {lately(snapshot)}", class_="verdict fail")
        if snapshot.lately
        else None,
    )


def _alarms(snapshot: WatchSnapshot) -> Markup:
    if not snapshot.alarms:
        return section("What changed", tag("p", "Nothing: no alarm was raised."))
    rows = [
        [
            tag("span", alarm.day, style="white-space:nowrap"),
            tag("span", _LEVELS[alarm.level], class_="badge fail" if alarm.level == "fail" else "badge"),
            alarm.text,
        ]
        for alarm in reversed(snapshot.alarms)
    ]
    return section("What changed", table(("day", "what", "evidence"), rows, label="Alarms"))


def rule_section(snapshot: WatchSnapshot, place: int, course: Course) -> Markup:
    """Return one rule's course over the days: the picture with its limit, and each week's number."""
    rule = snapshot.rules[place]
    about = f"{rule.metric.replace('_', ' ')}{f' ({rule.sensitive})' if rule.sensitive else ''}"
    heading = (
        f"{about[0].upper()}{about[1:]}: {'at most' if rule.kind == 'max' else 'at least'} {rule.limit:g}"
    )
    alarms = [one for one in snapshot.alarms if one.subject == course.question.subject]
    chart = timelines.Timeline(
        days=course.days,
        values=course.path.value.tolist(),
        low=course.path.low.tolist(),
        high=course.path.high.tolist(),
        weeks=course.weeks,
        limit=rule.limit,
        reference=rule.reference,
        events=tuple((one.day, _LEVELS[one.level]) for one in alarms),
        missing=_spans(snapshot.missing_days),
    )
    pictures = [
        draw(
            timelines.timeline(chart, about, narrow=narrow),
            title=f"{about} over time with its confidence sequence and the limit {rule.limit:g}",
            class_="narrow" if narrow else "wide",
        )
        for narrow in (False, True)
    ]
    weeks = [
        [f"{first} to {last}", number(value), interval(pair)]
        for first, last, value, pair in reversed(course.weeks)
    ]
    numbers = table(
        ("week", "value", "interval of the week alone"), weeks, numeric={1, 2}, label=f"{about} by week"
    )
    return section(
        heading,
        tag("p", tag("span", rule.verdict, class_=f"badge {_CLASS[rule.verdict]}"), f": {rule.reason}."),
        _legend(chart),
        figure(pictures, f"Of all decisions since {snapshot.since}, day by day", numbers),
    )


def _legend(chart: timelines.Timeline) -> Markup:
    def key(*marks: Markup) -> Markup:
        return tag("svg", *marks, viewBox="0 0 28 12", class_="key", aria_hidden="true")

    def line(y: str, **look: str) -> Markup:
        return tag("line", x1="0", x2="28", y1=y, y2=y, stroke_width="2", **look)

    band = tag("rect", x="0", y="1", width="28", height="10", fill="var(--c1)", opacity="0.25")
    items = [
        [
            key(band, line("6", stroke="var(--c1)")),
            " all decisions since the start, with the band that holds at every look",
        ],
        [key(line("6", stroke="var(--fail)", stroke_dasharray="6 3")), " limit"],
        [key(tag("circle", cx="14", cy="6", r="3", fill="var(--c2)")), " one week alone"],
    ]
    if chart.reference is not None:
        items.append(
            [key(tag("path", d="M14 1L19 6L14 11L9 6Z", fill="var(--ink)")), " the certificate's number"]
        )
    if chart.events:
        items.append(
            [
                key(tag("line", x1="14", x2="14", y1="0", y2="12", stroke="var(--ink)", stroke_width="2")),
                " alarm",
            ]
        )
    if chart.missing:
        grey = tag("rect", x="4", y="0", width="20", height="12", fill="var(--line)", opacity="0.35")
        items.append([key(grey), " no data"])
    return tag("ul", [tag("li", item) for item in items], class_="legend")


def _shares(name: str, days: Sequence[str], values: Any, groups: Sequence[str]) -> Markup:
    order = sorted(range(len(groups)), key=lambda g: -float(values[:, g].sum()))[:MOST_GROUPS]
    names = [groups[g] for g in order]
    shown = [[float(value) for value in values[:, g]] for g in order]
    pictures = [
        draw(
            timelines.shares(days, shown, names, narrow=narrow),
            title=f"share of each group of {name} among the decisions, week by week",
            class_="narrow" if narrow else "wide",
        )
        for narrow in (False, True)
    ]
    legend = [
        tag(
            "li",
            tag("svg", _stroke(i), viewBox="0 0 28 12", class_="key", aria_hidden="true"),
            " ",
            name_of(label),
        )
        for i, label in enumerate(names)
    ]
    rows = [[day, *(f"{values[w, g]:.1%}" for g in order)] for w, day in reversed(list(enumerate(days)))]
    numbers = table(
        ("week of", *(name_of(one) for one in names)),
        rows,
        numeric=range(1, len(names) + 1),
        label=f"Shares of {name}",
    )
    more = f" The {MOST_GROUPS} largest of {len(groups)} groups." if len(groups) > MOST_GROUPS else ""
    return section(
        f"Who is decided about: {name}",
        tag("p", f"Rates are comparable over time only while the groups' shares are stable.{more}"),
        tag("ul", legend, class_="legend"),
        figure(pictures, "Share of the decisions, week by week", numbers),
    )


def _stroke(place: int) -> Markup:
    colour, dash = timelines.look_of(place)
    return tag(
        "line",
        x1="0",
        x2="28",
        y1="6",
        y2="6",
        stroke=colour,
        stroke_width="2",
        stroke_dasharray=" ".join(map(str, dash)),
    )


def _groups(snapshot: WatchSnapshot) -> Markup | None:
    if not snapshot.groups:
        return None
    rates = list(dict.fromkeys(name for one in snapshot.groups for name in one.rates))
    rows: list[Sequence[Content]] = []
    for group in snapshot.groups:
        cells: list[Content] = []
        for rate in rates:
            value, pair = group.rates.get(rate, (None, None))
            cells.append(
                join([number(value), " ", tag("span", interval(pair), class_="small") if pair else None])
            )
        name = name_of(f"{group.split}={group.group}" if group.split else "everybody")
        called = join([name, None if group.expected else " (new)"])
        rows.append((called, f"{group.rows:,}", f"{group.share:.1%}", *cells))
    columns = ("group", "decisions", "share", *(rate.replace("_", " ") for rate in rates))
    return section(
        "The groups",
        tag(
            "p",
            f"Of all decisions since {snapshot.since}; the bands of all groups hold together, at every look.",
        ),
        table(columns, rows, numeric=range(1, len(columns)), label="Groups"),
    )


def _details(snapshot: WatchSnapshot, statements: Mapping[str, Any] | None) -> Markup:
    entries: list[tuple[str, Content]] = [
        ("Decisions", f"{snapshot.rows:,} on {snapshot.days:,} days"),
        ("Missing days", gaps(snapshot) or "none"),
        ("Confidence", f"{snapshot.confidence:.0%} for all rules together, at every look"),
    ]
    if snapshot.certificate:
        entries.append(("Certificate", tag("code", snapshot.certificate)))
    sentences = remarks(snapshot, statements)
    return section(
        "How the numbers were made",
        facts(entries),
        tag("ul", [tag("li", text) for text in sentences]),
        tag("p", "All of it holds under these metrics, on these decisions."),
    )


def _spans(days: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return runs of consecutive days: first and last."""
    numbers = [date.fromisoformat(day).toordinal() for day in days]
    found = []
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        inside = [at for at, _ in run]
        found.append((days[inside[0]], days[inside[-1]]))
    return tuple(found)
