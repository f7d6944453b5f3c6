"""Numbers over days as Vega-Lite specifications: bands with limits, weeks, events, gaps, and shares of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from fairkit_cli.pages.charts import NARROW, TIP, WHOLE, label, layer, look_of
from fairkit_cli.pages.parts import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A number over the days."""

    days: Sequence[str]  # the course; NaN where nothing is known
    values: Sequence[float]  # the course; NaN where nothing is known
    low: Sequence[float]  # the course; NaN where nothing is known
    high: Sequence[float]  # the course; NaN where nothing is known
    weeks: Sequence[tuple[str, str, float | None, tuple[float, float] | None]]
    limit: float  # the rule's
    reference: tuple[float, tuple[float, float]] | None = None  # the certificate's value and interval
    events: Sequence[tuple[str, str]] = ()  # days with what happened
    missing: Sequence[tuple[str, str]] = ()  # runs of days without data: first and last


def timeline(chart: Timeline, title: str, *, narrow: bool) -> Spec:
    """Draw a number's band over the days, its limit, its weeks, its alarms and the days without data."""
    course: list[dict[str, Any]] = []
    for day, value, low, high in zip(chart.days, chart.values, chart.low, chart.high, strict=True):
        if math.isfinite(value):
            tip = _course_tip(title, day, value, low, high)
            ends = {"low": low, "high": high} if math.isfinite(low) and math.isfinite(high) else {}
            course.append({"t": day, "value": value, "tip": tip, **ends})
    banded = [row for row in course if "low" in row]
    x = _time(chart, narrow=narrow)
    y: Spec = {
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": True, "domain": _domain(chart), "clamp": True},
        "axis": {"tickCount": 6},
    }
    layers: list[Spec] = []
    if chart.missing:
        spans = [{"a": first, "b": _after(last)} for first, last in chart.missing]
        gap = {"type": "rect", "color": "var(--line)", "opacity": 0.25}
        layers.append(layer(gap, spans, x={**x, "field": "a"}, x2={"field": "b"}))
    area = {"type": "area", "color": "var(--c1)", "opacity": 0.22}
    line = {"type": "line", "color": "var(--c1)", "strokeWidth": 2}
    limit = {"type": "rule", "color": "var(--fail)", "strokeWidth": 2, "strokeDash": [6, 3]}
    layers += [
        layer(area, banded, x=x, y={**y, "field": "low"}, y2={"field": "high"}),
        layer(line, course, x=x, y={**y, "field": "value"}),
        layer(limit, [{"limit": chart.limit}], y={**y, "field": "limit"}),
        _weeks(chart, title, x, y),
        *_reference(chart, x, y),
        *_events(chart, x),
        _points(course, x, y, size=26, color="var(--c1)", opacity=0 if len(course) > 12 else 1),
    ]
    return {"width": NARROW - 40 if narrow else WHOLE - 70, "height": 240 if narrow else 300, "layer": layers}


def _points(rows: Sequence[Spec], x: Spec, y: Spec, **look: Any) -> Spec:
    mark = {"type": "point", "filled": True, **look}
    return layer(mark, rows, x=x, y={**y, "field": "value"}, description=TIP)


def _course_tip(title: str, day: str, value: float, low: float, high: float) -> str:
    band = f" [{low:.3f}, {high:.3f}]" if math.isfinite(low) and math.isfinite(high) else ""
    return f"Up to {day}: {title} {value:.3f}{band}"


def _weeks(chart: Timeline, title: str, x: Spec, y: Spec) -> Spec:
    rows = [
        {"t": _middle(first, last), "value": value, "tip": f"{first} to {last} alone: {title} {value:.3f}"
         f"{f' [{pair[0]:.3f}, {pair[1]:.3f}]' if pair else ''}"}
        for first, last, value, pair in chart.weeks
        if value is not None
    ]  # fmt: skip
    size = 30 if len(rows) <= 60 else 12
    return _points(rows, x, y, size=size, color="var(--c2)", opacity=0.75)


def _reference(chart: Timeline, x: Spec, y: Spec) -> list[Spec]:
    """Put the certificate's number at the start."""
    if chart.reference is None or not chart.days:
        return []
    value, (low, high) = chart.reference
    told = f"The certificate: {value:.3f} [{low:.3f}, {high:.3f}]"
    rows = [{"t": chart.days[0], "value": value, "low": low, "high": high, "tip": told}]
    return [
        layer(_RULE, rows, x=x, y={**y, "field": "low"}, y2={"field": "high"}),
        _points(rows, x, y, shape="diamond", size=110, color="var(--ink)", opacity=1),
    ]


_RULE: Spec = {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}


def _events(chart: Timeline, x: Spec) -> list[Spec]:
    if not chart.events:
        return []
    half = len(chart.days) // 2
    rows = [{"t": day, "what": what} for day, what in chart.events]
    late = [row for row in rows if chart.days and row["t"] > chart.days[half]]
    early = [row for row in rows if row not in late]
    layers = [layer(_RULE, rows, x=x)]
    for side, part in (("left", early), ("right", late)):
        mark = {"type": "text", "align": side, "dx": 5 if side == "left" else -5, "baseline": "top"}
        layers += [
            layer(mark, [row], x=x, y={"value": 2 + 16 * (index % 4)}, text={"field": "what"})
            for index, row in enumerate(part)
        ]
    return layers


def shares(days: Sequence[str], values: Sequence[Sequence[float]], names: Sequence[str], *, narrow: bool) -> Spec:
    """Draw each group's share of the decisions, week by week."""
    rows = [
        {"t": day, "g": str(g), "share": share, "tip": f"{label(name)}: {share:.1%} in the week of {day}"}
        for g, (name, course) in enumerate(zip(names, values, strict=True))
        for day, share in zip(days, course, strict=True)
        if math.isfinite(share)
    ]
    order = [str(g) for g in range(len(names))]
    group = {"field": "g", "type": "nominal", "legend": None}
    looks = list(map(look_of, range(len(names))))
    colour = {**group, "scale": {"domain": order, "range": [colour for colour, _ in looks]}}
    dash = {**group, "scale": {"domain": order, "range": [list(dashes) for _, dashes in looks]}}
    x = {
        "field": "t",
        "type": "temporal",
        "title": None,
        "axis": _axis(date.fromisoformat(days[0]), date.fromisoformat(days[-1]), narrow=narrow),
    }
    y = {"field": "share", "type": "quantitative", "title": "share", "axis": {"format": "%", "tickCount": 5}}
    y["scale"] = {"zero": True}
    few = 1 if len(days) <= 12 else 0
    return {
        "width": NARROW - 40 if narrow else WHOLE - 70,
        "height": 180,
        "data": {"values": rows},
        "layer": [
            layer({"type": "line", "strokeWidth": 2}, x=x, y=y, color=colour, strokeDash=dash),
            layer(
                {"type": "point", "filled": True, "size": 30, "opacity": few}, x=x, y=y, color=colour, description=TIP
            ),
        ],
    }


def _time(chart: Timeline, *, narrow: bool) -> Spec:
    first, last = (date.fromisoformat(chart.days[place]) for place in (0, -1))
    room = max((last - first).days // 40, 1)
    domain = [(first - timedelta(room)).isoformat(), (last + timedelta(room)).isoformat()]
    return {
        "field": "t",
        "type": "temporal",
        "title": None,
        "scale": {"domain": domain},
        "axis": _axis(first, last, narrow=narrow),
    }


def _axis(first: date, last: date, *, narrow: bool) -> Spec:
    """Label days, months or years, whatever the span needs."""
    span = (last - first).days
    ticks = {"tickCount": 4 if narrow else 8, "labelOverlap": True}
    if span < 8:
        return {"values": [(first + timedelta(step)).isoformat() for step in range(span + 1)][:: 2 if narrow else 1],
                "format": "%d %b"}  # fmt: skip
    return {**ticks, "format": "%d %b" if span < 150 else "%b %Y"}


def _domain(chart: Timeline) -> list[float]:
    """Return the axis's range: limit, numbers and bands, without the first bands, which are very wide."""
    settled = len(chart.days) // 10
    numbers = [chart.limit, *chart.values, *chart.low[settled:], *chart.high[settled:]]
    numbers += [value for _, _, value, _ in chart.weeks if value is not None]
    if chart.reference is not None:
        numbers += [chart.reference[0], *chart.reference[1]]
    known = [number for number in numbers if math.isfinite(number)]
    low, high = min(known), max(known)
    room = 0.05 * (high - low) or 0.05
    return [low - room if low < 0 or low - room > 0 else 0.0, high + room]


def _middle(first: str, last: str) -> str:
    a, b = date.fromisoformat(first), date.fromisoformat(last)
    return (a + (b - a) / 2).isoformat()


def _after(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(1)).isoformat()
