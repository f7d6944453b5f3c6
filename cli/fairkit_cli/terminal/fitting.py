"""Tables that fit the width: pictures go first, then words wrap; numbers, groups and verdicts are never cut."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType
    from rich.table import Column, Table
    from rich.text import Text

GAP = 2
"""Spaces between two columns."""
PICTURE = "···"
"""What the header of a column of bars has in it; such a column is left out where it does not fit."""
NARROW = 8
"""No column of words is made narrower, unless its words are."""
_PIECE = re.compile(r"[^\s_+&/=-]*[\s_+&/=-]*")


def fitted(table: Table, width: int, shown: Callable[[object], str] = str) -> tuple[Table, int]:
    """Return a table for so many columns of text, and the columns that it takes: more where nothing can give way.

    Numbers stand on the right and keep their width, their headers wrap, and an interval may go below its number. Words
    wrap at spaces, and after ``_``, ``+``, ``&``, ``-`` where a name is longer than its column. `shown` spells a cell
    that comes from data.
    """
    if _total(_natural(table)) <= width:
        return table, width
    kept = [column for column in table.columns if PICTURE not in str(column.header)]
    table.columns = [replace(column, _index=place) for place, column in enumerate(kept)]
    wide, least = _natural(table), [_least(column) for column in table.columns]
    while _total(wide) > width and any(now > low for now, low in zip(wide, least, strict=True)):
        give = max(range(len(wide)), key=lambda place: (wide[place] > least[place], wide[place]))
        wide[give] -= 1
    for index, column in enumerate(table.columns):
        wrap = _parted if column.justify == "right" else _wrapped
        column._cells = [wrap(cell, wide[index], shown) for cell in column._cells]
        header = _wrapped(column.header, wide[index], shown)
        column.header = header
        column.width, column.min_width, column.no_wrap, column.overflow = wide[index], None, False, "fold"
    return table, max(width, _total(wide))


def _total(widths: list[int]) -> int:
    return sum(widths) + GAP * max(len(widths) - 1, 0)


def _natural(table: Table) -> list[int]:
    return [max(map(_length, [column.header, *column._cells]), default=0) for column in table.columns]


def _least(column: Column) -> int:
    """Return the narrowest that a column may be: its numbers and its longest piece of a word are never cut."""
    header = _longest(column.header)
    if column.justify == "right":
        return max([header, *(_length(_parts(cell)) for cell in column._cells)])
    return max([header, *map(_longest, column._cells), NARROW * bool(column._cells)])


def _longest(cell: object) -> int:
    return max((len(piece.rstrip()) for piece in _PIECE.findall(_text(cell))), default=0)


def _length(cell: object) -> int:
    return max(map(len, _text(cell).split("\n")), default=0)


def _parts(cell: object) -> str:
    """Return the text of a cell with an interval below its number."""
    return _text(cell).replace(" [", "\n[")


def _text(cell: object) -> str:
    return str(getattr(cell, "plain", cell))


def _parted(cell: RenderableType, width: int, shown: Callable[[object], str]) -> RenderableType:
    """Return a cell of numbers, an interval below its number where both are wider than the column."""
    from rich.text import Text

    if _length(cell) <= width:
        return cell
    return Text(_parts(cell), style=cell.style) if isinstance(cell, Text) else shown(_parts(cell))


def _wrapped(cell: object, width: int, shown: Callable[[object], str]) -> Text:
    """Return a cell whose lines are at most so wide, in its own style."""
    from rich.text import Text

    text = cell if isinstance(cell, Text) else Text(shown(cell))
    if len(text.plain) <= width:
        return text
    lines, line = [], ""
    for piece in _PIECE.findall(text.plain):
        if line and len((line + piece).rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return Text("\n".join([*lines, line.rstrip()]), style=text.style)
