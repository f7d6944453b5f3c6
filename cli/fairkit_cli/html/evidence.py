"""The section of evidence that plugins show: each chart's picture, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.html.everybody import bounded_auditors
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import figure, section, table
from fairkit_cli.html.svg import draw
from fairkit_cli.text.evidence import Shown, cell, plugin_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.report import Report


def evidence_section(report: Report) -> Markup | None:
    """Return the section with the charts of plugins; None without charts."""
    found, notes = plugin_evidence(report)
    parts: list[Content] = []
    bounded = bounded_auditors(report)
    for chart in found:
        if chart.finding.auditor in bounded:  # shown in a section of its own
            continue
        try:
            parts.append(evidence_figure(chart))
        except Exception as error:  # a plugin's picture is somebody else's code
            notes.append(f"The picture of {chart.title} cannot be drawn: {error}")
    parts += [tag("p", note, class_="muted") for note in notes]
    return section("Further evidence", parts) if parts else None


def evidence_figure(chart: Shown) -> Markup:
    """Return the picture of evidence, with its numbers."""
    rows: list[Sequence[Content]] = [tuple(name_of(cell(value)) for value in row) for row in chart.table.rows]
    numeric = {
        place
        for place in range(len(chart.table.columns))
        if all(isinstance(row[place], int | float | None) for row in chart.table.rows)
    }
    numbers = table(chart.table.columns, rows, numeric=numeric, label=chart.title)
    pictures = [
        draw(spec, title=chart.title, class_="narrow" if narrow else "wide")
        for narrow in (False, True)
        if (spec := chart.chart.picture(chart.value, narrow=narrow)) is not None
    ]
    return figure(pictures, chart.title, numbers) if pictures else tag("div", tag("h3", chart.title), numbers)
