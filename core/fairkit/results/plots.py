"""Charts of results that people can change: Altair's, asked for where the result is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fairkit.errors import PluginError
from fairkit.installed import entry_points

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import altair as alt

PLOTS = "fairkit.plots"
"""The group of entry points whose functions take a result and return an Altair chart of it."""

Kind = Literal["difference", "ratio"]


class ReportPlots:
    """Charts of a report: ``report.plot.disparities()``.

    Each is an Altair chart, so that it can be changed (``.properties(width=700)``), combined (``|``, ``&``), saved
    (``.save("chart.svg")``) and themed (``altair.theme.enable("dark")``). The colours are readable on light and on dark
    grounds. Every number is drawn with its interval. They need ``pip install 'fairkit[charts]'``.
    """

    __slots__ = ("_report",)

    def __init__(self, report: Any) -> None:
        self._report = report

    def __repr__(self) -> str:
        """Return the charts that there are."""
        own = "disparities(), groups(sensitive), roc(sensitive), scores(sensitive), calibration(sensitive)"
        return f"<charts: {own}, evidence(name)>"

    def disparities(self, sensitive: str | None = None, *, kind: Kind = "difference") -> alt.LayerChart:
        """Return the largest disparities between groups with their intervals, and the policy's limits."""
        return layered("disparities", self._report, sensitive, kind=kind)

    def groups(self, sensitive: str, metric: str | Sequence[str] | None = None) -> alt.FacetChart:
        """Return the groups' own numbers with their intervals, a panel for each metric; a line marks all rows."""
        return faceted("groups", self._report, sensitive, metric)

    def roc(self, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None) -> alt.LayerChart:
        """Return each group's ROC curve in the band that holds its whole true curve."""
        return layered("roc", self._report, sensitive, groups=groups, label=label)

    def scores(
        self, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None
    ) -> alt.LayerChart:
        """Return how each group's scores are distributed: the share of its rows in each bin. See `roc`."""
        return layered("scores", self._report, sensitive, groups=groups, label=label)

    def calibration(
        self, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None
    ) -> alt.LayerChart:
        """Return each group's observed share of favorable outcomes against its mean score. See `roc`."""
        return layered("calibration", self._report, sensitive, groups=groups, label=label)

    def evidence(self, name: str, sensitive: str | None = None) -> alt.LayerChart:
        """Return an auditor's chart, a panel for each finding: ``columns`` is the waterfall of `why`."""
        return layered("evidence", self._report, name, sensitive)


def layered(name: str, result: Any, *arguments: Any, **options: Any) -> alt.LayerChart:
    """Return a chart that an installed package draws."""
    chart: alt.LayerChart = _drawn(name)(result, *arguments, **options)
    return chart


def faceted(name: str, result: Any, *asked: Any, **options: Any) -> alt.FacetChart:
    """Return a chart of several panels; see `layered`."""
    chart: alt.FacetChart = _drawn(name)(result, *asked, **options)
    return chart


def _drawn(name: str) -> Callable[..., Any]:
    for one in entry_points(PLOTS):
        if one.name == name:
            draw: Callable[..., Any] = one.load()
            return draw
    raise PluginError(f"no installed package draws {name!r}; fix it with: pip install --force-reinstall fairkit")
