"""Numbers with intervals on one scale: disparities, changes between models, groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit_cli.pages.charts import forest
from fairkit_cli.pages.comparison import change_row
from fairkit_cli.pages.findings import forest_row
from fairkit_cli.plots.style import BLUE, GREY, LONGEST, altair, chart_of, data_of, ended
from fairkit_cli.text.numbers import number
from fairkit_cli.text.ranking import MOST_DISPARITIES, kind_of, parity_distance
from fairkit_cli.text.ranking import disparities as ranked
from fairkit_cli.text.view import group_table, headline_changes, rule_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair import FacetChart, LayerChart

    from fairkit.results.comparisons import Change, Comparison
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_repair.mitigation.run import MitigationResult

_PARITY = {"difference": 0, "ratio": 1}
_TITLES = {"difference": "difference between groups (0: parity)", "ratio": "ratio between groups (1: parity)"}
_WIDTH = 420


def disparities(report: Report, sensitive: str | None = None, *, kind: str = "difference") -> LayerChart:
    """Draw `fairkit.results.plots.ReportPlots.disparities`."""
    if kind not in _PARITY:
        raise ParameterError(f"`kind` is difference or ratio, not {kind!r}")
    if sensitive is not None:
        check_column(report, sensitive)
    found = [f for f in _farthest(report, kind) if sensitive in (None, f.sensitive)][:MOST_DISPARITIES]
    if not found:
        raise DataError(f"the report has no {kind} between groups to draw")
    rows = [forest_row(report, finding) for finding in found]
    ratio = kind == "ratio"
    drawn = forest(rows, _TITLES[kind], narrow=False, zero=not ratio, parity=_PARITY[kind])
    chart: LayerChart = chart_of(drawn, width=_WIDTH)
    return chart


def changes(result: Comparison, model: int = 1) -> LayerChart:
    """Draw the paired differences of a model from the first one."""
    if not 1 <= model <= len(result.changes):
        raise ParameterError(f"`model` is 1 to {len(result.changes)}, the place of a compared model, not {model}")
    return _changed(result.changes[model - 1])


def mitigated(result: MitigationResult) -> LayerChart:
    """Draw what a mitigation changed."""
    return _changed(result.changes)


def _changed(found: Sequence[Change]) -> LayerChart:
    first = [one for part in headline_changes(found) for one in part if one.difference is not None]
    if not first:
        raise DataError("no metric is defined for both models: there is nothing to draw")
    rows = [change_row(change) for change in first]
    drawn = forest(rows, "difference from the first model", narrow=False, zero=False)
    chart: LayerChart = chart_of(drawn, width=_WIDTH)
    return chart


def groups(report: Report, sensitive: str, metric: str | Sequence[str] | None = None) -> FacetChart:
    """Draw `fairkit.results.plots.ReportPlots.groups`."""
    alt = altair()
    check_column(report, sensitive)
    names = _metrics(report, sensitive, metric)
    records = [record for name in names for record in _group_records(report, sensitive, name)]
    order = [_told(name) for name in names]
    x = {"title": None, "axis": alt.Axis(tickCount=4, labelFlush=False)}
    y = alt.Y("group:N", title=None, sort=None, axis=alt.Axis(labelLimit=LONGEST))
    bars = alt.Chart().mark_rule(strokeWidth=3, color=BLUE, opacity=0.7)
    bars = bars.transform_filter("isValid(datum.low) && isValid(datum.high)")
    points = alt.Chart().mark_point(filled=True, size=70, opacity=1, color=BLUE)
    whole = alt.Chart().mark_rule(strokeDash=[4, 3], color=GREY)
    tips = [alt.Tooltip(f"{name}:N") for name in ("metric", "group", "rows", "interval", "all rows")]
    layers = alt.layer(
        whole.encode(x=alt.X("all:Q", **x), tooltip=[tips[0], tips[-1]]),
        bars.encode(x=alt.X("low:Q", **x), x2="high:Q", y=y),
        points.encode(x=alt.X("value:Q", **x), y=y, tooltip=tips),
        data=data_of(records),
    )
    columns = min(3, len(names))
    chart: FacetChart = (
        layers.properties(width=max(150, 480 // columns), height=alt.Step(22))
        .facet(facet=alt.Facet("metric:N", title=None, sort=order), columns=columns)
        .resolve_scale(x="independent")
    )
    return chart


def check_column(report: Report, sensitive: str) -> None:
    """Refuse a sensitive column that the report does not have."""
    if sensitive not in report.data.groups:
        hint = did_you_mean(sensitive, report.data.groups, what="sensitive columns")
        raise DataError(f"the report has no sensitive column {sensitive!r}. {hint}")


def _farthest(report: Report, kind: str) -> list[Finding]:
    """Return the differences that a page shows, or all ratios, the farthest from parity first."""
    if kind == "difference":
        return [f for f in ranked(report) if kind_of(f) == kind]
    found = [f for f in report.findings if f.auditor == "group" and f.plain and f.sensitive is not None]
    found = [f for f in found if f.value is not None and kind_of(f) == kind]
    return sorted(found, key=lambda f: (rule_for(report, f) is None, -parity_distance(f)))


def _metrics(report: Report, sensitive: str, metric: str | Sequence[str] | None) -> list[str]:
    if metric is None:
        _, shown = group_table(report, sensitive)
        if not shown:
            raise DataError(f"the report has no numbers for the groups of {sensitive!r}")
        return shown
    names = [metric] if isinstance(metric, str) else list(metric)
    measured = {
        f.metric.removesuffix("_difference")
        for f in report.findings
        if f.sensitive == sensitive and f.plain and f.groups and f.metric.endswith("_difference")
    }
    for name in names:
        if name not in measured:
            hint = did_you_mean(name, measured, what="metrics")
            raise DataError(f"the groups of {sensitive!r} have no metric {name!r}. {hint}")
    return names


def _group_records(report: Report, sensitive: str, metric: str) -> list[dict[str, Any]]:
    wanted = (f"{metric}_difference", sensitive)
    found = [f for f in report.findings if (f.metric, f.sensitive) == wanted and f.plain]
    finding = next(iter(sorted(found, key=lambda f: "class" in f.parameters)))
    name = {"class": finding.parameters["class"]} if "class" in finding.parameters else {}
    over = [f for f in report.findings if f.metric == metric and f.sensitive is None]
    over = [f for f in over if {k: v for k, v in f.parameters.items() if k == "class"} == name]
    whole = over[0].value if over else None
    told = {"metric": _told(metric), "all": whole, "all rows": number(whole)}
    return [
        {**told, "group": one.group, "rows": f"{one.rows:,}", **ended(one.value, one.interval)}
        for one in finding.groups
    ]


def _told(metric: str) -> str:
    return metric.replace("_", " ")
