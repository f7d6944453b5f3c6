"""Performance against disparity: of the models of one run, of a search, of a frontier; a ring marks the pick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.pages import charts
from fairkit_cli.pages.charts import TradePoint
from fairkit_cli.pages.parts import Cell, Chart, Key, Note, On, Section, Spec, Table, name_of, numbers, sized, words
from fairkit_repair.tradeoff import Tradeoff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
        Key(name_of(kind), charts.SHAPES[place % len(charts.SHAPES)], charts.COLOURS[place % len(charts.COLOURS)])
        for place, kind in enumerate(kinds)
    ]

    def draw(narrow: bool) -> Spec:
        return charts.tradeoff(points, x_title, y_title, narrow=narrow, limit=limit)

    return Chart(title, draw, table, caption, legend if len(kinds) > 1 else (), on=On.PAGE, name="frontier")


def tradeoff_section(details: Mapping[str, Any]) -> Section | None:
    """Return the frontier among a mitigation's details; None where there is none."""
    tradeoff = Tradeoff.read(details.get(Tradeoff.key))
    if tradeoff is None:
        return None
    points = [
        TradePoint(
            name=p.name, kind="", x=p.x, x_interval=p.x_interval, y=p.y, y_interval=p.y_interval, picked=p.chosen
        )
        for p in tradeoff.points
    ]
    title = f"{tradeoff.y_title} against {tradeoff.x_title}"
    rows: list[Sequence[Cell]] = [
        (p.name, *sized(p.y, p.y_interval), *sized(p.x, p.x_interval), "chosen" if p.chosen else "")
        for p in tradeoff.points
    ]
    measures = numbers(tradeoff.y_title, "interval", tradeoff.x_title, "interval")
    table = Table(title, [*words("model"), *measures, *words("role")], rows)
    intro = (
        f"Models learned together, on held-out rows; a {tradeoff.better} {tradeoff.y_title} is better, and so is a "
        "lower disparity. The ring marks the result."
    )
    chart = tradeoff_chart(points, tradeoff.x_title, tradeoff.y_title, title, title, table)
    return Section("The frontier of this run", [Note(intro), chart], on=On.PAGE)
