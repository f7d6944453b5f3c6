"""The groups of a sensitive column: rates with intervals, score distributions, ROC, calibration, what-if."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.reading import metric_name, metric_term
from fairkit.results.evidence import Calibration, CurveBands, Curves, Histogram, evidence_of
from fairkit.support.escaping import interval, number
from fairkit_cli.helping import as_options
from fairkit_cli.pages import charts
from fairkit_cli.pages.charts import ForestRow, heights
from fairkit_cli.pages.findings import forest_chart, largest_of
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Inline,
    Interval,
    Key,
    Legend,
    Listing,
    Measured,
    Note,
    On,
    Page,
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
from fairkit_cli.text.view import (
    FEW_ROWS,
    NO_GROUP,
    Stratified,
    against,
    agreement,
    favorable_class,
    group_table,
    groups_that_matter,
    inside,
)

if TYPE_CHECKING:
    from fairkit.results.findings import Finding, GroupValue, StratumValue
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
        judgement.rule.to_dict()
        for judgement in report.policy
        if judgement.rule.sensitive in (None, finding.sensitive) and not judgement.rule.within
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
    decisions = report.decisions
    if not decisions:
        return min(edges, key=lambda edge: abs(histogram.edges[edge] - 0.5))
    bins = [sum(map(sum, part)) for part in zip(*histogram.groups.values(), strict=True)]
    return min(edges, key=lambda edge: abs(sum(bins[edge:]) - decisions["favorable"]))


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
    rates = [
        f"{metric.replace('_', ' ')} {number(value)} {interval(pair)}"
        for metric, value, pair in zip(metrics, last.values, last.intervals, strict=True)
        if value is not None
    ]
    return [Note(f"{NO_GROUP}: in no comparison; {confidence:.0%} intervals: {', '.join(rates)}.", "muted")]


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
    return [Key(name_of(name), "line", *charts.look_of(index)) for index, name in enumerate(names)]


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


# Groups against a reference, and inside strata: tables, and forest plots of the differences.


MOST_DRAWN = 30
"""So many strata are drawn at most, the largest ones; the table has the others."""


def condition_sections(report: Report) -> list[Section]:
    """Return a section for each reference group and for the strata of each column; nothing where there are none."""
    referred = [_against(*key, findings) for key, findings in against(report).items()]
    return [*referred, *(_inside(strata, report.confidence) for strata in inside(report))]


def _against(sensitive: str, reference: str, findings: Sequence[Finding]) -> Section:
    rows: list[Sequence[Cell]] = [
        (finding.metric, name_of(group.group), *sized(group.value, group.interval))
        for finding in findings
        for group in finding.groups
    ]
    differences = [
        ForestRow(
            name=f"{finding.metric} · {group.group}",
            value=group.value,
            interval=group.interval,
            tip=f"{finding.metric} of {group.group} against {reference}: {number(group.value)}, interval "
            f"{interval(group.interval)}",
        )
        for finding in findings
        for group in finding.groups
        if finding.metric.endswith("_difference") and group.value is not None
    ]
    label = f"Groups of {sensitive} against {reference}"
    title = f"{label}: differences"
    chart = forest_chart(differences, "difference", title, zero=False) if differences else None
    table = Table(label, [*words("metric", "group"), *numbers("value", "interval")], rows)
    intro = Note("Signed differences and ratios; the intervals of all groups hold together.", on=On.PAGE)
    return Section([label, Span(", intervals that hold together", on=On.TEXT)], [intro, chart, table])


def _inside(stratified: Stratified, confidence: float) -> Section:
    label = f"Groups of {stratified.sensitive} inside the strata of {stratified.within}"
    rows: list[Sequence[Cell]] = [
        (finding.metric, number(whole), *sized(finding.value, finding.interval), agreement(finding))
        for finding, whole in stratified.findings
    ]
    columns = [*words("metric"), *numbers("as a whole", "inside strata", "interval", "strata agree")]
    intro = (
        f"Pooled over the strata, with {confidence:.0%} intervals. Where the strata do not agree, read their own "
        "numbers."
        if stratified.how == "pooled"
        else f"The largest of the strata, with {confidence:.0%} intervals that hold for all of them."
    )
    table = Table(f"{label}, {stratified.how}", columns, rows)
    strata = None if stratified.strata is None else _strata(stratified.strata, stratified.within)
    return Section([label, Span(f", {stratified.how}", on=On.TEXT)], [Note(intro, on=On.PAGE), table, strata])


def _strata(finding: Finding, within: str) -> Section:
    """Return the strata's own numbers, the largest ones drawn."""
    high, low = (str(finding.evidence.get(f"{end}_group", "")) for end in ("highest", "lowest"))
    title = f"{finding.metric} in each stratum: {high} minus {low}"
    largest = sorted(finding.strata, key=lambda stratum: -stratum.rows)[:MOST_DRAWN]
    drawn = [
        ForestRow(
            name=f"{within} {stratum.stratum}",
            value=stratum.value,
            interval=stratum.interval,
            status="inconclusive" if stratum.few else "none",
            tip=f"{within} {stratum.stratum}, {stratum.rows:,} rows: {number(stratum.value)}, interval "
            f"{interval(stratum.interval)}",
        )
        for stratum in finding.strata
        if stratum in largest and stratum.value is not None
    ]
    rows: list[Sequence[Cell]] = [
        (
            name_of(stratum.stratum),
            f"{stratum.rows:,}",
            *(number(group.value) for group in stratum.groups),
            *sized(stratum.value, stratum.interval),
            "few rows" if stratum.few else "",
        )
        for stratum in finding.strata
    ]
    names = map(name_of, (group.group for group in finding.strata[0].groups))
    columns = [*words(name_of(within)), *numbers("rows", *names, "difference", "interval"), *words("")]
    chart = forest_chart(drawn, "difference", title, zero=False) if drawn else None
    return Section([Span(title, on=On.TEXT)], [chart, Table(title, columns, rows)], "part")


# One finding: the number, what it means, its groups and strata, what a reader must know.


def finding_page(finding: Finding) -> Page:
    """Return the page of a finding."""
    term = metric_term(finding.metric)
    between = [" between groups of ", name_of(finding.place)] if finding.place else [" over all rows"]
    level = f", {finding.confidence:.0%} interval {interval(finding.interval)}."
    pair = ". There is no interval." if finding.interval is None else level
    head = [Span(f"{term.plain}: {number(finding.value)}", "strong"), *between, pair]
    parts: list[Part | None] = [
        Note(head, "banner", "undecided" if finding.inconclusive else "none", word=""),
        Note(f"Undecided: {finding.inconclusive}") if finding.inconclusive else None,
        Note([term.meaning, " ", Span(metric_name(finding), "small")]),
        _values("group", [(group.group, group) for group in finding.groups]),
        _values("stratum", [(stratum.stratum, stratum) for stratum in finding.strata]),
        Listing([as_options(note) for note in finding.notes]) if finding.notes else None,
    ]
    return Page(f"{finding.metric} {finding.place or ''}".strip(), parts)


def _values(what: str, values: Sequence[tuple[str, GroupValue | StratumValue]]) -> Table | None:
    if not values:
        return None
    scale = bar_scale([(value.value, value.interval) for _, value in values])
    rows = [(name_of(name), f"{value.rows:,}", Measured(value.value, value.interval, scale)) for name, value in values]
    return Table(f"Each {what}", [*words(what), *numbers("rows", "value and interval")], rows)
