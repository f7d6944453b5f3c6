"""A frontier for the terminal: the points with their intervals, the picked one on test rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.fields import as_options
from fairkit_cli.text.comparison import change_tables
from fairkit_cli.text.numbers import measured, number
from fairkit_cli.text.plain import plain, to_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairkit_repair.frontiers.record import Frontier


def frontier_text(result: Frontier, *, terminal: bool) -> str:
    """Return the table of a frontier as text, with colours on a terminal."""
    return to_text(_parts(result), terminal=terminal)


def repeated_rows(result: Frontier) -> list[tuple[str, str, str]]:
    """Return for each point of the front its name, and how far its axes went over the trainings."""
    rows = []
    for place, values in result.repeats.items():
        columns = list(zip(*values, strict=True))
        ranges = [f"{number(min(one))} to {number(max(one))}" for one in columns]
        rows.append((result.points[place].name, ranges[1], ranges[0]))
    return rows


def repeats_title(result: Frontier) -> str:
    """Return the title of the table of repeated trainings."""
    count = max(len(values) for values in result.repeats.values())
    return f"Each trained {count} times, on rows drawn anew: no interval covers this"


def _repeats(result: Frontier) -> list[RenderableType]:
    from rich.table import Table

    if not result.repeats:
        return []
    grid = Table(box=None, pad_edge=False, title_justify="left", title=repeats_title(result))
    grid.title_style = "bold"
    grid.add_column("point", overflow="fold")
    grid.add_column(result.performance, justify="right")
    grid.add_column(result.disparity, justify="right")
    for name, *ranges in repeated_rows(result):
        grid.add_row(plain(name), *ranges)
    return [grid, ""]


def picked_word(result: Frontier) -> str:
    """Return the label of the chosen point: picked only if its limit is not left open by the test rows."""
    return (
        "Picked" if result.verdict in (None, "pass") else f"Not picked ({result.verdict}), the surest point"
    )


def judged_told(result: Frontier) -> str:
    """Say how sure the point was, and what the test rows say of it."""
    chance = None if result.chosen is None else result.chances[result.chosen]
    return (
        f"Predicted chance of keeping the limit {result.limit:g}: {chance or 0.0:.2f}. On the test rows: "
        f"{result.verdict}: {as_options(result.reason)}"
    )


def _parts(result: Frontier) -> list[RenderableType]:
    from rich.table import Table

    train, validation, test = result.rows
    grid = Table(box=None, pad_edge=False, title_justify="left")
    grid.title = f"Points on {validation:,} validation rows, {result.confidence:.0%} intervals"
    grid.title_style = "bold"
    grid.add_column("", no_wrap=True)
    grid.add_column("point", overflow="fold")
    grid.add_column(result.performance, justify="right")
    grid.add_column(result.disparity, justify="right")
    for index, point in enumerate(result.points):
        mark = "◉" if index == result.chosen else "●" if index in result.front else "·"
        axes = result.axes(point)
        if axes is None:
            grid.add_row("✗", point.name, plain(f"failed: {as_options(point.error)}", "red"), "")
            continue
        x, y = axes
        cells = [measured(one.value, one.interval) for one in (y, x)]
        grid.add_row(mark, point.name, *cells, style="bold" if index == result.chosen else None)
    parts: list[RenderableType] = [
        grid,
        plain("◉ picked  ● on the front  · beaten on both axes  ✗ failed", "dim"),
        "",
    ]
    parts += _repeats(result)
    if result.chosen is not None:
        parts += [
            plain(f"{picked_word(result)}: {result.points[result.chosen].name}", "bold"),
            plain(f"{result.rule}; {train:,} rows to learn from"),
            *([plain(judged_told(result), "bold")] if result.verdict is not None else []),
            plain(f"On {test:,} test rows, beside the baseline:"),
            "",
            *change_tables(result.changes, ("baseline", "picked"), result.confidence),
        ]
    return [*parts, *(plain(f"· {as_options(note)}") for note in result.notes)]
