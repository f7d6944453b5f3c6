"""Findings about single people: the gap over the budget, the most influential pairs, counterfactual flips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.reading import decided, disparities, metric_name, metric_term
from fairkit.results.evidence import Bounded, Flips, Kind, Pairs, evidence_of
from fairkit.support.escaping import interval, number
from fairkit_cli.pages.charts import gap_curve, step_curve
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Column,
    Inline,
    Note,
    On,
    Part,
    Section,
    Span,
    Table,
    capital,
    name_of,
    numbers,
    sized,
    words,
)
from fairkit_cli.pages.sheet import metric_cell
from fairkit_cli.text.packs import Searched, bound_sentence, described, listed_apart, searches, share_of, told

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


MOST_PAIRS, MOST_OPEN = 5, 2
"""So many pairs are on a page, and so many of them open when it is, and on a screen; the others open with a click."""
MOST_COLUMNS, MOST_NAMED = 40, 4
"""Columns in which two people are the same: so many are in a page's table, so many are named on a screen."""
_SUMS = {"scores": "the model's score", "losses": "the metric's loss or output"}


def bounded_auditors(report: Report) -> set[str]:
    """Return the auditors whose findings are bounds for every input."""
    return {each.auditor for each in report.findings if evidence_of(each, Bounded) is not None}


def individual_section(report: Report) -> Section | None:
    """Return the findings of auditors of single people; None where no such auditor ran."""
    above = {each.key for each in disparities(report)}
    findings = [each for each in _findings(report) if not each.strata and each.key not in above]
    if not findings:
        return None
    rows: list[Sequence[Cell]] = [
        (each.auditor, metric_cell(each), each.sensitive or "all rows", *sized(each.value, each.interval))
        for each in findings
        if each.auditor != AUDITOR
    ]
    columns = [*words("auditor", "metric", "on"), *numbers("value", "interval")]
    metrics = dict.fromkeys(each.metric for each in findings)
    people: list[Part | None] = [
        *(_gap_chart(metric, [each for each in findings if each.metric == metric]) for metric in metrics),
        *(_pairs(finding, evidence, anchor) for anchor, finding, evidence in _with(findings, Pairs)),
        *(_flips(finding, evidence, anchor) for anchor, finding, evidence in _with(findings, Flips)),
    ]
    shown = any(part is not None for part in people)
    if not rows and not shown:
        return None
    title = [Span("Single people" if shown else "Other findings", on=On.PAGE), Span("Other findings", on=On.TEXT)]
    return Section(title, [Table("Other findings", columns, rows) if rows else None, *people])


def _findings(report: Report) -> list[Finding]:
    """Return the findings about single people: neither about groups, nor about all inputs."""
    others = {"group"} | bounded_auditors(report)
    return [each for each in report.findings if each.auditor not in others and not listed_apart(each)]


def rows_about(report: Report, sensitive: str) -> list[tuple[str, str]]:
    """Return where the page shows rows that a disparity of a column may be looked at by: anchors, and what is there."""
    findings, columns = _findings(report), set(sensitive.split("+"))
    anchors = [
        (anchor, f"people whose score depends most on {finding.sensitive}")
        for anchor, finding, _ in _with(findings, Flips)
        if finding.sensitive and columns & set(finding.sensitive.split("+"))
    ]
    for anchor, finding, evidence in _with(findings, Pairs):
        differing = sum(bool(columns & set(pair.get("differs", {}))) for pair in evidence.records[:MOST_PAIRS])
        if differing:
            anchors.append((anchor, f"{differing} like pairs ({metric_name(finding)})"))
    return anchors


def _with(findings: Sequence[Finding], kind: type[Kind]) -> list[tuple[str, Finding, Kind]]:
    """Return the first finding with such evidence of each auditor and sensitive column, with its anchor."""
    chosen: dict[tuple[str, str | None], tuple[Finding, Kind]] = {}
    for finding in findings:
        if (evidence := evidence_of(finding, kind)) is not None:
            chosen.setdefault((finding.auditor, finding.sensitive), (finding, evidence))
    return [(f"{kind.key}-{index}", *pair) for index, pair in enumerate(chosen.values())]


def _gap_chart(metric: str, findings: Sequence[Finding]) -> Chart | None:
    """Return (ε, gap) of one metric at several budgets, by budget; None of one budget."""
    budgets = {
        float(epsilon): finding
        for finding in findings
        if isinstance(epsilon := finding.parameters.get("epsilon"), int | float) and finding.value is not None
    }
    if len(budgets) < 2:
        return None
    name = metric.replace("_", " ")
    title = f"{capital(name)} against the budget ε"
    points = [_point(epsilon, budgets[epsilon]) for epsilon in sorted(budgets)]
    rows = [(f"{epsilon:g}", *sized(budgets[epsilon].value, budgets[epsilon].interval)) for epsilon in sorted(budgets)]
    table = Table(title, numbers("ε", "gap", "interval"), rows)
    return Chart(title, lambda narrow: gap_curve(points, name, narrow=narrow), table, on=On.PAGE)


def _point(epsilon: float, finding: Finding) -> dict[str, Any]:
    gap = finding.value or 0.0
    low, high = finding.interval or (gap, gap)
    tip = f"ε = {epsilon:g}: gap {number(gap)}, interval {interval(finding.interval)}"
    return {"epsilon": epsilon, "gap": gap, "low": low, "high": high, "tip": tip}


def _pairs(finding: Finding, evidence: Pairs, anchor: str) -> Section:
    """Return people who are alike and are treated differently, side by side; what differs is marked."""
    intro = Note("Alike under the metric, treated differently by the model. What differs is marked.")
    pairs = [_pair(rank, pair) for rank, pair in enumerate(evidence.records[:MOST_PAIRS], 1)]
    return Section(f"The most influential pairs of {metric_name(finding)}", [intro, *pairs], "part", anchor)


def _pair(rank: int, pair: Mapping[str, Any]) -> Section:
    """Return one pair: what differs, then the model's numbers; folded, what is the same."""
    rows: list[Sequence[Cell]] = [
        (name_of(column), *(Span(cell_text(cell), "differs") for cell in cells))
        for column, cells in pair.get("differs", {}).items()
    ]
    first = len(rows)
    rows += [
        (Span(name, "strong"), *(Span(cell_text(cell), "strong") for cell in pair[key]))
        for key, name in _SUMS.items()
        if key in pair
    ]
    numbers_of = ", ".join(
        f"{key.replace('_', ' ')} {number(value)}"
        for key, value in pair.items()
        if isinstance(value, float) and key not in ("from", "to")
    )
    names = [f"row {who:,}" if isinstance(who := pair.get(end), int) else str(who) for end in ("from", "to")]
    label = f"Pair {rank}: {names[0]} and {names[1]}"
    table = Table(label, words("column", *names), rows, strong=range(first, len(rows))) if rows else None
    return Section(
        [label, f" ({numbers_of})" if numbers_of else ""],
        [table, *_same(label, pair.get("same", {}))],
        "open" if rank <= MOST_OPEN else "fold",
        on=On.ALL if rank <= MOST_OPEN and "differs" in pair else On.PAGE,
    )


def _same(label: str, columns: Mapping[str, Any]) -> list[Part]:
    """Return what is the same of two people: a sentence for screens, a folded table for pages."""
    if not columns:
        return [Note("Nothing else is the same.", "muted", on=On.TEXT)]
    # A one-hot 0 tells little: what is the case comes first.
    named = sorted(columns, key=lambda name: columns[name] in (0, None))[:MOST_NAMED]
    values = ", ".join(f"{name} {cell_text(columns[name])}" for name in named)
    more = len(columns) - len(named)
    sentence = f"The same: {values}" + (f" and {more} more columns." if more else ".")
    rows = [(name_of(column), name_of(cell_text(cell))) for column, cell in columns.items()]
    table = Table(f"{label}: what is the same", words("column", "both"), rows[:MOST_COLUMNS])
    title = f"The same in {len(rows)} {'column' if len(rows) == 1 else 'columns'}"
    return [Note(sentence, "muted", on=On.TEXT), Section(title, [table], "fold", on=On.PAGE)]


def cell_text(value: Any) -> str:
    """Write a cell of the data."""
    if value is None:
        return "missing"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _flips(finding: Finding, evidence: Flips, anchor: str) -> Section:
    """Return the rows whose score changes most when a column is set to other values."""
    rows: list[Sequence[Cell]] = []
    for record in evidence.records[:10]:
        low, high = record["lowest"], record["highest"]
        ends = (_values(low["values"]), number(low["score"]), _values(high["values"]), number(high["score"]))
        rows.append((f"{record['row']:,}", *ends))
    columns = [*words("row", "lowest with"), *numbers("score"), *words("highest with"), *numbers("score")]
    title = f"Largest changes when {finding.sensitive} alone is set to other values"
    return Section(title, [Table(title, columns, rows)], "part", anchor, on=On.PAGE)


def _values(values: Any) -> Inline:
    if isinstance(values, Mapping):
        return name_of(", ".join(f"{key} = {cell_text(value)}" for key, value in values.items()))
    return name_of(cell_text(values))


# What carries a gap: a table of its columns, the parts of rates, and what allowed columns leave.


AUDITOR = "why"
MOST = 6
"""Columns that have a line of their own."""
_MARKS = 12
_RATES = {name: name for name in ("true_positive_rate", "false_positive_rate")} | {"decision": "selection_rate"}
_OF = {"decision": "favorable decisions", "true_positive_rate": "favorable decisions among the qualified",
       "false_positive_rate": "favorable decisions among the unqualified", "score": "log-odds of approval",
       "outcome": "favorable outcomes"}  # fmt: skip
_PARTS = {"base_rate_part": ("more people of group {0} are qualified", "fewer people of group {0} are qualified"),
          "true_positive_rate_part": ("its qualified {1} more often", "its qualified {1} less often"),
          "false_positive_rate_part": ("its unqualified {1} more often", "its unqualified {1} less often")}  # fmt: skip


def why_parts(report: Report) -> list[Section]:
    """Return what carries each gap, by sensitive column and group."""
    divided: dict[Any, list[Finding]] = {}
    for finding in report.findings:
        if finding.auditor == AUDITOR:
            pair = (finding.sensitive, finding.reference, finding.parameters.get("group"))
            divided.setdefault(pair, []).append(finding)
    parts = [part for findings in divided.values() for part in _parts(report, findings)]
    return [Section(Span("Why", on=On.PAGE | On.SUMMARY), parts)] if parts else []


def _parts(report: Report, division: Sequence[Finding]) -> list[Part]:
    """Return what is said about one group, a paragraph for each part of the division."""

    def of(metric: str) -> list[Finding]:
        return [finding for finding in division if finding.metric == metric]

    attributions = [a for a in of("attribution") if a.evidence.get("columns")]
    head = _head(division)
    sampled = next((each for each in division if each.evidence.get("sample")), None)
    parts: list[Part] = [] if sampled is None else [Note(sampled.notes[0])]
    parts.append(Note([Span("why  ", on=On.SCREEN), capital(head)], "strong"))
    parts += [Note(text) for each in attributions[:1] if (text := in_people(report, each))]
    if attributions:
        parts += [_table(head, attributions), Note(_rest(attributions[0]))]
    do = decided(report, "get a favorable decision")
    rates = [
        f"{_sized(p)} because {_PARTS[p.metric][(p.value or 0) < 0].format(p.groups[0].group, do)}"
        for p in division
        if p.metric in _PARTS and p.groups
    ]
    said = [f"of the gap {'; '.join(rates)}"] if rates else []
    said += map(_left, of("unexplained_difference"))
    for gone in of("gap_without"):
        again = gone.evidence
        said.append(
            f"trained again with {gone.parameters['without']} {number(again['with'])}, without it {_sized(gone)}; "
            f"change {number(again['change'])} {interval(tuple(again['change_interval']))}"
        )
    said += [note for few in of("attribution") if few.value is None for note in few.notes]
    if attributions:
        said.append(attributions[0].notes[-1])
    return [*parts, *map(Note, map(capital, said)), Note("", on=On.SCREEN)]


def _head(division: Sequence[Finding]) -> str:
    first = division[0]
    groups = " minus ".join(f"{group.group} ({group.rows:,} people)" for group in first.groups) or f"{first.place}"
    whole = next((f for f in division if f.metric == "attribution" and f.value is not None), None)
    if whole is None:
        gap = next((f.evidence["gap"] for f in division if "gap" in f.evidence), None)
        return f"{first.sensitive}, {groups}" + ("" if gap is None else f": {number(gap)}")
    of = str(whole.parameters["of"])
    return f"{_OF.get(of, of)}, {groups}: {_points(whole) if of in _RATES else _sized(whole)}"


def _points(finding: Finding) -> str:
    ends = finding.interval
    between = "" if ends is None else f" [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]"
    return f"{100 * (finding.value or 0):+.1f} points{between}"


def in_people(report: Report, finding: Finding) -> str | None:
    """Say a divided gap in rates as people: "Of 100 people of group a 65 are approved, of group b 43. Of these ..."."""
    share = metric_term(_RATES.get(str(finding.parameters.get("of")), "")).share
    if share is None or len(finding.groups) != 2 or any(group.value is None for group in finding.groups):
        return None
    (one, first), (two, second) = ((group.group, 100 * (group.value or 0)) for group in finding.groups)
    points = 100 if first >= second else -100
    parts = finding.evidence["columns"]
    large = [part for part in parts[:MOST] if part["interval"] and part["interval"][0] * part["interval"][1] > 0]
    rest = sum(part["value"] for part in parts) - sum(part["value"] for part in large)
    named = [f"{part['column']} {points * part['value']:.1f}" for part in large]
    named += [f"the other columns {points * rest:.1f}"] if len(large) < len(parts) else []
    whom = share[0].replace("people", f"people of group {one}", 1)
    return (
        f"Of 100 {whom}, {first:.0f} {decided(report, share[1])}; of 100 of group {two}, {second:.0f}. Of these "
        f"{abs(first - second):.1f} points, by column: {', '.join(named)}."
    )


def _sized(finding: Finding) -> str:
    return f"{number(finding.value)} {interval(finding.interval)}"


def _table(label: str, attributions: Sequence[Finding]) -> Table:
    """Return the largest parts of each attribution; the first one orders them, and is drawn."""
    parts = [{part["column"]: part for part in attribution.evidence["columns"]} for attribution in attributions]
    longest = max((abs(part["value"]) for part in parts[0].values()), default=0.0) or 1.0
    rows: list[Sequence[Cell]] = []
    for name, part in list(parts[0].items())[:MOST]:
        bar = "#" * round(_MARKS * abs(part["value"]) / longest)
        rows.append((name_of(name), *(_cell(part.get(name)) for part in parts), bar))
    columns = [*words("column"), *words(*map(_title, attributions)), Column("", on=On.TEXT)]
    return Table(label, columns, rows)


def _rest(attribution: Finding) -> str:
    """Return what the other columns carry together, and the sum."""
    rest = [part["value"] for part in attribution.evidence["columns"][MOST:]]
    more = f"{len(rest)} more {sum(rest):+.3f}; " if rest else ""
    sampled = attribution.evidence.get("sampling_share")
    share = "" if sampled is None else f"; sampling is {sampled:.0%} of their variance"
    return f"{more}sum {number(attribution.value)}. Intervals hold at once{share}"


def _title(finding: Finding) -> str:
    of = str(finding.parameters["of"])
    how = " (exact)" if finding.evidence.get("method") == "exact" else ""
    return f"{_OF.get(of, of)}{how}"


def _cell(part: Any) -> str:
    if part is None:
        return "-"
    ends = part["interval"]
    return f"{part['value']:+.3f} " + ("not seen" if ends is None else interval((ends[0], ends[1])))


def _left(finding: Finding) -> str:
    names = ", ".join(finding.within)
    evidence = finding.evidence
    if evidence["refused"] is not None:
        best = evidence["separating"]["column"]
        return f"alike in {names}: not printed, {evidence['refused']}; {best} separates best"
    left = evidence["left"]
    return (
        f"alike in {names}: {number(left['group'])} {interval((left['group_low'], left['group_high']))} is left "
        f"(other direction {number(left['reference'])}, overlap {number(left['overlap'])})"
    )


# Groups that a search found: the bound by size, the groups, which are the same people, and what became of them.


def subgroup_section(report: Report) -> Section | None:
    """Return the section of the subgroup searches; None where none was made."""
    searched = searches(report)
    if not searched:
        return None
    intro = (
        "Every group that a few conditions describe was compared with all other rows. The intervals hold for all "
        "groups at once, so that the worst one may be picked afterwards."
    )
    parts = [_search(each, report.confidence) for each in searched]
    return Section(Span("Groups that nobody named", on=On.PAGE), [Note(intro, on=On.PAGE), *parts])


def _search(searched: Searched, confidence: float) -> Section:
    title = [Span(f"Groups that nobody named: {searched.name}", on=On.TEXT), Span(capital(searched.name), on=On.PAGE)]
    rows: list[Sequence[Cell]] = [
        (
            name_of(described(finding)),
            f"{finding.evidence.get('rows', 0):,}",
            share_of(finding),
            told(finding, "rate"),
            told(finding, "rest"),
            *sized(finding.value, finding.interval),
        )
        for finding in searched.listed
    ]
    columns = [*words("group"), *numbers("rows", "share", *searched.columns, "difference", "interval")]
    table = Table(f"Groups that differ in {searched.name}", columns, rows)
    listed = table if rows else Note("No group was found whose disadvantage is certain.")
    bound = Note(bound_sentence(searched, confidence), "muted")
    covers = _covers(searched) if len(searched.covers) > 1 else None
    return Section(title, [listed, bound, covers, _curve(searched) if len(searched.curve) > 1 else None], "part")


def _covers(searched: Searched) -> Section:
    """Return which part of each group is in each other one."""
    rows: list[Sequence[Cell]] = [
        (name_of(f"{index}: {described(finding)}"), *(f"{part:.0%}" for part in parts))
        for index, (finding, parts) in enumerate(zip(searched.listed, searched.covers, strict=True), 1)
    ]
    columns = [*words("part of this group"), *numbers(*(f"in {index}" for index in range(1, len(rows) + 1)))]
    title = "Which groups are the same people"
    return Section(title, [Table(f"{title}: {searched.name}", columns, rows)], "fold", on=On.PAGE)


def _curve(searched: Searched) -> Chart:
    title = f"How much a group may differ at most, by its share of the rows: {searched.name}"
    points = [
        {
            "share": share,
            "bound": bound,
            "tip": f"no group of at least {share:.3g} of the rows differs by more than {number(bound)}",
        }
        for share, bound in searched.curve
    ]
    rows = [(f"{share:.3g}", number(bound)) for share, bound in searched.curve]
    table = Table(title, numbers("share of the rows", "at most"), rows)
    return Chart(title, lambda narrow: step_curve(points, narrow=narrow), table, on=On.PAGE)
