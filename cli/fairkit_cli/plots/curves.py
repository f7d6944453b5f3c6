"""Scores of groups: ROC curves in their bands, distributions, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairkit.errors import DataError, did_you_mean
from fairkit.results.evidence import Calibration, CurveBands, Curves, Histogram, evidence_of
from fairkit_cli.pages import charts
from fairkit_cli.pages.groups import MOST_LINES, score_findings
from fairkit_cli.plots.disparities import check_column
from fairkit_cli.plots.style import altair, chart_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair import LayerChart

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.pages.parts import Spec

_SIZE = 320


class _Asked(NamedTuple):
    """What is drawn: the finding with the evidence, the groups in its order, and what the title says."""

    finding: Finding
    names: list[str]
    title: str


def roc(report: Report, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None) -> LayerChart:
    """Draw `fairkit.results.plots.ReportPlots.roc`."""
    request = _asked(report, sensitive, groups, label)
    curves, bands = evidence_of(request.finding, Curves), evidence_of(request.finding, CurveBands)
    names = [name for name in request.names if curves is not None and curves.groups.get(name)]
    if curves is None or not names:
        raise DataError(
            f"there are no ROC curves for these groups of {sensitive!r}: they need scores and both outcomes"
        )
    every = [group.group for group in request.finding.groups]
    halves = {} if bands is None else dict(zip(every, bands.halves, strict=False))
    return _square(charts.roc({name: curves.groups[name] for name in names}, halves), request.title)


def scores(
    report: Report, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None
) -> LayerChart:
    """Draw `fairkit.results.plots.ReportPlots.scores`."""
    request = _asked(report, sensitive, groups, label)
    histogram = evidence_of(request.finding, Histogram)
    assert histogram is not None  # noqa: S101 -- `_asked` takes findings that have one
    drawn = {name: histogram.shares.get(name, ()) for name in request.names}
    return _square(charts.densities(histogram.edges, drawn, "score"), request.title)


def calibration(
    report: Report, sensitive: str, *, groups: Sequence[str] | None = None, label: str | None = None
) -> LayerChart:
    """Draw `fairkit.results.plots.ReportPlots.calibration`."""
    request = _asked(report, sensitive, groups, label)
    observed = evidence_of(request.finding, Calibration)
    names = [name for name in request.names if observed is not None and observed.groups.get(name)]
    if observed is None or not names:
        raise DataError(f"there is no calibration for these groups of {sensitive!r}: it needs scores and outcomes")
    return _square(charts.calibration({name: observed.groups[name] for name in names}), request.title)


def _asked(report: Report, sensitive: str, groups: Sequence[str] | None, label: str | None) -> _Asked:
    """Find the scores of a column's groups, and choose among the groups; first of all, whether Altair is there."""
    altair()
    check_column(report, sensitive)
    finding = _of_class(score_findings(report, sensitive), sensitive, label)
    sizes = {one.group: one.rows for one in finding.groups}
    wanted = groups if groups is not None else sorted(sizes, key=lambda name: -sizes[name])[:MOST_LINES]
    for name in wanted:
        if name not in sizes:
            hint = did_you_mean(name, sizes, what="groups")
            raise DataError(f"{sensitive!r} has no group {name!r}. {hint}")
    some = f"the {len(wanted)} largest of {len(sizes)} groups" if len(wanted) < len(sizes) and groups is None else ""
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


def _square(spec: Spec, title: str) -> LayerChart:
    chart: LayerChart = chart_of(spec, width=_SIZE, height=_SIZE)
    return chart.properties(title=title) if title else chart
