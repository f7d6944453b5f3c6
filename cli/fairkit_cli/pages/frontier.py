"""Performance against disparity: of a search, of a frontier; a ring marks the pick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.escaping import measured, number
from fairkit_cli.helping import as_options
from fairkit_cli.pages import charts
from fairkit_cli.pages.certificates import change_parts, notes_parts
from fairkit_cli.pages.charts import TradePoint, label
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Facts,
    Inline,
    Key,
    Listing,
    Note,
    On,
    Page,
    Section,
    Span,
    Table,
    capital,
    name_of,
    numbers,
    page_only,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_repair.frontiers.state import Frontier


def tradeoff_chart(
    points: Sequence[TradePoint],
    x_title: str,
    y_title: str,
    title: str,
    caption: str,
    table: Table,
    *,
    limit: float | None = None,
) -> Chart:
    """Return the picture of points with intervals on both axes; each method has its shape and its colour."""
    kinds = list(dict.fromkeys(point.kind for point in points))
    legend = [
        Key(name_of(kind), charts.SHAPES[index % len(charts.SHAPES)], charts.COLOURS[index % len(charts.COLOURS)])
        for index, kind in enumerate(kinds)
    ]
    return Chart(
        title,
        lambda narrow: charts.tradeoff(points, x_title, y_title, narrow=narrow, limit=limit),
        table, caption, legend if len(kinds) > 1 else (), on=On.PAGE, name="frontier",
    )  # fmt: skip


def frontier_page(result: Frontier) -> Page:
    """Return the page of a frontier."""
    train, validation, test = result.rows
    title = f"{capital(axis_told(result.performance))} against {axis_told(result.disparity)}"
    counted = (
        f"{len(result.points)} points, {train:,} rows to learn from, measured on {validation:,} validation rows with "
        f"{result.confidence:.0%} intervals"
    )
    names = ("baseline", "picked")
    changes = change_parts(result.changes, names, result.confidence) if result.changes else []
    heading = f"The picked point beside the baseline, on {test:,} test rows"
    return Page(
        title,
        [
            Note(title, "title", on=On.PAGE),
            Note(_picked(result), "banner"),
            Note(counted, "subject", on=On.PAGE),
            _points(result, On.TEXT),
            _picture(result),
            _repeats(result),
            Section(heading, changes) if changes else None,
            _details(result),
        ],
    )


def axis_told(name: str) -> str:
    """Return an axis in words: ``demographic parity difference (sex)``."""
    metric, _, column = name.partition(":")
    written = metric.replace("_", " ")
    return f"{written} ({column})" if column else written


def _picked(result: Frontier) -> Inline:
    """Say which point was chosen, how sure it was, and what the test rows say of it."""
    if result.chosen is None:
        return [Span("Nothing picked", "strong"), ": no point is done."]
    passes = result.verdict in (None, "pass")
    word = "Picked" if passes else f"Not picked ({result.verdict}), the surest point"
    sentence: list[Inline] = [
        Span(word, "strong"),
        ": ",
        name_of(result.points[result.chosen].name),
        f", the {result.rule}.",
    ]
    if result.verdict is not None:
        chance = result.chances[result.chosen] or 0.0
        text = f"Predicted chance of keeping the limit {result.limit:g}: {chance:.2f}. On the test rows: "
        sentence.append(f" {text}{result.verdict}: {as_options(result.reason)}.")
    return sentence


def _points(result: Frontier, on: On = On.ALL) -> Section:
    rows: list[Sequence[Cell]] = []
    for index, point in enumerate(result.points):
        axes = result.axes(point)
        if axes is None:
            failed = Span(f"failed: {as_options(point.error)}", "failed")
            rows.append((Span("✗", on=On.TEXT), name_of(point.name), failed, "", "failed"))
            continue
        role, mark = "", "·"
        if index == result.chosen:
            role, mark = "picked", "◉"
        elif index in result.front:
            role, mark = "front", "●"
        x, y = axes
        numbers_of = [measured(each.value, each.interval) for each in (y, x)]
        rows.append((mark, name_of(point.name), *numbers_of, role))
    columns = [*words("", on=On.TEXT), *words("point"), *numbers(result.performance, result.disparity)]
    columns += words("role", on=On.PAGE)
    picked = () if result.chosen is None else (result.chosen,)
    title = f"Points on {result.rows[1]:,} validation rows, {result.confidence:.0%} intervals"
    table = Table("Points on the validation rows", columns, rows, strong=picked)
    marks = Note("◉ picked  ● on the front  · beaten on both axes  ✗ failed", "muted", on=On.TEXT)
    return Section(title, [table, marks], on=on)


def trade_points(result: Frontier) -> list[TradePoint]:
    """Return the points that are done, as they are drawn."""
    points = []
    for index, point in enumerate(result.points):
        if (axes := result.axes(point)) is not None:
            x, y = axes
            chance = result.chances[index] if index < len(result.chances) else None
            points.append(
                TradePoint(
                    name=label(point.name, 80),
                    kind=point.plugin,
                    x=x.value,
                    x_interval=x.interval,
                    y=y.value,
                    y_interval=y.interval,
                    front=index in result.front,
                    picked=index == result.chosen,
                    more="" if chance is None else f"chance {number(chance)}",
                )
            )
    return points


def _picture(result: Frontier) -> Section:
    points = trade_points(result)
    failures: list[Inline] = [
        [Span("✗ ", "worse"), name_of(point.name), ": ", as_options(point.error)]
        for point in result.points
        if result.axes(point) is None
    ]
    (table, _) = _points(result).parts
    assert isinstance(table, Table)  # noqa: S101 -- the first part
    intro = (
        "Better is up and to the left. The line joins the points that no other one beats on both axes; the ring marks "
        "the picked one."
    )
    failed = Section("Failed points", [Listing(failures)], "part") if failures else None
    x, y = axis_told(result.disparity), axis_told(result.performance)
    title = f"{y} against {x} of {len(points)} points"
    chart = tradeoff_chart(points, x, y, title, "Points on the validation rows", table, limit=result.limit)
    return Section("The trade-off", [Note(intro), chart, failed], on=On.PAGE)


def _repeats(result: Frontier) -> Section | None:
    """Return how far the points of the front went over several trainings."""
    if not result.repeats:
        return None
    count = max(len(values) for values in result.repeats.values())
    rows: list[Sequence[Cell]] = []
    for point, values in result.repeats.items():
        x, y = (f"{number(min(axis))} to {number(max(axis))}" for axis in zip(*values, strict=True))
        rows.append((name_of(result.points[point].name), y, x))
    title = f"Each trained {count} times, on rows drawn anew: no interval covers this"
    columns = [*words("point"), *numbers(result.performance, result.disparity)]
    return Section(title, [Table("Retraining", columns, rows)])


def _details(result: Frontier) -> Section:
    seconds = sum(point.seconds for point in result.points)
    entries: list[tuple[Inline, Inline]] = [
        ("Rule", result.rule),
        ("Objective of all thresholds", result.objective),
        ("Confidence", f"{result.confidence:.0%}"),
        ("Seed", str(result.seed)),
        ("Training time", f"{seconds:,.1f} s for all points, audits included"),
    ]
    if result.chosen is not None:
        digest = result.points[result.chosen].sha256 or "-"
        entries.append(("SHA-256 of the picked model", Span(digest, "code")))
    meaning = (
        "A point was picked because it looked good on the validation rows, so its numbers there are too good; "
        "the test rows had no part in training or picking. All of it holds under these metrics, on this data."
    )
    parts = [Facts(entries, on=On.PAGE), *notes_parts(result.notes), Note(meaning, on=On.PAGE)]
    return Section(page_only("How the numbers were made"), parts)
