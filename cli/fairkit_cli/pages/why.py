"""What carries a gap: a table of its columns, the parts of rates, and what allowed columns leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.reading import decided, metric_term
from fairkit.support.numbers import interval, number
from fairkit_cli.pages.parts import Column, Note, On, Section, Span, Table, capital, name_of, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.pages.parts import Cell, Part

AUDITOR = "why"
MOST = 6
"""Columns that have a line of their own."""
_MARKS = 12
_RATES = {name: name for name in ("true_positive_rate", "false_positive_rate")} | {"decision": "selection_rate"}
_OF = {"decision": "favorable decisions", "true_positive_rate": "favorable decisions among the qualified",
       "false_positive_rate": "favorable decisions among the unqualified", "score": "log-odds",
       "outcome": "favorable outcomes"}  # fmt: skip
_PARTS = {"base_rate_part": ("more people of group {0} are qualified", "fewer people of group {0} are qualified"),
          "true_positive_rate_part": ("its qualified {1} more often", "its qualified {1} less often"),
          "false_positive_rate_part": ("its unqualified {1} more often", "its unqualified {1} less often")}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Divided:
    """The findings about one group and its reference."""

    findings: tuple[Finding, ...]

    def of(self, metric: str) -> list[Finding]:
        """Return those of a metric."""
        return [one for one in self.findings if one.metric == metric]


def divided(report: Report) -> list[Divided]:
    """Return the decompositions of gaps, by sensitive column and group."""
    found: dict[Any, list[Finding]] = {}
    for one in report.findings:
        if one.auditor == AUDITOR:
            found.setdefault((one.sensitive, one.reference, one.parameters.get("group")), []).append(one)
    return [Divided(tuple(one)) for one in found.values()]


def why_parts(report: Report) -> list[Section]:
    """Return what carries each gap."""
    parts = [part for each in divided(report) for part in _parts(report, each)]
    return [Section(Span("Why", on=On.PAGE | On.SUMMARY), parts)] if parts else []


def _parts(report: Report, division: Divided) -> list[Part]:
    """Return what is said about one group, a paragraph for each part of the division."""
    attributions = [a for a in division.of("attribution") if a.evidence.get("columns")]
    head = _head(division)
    parts: list[Part] = [Note([Span("why  ", on=On.SCREEN), capital(head)], "strong")]
    parts += [Note(text) for each in attributions[:1] if (text := in_people(report, each))]
    if attributions:
        parts += [_table(head, attributions), Note(_rest(attributions[0]))]
    do = decided(report, "get a favorable decision")
    rates = [
        f"{_sized(p)} because {_PARTS[p.metric][(p.value or 0) < 0].format(p.groups[0].group, do)}"
        for p in division.findings
        if p.metric in _PARTS and p.groups
    ]
    said = [f"of the gap {'; '.join(rates)}"] if rates else []
    said += map(_left, division.of("unexplained_difference"))
    for gone in division.of("gap_without"):
        again = gone.evidence
        said.append(
            f"trained again with {gone.parameters['without']} {number(again['with'])}, without it {_sized(gone)}; "
            f"change {number(again['change'])} {interval(tuple(again['change_interval']))}"
        )
    said += [note for few in division.of("attribution") if few.value is None for note in few.notes]
    if attributions:
        said.append(attributions[0].notes[-1])
    return [*parts, *map(Note, map(capital, said)), Note("", on=On.SCREEN)]


def _head(one: Divided) -> str:
    first = one.findings[0]
    groups = " minus ".join(f"{group.group} ({group.rows:,} people)" for group in first.groups) or f"{first.place}"
    whole = next((f for f in one.findings if f.metric == "attribution" and f.value is not None), None)
    if whole is None:
        gap = next((f.evidence["gap"] for f in one.findings if "gap" in f.evidence), None)
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
    parts = [{part["column"]: part for part in one.evidence["columns"]} for one in attributions]
    longest = max((abs(part["value"]) for part in parts[0].values()), default=0.0) or 1.0
    rows: list[Sequence[Cell]] = []
    for name, part in list(parts[0].items())[:MOST]:
        bar = "#" * round(_MARKS * abs(part["value"]) / longest)
        rows.append((name_of(name), *(_cell(one.get(name)) for one in parts), bar))
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
