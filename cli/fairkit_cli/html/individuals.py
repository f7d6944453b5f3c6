"""The section about single people: the gap over the budget, the most influential pairs, counterfactual flips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.results.evidence import Flips, Kind, Pairs, evidence_of
from fairkit_cli.html import charts
from fairkit_cli.html.everybody import bounded_auditors
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import figure, section, table
from fairkit_cli.html.svg import draw
from fairkit_cli.html.terms import metric_link
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.ranking import disparities
from fairkit_cli.text.subgroups import is_searched
from fairkit_cli.text.view import metric_name

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

MOST_PAIRS = 5
MOST_OPEN = 2
"""So many pairs are open when the page is; the others open with a click, and in print."""
MOST_COLUMNS = 40


def individual_section(report: Report) -> Markup | None:
    """Return the section of individual-fairness findings; None where no such auditor ran."""
    above = {one.key for one in disparities(report)}
    findings = [one for one in individual_findings(report) if not one.strata and one.key not in above]
    if not findings:
        return None
    rows = [
        (
            metric_link(f),
            f.auditor,
            name_of(f.sensitive) if f.sensitive else "all rows",
            number(f.value),
            interval(f.interval),
        )
        for f in findings
    ]
    columns = ("metric", "auditor", "on", "value", "interval")
    parts: list[Content] = [table(columns, rows, numeric={3, 4}, label="Other findings")]
    for metric in dict.fromkeys(finding.metric for finding in findings):
        parts.append(_gap_curve(metric, [finding for finding in findings if finding.metric == metric]))
    parts += [_pairs(finding, evidence, place) for place, finding, evidence in _with(findings, Pairs)]
    parts += [_flips(finding, evidence, place) for place, finding, evidence in _with(findings, Flips)]
    shown = any(part is not None for part in parts[1:])
    return section("Single people" if shown else "Other findings", parts)


def individual_findings(report: Report) -> list[Finding]:
    """Return the findings about single people: neither about groups, nor about all inputs."""
    others = {"group"} | bounded_auditors(report)
    return [one for one in report.findings if one.auditor not in others and not is_searched(one)]


def rows_about(report: Report, sensitive: str) -> list[tuple[str, str]]:
    """Return where the page shows rows that a disparity of a column may be looked at by: anchors, and what is there."""
    findings, columns = individual_findings(report), set(sensitive.split("+"))
    shown = [
        (place, f"people whose score depends most on {finding.sensitive}")
        for place, finding, _ in _with(findings, Flips)
        if finding.sensitive and columns & set(finding.sensitive.split("+"))
    ]
    for place, finding, evidence in _with(findings, Pairs):
        differing = sum(
            bool(columns & set(pair.get("differs", {}))) for pair in evidence.records[:MOST_PAIRS]
        )
        if differing:
            shown.append((place, f"{differing} like pairs ({metric_name(finding)})"))
    return shown


def _with(found: Sequence[Finding], kind: type[Kind]) -> list[tuple[str, Finding, Kind]]:
    """The first finding with such evidence of each auditor and sensitive column, with its anchor."""
    chosen: dict[tuple[str, str | None], tuple[Finding, Kind]] = {}
    for finding in found:
        if (evidence := evidence_of(finding, kind)) is not None:
            chosen.setdefault((finding.auditor, finding.sensitive), (finding, evidence))
    return [(f"{kind.key}-{place}", *one) for place, one in enumerate(chosen.values())]


def gap_points(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Collect (ε, gap) from findings of one metric at several budgets, by budget."""
    points = {
        float(epsilon): _point(float(epsilon), finding.value, finding.interval)
        for finding in found
        if isinstance(epsilon := finding.parameters.get("epsilon"), int | float) and finding.value is not None
    }
    return [points[epsilon] for epsilon in sorted(points)]


def _point(epsilon: float, gap: float, pair: tuple[float, float] | None) -> dict[str, Any]:
    low, high = pair or (gap, gap)
    tip = f"ε = {epsilon:g}: gap {number(gap)}, interval {interval(pair)}"
    return {"epsilon": epsilon, "gap": gap, "low": low, "high": high, "pair": pair, "tip": tip}


def _gap_curve(metric: str, found: Sequence[Finding]) -> Markup | None:
    points = gap_points(found)
    if len(points) < 2:
        return None
    name = metric.replace("_", " ")
    title = f"{name[0].upper()}{name[1:]} against the budget ε"
    pictures = [
        draw(
            charts.gap_curve(points, name, narrow=narrow), title=title, class_="narrow" if narrow else "wide"
        )
        for narrow in (False, True)
    ]
    rows = [(f"{p['epsilon']:g}", number(p["gap"]), interval(p["pair"])) for p in points]
    return figure(pictures, title, table(("ε", "gap", "interval"), rows, numeric={0, 1, 2}, label=title))


def _pairs(finding: Finding, evidence: Pairs, anchor: str) -> Markup:
    """People who are alike and are treated differently, side by side; what differs is marked."""
    blocks = [_pair(i, pair) for i, pair in enumerate(evidence.records[:MOST_PAIRS], 1)]
    return tag(
        "div",
        tag("h3", f"The most influential pairs of {metric_name(finding)}"),
        tag("p", "Alike under the metric, treated differently by the model. What differs is marked."),
        blocks,
        id=anchor,
    )


def _pair(rank: int, pair: Mapping[str, Any]) -> Markup:
    """One pair: what differs, then the model's numbers; folded, what is the same."""
    rows: list[Sequence[Content]] = [
        (name_of(column), *(tag("bdi", shown(cell), class_="differs") for cell in cells))
        for column, cells in pair.get("differs", {}).items()
    ]
    for key, name in (("scores", "the model's score"), ("losses", "the metric's loss or output")):
        if key in pair:
            rows.append((tag("strong", name), *(tag("strong", shown(cell)) for cell in pair[key])))
    same = [(name_of(column), name_of(shown(cell))) for column, cell in pair.get("same", {}).items()]
    differences = ", ".join(
        f"{key.replace('_', ' ')} {number(value)}"
        for key, value in pair.items()
        if isinstance(value, float) and key not in ("from", "to")
    )
    names = [_called(pair.get(end)) for end in ("from", "to")]
    label = f"Pair {rank}: {names[0]} and {names[1]}"
    body = table(("column", *names), rows, label=label) if rows else None
    folded = None
    if same:
        numbers = table(("column", "both"), same[:MOST_COLUMNS], label=f"{label}: what is the same")
        folded = tag(
            "details",
            tag("summary", f"The same in {len(same)} {'column' if len(same) == 1 else 'columns'}"),
            numbers,
        )
    return tag(
        "details",
        tag("summary", label, f" ({differences})" if differences else ""),
        body,
        folded,
        open=rank <= MOST_OPEN,
    )


def _called(who: Any) -> str:
    return f"row {who:,}" if isinstance(who, int) else str(who)


def shown(value: Any) -> str:
    """Write a cell of the data."""
    if value is None:
        return "missing"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _flips(finding: Finding, evidence: Flips, anchor: str) -> Markup:
    """The rows whose score changes most when a column is set to other values."""
    rows = []
    for one in evidence.records[:10]:
        low, high = one["lowest"], one["highest"]
        rows.append(
            (
                f"{one['row']:,}",
                _values(low["values"]),
                number(low["score"]),
                _values(high["values"]),
                number(high["score"]),
            )
        )
    columns = ("row", "lowest with", "score", "highest with", "score")
    title = f"Largest changes when {finding.sensitive} alone is set to other values"
    return tag("div", tag("h3", title), table(columns, rows, numeric={2, 4}, label=title), id=anchor)


def _values(values: Any) -> Markup:
    if isinstance(values, Mapping):
        return name_of(", ".join(f"{key} = {shown(value)}" for key, value in values.items()))
    return name_of(shown(values))
