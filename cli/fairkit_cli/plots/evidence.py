"""Evidence of auditors' own, as their charts draw it on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, did_you_mean
from fairkit_cli.plots.style import altair
from fairkit_cli.text.evidence import plugin_evidence

if TYPE_CHECKING:
    from fairkit.results.report import Report


def evidence(report: Report, name: str, sensitive: str | None = None) -> Any:
    """Draw `fairkit.results.plots.ReportPlots.evidence`."""
    alt = altair()
    pictures = {
        (one.chart.name, place): (one, picture)
        for place, one in enumerate(plugin_evidence(report)[0])
        if (picture := one.chart.picture(one.value, narrow=False)) is not None
    }
    names = {key for key, _ in pictures}
    if name not in names:
        raise DataError(f"the report has no picture of {name!r}. {did_you_mean(name, names, what='pictures')}")
    panels = [
        alt.Chart.from_dict({**picture, "title": f"{one.title} {one.finding.parameters.get('of', '')}".strip()})
        for (key, _), (one, picture) in pictures.items()
        if key == name and sensitive in (None, one.finding.sensitive)
    ]
    if not panels:
        raise DataError(f"the report has no picture of {name!r} for {sensitive!r}")
    return panels[0] if len(panels) == 1 else alt.hconcat(*panels)
