"""The sections about groups: a table of rates with their intervals, score distributions, ROC, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.results.evidence import Calibration, CurveBands, Curves, Histogram, evidence_of
from fairkit_cli.html import charts
from fairkit_cli.html.bands import heights
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import figure, table
from fairkit_cli.html.sheet import place_of
from fairkit_cli.html.svg import draw
from fairkit_cli.html.whatif import panel
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.view import FEW_ROWS, NO_GROUP, favorable_class, group_table

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

MOST_LINES = 6
"""So many groups share a chart; the others are in its table."""

_TENTHS = 10


def group_sections(report: Report) -> list[Markup]:
    """Return a section for each sensitive column: its groups, then its scores."""
    return [one for name in report.data.groups if (one := _section(report, name)) is not None]


def _section(report: Report, sensitive: str) -> Markup | None:
    parts = [_rates(report, sensitive)]
    parts += [
        _scores(report, finding)
        for finding in report.findings
        if finding.metric == "statistical_parity_ks"
        and finding.sensitive == sensitive
        and finding.plain
        and evidence_of(finding, Histogram) is not None
    ]
    if not any(parts):
        return None
    return section_of(sensitive, parts, place_of(report, sensitive))


def section_of(sensitive: str, parts: Content, place: str | None = None) -> Markup:
    """Return a section that is named after a sensitive column."""
    return tag("section", tag("h2", "Groups of ", name_of(sensitive)), parts, id=place)


def _rates(report: Report, sensitive: str) -> Markup | None:
    """The groups with the metrics that people look at first, each with its interval as a bar."""
    rows, metrics = group_table(report, sensitive)
    if not metrics:
        return None
    large = [row for row in rows if row.rows >= FEW_ROWS] or rows
    ranges = [bar_scale([(row.values[i], row.intervals[i]) for row in large]) for i in range(len(metrics))]
    cells: list[Sequence[Content]] = [
        (
            name_of(row.group),
            f"{row.rows:,}",
            *(bar_cell(row.values[i], row.intervals[i], ranges[i]) for i in range(len(metrics))),
        )
        for row in rows
    ]
    columns = ("group", "rows", *(metric.replace("_", " ") for metric in metrics))
    numeric = set(range(1, len(columns)))
    name = favorable_class(report)
    rates = "" if name is None else f", of the class {name}"
    shown = table(columns, cells, numeric=numeric, label=f"Rates of the groups of {sensitive}{rates}")
    if rates:
        shown = tag(
            "div", tag("p", f"Rates are those of the class {name}; accuracy is over all classes."), shown
        )
    if rows[-1].group != NO_GROUP:
        return shown
    told = f"{NO_GROUP}: the rows without a value of "
    return tag(
        "div", shown, tag("p", told, name_of(sensitive), ". They are in no comparison.", class_="muted small")
    )


def bar_scale(cells: Sequence[tuple[float | None, tuple[float, float] | None]]) -> tuple[float, float]:
    """Return the scale of a column of bars: from 0 to 1 for shares, else what the numbers need."""
    ends = [
        end for value, pair in cells for end in (*(pair or ()), value) if end is not None and abs(end) < 1e300
    ]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def bar_cell(value: float | None, pair: tuple[float, float] | None, scale: tuple[float, float]) -> Content:
    """Return a number with its interval in words and as a bar."""
    if value is None:
        return tag("span", "not defined", class_="muted")
    if pair is None:
        return number(value)
    width = (scale[1] - scale[0]) or 1.0

    def place(end: float) -> float:
        return min(max(100 * (end - scale[0]) / width, 0), 100)

    low, high = place(pair[0]), place(pair[1])
    marks = f"--low:{low:.1f}%;--high:{high:.1f}%;--at:{place(value):.1f}%"
    return [
        tag("span", number(value), class_="value"),
        tag("span", f" {interval(pair)}", class_="muted small"),
        tag("span", class_="bar", style=marks, aria_hidden="true"),
    ]


def _scores(report: Report, finding: Finding) -> Markup:
    """Score distributions, and where there are labels ROC and calibration."""
    histogram, groups = evidence_of(finding, Histogram), {g.group: g.rows for g in finding.groups}
    assert histogram is not None  # noqa: S101 -- asked only for findings with one
    names = sorted(groups, key=lambda name: -groups[name])[:MOST_LINES]
    names = [name for name in names if groups[name] >= FEW_ROWS] or names
    names = [name for name in groups if name in names]
    about = f" (class {finding.parameters['class']})" if "class" in finding.parameters else ""
    figures = [_densities(histogram, names, report, about)]
    if (ranked := evidence_of(finding, Curves)) is not None:
        bands = evidence_of(finding, CurveBands)
        halves = {} if bands is None else dict(zip(groups, bands.halves, strict=False))
        figures.append(_roc(ranked.groups, halves, names, about))
    if (observed := evidence_of(finding, Calibration)) is not None:
        figures.append(_calibration(observed.groups, names, about))
    rest = len(groups) - len(names)
    more = (
        f" The {len(names)} largest groups are drawn; the tables have the other {rest} too."
        if rest > 0
        else ""
    )
    return tag(
        "div",
        tag("h3", f"Scores{about}"),
        tag("p", "How the scores are spread, how well they rank, and whether they mean what they say.", more),
        _legend(names),
        tag("div", figures, class_="trio"),
        panel(report, finding, histogram),
    )


def _legend(names: Sequence[str]) -> Markup:
    """One key for the charts below it: colour and dashes."""
    items = []
    for i, name in enumerate(names):
        dash = " ".join(map(str, charts.DASHES[i])) if charts.DASHES[i] != (1, 0) else "none"
        line = tag(
            "svg",
            tag(
                "line",
                x1="0",
                x2="28",
                y1="6",
                y2="6",
                stroke=charts.COLOURS[i],
                stroke_width="3",
                stroke_dasharray=dash,
            ),
            viewBox="0 0 28 12",
            class_="key",
            aria_hidden="true",
        )
        items.append(tag("li", line, " ", name_of(name)))
    return tag("ul", items, class_="legend")


def _densities(histogram: Histogram, names: Sequence[str], report: Report, about: str) -> Markup:
    edges, shares = list(histogram.edges), histogram.shares
    drawn = {name: shares[name] for name in names if name in shares}
    title = "predicted value" if report.model.task == "regression" else "score"
    chart = draw(
        charts.densities(edges, drawn, title), title=f"Distribution of the {title} in each group{about}"
    )
    step = max(1, len(next(iter(shares.values()))) // _TENTHS)
    starts = range(0, len(edges) - 1, step)
    columns = (
        "group",
        *(f"{number(edges[b])} to {number(edges[min(b + step, len(edges) - 1)])}" for b in starts),
    )
    rows = [
        (name_of(name), *(f"{sum(bins[b : b + step]):.1%}" for b in starts)) for name, bins in shares.items()
    ]
    label = f"Share of each group's rows by {title}{about}"
    return figure(
        chart, "Distribution", table(columns, rows, numeric=set(range(1, len(columns))), label=label)
    )


def _roc(
    curves: Mapping[str, Any],
    bands: Mapping[str, tuple[float, float]],
    names: Sequence[str],
    about: str,
) -> Markup:
    drawn = {name: curves.get(name, []) for name in names}
    shaded = ", in the band that holds the whole curve" if bands else ""
    chart = draw(charts.roc(drawn, bands), title=f"ROC curve of each group{shaded}{about}")
    at = [i / _TENTHS for i in range(1, _TENTHS)]
    columns = ("group", *(f"at {x:.1f}" for x in at), *(("whole curve within",) if bands else ()))
    rows = [
        (
            name_of(name),
            *(number(heights(points, x)[0]) if points else "not defined" for x in at),
            *((_halves(bands.get(name)) if points else "not defined",) if bands else ()),
        )
        for name, points in curves.items()
    ]
    label = f"True positive rate at false positive rates{about}"
    return figure(chart, "ROC", table(columns, rows, numeric=set(range(1, len(columns))), label=label))


def _halves(band: tuple[float, float] | None) -> str:
    """Say how far a curve may lie from the one shown, in false and in true positive rate."""
    return "not known" if band is None else f"± {number(band[0])} across, ± {number(band[1])} up and down"


def _calibration(curves: Mapping[str, Any], names: Sequence[str], about: str) -> Markup:
    drawn = {name: curves.get(name, []) for name in names}
    chart = draw(charts.calibration(drawn), title=f"Calibration of each group{about}")
    rows = [
        (
            name_of(name),
            number(p["score"]),
            number(p["observed"]),
            interval(tuple(p["interval"])),
            f"{p['weight']:,.0f}",
        )
        for name, points in curves.items()
        for p in points
    ]
    columns = ("group", "mean score", "observed share", "interval", "rows")
    label = f"Observed share of favorable outcomes by score{about}"
    return figure(chart, "Calibration", table(columns, rows, numeric={1, 2, 3, 4}, label=label))
