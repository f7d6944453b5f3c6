"""The charts of the pages as Vega-Lite specifications: plain data in, plain dictionaries out."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from fairkit.support.escaping import measured, visible
from fairkit.support.lazy_dataclass import dataclass
from fairkit_cli.pages.parts import Spec

_STEPS = 50


def band(curve: Sequence[Sequence[float]], across: float, along: float) -> Iterator[tuple[float, float, float]]:
    """Yield false positive rates from 0 to 1 and the lowest and the highest true positive rate at each."""
    for step in range(_STEPS + 1):
        at = step / _STEPS
        low = heights(curve, at - across)[0] if at > across else 0.0
        high = heights(curve, min(at + across, 1))[1]
        yield at, round(max(low - along, 0), 4), round(min(high + along, 1), 4)


def heights(curve: Sequence[Sequence[float]], x: float) -> tuple[float, float]:
    """Read a curve between its points: its lowest and its highest point at x, which differ where it is vertical."""
    crossings = []
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if x0 <= x <= x1:
            crossings += [y0, y1] if x0 == x1 else [y0 + (y1 - y0) * (x - x0) / (x1 - x0)]
    crossings = crossings or [curve[-1][1]]
    return float(min(crossings)), float(max(crossings))


COLOURS = tuple(f"var(--c{i})" for i in range(1, 9))
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 4), (1, 3), (10, 4), (3, 1))
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
STATUS = {
    "pass": ("var(--pass)", "circle"),
    "fail": ("var(--fail)", "square"),
    "inconclusive": ("var(--unsure)", "diamond"),
    "none": ("var(--accent)", "circle"),
    "better": ("var(--pass)", "circle"),
    "worse": ("var(--fail)", "square"),
    "changed": ("var(--unsure)", "diamond"),
    "not significant": ("var(--accent)", "circle"),
    "undecided": ("var(--muted)", "cross"),
}
"""Colour and shape of a verdict, and of the outcome of a comparison."""
WHOLE, NARROW, SMALL = 850, 300, 268
LABEL_LENGTH = 34
"""The longest name in a chart; tables show all of it."""
_SPACE = re.compile(r"\s+")
TIP: Spec = {"field": "tip", "type": "nominal"}
"""What is said while one hovers over a mark."""


def layer(mark: Spec, values: Sequence[Spec] | None = None, **encoding: Spec) -> Spec:
    """Return marks with the channels that place and colour them; `values` are rows of their own."""
    data = {} if values is None else {"data": {"values": values}}
    return {**data, "mark": mark, "encoding": encoding}


def look_of(place: int) -> tuple[str, tuple[int, ...]]:
    """Return the colour and the dashes of a group."""
    return COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]


def label(text: str, length: int = LABEL_LENGTH) -> str:
    """Shorten a name for a chart, where a line has no break."""
    plain = visible(_SPACE.sub(" ", text)).strip()
    return plain if len(plain) <= length else plain[: length - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """One number with its interval in a forest plot."""

    name: str
    value: float
    tip: str
    interval: tuple[float, float] | None = None
    limit: float | None = None
    status: str = "none"


def forest(rows: Sequence[ForestRow], title: str, *, narrow: bool, zero: bool = True) -> Spec:
    """Draw numbers with intervals on one scale, with their limits; names stand beside or, if narrow, above.

    A line marks 0 where the scale need not begin there.
    """
    order = [str(i) for i in range(len(rows))]
    names = [label(row.name, 44) for row in rows]
    values = [
        {
            "at": str(i),
            "name": names[i],
            "value": row.value,
            "low": row.interval[0] if row.interval else row.value,
            "high": row.interval[1] if row.interval else row.value,
            "limit": row.limit,
            "status": row.status,
            "tip": row.tip,
        }
        for i, row in enumerate(rows)
    ]
    y: Spec = {"field": "at", "type": "nominal", "sort": order, "title": None, "axis": None}
    x: Spec = {
        "type": "quantitative",
        "title": title,
        "scale": {"zero": zero, "nice": True},
        "axis": {"tickCount": 4 if narrow else 7},
    }
    status = {"field": "status", "type": "nominal", "legend": None}
    present = [name for name in STATUS if any(row.status == name for row in rows)]
    colour = {**status, "scale": {"domain": present, "range": [STATUS[name][0] for name in present]}}
    shape = {**status, "scale": {"domain": present, "range": [STATUS[name][1] for name in present]}}
    label_width = 7 * max(len(name) for name in names) + 20
    names_at = {"align": "left", "dy": -15} if narrow else {"align": "right", "dx": -8}
    layers: list[Spec] = [
        layer(
            {"type": "rule", "strokeWidth": 3, "opacity": 0.75},
            x={"field": "low", **x}, x2={"field": "high"}, y=y, color=colour, description=TIP,
        ),
        layer(
            {"type": "point", "filled": True, "size": 80, "opacity": 1},
            x={"field": "value", **x}, y=y, color=colour, shape=shape, description=TIP,
        ),
        layer({"type": "text", "baseline": "middle", **names_at}, text={"field": "name"}, y=y, x={"value": 0}),
    ]  # fmt: skip
    if any(row.limit is not None for row in rows):
        tick = {"type": "tick", "thickness": 2, "color": "var(--ink)", "size": 20}
        layers.append(_marked("isValid(datum.limit)", layer(tick, x={"field": "limit", **x}, y=y)))
    if not zero:
        layers.insert(0, layer({"type": "rule", "color": "var(--ink)"}, x={**x, "datum": 0}))
    return {
        "width": NARROW if narrow else WHOLE - label_width,
        "height": {"step": 44 if narrow else 26},
        "padding": {"left": 5, "right": 12, "top": 12 if narrow else 5, "bottom": 5},
        "data": {"values": values},
        "layer": layers,
    }


def _by_group(names: Sequence[str]) -> Spec:
    shown = [visible(name) for name in names]
    return _looks({"field": "group", "type": "nominal", "legend": None, "sort": shown}, shown)


def _looks(group: Spec, domain: Sequence[str]) -> Spec:
    colours, dashes = zip(*map(look_of, range(len(domain))), strict=True) if domain else ((), ())
    return {
        "color": {**group, "scale": {"domain": domain, "range": list(colours)}},
        "strokeDash": {**group, "scale": {"domain": domain, "range": list(map(list, dashes))}},
    }


def _axis(field: str, title: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _points(x: Spec, y: Spec, names: Sequence[str], **mark: Any) -> Spec:
    """Points that answer to the pointer; invisible unless they are told to be seen."""
    mark_style = {"type": "point", "filled": True, "size": 50, "opacity": 0, **mark}
    return layer(mark_style, x=x, y=y, color=_by_group(names)["color"], description=TIP)


MOST_MARKED = 3
"""Charts of more groups have fewer marks: a ROC curve at every second point, a distribution where there are people."""
LEAST_MARKED = 0.005


def _marked(test: str, points: Spec) -> Spec:
    return {"transform": [{"filter": test}], **points}


def densities(edges: Sequence[float], shares: Mapping[str, Sequence[float]], title: str) -> Spec:
    """Draw each group's share of rows by score, as steps."""
    names = list(shares)
    middle = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
    values = [
        {
            "group": visible(name),
            "x": middle[b],
            "share": share,
            "tip": f"{label(name)}: {share:.1%} score {edges[b]:.3g} to {edges[b + 1]:.3g}",
        }
        for name in names
        for b, share in enumerate(shares[name])
    ]
    least = 0.0 if len(names) <= MOST_MARKED else LEAST_MARKED
    x = _axis("x", title, scale={"domain": [edges[0], edges[-1]]}, axis={"tickCount": 3})
    y = _axis("share", "share of the group's rows", axis={"format": "%", "tickCount": 5})
    line = layer({"type": "line", "interpolate": "step", "strokeWidth": 2}, x=x, y=y, **_by_group(names))
    return _small(values, [line, _marked(f"datum.share >= {least}", _points(x, y, names))])


def roc(
    curves: Mapping[str, Sequence[Sequence[float]]], bands: Mapping[str, tuple[float, float]] | None = None
) -> Spec:
    """Draw each group's true against its false positive rate, over all thresholds, each in its band."""
    names = list(curves)
    values = [
        {
            "group": visible(name),
            "x": x,
            "y": y,
            "k": k,
            "tip": f"{label(name)}: true positive rate {y:.3f} at false positive rate {x:.3f}",
        }
        for name in names
        for k, (x, y) in enumerate(curves[name])
    ]
    every = 1 if len(names) <= MOST_MARKED else 2
    x = _axis("x", "false positive rate", scale={"domain": [0, 1]}, axis={"tickCount": 3})
    y = _axis("y", "true positive rate", scale={"domain": [0, 1]}, axis={"tickCount": 5})
    order = {"field": "k", "type": "quantitative"}
    line = layer({"type": "line", "strokeWidth": 2}, x=x, y=y, order=order, **_by_group(names))
    layers = [_diagonal(x, y), line, _marked(f"datum.k % {every} === 0", _points(x, y, names))]
    shades = [
        {"group": visible(name), "x": at, "low": low, "high": high}
        for name in names
        if curves[name] and name in (bands or {})
        for at, low, high in band(curves[name], *(bands or {})[name])
    ]
    if shades:
        low, colour = {**y, "field": "low", "stack": None}, _by_group(names)["color"]
        area = layer({"type": "area", "opacity": 0.12}, shades, x=x, y=low, y2={"field": "high"}, color=colour)
        layers.insert(0, area)
    return _small(values, layers)


def calibration(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> Spec:
    """Draw each group's observed share of favorable outcomes against its mean score, with intervals."""
    names = list(curves)
    values = [_bin(name, point) for name, points in curves.items() for point in points]
    x = _axis("x", "mean score", scale={"domain": [0, 1]}, axis={"tickCount": 3})
    y = _axis("y", "observed share", scale={"domain": [0, 1]}, axis={"tickCount": 5})
    low, colour = {**y, "field": "low"}, _by_group(names)["color"]
    rule = {"type": "rule", "strokeWidth": 2, "opacity": 0.45}
    shade = layer(rule, x=x, y=low, y2={"field": "high"}, color=colour)
    line = layer({"type": "line", "strokeWidth": 1.5}, x=x, y=y, **_by_group(names))
    return _small(values, [_diagonal(x, y), shade, line, _points(x, y, names, opacity=1, size=28)])


def _bin(name: str, point: Mapping[str, Any]) -> Spec:
    low, high = point["interval"]
    observed, rows = f"{point['observed']:.3f} [{low:.3f}, {high:.3f}]", f"{point['weight']:,.0f}"
    return {
        "group": visible(name), "x": point["score"], "y": point["observed"], "low": low, "high": high,
        "observed": observed, "rows": rows,
        "tip": f"{label(name)}: mean score {point['score']:.3f}, observed {observed}, {rows} rows",
    }  # fmt: skip


def _diagonal(x: Spec, y: Spec) -> Spec:
    mark = {"type": "line", "color": "var(--line)", "strokeWidth": 1, "strokeDash": [3, 3]}
    return layer(mark, [{"x": 0, "y": 0}, {"x": 1, "y": 1}], x=x, y=y)


def _small(values: Sequence[Spec], layers: Sequence[Spec]) -> Spec:
    return {"width": SMALL, "height": 220, "data": {"values": list(values)}, "layer": list(layers)}


def gap_curve(points: Sequence[Spec], metric: str, *, narrow: bool) -> Spec:
    """Draw the performance gap against the budget, with a band where there are intervals."""
    x = _axis("epsilon", "budget ε: how far people may be moved")
    y = _axis("gap", metric, scale={"zero": True})
    area = {"type": "area", "opacity": 0.2, "color": "var(--accent)"}
    band = layer(area, x=x, y={**y, "field": "low"}, y2={"field": "high"})
    line = layer({"type": "line", "color": "var(--accent)"}, x=x, y=y)
    return _curve(points, [band, line, layer(_DOTS, x=x, y=y, description=TIP)], narrow=narrow)


_DOTS: Spec = {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": "var(--accent)"}


def _curve(points: Sequence[Spec], layers: Sequence[Spec], *, narrow: bool, height: int = 220) -> Spec:
    width = NARROW - 40 if narrow else WHOLE - 70
    return {"width": width, "height": height, "data": {"values": list(points)}, "layer": list(layers)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TradePoint:
    """A model in a picture of performance (y) against disparity (x); its `kind` has a shape, `more` is said too."""

    name: str
    kind: str
    x: float
    y: float
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    front: bool = False
    picked: bool = False
    more: str = ""


FADED = 0.3
"""Points that another one beats on both axes, and that were not picked, are drawn so light."""


def tradeoff(
    points: Sequence[TradePoint], x_title: str, y_title: str, *, narrow: bool, limit: float | None = None
) -> Spec:
    """Draw points with intervals on both axes, the front as a line, the picked point in a ring, the limit as a line."""
    kinds = [visible(kind) for kind in dict.fromkeys(point.kind for point in points)]
    group = {"field": "method", "type": "nominal", "legend": None}
    places = range(len(kinds))
    colour = {**group, "scale": {"domain": kinds, "range": [COLOURS[i % len(COLOURS)] for i in places]}}
    shape = {**group, "scale": {"domain": kinds, "range": [SHAPES[i % len(SHAPES)] for i in places]}}
    scale = {"zero": False, "nice": True}
    x = _axis("x", x_title, scale=scale, axis={"tickCount": 4 if narrow else 9})
    y = _axis("y", y_title, scale=scale, axis={"tickCount": 7})
    bar = {"type": "rule", "opacity": 0.35, "strokeWidth": 1.5}
    light = {"condition": {"test": "datum.front || datum.picked", "value": 1}, "value": FADED}
    front = {"type": "line", "color": "var(--line)", "strokeWidth": 2, "strokeDash": [4, 3]}
    ring = {"type": "point", "size": 420, "stroke": "var(--ink)", "strokeWidth": 2, "opacity": 1}
    layers: list[Spec] = [
        _marked("datum.front", layer(front, x=x, y=y, order={"field": "x", "type": "quantitative"})),
        layer(bar, x={**x, "field": "x0"}, x2={"field": "x1"}, y=y, color=colour),
        layer(bar, x=x, y={**y, "field": "y0"}, y2={"field": "y1"}, color=colour),
        _marked("datum.picked", layer(ring, x=x, y=y)),
        layer(
            {"type": "point", "filled": True, "size": 90},
            x=x, y=y, color=colour, shape=shape, description=TIP, opacity=light,
        ),
    ]  # fmt: skip
    if limit is not None:
        layers.insert(0, layer({"type": "rule", "color": "var(--line)"}, x={"datum": limit}))
    return {
        "width": NARROW - 40 if narrow else WHOLE - 80,
        "height": 300 if narrow else 440,
        "data": {"values": [_trade_values(point, x_title, y_title) for point in points]},
        "layer": layers,
    }


def _trade_values(point: TradePoint, x_title: str, y_title: str) -> Spec:
    xs, ys = point.x_interval or (point.x, point.x), point.y_interval or (point.y, point.y)
    across, along = measured(point.x, point.x_interval), measured(point.y, point.y_interval)
    more = f", {point.more}" if point.more else ""
    return {
        "method": visible(point.kind), "x": point.x, "x0": xs[0], "x1": xs[1], "y": point.y, "y0": ys[0], "y1": ys[1],
        "front": point.front, "picked": point.picked,
        "tip": f"{point.name}: {y_title} {along}, {x_title} {across}{more}",
    }  # fmt: skip


def step_curve(points: Sequence[Spec], *, narrow: bool) -> Spec:
    """Draw a bound against a share of rows as steps; what lies above is excluded."""
    shares = {"values": [point["share"] for point in points], "format": ".2~g"}
    x = _axis("share", "share of the rows", scale={"type": "log", "nice": False}, axis=shares)
    y = _axis("bound", "difference at most", scale={"zero": True})
    line = {"type": "line", "interpolate": "step-before", "color": "var(--accent)", "strokeWidth": 2}
    return _curve(points, [layer(line, x=x, y=y), layer(_DOTS, x=x, y=y, description=TIP)], narrow=narrow)


# Numbers over days as Vega-Lite specifications: bands with limits, weeks, events, gaps, and shares of groups.


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A number over the days."""

    days: Sequence[str]  # the days of the course, the oldest first
    values: Sequence[float]  # its numbers; NaN where nothing is known
    low: Sequence[float]  # the lower ends of their intervals
    high: Sequence[float]  # the upper ends
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
            banded = math.isfinite(low) and math.isfinite(high)
            tip = f"Up to {day}: {title} {value:.3f}{f' [{low:.3f}, {high:.3f}]' if banded else ''}"
            course.append({"t": day, "value": value, "tip": tip, **({"low": low, "high": high} if banded else {})})
    first, last = (date.fromisoformat(chart.days[end]) for end in (0, -1))
    room = timedelta(max((last - first).days // 40, 1))
    ends = {"domain": [(first - room).isoformat(), (last + room).isoformat()]}
    x = _time(first, last, narrow=narrow, scale=ends)
    y: Spec = {
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": True, "domain": _domain(chart), "clamp": True},
        "axis": {"tickCount": 6},
    }
    layers: list[Spec] = []
    if chart.missing:
        spans = [
            {"a": begun, "b": (date.fromisoformat(ended) + timedelta(1)).isoformat()} for begun, ended in chart.missing
        ]
        gap = {"type": "rect", "color": "var(--line)", "opacity": 0.25}
        layers.append(layer(gap, spans, x={**x, "field": "a"}, x2={"field": "b"}))
    area = {"type": "area", "color": "var(--c1)", "opacity": 0.22}
    line = {"type": "line", "color": "var(--c1)", "strokeWidth": 2}
    limit = {"type": "rule", "color": "var(--fail)", "strokeWidth": 2, "strokeDash": [6, 3]}
    layers += [
        layer(area, [row for row in course if "low" in row], x=x, y={**y, "field": "low"}, y2={"field": "high"}),
        layer(line, course, x=x, y={**y, "field": "value"}),
        layer(limit, [{"limit": chart.limit}], y={**y, "field": "limit"}),
        _weeks(chart, title, x, y),
        *_reference(chart, x, y),
        *_events(chart, x),
        _day_points(course, x, y, size=26, color="var(--c1)", opacity=0 if len(course) > 12 else 1),
    ]
    return {"width": NARROW - 40 if narrow else WHOLE - 70, "height": 240 if narrow else 300, "layer": layers}


def _day_points(rows: Sequence[Spec], x: Spec, y: Spec, **look: Any) -> Spec:
    mark = {"type": "point", "filled": True, **look}
    return layer(mark, rows, x=x, y={**y, "field": "value"}, description=TIP)


def _weeks(chart: Timeline, title: str, x: Spec, y: Spec) -> Spec:
    rows = [
        {"t": _middle(first, last), "value": value, "tip": f"{first} to {last} alone: {title} {value:.3f}"
         f"{f' [{pair[0]:.3f}, {pair[1]:.3f}]' if pair else ''}"}
        for first, last, value, pair in chart.weeks
        if value is not None
    ]  # fmt: skip
    size = 30 if len(rows) <= 60 else 12
    return _day_points(rows, x, y, size=size, color="var(--c2)", opacity=0.75)


def _reference(chart: Timeline, x: Spec, y: Spec) -> list[Spec]:
    """Put the certificate's number at the start."""
    if chart.reference is None or not chart.days:
        return []
    value, (low, high) = chart.reference
    caption = f"The certificate: {value:.3f} [{low:.3f}, {high:.3f}]"
    rows = [{"t": chart.days[0], "value": value, "low": low, "high": high, "tip": caption}]
    return [
        layer(_RULE, rows, x=x, y={**y, "field": "low"}, y2={"field": "high"}),
        _day_points(rows, x, y, shape="diamond", size=110, color="var(--ink)", opacity=1),
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
    looks = _looks({"field": "g", "type": "nominal", "legend": None}, [str(g) for g in range(len(names))])
    x = _time(*(date.fromisoformat(days[end]) for end in (0, -1)), narrow=narrow)
    y = _axis("share", "share", axis={"format": "%", "tickCount": 5}, scale={"zero": True})
    line = layer({"type": "line", "strokeWidth": 2}, x=x, y=y, **looks)
    few = {"type": "point", "filled": True, "size": 30, "opacity": 1 if len(days) <= 12 else 0}
    return _curve(rows, [line, layer(few, x=x, y=y, color=looks["color"], description=TIP)], narrow=narrow, height=180)


def _time(first: date, last: date, *, narrow: bool, **more: Any) -> Spec:
    """Label days, months or years, whatever the span needs."""
    span = (last - first).days
    axis: Spec = {"tickCount": 4 if narrow else 8, "labelOverlap": True, "format": "%d %b" if span < 150 else "%b %Y"}
    if span < 8:
        days = [(first + timedelta(step)).isoformat() for step in range(0, span + 1, 2 if narrow else 1)]
        axis = {"values": days, "format": "%d %b"}
    return {"field": "t", "type": "temporal", "title": None, **more, "axis": axis}


def _domain(chart: Timeline) -> list[float]:
    """Return the axis's range: limit, numbers and bands, without the first bands, which are very wide."""
    settled = len(chart.days) // 10
    numbers = [chart.limit, *chart.values, *chart.low[settled:], *chart.high[settled:]]
    numbers += [value for _, _, value, _ in chart.weeks if value is not None]
    if chart.reference is not None:
        numbers += [chart.reference[0], *chart.reference[1]]
    finite = [number for number in numbers if math.isfinite(number)]
    low, high = min(finite), max(finite)
    room = 0.05 * (high - low) or 0.05
    return [low - room if low < 0 or low - room > 0 else 0.0, high + room]


def _middle(first: str, last: str) -> str:
    a, b = date.fromisoformat(first), date.fromisoformat(last)
    return (a + (b - a) / 2).isoformat()
