"""A frontier as an Altair chart: both axes with intervals, the front, the picked point, the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.errors import DataError
from fairkit_cli.pages.charts import tradeoff
from fairkit_cli.pages.frontier import axis_told, trade_points
from fairkit_cli.plots.style import altair, chart_of

if TYPE_CHECKING:
    from altair import LayerChart

    from fairkit_repair.frontiers.record import Frontier


def frontier(result: Frontier) -> LayerChart:
    """Draw `fairkit_repair.frontiers.record.Frontier.plot`."""
    altair()
    points = trade_points(result)
    if not points:
        raise DataError("no point is done: there is nothing to draw")
    x, y = axis_told(result.disparity), axis_told(result.performance)
    chart: LayerChart = chart_of(tradeoff(points, x, y, narrow=False, limit=result.limit), width=520, height=360)
    return chart
