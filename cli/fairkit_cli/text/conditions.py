"""Groups against a reference, and inside strata: what is shown of it on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.plain import plain
from fairkit_cli.text.view import Stratified, against, inside

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from fairkit.results.report import Report


def conditions(report: Report) -> list[RenderableType]:
    """Return the tables of references and strata; nothing where there are none."""
    parts: list[RenderableType] = []
    for (sensitive, reference), findings in against(report).items():
        grid = _grid(f"Groups of {sensitive} against {reference}, intervals that hold together")
        for name in ("metric", "group", "value", "interval"):
            grid.add_column(name, justify="right" if name in ("value", "interval") else "left")
        for finding in findings:
            for group in finding.groups:
                grid.add_row(
                    plain(finding.metric), plain(group.group), number(group.value), interval(group.interval)
                )
        parts += [grid, ""]
    for found in inside(report):
        parts += _inside(found)
    return parts


def _grid(title: str) -> Table:
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, title_justify="left", title=plain(title))
    grid.title_style = "bold"
    return grid


def _inside(stratified: Stratified) -> list[RenderableType]:
    grid = _grid(
        f"Groups of {stratified.sensitive} inside the strata of {stratified.within}, {stratified.how}"
    )
    for name in ("metric", "as a whole", "inside strata", "interval", "strata agree"):
        grid.add_column(name, justify="left" if name == "metric" else "right")
    for row in stratified.rows:
        grid.add_row(row.metric, number(row.whole), number(row.value), interval(row.interval), row.agreement)
    parts: list[RenderableType] = [grid, ""]
    if stratified.strata is None:
        return parts
    finding = stratified.strata
    high, low = (finding.evidence.get(f"{end}_group", "") for end in ("highest", "lowest"))
    strata_grid = _grid(f"{finding.metric} in each stratum: {high} minus {low}")
    strata_grid.add_column(stratified.within)
    strata_grid.add_column("rows", justify="right")
    names = [group.group for group in finding.strata[0].groups]
    for name in (*names, "difference", "interval"):
        strata_grid.add_column(plain(name), justify="right")
    for stratum in finding.strata:
        values = [number(group.value) for group in stratum.groups]
        mark = "  few rows" if stratum.few else ""
        strata_grid.add_row(
            plain(stratum.stratum),
            f"{stratum.rows:,}",
            *values,
            number(stratum.value),
            interval(stratum.interval) + mark,
        )
    return [*parts, strata_grid, ""]
