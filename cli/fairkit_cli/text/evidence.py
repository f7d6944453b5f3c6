"""Evidence that plugins show: for each finding the charts that know one of its keys, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.reading import metric_name
from fairkit.support.numbers import number

if TYPE_CHECKING:
    from fairkit.charts import Cell, ChartTable, EvidenceChart
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


@dataclass(frozen=True, slots=True)
class Shown:
    """One finding's evidence with the chart that shows it and its numbers."""

    finding: Finding
    title: str
    chart: EvidenceChart
    value: Any
    table: ChartTable


def plugin_evidence(report: Report) -> tuple[list[Shown], list[str]]:
    """Return the charts that plugins make of a report's evidence, and a note for each that fails."""
    from fairkit import plugins

    measured = {finding.auditor for finding in report.findings}
    ours = [plugins.load(one.name) for one in plugins.find() if one.built_in and one.name in measured]
    shown = [*plugins.third_party()[0], *ours]
    charts = {cls.name: cls() for plugin in shown for cls in plugin.evidence_charts}
    drawn, notes = [], []
    for finding in report.findings:
        for key in sorted(finding.evidence.keys() & charts.keys()):
            chart, value = charts[key], finding.evidence[key]
            try:
                table = chart.table(value)
            except Exception as error:  # it may be somebody else's certificate, and is somebody else's code
                notes.append(f"The evidence {key!r} of {finding.metric} cannot be shown: {error}")
                continue
            about = f" ({finding.sensitive})" if finding.sensitive else ""
            drawn.append(Shown(finding, f"{chart.title}: {metric_name(finding)}{about}", chart, value, table))
    return drawn, notes


def cell(value: Cell) -> str:
    """Write a cell of a chart's table."""
    if isinstance(value, float) or value is None:
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
