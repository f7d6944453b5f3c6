"""Pages as Markdown, for job summaries, wikis and pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.escaping import markdown as escaped
from fairkit.support.markdown import markdown_table
from fairkit.support.numbers import number
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Facts,
    Inline,
    Item,
    Listing,
    Measured,
    Note,
    On,
    Section,
    Table,
    plain_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit_cli.pages.parts import Page, Part

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "undecided": "❔"}


def markdown_page(page: Page) -> str:
    """Return a page's summary."""
    titled = any(isinstance(part, Note) and part.kind == "title" and On.SUMMARY in part.on for part in page.parts)
    return "\n".join(_parts(page.parts, level=2 if titled else 3))


def _parts(parts: Sequence[Part | None], level: int) -> Iterator[str]:
    for part in parts:
        if part is not None and On.SUMMARY in part.on:
            yield from _part(part, level)


def _part(part: Part, level: int) -> Iterator[str]:
    if isinstance(part, Section):
        title = _text(part.title)
        inner = list(_parts(part.parts, level + bool(title)))
        if inner:
            yield from (f"{'#' * level} {title}", "") if title else ()
            yield from inner
    elif isinstance(part, Note):
        yield from (_note(part), "")
    elif isinstance(part, Listing):
        yield from (_item(item, part.kind) for item in part.items)
        yield ""
    elif isinstance(part, Facts):
        yield from (f"- {_text(name)}: {_text(value)}" for name, value in part.entries)
        yield ""
    elif isinstance(part, Table):
        yield from _table(part)
    elif isinstance(part, Chart) and part.table is not None:
        yield from _table(part.table)


def _note(note: Note) -> str:
    text = _text(note.content)
    if note.kind == "title":
        return f"# {text}"
    if note.kind == "banner":
        word = note.status.upper() if note.word is None else escaped(note.word)
        return f"## {_MARKS[note.status]} {word}: {text}" if note.status in _MARKS else f"## {text}"
    if note.kind == "evidence":
        return f"**{escaped(note.word or '')}: {text}**"
    if note.kind == "gap":
        return f"- **{text}**"
    return f"> {text}" if note.kind == "warning" else text


def _item(item: Item | Inline, kind: str) -> str:
    content, status = (item.content, item.status) if isinstance(item, Item) else (item, None)
    mark = f"{_MARKS[status]} " if kind == "rules" and status in _MARKS else ""
    return f"- {mark}{_text(content)}"


def _table(table: Table) -> Iterator[str]:
    shown = [place for place, column in enumerate(table.columns) if On.SUMMARY in column.on]
    rows = [[_cell(row[place]) for place in shown] for row in table.rows]
    return markdown_table([_text(table.columns[place].name) for place in shown], rows)


def _cell(cell: Cell) -> str:
    return number(cell.value) if isinstance(cell, Measured) else _text(cell)


def _text(content: Inline) -> str:
    return escaped(plain_text(content, On.SUMMARY))
