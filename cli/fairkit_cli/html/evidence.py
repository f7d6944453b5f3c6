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
    """Return what the charts of plugins show; None where there is nothing."""
    found, notes = plugin_evidence(report)
    parts: list[Content] = []
    bounded = bounded_auditors(report)
    for one in found:
        if one.finding.auditor in bounded:  # shown in a section of its own
            continue
        try:
            parts.append(evidence_figure(one))
        except Exception as error:  # a plugin's picture is somebody else's code
            notes.append(f"The picture of {one.title} cannot be drawn: {error}")
    parts += [tag("p", note, class_="muted") for note in notes]
    return section("Further evidence", parts) if parts else None


def evidence_figure(one: Shown) -> Markup:
    """Return the picture of evidence, with its numbers."""
    rows: list[Sequence[Content]] = [tuple(name_of(cell(value)) for value in row) for row in one.table.rows]
    numeric = {
        place
        for place in range(len(one.table.columns))
        if all(isinstance(row[place], int | float | None) for row in one.table.rows)
    }
    numbers = table(one.table.columns, rows, numeric=numeric, label=one.title)
    pictures = [
        draw(spec, title=one.title, class_="narrow" if narrow else "wide")
        for narrow in (False, True)
        if (spec := one.chart.picture(one.value, narrow=narrow)) is not None
    ]
    return figure(pictures, one.title, numbers) if pictures else tag("div", tag("h3", one.title), numbers)
