"""The groups of a sensitive column: rates with intervals, score distributions, ROC, calibration, what-if."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.results.evidence import Calibration, CurveBands, Curves, Histogram, evidence_of
from fairkit.support.numbers import interval, number
from fairkit_cli.pages import charts
from fairkit_cli.pages.charts import heights
from fairkit_cli.pages.findings import largest_of
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Inline,
    Interval,
    Key,
    Legend,
    Measured,
    Note,
    On,
    Panel,
    Part,
    Section,
    Span,
    Table,
    name_of,
    numbers,
    sized,
    words,
)
from fairkit_cli.pages.sheet import anchor_of
from fairkit_cli.text.view import FEW_ROWS, NO_GROUP, favorable_class, group_table, groups_that_matter

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.text.view import GroupRow


_LEAST = 30


def panel(report: Report, finding: Finding, histogram: Histogram) -> Panel | None:
    """Return the panel of one sensitive column; None where the histogram is not of people with two outcomes.

    Thresholds lie at the edges of the histogram's bins, where counts are those of the table.
    """
    bins = [part for pairs in histogram.groups.values() for pair in pairs for part in pair]
    whole = all(float(part).is_integer() for part in bins)
    if report.model.task != "binary" or report.data.weights or not whole or len(histogram.groups) < 2:
        return None
    start = _model_threshold(report, histogram)
    rules = [
        one.rule.to_dict()
        for one in report.policy
        if one.rule.sensitive in (None, finding.sensitive) and not one.rule.within
    ]
    record = {
        "edges": histogram.edges,
        "groups": {name: [list(pair) for pair in pairs] for name, pairs in histogram.groups.items()},
        "confidence": report.confidence,
        "sensitive": finding.sensitive,
        "start": start,
        "rules": rules,
        "least": _LEAST,
    }
    return Panel(
        record,
        [
            Section("What if the threshold were another one?", [], "small"),
            Note(
                [
                    Span("Not signed, not audited: a what-if.", "strong"),
                    " Computed on this page from the histograms above, with the audit's intervals. A threshold that "
                    "is chosen on these rows does better on them than on others: audit it on rows that it was not "
                    "chosen on.",
                ]
            ),
        ],
    )


def _model_threshold(report: Report, histogram: Histogram) -> int:
    """Return the edge above which as many people are as the model favors; that of 0.5 where it decides nothing."""
    edges = range(len(histogram.edges))
    if not report.decisions:
        return min(edges, key=lambda place: abs(histogram.edges[place] - 0.5))
    bins = [sum(map(sum, part)) for part in zip(*histogram.groups.values(), strict=True)]
    return min(edges, key=lambda place: abs(sum(bins[place:]) - report.decisions["favorable"]))


MOST_LINES = 6
"""So many groups share a chart; the others are in its table."""

_TENTHS = 10


def group_sections(report: Report) -> list[Section]:
    """Return a section for each sensitive column: its groups, then its scores."""
    return [_section(report, name) for name in report.data.groups]


def _section(report: Report, sensitive: str) -> Section:
    rates = "" if (name := favorable_class(report)) is None else f" (rates of {name})"
    parts = [*largest_of(report, sensitive), *_rates(report, sensitive)]
    parts += [_scores(report, finding) for finding in score_findings(report, sensitive)]
    title: Inline = ["Groups of ", name_of(sensitive), Span(rates, on=On.TEXT)] if parts else None
    return Section(title, parts, "section" if parts else "part", anchor_of(report, sensitive))


def score_findings(report: Report, sensitive: str) -> list[Finding]:
    """Return the findings that have the score histograms of a column's groups: one for each class."""
    return [
        finding
        for finding in report.findings
        if finding.metric == "statistical_parity_ks"
        and finding.sensitive == sensitive
        and finding.plain
        and evidence_of(finding, Histogram) is not None
    ]


def _rates(report: Report, sensitive: str) -> list[Part]:
    """Return the groups with the metrics that people look at first, each with its interval as a bar."""
    rows, metrics = group_table(report, sensitive)
    if not metrics:
        return []
    large = [row for row in rows if row.rows >= FEW_ROWS] or rows
    scales = [bar_scale([(row.values[i], row.intervals[i]) for row in large]) for i in range(len(metrics))]
    columns = [*words("group"), *numbers("rows", *(metric.replace("_", " ") for metric in metrics))]
    label = f"Rates of the groups of {sensitive}"
    name = favorable_class(report)
    main, others = groups_that_matter(report, rows, metrics[0])
    parts: list[Part] = []
    if name is not None:
        label += f", of the class {name}"
        parts.append(Note(f"Rates are those of the class {name}; accuracy is over all classes.", on=On.PAGE))
    parts.append(Table(label, columns, [_row(row, scales) for row in rows], on=On.PAGE))
    parts.append(Table(label, columns, [_row(row, scales) for row in main], on=On.TEXT))
    parts += [Note(others, "muted", on=On.TEXT)] if others else []
    return [*parts, *_without_group(rows, metrics, report.confidence)]


def _row(row: GroupRow, scales: Sequence[Interval]) -> list[Cell]:
    cells = zip(row.values, row.intervals, scales, strict=True)
    return [name_of(row.group), f"{row.rows:,}", *(Measured(*cell) for cell in cells)]


def _without_group(rows: Sequence[GroupRow], metrics: Sequence[str], confidence: float) -> list[Part]:
    """Return the line about rows without a group, with their intervals."""
    last = rows[-1]
    if last.group != NO_GROUP:
        return []
    known = [
        f"{metric.replace('_', ' ')} {number(value)} {interval(pair)}"
        for metric, value, pair in zip(metrics, last.values, last.intervals, strict=True)
        if value is not None
    ]
    return [Note(f"{NO_GROUP}: in no comparison; {confidence:.0%} intervals: {', '.join(known)}.", "muted")]


def bar_scale(cells: Sequence[tuple[float | None, Interval | None]]) -> Interval:
    """Return the scale of a column of bars: from 0 to 1 for shares, else what the numbers need."""
    ends = [end for value, pair in cells for end in (*(pair or ()), value) if end is not None and abs(end) < 1e300]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def largest(finding: Finding) -> list[str]:
    """Return the groups that are drawn, in the finding's order."""
    sizes = {group.group: group.rows for group in finding.groups}
    names = sorted(sizes, key=lambda name: -sizes[name])[:MOST_LINES]
    names = [name for name in names if sizes[name] >= FEW_ROWS] or names
    return [name for name in sizes if name in names]


def _scores(report: Report, finding: Finding) -> Section:
    """Return score distributions, and where there are labels ROC and calibration."""
    histogram, names = evidence_of(finding, Histogram), largest(finding)
    assert histogram is not None  # noqa: S101 -- asked only for findings with one
    about = f" (class {finding.parameters['class']})" if "class" in finding.parameters else ""
    figures: list[Part] = [_densities(histogram, names, report, about, finding.sensitive)]
    if (ranked := evidence_of(finding, Curves)) is not None:
        bands = evidence_of(finding, CurveBands)
        groups = [group.group for group in finding.groups]
        halves = {} if bands is None else dict(zip(groups, bands.halves, strict=False))
        figures.append(_roc(ranked.groups, halves, names, about, finding.sensitive))
    if (observed := evidence_of(finding, Calibration)) is not None:
        figures.append(_calibration(observed.groups, names, about, finding.sensitive))
    rest = len(finding.groups) - len(names)
    more = f" The {len(names)} largest groups are drawn; the tables have the other {rest} too." if rest > 0 else ""
    intro = f"How the scores are spread, how well they rank, and whether they mean what they say.{more}"
    drawn = Section(None, figures, "row")
    parts: list[Part | None] = [Note(intro), Legend(legend(names)), drawn, panel(report, finding, histogram)]
    return Section(f"Scores{about}", parts, "part", on=On.PAGE)


def legend(names: Sequence[str]) -> list[Key]:
    """Return the legend of charts with a line for each group: its colour and its dashes."""
    return [Key(name_of(name), "line", *charts.look_of(place)) for place, name in enumerate(names)]


def _densities(histogram: Histogram, names: Sequence[str], report: Report, about: str, of: str | None) -> Chart:
    edges, shares = list(histogram.edges), histogram.shares
    drawn = {name: shares[name] for name in names if name in shares}
    title = "predicted value" if report.model.task == "regression" else "score"
    step = max(1, len(next(iter(shares.values()))) // _TENTHS)
    starts = range(0, len(edges) - 1, step)
    columns = [f"{number(edges[b])} to {number(edges[min(b + step, len(edges) - 1)])}" for b in starts]
    rows: list[Sequence[Cell]] = [
        (name_of(name), *(f"{sum(bins[b : b + step]):.1%}" for b in starts)) for name, bins in shares.items()
    ]
    label = f"Share of each group's rows by {title}{about}"
    return Chart(
        f"Distribution of the {title} in each group{about}",
        lambda _: charts.densities(edges, drawn, title),
        Table(label, [*words("group"), *numbers(*columns)], rows),
        "Distribution",
        fixed=True,
        name="scores",
        of=of,
    )


def _roc(
    curves: Mapping[str, Any], bands: Mapping[str, Interval], names: Sequence[str], about: str, of: str | None
) -> Chart:
    drawn = {name: curves.get(name, []) for name in names}
    shaded = ", in the band that holds the whole curve" if bands else ""
    at = [i / _TENTHS for i in range(1, _TENTHS)]
    columns = [*(f"at {x:.1f}" for x in at), *(["whole curve within"] if bands else [])]
    rows: list[Sequence[Cell]] = [
        (
            name_of(name),
            *(number(heights(points, x)[0]) if points else "not defined" for x in at),
            *((_halves(bands.get(name)) if points else "not defined",) if bands else ()),
        )
        for name, points in curves.items()
    ]
    label = f"True positive rate at false positive rates{about}"
    return Chart(
        f"ROC curve of each group{shaded}{about}",
        lambda _: charts.roc(drawn, bands),
        Table(label, [*words("group"), *numbers(*columns)], rows),
        "ROC",
        fixed=True,
        name="roc",
        of=of,
    )


def _halves(band: Interval | None) -> str:
    """Say how far a curve may lie from the one shown, in false and in true positive rate."""
    return "not known" if band is None else f"± {number(band[0])} across, ± {number(band[1])} up and down"


def _calibration(curves: Mapping[str, Any], names: Sequence[str], about: str, of: str | None) -> Chart:
    drawn = {name: curves.get(name, []) for name in names}
    rows = [
        (name_of(name), number(p["score"]), *sized(p["observed"], tuple(p["interval"])), f"{p['weight']:,.0f}")
        for name, points in curves.items()
        for p in points
    ]
    columns = [*words("group"), *numbers("mean score", "observed share", "interval", "rows")]
    return Chart(
        f"Calibration of each group{about}",
        lambda _: charts.calibration(drawn),
        Table(f"Observed share of favorable outcomes by score{about}", columns, rows),
        "Calibration",
        fixed=True,
        name="calibration",
        of=of,
    )
