"""Two people side by side: what is the same, what differs, and how differently the model treats them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairkit.results.evidence import Pairs, evidence_of
from fairkit_cli.text.plain import plain, shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

SHOWN = 2
"""Pairs of each finding."""

_SAME = 4
"""Columns that are named as the same; the others are counted."""


def pairs(report: Report) -> list[RenderableType]:
    """Render the most influential pairs of a report.

    Parameters
    ----------
    report
        Findings whose evidence has ``pairs`` with ``differs`` are shown, the others passed over. Of several
        findings of one metric, the first with pairs is shown.

    Returns
    -------
    list
        For each pair a title, a table, what is the same, and an empty line.
    """
    parts: list[RenderableType] = []
    done: set[tuple[str, str]] = set()
    for finding in report.findings:
        found = evidence_of(finding, Pairs)
        records = () if found is None else found.side_by_side
        if not records or (finding.auditor, finding.metric) in done:
            continue
        done.add((finding.auditor, finding.metric))
        for place, pair in enumerate(records[:SHOWN], start=1):
            parts += [*_side_by_side(finding, pair, place), ""]
    return parts


def _side_by_side(finding: Finding, pair: Mapping[str, Any], place: int) -> list[RenderableType]:
    from rich.table import Table

    epsilon = _text(finding.parameters.get("epsilon"))
    title = (
        f"{finding.auditor}, epsilon {epsilon}: pair {place}, squared fair distance {_text(pair['distance'])}"
    )
    grid = Table(box=None, pad_edge=False)
    grid.add_column("")
    grid.add_column(f"row {pair['from']}", justify="right")
    grid.add_column(f"row {pair['to']}", justify="right")
    for name, (one, two) in pair["differs"].items():
        grid.add_row(name, _text(one), _text(two))
    if "scores" in pair:
        grid.add_row("the model's score", *map(_text, pair["scores"]), style="bold")
    what = "loss" if finding.metric == "performance_gap" else "difference of outputs"
    grid.add_row(what, *map(_text, pair["losses"]), style="bold")
    return [plain(title, "bold"), grid, plain(_same(pair.get("same", {})), "dim")]


def _same(columns: Mapping[str, Any]) -> str:
    if not columns:
        return "Nothing else is the same."
    # A one-hot 0 tells little: what is the case comes first.
    named = sorted(columns, key=lambda name: columns[name] in (0, None))[:_SAME]
    told = ", ".join(f"{shown(name)} {shown(_text(columns[name]))}" for name in named)
    more = len(columns) - len(named)
    return f"The same: {told}" + (f" and {more} more columns." if more else ".")


def _text(value: Any) -> str:
    if value is None:
        return "missing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
