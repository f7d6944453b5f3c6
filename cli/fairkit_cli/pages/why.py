"""What carries a gap, as a few lines: columns beside each other, the parts of rates, what allowed columns leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_cli.pages.parts import Lines, On, Section, Span, Table, name_of, numbers, words
from fairkit_cli.text.numbers import interval, measured, number
from fairkit_cli.text.view import MEANING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.comparisons import Change
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.pages.parts import Cell

AUDITOR = "why"
MOST = 6
"""Columns that have a line of their own."""
_MARKS = 12
_OF = {"decision": "selection rate", "true_positive_rate": "true positive rate", "score": "score before the link",
       "false_positive_rate": "false positive rate", "prediction": "prediction", "residual": "residual",
       "outcome": "base rate"}  # fmt: skip
_PARTS = {"base_rate_part": "base rates", "true_positive_rate_part": "true positive rates",
          "false_positive_rate_part": "false positive rates"}  # fmt: skip


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
    """Return what carries each gap, in lines."""
    parts = [Lines(why_lines(each)) for each in divided(report)]
    return [Section(Span("Why", on=On.PAGE | On.SUMMARY), parts)] if parts else []


def part_changes(changes: Sequence[Change], names: tuple[str, str]) -> Section | None:
    """Return what became of each gap and of its columns' parts, the largest changes first."""
    attributions = [change for change in changes if change.metric == "attribution"]
    if not attributions:
        return None

    def key(change: Change) -> tuple[str, str, Any]:
        return str(change.place), str(change.parameters["of"]), change.parameters.get("group")

    gaps = list(dict.fromkeys(map(key, attributions)))
    attributions.sort(key=lambda each: (gaps.index(key(each)), _is_part(each), -abs(each.difference or 0.0)))
    rows: list[Sequence[Cell]] = []
    for change in attributions:
        whole = f"the gap: {_OF[str(change.parameters['of'])]}"
        ends = (None, None) if "part" in change.parameters else (change.before, change.after)
        name = change.parameters.get("column", change.parameters.get("part", whole))
        measure = measured(change.difference, change.interval)
        outcome = Span(MEANING[change.outcome], change.outcome)
        rows.append((name_of(change.place or "-"), name_of(str(name)), *map(number, ends), measure, outcome))
    columns = [*words("groups of", "column"), *numbers(*map(name_of, names), "change"), *words("")]
    title = "What carries the gap (intervals hold at once)"
    return Section(title, [Table(title, columns, rows)], "part")


def _is_part(change: Change) -> bool:
    return not {"column", "part"}.isdisjoint(change.parameters)


def why_lines(division: Divided) -> list[str]:
    """Return the lines about one group."""
    attributions = [a for a in division.of("attribution") if a.evidence.get("columns")]
    lines = [_head(division)]
    if attributions:
        lines += _columns(attributions)
    parts = [f"{_PARTS[p.metric]} {_sized(p)}" for p in division.findings if p.metric in _PARTS]
    if parts:
        lines.append("  " + ", ".join(parts))
    for left in division.of("unexplained_difference"):
        lines.append("  " + _left(left))
    for gone in division.of("gap_without"):
        told = gone.evidence
        lines.append(
            f"  trained again with {gone.parameters['without']} {number(told['with'])}, without it {_sized(gone)}; "
            f"change {number(told['change'])} {interval(tuple(told['change_interval']))}"
        )
    for few in division.of("attribution"):
        if few.value is None:
            lines += [f"  {note}" for note in few.notes]
    if attributions:
        lines.append(f"  {attributions[0].notes[-1]}")
    return lines


def _head(one: Divided) -> str:
    first = one.findings[0]
    groups = " - ".join(f"{group.group} {group.rows:,}" for group in first.groups) or f"{first.place}"
    whole = next((f for f in one.findings if f.metric == "attribution" and f.value is not None), None)
    if whole is None:
        gap = next((f.evidence["gap"] for f in one.findings if "gap" in f.evidence), None)
        return f"why  {first.sensitive}, {groups}" + ("" if gap is None else f": {number(gap)}")
    return f"why  {_OF[str(whole.parameters['of'])]}, {groups}: {_sized(whole)}"


def _sized(finding: Finding) -> str:
    return f"{number(finding.value)} {interval(finding.interval)}"


def _columns(attributions: Sequence[Finding]) -> list[str]:
    """Return a line for each of the largest parts, and one for the others; the first attribution orders them."""
    first = attributions[0]
    names = [part["column"] for part in first.evidence["columns"]]
    shown = names[:MOST]
    width = max(map(len, [*shown, "column"]))
    heads = [_title(one) for one in attributions]
    parts = [{part["column"]: part for part in one.evidence["columns"]} for one in attributions]
    cells = [[_cell(part.get(name)) for name in shown] for part in parts]
    widths = [max(map(len, [head, *column])) for head, column in zip(heads, cells, strict=True)]
    longest = max((abs(part["value"]) for part in first.evidence["columns"]), default=0.0) or 1.0
    lines = [
        "  " + "  ".join([f"{'column':{width}}", *(f"{h:{w}}" for h, w in zip(heads, widths, strict=True))])
    ]
    for place, name in enumerate(shown):
        row = "  ".join(f"{column[place]:{w}}" for column, w in zip(cells, widths, strict=True))
        bar = "#" * round(_MARKS * abs(parts[0][name]["value"]) / longest)
        lines.append(f"  {name:{width}}  {row}  {bar}".rstrip())
    rest = [part["value"] for part in first.evidence["columns"][MOST:]]
    more = f"{len(rest)} more {sum(rest):+.3f}; " if rest else ""
    sampled = first.evidence.get("sampling_share")
    share = "" if sampled is None else f"; sampling is {sampled:.0%} of their variance"
    lines.append(f"  {more}sum {number(first.value)}. Intervals hold at once{share}")
    return lines


def _title(finding: Finding) -> str:
    how = " (exact)" if finding.evidence.get("method") == "exact" else ""
    return f"{_OF[str(finding.parameters['of'])]}{how}"


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
