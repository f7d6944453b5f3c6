"""A frontier as a page: the picture, the points, and the picked one on test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit_cli.fields import as_options
from fairkit_cli.html import charts
from fairkit_cli.html.comparison import section_of
from fairkit_cli.html.markup import Content, Markup, label, name_of, tag
from fairkit_cli.html.page import facts, figure, page, section, table
from fairkit_cli.html.svg import draw
from fairkit_cli.text.frontier import judged_told, picked_word, repeated_rows, repeats_title
from fairkit_cli.text.numbers import interval, number

if TYPE_CHECKING:
    from fairkit_repair.frontiers.record import Frontier


def frontier_page(result: Frontier) -> str:
    """Return a frontier as one HTML file.

    Raises
    ------
    MissingRendererError
        vl-convert-python is not installed.
    """
    train, validation, test = result.rows
    upright = axis_told(result.performance)
    title = f"{upright[0].upper()}{upright[1:]} against {axis_told(result.disparity)}"
    body: list[Content] = [
        tag(
            "header",
            tag("h1", title),
            tag("p", f"{len(result.points)} points, {train:,} rows to learn from, measured on {validation:,} "
                f"validation rows with {result.confidence:.0%} intervals", class_="subject"),
            tag("p", _picked(result), class_="verdict none"),
        ),
        _picture(result),
        _repeats(result),
    ]  # fmt: skip
    if result.changes:
        heading = tag("h2", f"The picked point beside the baseline, on {test:,} test rows")
        body.append(section_of(heading, result.changes, ("baseline", "picked")))
    body.append(_details(result))
    return page(title, body)


def _repeats(result: Frontier) -> Markup | None:
    """List how far the points of the front went over several trainings."""
    if not result.repeats:
        return None
    rows = [[name_of(name), *ranges] for name, *ranges in repeated_rows(result)]
    columns = ("point", axis_told(result.performance), axis_told(result.disparity))
    shown = table(columns, rows, numeric={1, 2}, label="Retraining")
    return tag("section", tag("h2", "Retraining"), tag("p", repeats_title(result)), shown)


def axis_told(name: str) -> str:
    """Return an axis in words: ``demographic parity difference (sex)``."""
    metric, _, column = name.partition(":")
    written = metric.replace("_", " ")
    return f"{written} ({column})" if column else written


def _picked(result: Frontier) -> Content:
    if result.chosen is None:
        return [tag("strong", "Nothing picked"), ": no point is done."]
    judged = f" {judged_told(result)}." if result.verdict is not None else ""
    return [
        tag("strong", picked_word(result)),
        ": ",
        name_of(result.points[result.chosen].name),
        f", the {result.rule}.{judged}",
    ]


def _picture(result: Frontier) -> Markup:
    plugins = list(dict.fromkeys(point.plugin for point in result.points))
    values = [
        _value(result, place, plugins)
        for place, point in enumerate(result.points)
        if result.axes(point) is not None
    ]
    failed = [point for point in result.points if result.axes(point) is None]
    failures = [
        tag("li", tag("span", "✗ ", class_="worse"), name_of(point.name), ": ", as_options(point.error))
        for point in failed
    ]
    pictures = [
        draw(
            charts.tradeoff(
                values, axis_told(result.disparity), axis_told(result.performance), narrow=narrow
            ),
            title=f"{axis_told(result.performance)} against {axis_told(result.disparity)} of {len(values)} points",
            class_="narrow" if narrow else "wide",
        )
        for narrow in (False, True)
    ]
    return section(
        "The trade-off",
        tag("p", "Better is up and to the left. The line joins the points that no other one beats on both axes; "
            "the ring marks the picked one."),
        _legend(plugins),
        figure(pictures, "Points on the validation rows", _points(result)),
        tag("div", tag("h3", "Failed points"), tag("ul", failures)) if failures else None,
    )  # fmt: skip


def _value(result: Frontier, index: int, plugins: Sequence[str]) -> dict[str, Any]:
    point = result.points[index]
    x, y = result.axes(point) or (None, None)
    assert x is not None and y is not None  # noqa: S101, PT018 -- asked only for points with both
    xs, ys = x.interval or (x.value, x.value), y.interval or (y.value, y.value)
    tip = (
        f"{label(point.name, 80)}: {axis_told(result.performance)} {number(y.value)} {interval(y.interval)}, "
        f"{axis_told(result.disparity)} {number(x.value)} {interval(x.interval)}"
    )
    return {
        "x": x.value, "x0": xs[0], "x1": xs[1], "y": y.value, "y0": ys[0], "y1": ys[1],
        "g": str(plugins.index(point.plugin) % len(charts.COLOURS)), "tip": tip,
        "front": index in result.front, "picked": index == result.chosen,
    }  # fmt: skip


def _legend(plugins: Sequence[str]) -> Markup:
    drawn = {
        "circle": ("circle", {"cx": "6", "cy": "6", "r": "5"}),
        "square": ("rect", {"x": "1", "y": "1", "width": "10", "height": "10"}),
        "diamond": ("path", {"d": "M6 0L12 6L6 12L0 6Z"}),
        "triangle-up": ("path", {"d": "M6 1L12 11L0 11Z"}),
        "cross": ("path", {"d": "M4 0H8V4H12V8H8V12H4V8H0V4H4Z"}),
        "triangle-down": ("path", {"d": "M0 1H12L6 11Z"}),
        "triangle-right": ("path", {"d": "M1 0L11 6L1 12Z"}),
        "triangle-left": ("path", {"d": "M11 0L1 6L11 12Z"}),
    }
    items = []
    for place, plugin in enumerate(plugins):
        at = place % len(charts.COLOURS)
        name, shape = drawn[charts.SHAPES[at]]
        attributes: Mapping[str, str] = {**shape, "fill": charts.COLOURS[at]}
        mark = tag("svg", tag(name, **attributes), viewBox="0 0 12 12", class_="dot", aria_hidden="true")
        items.append(tag("li", mark, " ", name_of(plugin)))
    return tag("ul", items, class_="legend")


def _points(result: Frontier) -> Markup:
    rows: list[Sequence[Content]] = []
    for place, point in enumerate(result.points):
        axes = result.axes(point)
        role = "picked" if place == result.chosen else "front" if place in result.front else ""
        if axes is None:
            rows.append((name_of(point.name), "failed", "-", "-", "-", as_options(point.error)))
            continue
        x, y = axes
        rows.append(
            (
                name_of(point.name),
                number(y.value),
                interval(y.interval),
                number(x.value),
                interval(x.interval),
                role,
            )
        )
    columns = (
        "point",
        axis_told(result.performance),
        "interval",
        axis_told(result.disparity),
        "interval",
        "role",
    )
    return table(columns, rows, numeric={1, 2, 3, 4}, label="Points on the validation rows")


def _details(result: Frontier) -> Markup:
    entries: list[tuple[str, Content]] = [
        ("Rule", result.rule),
        ("Confidence", f"{result.confidence:.0%}"),
        ("Seed", str(result.seed)),
        (
            "Training time",
            f"{sum(point.seconds for point in result.points):,.1f} s for all points, audits included",
        ),
    ]
    if result.chosen is not None:
        entries.append(
            ("SHA-256 of the picked model", tag("code", result.points[result.chosen].sha256 or "-"))
        )
    notes = tag("ul", [tag("li", as_options(note)) for note in result.notes]) if result.notes else None
    return section(
        "How the numbers were made",
        facts(entries),
        notes,
        tag(
            "p",
            "A point was picked because it looked good on the validation rows, so its numbers there are too good; "
            "the test rows had no part in training or picking. All of it holds under these metrics, on this data.",
        ),
    )
