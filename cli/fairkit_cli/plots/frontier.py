"""A frontier as an Altair chart: both axes with intervals, the front, the picked point, the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError
from fairkit.support.escaping import visible
from fairkit_cli.pages.charts import SHAPES
from fairkit_cli.pages.frontier import axis_told
from fairkit_cli.plots.style import COLOURS, GREY, altair, data_of
from fairkit_cli.text.numbers import interval, number

if TYPE_CHECKING:
    from altair import LayerChart

    from fairkit_repair.frontiers.points import Measure
    from fairkit_repair.frontiers.record import Frontier


def frontier(result: Frontier) -> LayerChart:
    """Draw `fairkit_repair.frontiers.record.Frontier.plot`."""
    alt = altair()
    records = [
        _record(result, place, *axes)
        for place, point in enumerate(result.points)
        if (axes := result.axes(point)) is not None
    ]
    if not records:
        raise DataError("no point is done: there is nothing to draw")
    plugins = list(dict.fromkeys(visible(point.plugin) for point in result.points))
    places = [place % len(COLOURS) for place in range(len(plugins))]
    told = {"title": "method", "sort": plugins}
    colour = alt.Color(
        "method:N", **told, scale=alt.Scale(domain=plugins, range=[COLOURS[place] for place in places])
    )
    shape = alt.Shape("method:N", **told, scale=alt.Scale(domain=plugins, range=[SHAPES[p] for p in places]))
    scale = alt.Scale(zero=False, nice=True)
    x: dict[str, Any] = {"title": visible(axis_told(result.disparity)), "scale": scale}
    y: dict[str, Any] = {"title": visible(axis_told(result.performance)), "scale": scale}
    at = {"x": alt.X("x:Q", **x), "y": alt.Y("y:Q", **y)}
    base = alt.Chart()
    bar = base.mark_rule(opacity=0.35, strokeWidth=1.5)
    tips = [
        alt.Tooltip(f"{name}:N") for name in ("method", "parameters", "disparity", "performance", "chance")
    ]
    layers = [
        base.mark_line(color=GREY, strokeDash=[4, 3])
        .transform_filter("datum.front")
        .encode(**at, order="x:Q"),
        bar.encode(x=alt.X("x0:Q", **x), x2="x1:Q", y=at["y"], color=colour),
        bar.encode(x=at["x"], y=alt.Y("y0:Q", **y), y2="y1:Q", color=colour),
        base.mark_point(size=420, color=GREY, strokeWidth=2).transform_filter("datum.picked").encode(**at),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            **at, color=colour, shape=shape, tooltip=tips
        ),
    ]
    if result.limit is not None:
        layers.insert(0, base.mark_rule(color=GREY).encode(x=alt.datum(result.limit)))
    chart: LayerChart = alt.layer(*layers, data=data_of(records)).properties(width=520, height=360)
    return chart


def _record(result: Frontier, index: int, x: Measure, y: Measure) -> dict[str, Any]:
    point = result.points[index]
    xs, ys = x.interval or (x.value, x.value), y.interval or (y.value, y.value)
    chance = result.chances[index] if index < len(result.chances) else None
    return {
        "method": point.plugin,
        "parameters": ", ".join(f"{key} = {value}" for key, value in point.parameters.items()),
        "x": x.value,
        "x0": xs[0],
        "x1": xs[1],
        "y": y.value,
        "y0": ys[0],
        "y1": ys[1],
        "disparity": f"{number(x.value)} {interval(x.interval)}",
        "performance": f"{number(y.value)} {interval(y.interval)}",
        "chance": number(chance),
        "front": index in result.front,
        "picked": index == result.chosen,
    }
