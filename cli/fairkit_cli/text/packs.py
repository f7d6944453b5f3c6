"""A pack filled with an audit as Markdown, and its tables as CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from fairkit.support.escaping import markdown as escaped
from fairkit.support.escaping import visible
from fairkit_cli.text.numbers import number

if TYPE_CHECKING:
    from fairkit.packs import Answered, Cell, Column, Fact, PackTable, Rendering

GAP = "GAP"
NOT_STATED = "not stated: "
"""What stands where nothing was stated: it is never left out."""
ACTING = ("=", "+", "-", "@")
"""What begins a formula in a spreadsheet; a text that begins so gets an apostrophe."""


def shown_cell(value: Cell, column: Column) -> str:
    """Write a cell by its column's kind; None is not defined."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return visible(value)
    if column.kind == "percent":
        return f"{100 * value:.1f}%"
    if column.kind == "ratio":
        return f"{value:.3f}"
    if column.kind == "p":
        return f"{value:.2g}" if value >= 1e-4 else "< 0.0001"
    return f"{value:,}" if isinstance(value, int) else number(value)


def shown_fact(value: str | bool | None, fact: Fact) -> str:
    """Write what a person stated; a gap where nothing was, and it is needed."""
    if value is None:
        return GAP if fact.required else "not stated"
    return ("yes" if value else "no") if isinstance(value, bool) else value


def not_answered(made: Rendering) -> str:
    """Say how many items are not answered."""
    count = len(made.gaps)
    return "1 item is not answered" if count == 1 else f"{count} items are not answered"


def origin(table: PackTable) -> str:
    """Say where a table's numbers come from."""
    return "computed from signed counts" if table.computed else "signed"


def pack_markdown(made: Rendering, states: list[str]) -> str:
    """Return a rendering as Markdown.

    Parameters
    ----------
    made
        The rendering.
    states
        What the checks of the evidence said.
    """
    pack = made.pack
    lines = [f"# {escaped(pack.title)}", "", escaped(pack.law), ""]
    lines += [text for state in states for text in (f"**{escaped(state)}**", "")]
    lines += [f"Source: {escaped(pack.source)}, checked {pack.checked.isoformat()}.", ""]
    lines += [f"> {escaped(pack.notice)}", ""]
    lines += [f"- {escaped(note)}" for note in made.notes]
    if made.gaps:
        lines += ["", f"**{not_answered(made)}:**", ""]
        lines += [f"- {GAP} {escaped(gap)}" for gap in made.gaps]
    for one in made.items:
        lines += _item(one)
    return "\n".join(lines).rstrip() + "\n"


def _item(one: Answered) -> list[str]:
    lines = ["", f"## {escaped(one.item.clause)}: {escaped(one.item.title)}", ""]
    if one.item.says:
        lines += [escaped(one.item.says), ""]
    lines += [f"- {escaped(fact.title)}: {escaped(shown_fact(value, fact))}" for fact, value in one.facts]
    lines += [f"- **{GAP}**: {escaped(gap)}" for gap in one.gaps if not gap.startswith(NOT_STATED)]
    for table in one.tables:
        lines += ["", f"### {escaped(table.title)} ({origin(table)})", "", *_table(table), ""]
        lines += [f"- {escaped(note)}" for note in table.notes]
    return lines


def _table(table: PackTable) -> list[str]:
    head = "| " + " | ".join(escaped(column.name) for column in table.columns) + " |"
    rule = "| " + " | ".join("---" if column.kind == "text" else "---:" for column in table.columns) + " |"
    rows = [
        "| "
        + " | ".join(_cell(value, column) for value, column in zip(row, table.columns, strict=True))
        + " |"
        for row in table.rows
    ]
    return [head, rule, *rows]


def _cell(value: Cell, column: Column) -> str:
    return escaped(shown_cell(value, column))


def pack_csv(made: Rendering) -> str:
    """Return the tables of a rendering as one CSV file: clause, table, then every table's columns, numbers in full."""
    names = list(dict.fromkeys(column.name for table in made.tables for column in table.columns[1:]))
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["clause", "table", "row", *map(_safe, names)])
    for one in made.items:
        for table in one.tables:
            place = {column.name: i for i, column in enumerate(table.columns) if i}
            for row in table.rows:
                cells = [row[place[name]] if name in place else None for name in names]
                writer.writerow([_safe(cell) for cell in (one.item.clause, table.title, row[0], *cells)])
    return target.getvalue()


def _safe(cell: Cell) -> Cell:
    """Keep a spreadsheet from taking a name for a formula."""
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = visible(cell)
    return f"'{text}" if text.startswith(ACTING) else text
