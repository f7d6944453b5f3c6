"""Scores of groups: ROC curves in their bands, distributions, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fairkit.errors import DataError, did_you_mean
from fairkit.results.evidence import Calibration, CurveBands, Curves, Histogram, evidence_of
from fairkit_cli.pages.bands import band
from fairkit_cli.pages.groups import MOST_LINES
from fairkit_cli.plots.disparities import check_column
from fairkit_cli.plots.style import GREY, altair, by_group, data_of
from fairkit_cli.text.numbers import interval, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from altair import LayerChart

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

_SIZE = 320


class _Asked(NamedTuple):
    """What is drawn: the finding with the evidence, the groups in its order, and what the title says."""

    finding: Finding
    names: list[str]
    title: str


def roc(
    report: Report, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None
) -> LayerChart:
    """Draw `fairkit.results.plots.ReportPlots.roc`."""
    alt, request = altair(), _asked(report, sensitive, groups, label)
    curves, bands = evidence_of(request.finding, Curves), evidence_of(request.finding, CurveBands)
    names = [name for name in request.names if curves is not None and curves.groups.get(name)]
    if curves is None or not names:
        raise DataError(
            f"there are no ROC curves for these groups of {sensitive!r}: they need scores and both outcomes"
        )
    every = [one.group for one in request.finding.groups]
    halves = {} if bands is None else dict(zip(every, bands.halves, strict=False))
    lines = [
        {"group": name, "x": x, "y": y, "k": place}
        for name in names
        for place, (x, y) in enumerate(curves.groups[name])
    ]
    shades = [
        {"group": name, "x": x, "low": low, "high": high}
        for name in names
        if name in halves
        for x, low, high in band(curves.groups[name], *halves[name])
    ]
    x, y = _unit("x:Q", "false positive rate", alt.X), _unit("y:Q", "true positive rate", alt.Y)
    colour, dash = by_group(names, alt)
    tips = [alt.Tooltip("group:N"), alt.Tooltip("x:Q", title="false positive rate", format=".3f")]
    tips.append(alt.Tooltip("y:Q", title="true positive rate", format=".3f"))
    layers = [
        alt.Chart(data_of(shades))
        .mark_area(opacity=0.13)
        .encode(x=x, y=_unit("low:Q", "true positive rate", alt.Y), y2="high:Q", color=colour),
        _diagonal(x, y),
        alt.Chart(data_of(lines))
        .mark_line(strokeWidth=2)
        .encode(x=x, y=y, color=colour, strokeDash=dash, order="k:Q", tooltip=tips),
    ]
    return _square(layers if shades else layers[1:], request.title)


def scores(
    report: Report, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None
) -> LayerChart:
    """Draw `fairkit.results.plots.ReportPlots.scores`."""
    alt, request = altair(), _asked(report, sensitive, groups, label)
    histogram = evidence_of(request.finding, Histogram)
    assert histogram is not None  # noqa: S101 -- `_asked` takes findings that have one
    records = [
        {
            "group": name,
            "x": (low + high) / 2,
            "share": share,
            "scores": f"{number(low)} to {number(high)}",
            "of its rows": f"{share:.1%}",
        }
        for name in request.names
        for low, high, share in zip(
            histogram.edges, histogram.edges[1:], histogram.shares.get(name, ()), strict=False
        )
    ]
    colour, dash = by_group(request.names, alt)
    x = alt.X("x:Q", title="score", scale=alt.Scale(domain=[histogram.edges[0], histogram.edges[-1]]))
    y = alt.Y("share:Q", title="share of the group's rows", axis=alt.Axis(format="%"))
    tips = [alt.Tooltip(f"{name}:N") for name in ("group", "scores", "of its rows")]
    line = alt.Chart(data_of(records)).mark_line(interpolate="step", strokeWidth=2)
    return _square([line.encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=tips)], request.title)


def calibration(
    report: Report, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None
) -> LayerChart:
    """Draw `fairkit.results.plots.ReportPlots.calibration`."""
    alt, request = altair(), _asked(report, sensitive, groups, label)
    observed = evidence_of(request.finding, Calibration)
    names = [name for name in request.names if observed is not None and observed.groups.get(name)]
    if observed is None or not names:
        raise DataError(
            f"there is no calibration for these groups of {sensitive!r}: it needs scores and outcomes"
        )
    data = data_of([_bin(name, one) for name in names for one in observed.groups[name]])
    colour, dash = by_group(names, alt)
    x, y = _unit("x:Q", "mean score", alt.X), _unit("y:Q", "observed share", alt.Y)
    tips = [alt.Tooltip(f"{name}:N") for name in ("group", "score", "observed", "rows")]
    base = alt.Chart(data)
    layers = [
        _diagonal(x, y),
        base.mark_rule(strokeWidth=2, opacity=0.5).encode(
            x=x, y=_unit("low:Q", "observed share", alt.Y), y2="high:Q", color=colour
        ),
        base.mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_point(filled=True, size=40, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
    ]
    return _square(layers, request.title)


def _bin(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    low, high = record["interval"]
    return {
        "group": name,
        "x": record["score"],
        "y": record["observed"],
        "low": low,
        "high": high,
        "score": number(record["score"]),
        "observed": f"{number(record['observed'])} {interval((low, high))}",
        "rows": f"{record['weight']:,.0f}",
    }


def _asked(report: Report, sensitive: str, groups: Sequence[str] | None, label: str | None) -> _Asked:
    """Find the scores of a column's groups, and choose among the groups."""
    check_column(report, sensitive)
    findings = [
        f
        for f in report.findings
        if f.metric == "statistical_parity_ks"
        and f.sensitive == sensitive
        and f.plain
        and evidence_of(f, Histogram) is not None
    ]
    finding = _of_class(findings, sensitive, label)
    sizes = {one.group: one.rows for one in finding.groups}
    wanted = groups if groups is not None else sorted(sizes, key=lambda name: -sizes[name])[:MOST_LINES]
    for name in wanted:
        if name not in sizes:
            hint = did_you_mean(name, sizes, what="groups")
            raise DataError(f"{sensitive!r} has no group {name!r}. {hint}")
    some = (
        f"the {len(wanted)} largest of {len(sizes)} groups"
        if len(wanted) < len(sizes) and groups is None
        else ""
    )
    about = f"class {label}" if label is not None else ""
    return _Asked(finding, [name for name in sizes if name in wanted], ", ".join(filter(None, (about, some))))


def _of_class(findings: Sequence[Finding], sensitive: str, label: str | None) -> Finding:
    if not findings:
        raise DataError(
            f"the report has no scores for the groups of {sensitive!r}: the model gives decisions only, or "
            "the report was shortened"
        )
    classes = [str(f.parameters["class"]) for f in findings if "class" in f.parameters]
    if label is None and len(findings) > 1:
        raise DataError(f"say which class with `label`: {', '.join(classes)}")
    chosen = [f for f in findings if label is None or str(f.parameters.get("class")) == str(label)]
    if not chosen:
        hint = did_you_mean(str(label), classes, what="classes")
        raise DataError(f"there is no class {label!r}. {hint}")
    return chosen[0]


def _unit(field: str, title: str, channel: Any) -> Any:
    alt = altair()
    return channel(
        field,
        title=title,
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(tickCount=5, labelFlush=False),
        **_flat(channel),
    )


def _flat(channel: Any) -> dict[str, Any]:
    return {"stack": None} if channel.__name__ == "Y" else {}


def _diagonal(x: Any, y: Any) -> Any:
    ends = data_of([{"x": 0, "y": 0}, {"x": 1, "y": 1}])
    return altair().Chart(ends).mark_line(color=GREY, strokeWidth=1, strokeDash=[3, 3]).encode(x=x, y=y)


def _square(layers: Sequence[Any], title: str) -> LayerChart:
    chart: LayerChart = altair().layer(*layers).properties(width=_SIZE, height=_SIZE)
    return chart.properties(title=title) if title else chart
