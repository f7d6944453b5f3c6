"""Text and tables that fit a screen: pictures go first, then words wrap; numbers, groups and verdicts are never cut."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import Console, RenderableType
    from rich.table import Column, Table
    from rich.text import Text


GAP = 2
"""Spaces between two columns."""
PICTURE = "···"
"""What the header of a column of bars has in it; such a column is left out where it does not fit."""
NARROW = 8
"""No column of words is made narrower, unless its words are."""
_PIECE = re.compile(r"(?:[^\s_+&/=-]|(?<=\d)-(?=\d))*[\s_+&/=-]*")


def fitted(table: Table, width: int, shown: Callable[[object], str] = str) -> tuple[Table, int]:
    """Return a table for so many columns of text, and the columns that it takes: more where nothing can give way.

    Numbers stand on the right and keep their width, their headers wrap, and an interval may go below its number. Words
    wrap at spaces, and after ``_``, ``+``, ``&``, ``-`` where a name is longer than its column. `shown` spells a cell
    that comes from data.
    """
    if _total(_natural(table)) <= width:
        return table, width
    columns = [column for column in table.columns if PICTURE not in str(column.header)]
    table.columns = [replace(column, _index=position) for position, column in enumerate(columns)]
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


LEAST = 40
"""Text is not made narrower, however narrow the terminal is."""
WIDEST = 10_000
"""The width of tables where nobody says how wide they may be."""
LONGEST = 300
"""Characters of one name or sentence in a table; what is longer is cut, with its length beside it."""


def shown(text: object) -> str:
    """Return text from data as one line that can only be read, cut where it is very long."""
    line = visible(text)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}… ({len(line):,} characters)"


def plain(text: object, style: str = "") -> Text:
    """Return one paragraph for rich, without markup; a line feed in a name begins no line."""
    from rich.text import Text

    return Text(visible(text), style=style)


def to_text(parts: Iterable[RenderableType], *, terminal: bool, width: int | None = None) -> str:
    """Render with rich: the terminal's width and colours, or plain text of 100 columns (``COLUMNS`` names others).

    Tables are made to fit (see `fitted`); where nobody says how wide the text may be, they are as
    wide as they are. Strings, also those in tables, are shown as they are spelled: see `shown`.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    target = io.StringIO()
    width_used = width or told_width(terminal=terminal)
    width = width_used or 100
    console = _console(file=target, width=width, force_terminal=terminal, no_color=not terminal)
    for part in parts:
        if isinstance(part, Table):
            table, console.width = fitted(part, width if width_used else WIDEST, shown)
            console.print(table)
            console.width = width
        elif isinstance(part, Text) and part.plain[:1] in " ·" and part.cell_len > width:
            indent = len(part.plain) - len(part.plain.lstrip(" ·✓✗?"))
            first, *rest = part[indent:].wrap(console, width - indent)
            console.print(part[:indent].append_text(first))
            console.print(*(Padding(line, (0, 0, 0, indent)) for line in rest), sep="\n")
        else:
            console.print(part)
    return "\n".join(line.rstrip() for line in target.getvalue().split("\n")).rstrip("\n") + "\n"


def told_width(*, terminal: bool) -> int | None:
    """Return how wide text may be: as the terminal, or as ``COLUMNS`` says; None where nobody says."""
    if not (terminal or os.environ.get("COLUMNS", "").isdigit()):
        return None
    return max(shutil.get_terminal_size((100, 24)).columns, LEAST)


def folded(line: str, *, terminal: bool) -> list[str]:
    """Return a line in lines that fit where somebody says how wide text may be; words, and commands, stay whole."""
    from textwrap import TextWrapper

    width = told_width(terminal=terminal)
    if width is None or len(line) <= width:
        return [line]
    wrapper = TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip()) + 2)
    if not line.startswith("$ "):
        return wrapper.wrap(line)
    wrapper.width = width - 2
    *first, last = wrapper.wrap(line)
    return [*(f"{part} \\" for part in first), last]


def messages() -> Console:
    """Return a console for standard error that shows strings as they are spelled."""
    return _console(file=sys.stderr)


def _console(**settings: Any) -> Console:
    from rich.console import Console

    class PlainConsole(Console):
        """Takes no string for markup, and lets no character of one act."""

        def render_str(self, text: str, **options: Any) -> Text:
            options["markup"] = options["emoji"] = options["highlight"] = False
            return super().render_str(shown(text), **options)

    return PlainConsole(markup=False, emoji=False, highlight=False, soft_wrap=False, **settings)
