"""Text on a terminal: whatever comes from data is shown as it is spelled, never as markup, link or control sequence."""

from __future__ import annotations

import io
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType
    from rich.text import Text

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


def to_text(parts: Iterable[RenderableType], *, terminal: bool) -> str:
    """Render with rich: the terminal's width and colours, or plain text of 100 columns (``COLUMNS`` names others).

    Tables are made to fit (see `fairkit_cli.terminal.fitting`); where nobody says how wide the text may be, they are as
    wide as they are. Strings, also those in tables, are shown as they are spelled: see `shown`.
    """
    from rich.table import Table

    from fairkit_cli.terminal.fitting import fitted

    target = io.StringIO()
    told = told_width(terminal=terminal)
    width = told or 100
    console = _console(file=target, width=width, force_terminal=terminal, no_color=not terminal)
    for part in parts:
        if isinstance(part, Table):
            table, console.width = fitted(part, width if told else WIDEST, shown)
            console.print(table)
            console.width = width
        else:
            console.print(part)
    return "\n".join(line.rstrip() for line in target.getvalue().split("\n")).rstrip("\n") + "\n"


def told_width(*, terminal: bool) -> int | None:
    """Return how wide text may be: as the terminal, or as ``COLUMNS`` says; None where nobody says."""
    if not (terminal or os.environ.get("COLUMNS", "").isdigit()):
        return None
    return max(shutil.get_terminal_size((100, 24)).columns, LEAST)


def indented(text: str, indent: str = "    ") -> list[str]:
    """Return a sentence in lines that fit where somebody says how wide text may be, else in one."""
    from textwrap import wrap

    width = told_width(terminal=sys.stdout.isatty())
    if width is None:
        return [indent + text]
    return wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)


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
