"""Evidence that plugins show, each as a picture with its numbers; and what holds for all inputs, with examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fairkit.results.evidence import Bounded, evidence_of
from fairkit_cli.pages.individuals import bounded_auditors
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Column,
    Note,
    On,
    Part,
    Section,
    Span,
    Spec,
    Table,
    name_of,
    numbers,
    sized,
    words,
)
from fairkit_cli.pages.terms import metric_cell
from fairkit_cli.pages.why import AUDITOR as WHY
from fairkit_cli.text.evidence import Shown, cell, plugin_evidence

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


def evidence_sections(report: Report) -> list[Section | None]:
    """Return the section of bounds over all inputs, and that of the other charts of plugins."""
    charts, notes = plugin_evidence(report)
    auditors = bounded_auditors(report)
    bounded = [chart for chart in charts if chart.finding.auditor in auditors]
    parts: list[Part] = [_figure(chart) for chart in charts if chart not in bounded]
    parts += [Note(note, "warning") for note in notes]
    return [_all_inputs(report, auditors, bounded), Section("Further evidence", parts) if parts else None]


def _figure(chart: Shown) -> Section:
    def draw(narrow: bool) -> Spec | None:
        try:
            spec = chart.chart.picture(chart.value, narrow=narrow)
            return None if spec is None else dict(spec)
        except Exception:  # a plugin's picture is somebody else's code: its numbers are shown
            return None

    on = On.PAGE if chart.finding.auditor == WHY else On.ALL  # which has lines of its own
    title = f"{chart.title} {chart.finding.parameters.get('of', '')}".strip()
    figure = Chart(title, draw, _table(chart), name=chart.chart.name, of=chart.finding.sensitive)
    return Section(Span(chart.title, on=On.TEXT), [figure], "part", on=on)


def _table(chart: Shown) -> Table:
    changed = (1, 2)
    rows: list[Sequence[Cell]] = [
        tuple(
            Span(cell(value), "differs" if row[-1] == "changes" and place in changed else "name")
            for place, value in enumerate(row)
        )
        for row in chart.table.rows
    ]
    values = zip(*chart.table.rows, strict=False) if rows else ((),) * len(chart.table.columns)
    columns = [
        Column(name_of(name), numeric=bool(rows) and all(isinstance(value, int | float | None) for value in column))
        for name, column in zip(chart.table.columns, values, strict=False)
    ]
    return Table(chart.title, columns, rows)


def _all_inputs(report: Report, auditors: set[str], witnesses: Sequence[Shown]) -> Section | None:
    """Return the section of bounds over all inputs, each with its witness; None without such bounds."""
    findings = [each for each in report.findings if each.auditor in auditors]
    if not findings:
        return None
    rows: list[Sequence[Cell]] = [
        (
            metric_cell(finding),
            name_of(finding.sensitive) if finding.sensitive else "all rows",
            _answer(finding),
            *sized(finding.value, finding.interval),
        )
        for finding in findings
    ]
    columns = [*words("question", "when these change", "answer"), *numbers("value", "from, to")]
    intro = (
        "About every input that the model's domain allows, not only about the people in the table. An example is an "
        "input that the model was run on; it need not be a person who exists."
    )
    domain = next((d for one in findings if (d := one.evidence.get("domain"))), None)
    if isinstance(domain, Mapping):
        intro += f" The domain: {'; '.join(f'{name}: {text}' for name, text in domain.items())}."
    opened = [Section(each.title, [_table(each)], "fold" if place else "open") for place, each in enumerate(witnesses)]
    table = Table("What holds for all inputs", columns, rows)
    return Section("Anybody: all inputs", [Note(intro, on=On.PAGE), table, *opened])


def _answer(finding: Finding) -> str:
    evidence = evidence_of(finding, Bounded)
    if evidence is None:
        return "estimated from people drawn at random"
    if finding.inconclusive is not None:
        return f"inconclusive: {finding.inconclusive}"
    if not evidence.decided:
        return "undecided: the truth is in this range"
    if finding.metric.endswith("flip"):
        return "there is such an input" if finding.value else "proved: there is none"
    return "proved"
