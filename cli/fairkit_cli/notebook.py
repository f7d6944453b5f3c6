"""The page of a report in a notebook: the same as in a file, in a frame of its own."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit.results.findings import Report


@dataclass(frozen=True, slots=True)
class Shown:
    """What a notebook shows of a report: ``fairkit_cli.notebook.Shown(report)`` as the last line of a cell.

    Attributes
    ----------
    report
        Of an audit.
    height
        Of the frame, in pixels.
    """

    report: Report
    height: int = 800

    def _repr_html_(self) -> str:
        """Return the page in a frame; its style and script stay inside."""
        from fairkit_cli.html.report import report_page

        page = html.escape(report_page(self.report))
        return (
            f'<iframe srcdoc="{page}" title="Fairness audit" sandbox="allow-scripts" '
            f'style="width:100%;height:{self.height}px;border:0"></iframe>'
        )
