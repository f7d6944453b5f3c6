"""Pages on a terminal, or as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import markdown as escaped
from fairkit.support.escaping import markdown_table, number, visible
from fairkit_cli.pages.parts import (
    Bar,
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
    Span,
    Table,
    plain_text,
)
from fairkit_cli.terminal.plain import shown, to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table as Grid
    from rich.text import Text

    from fairkit_cli.pages.parts import Page, Part


BAR_WIDTH = 26
COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow", "undecided": "yellow"}
MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "undecided": "?"}
_STYLES = {
    **COLOURS,
    "better": "green",
    "worse": "red",
    "changed": "yellow",
    "same": "dim",
    "failed": "red",
    "muted": "dim",
    "strong": "bold",
    "warning": "yellow",
    "alarm": "bold red",
    "subject": "dim",
}
_LEADS = {"warning": "! "}
_SPACED = ("section", "part", "fold", "open")


def text_page(page: Page, *, terminal: bool) -> str:
    """Return a page as text, with colours on a terminal."""
    parts = text_parts(page.parts)
    return to_text(parts, terminal=terminal)


def text_parts(parts: Sequence[Part | None]) -> list[RenderableType]:
    """Return parts for rich, those that screens show."""
    lines: list[RenderableType] = []
    for part in parts:
        if part is not None and On.SCREEN in part.on and (inner := _part(part)):
            apart = isinstance(part, Section) and part.kind == "part" and lines and lines[-1] != ""
            lines += ["", *inner] if apart else inner
    return lines


def _part(part: Part) -> list[RenderableType]:
    writer = _WRITERS.get(type(part))
    return [] if writer is None else writer(part)


def _section(part: Section) -> list[RenderableType]:
    inner, title = text_parts(part.parts), _text(part.title)
    if not inner:
        return []
    title.stylize("bold")
    gap = [""] if part.kind in _SPACED and inner[-1] != "" else []
    return [*([title] if title.plain else []), *inner, *gap]


def _note(note: Note) -> Text:
    from rich.text import Text

    text = _text(note.content)
    if note.kind in ("banner", "evidence") and note.status in MARKS:
        word = (note.status if note.word is None else note.word).upper()
        if word:
            head = Text().append(f"{MARKS[note.status]} {word}", style=f"bold {COLOURS[note.status]}")
            text = head.append(": ").append_text(text)
        return text
    text.style = _STYLES.get(note.kind, "")
    return Text(_LEADS.get(note.kind, ""), style=text.style).append_text(text)


def _item(item: Item | Inline, kind: str) -> Text:
    from rich.text import Text

    content, status = (item.content, item.status) if isinstance(item, Item) else (item, None)
    if kind == "rules" and status is not None:
        return Text().append(f"  {MARKS[status]} ", style=COLOURS[status]).append_text(_text(content))
    return Text("" if kind == "steps" else "· ").append_text(_text(content))


def _text(content: Inline, *, cut: bool = False) -> Text:
    """Return inline content for rich; `cut` shortens what is very long."""
    from rich.text import Text

    text = Text()
    spell = shown if cut else visible
    for run in _runs(content):
        text.append(spell(run.text), style=_STYLES.get(run.role))
    return text


def _runs(content: Inline) -> Iterator[Span]:
    if isinstance(content, Span):
        yield from (content,) if On.SCREEN in content.on else ()
    elif isinstance(content, str):
        yield Span(content)
    elif content is not None:
        for each in content:
            yield from _runs(each)


def _grid(table: Table) -> Grid:
    """Return a table for rich, with a bar beside each row that has one."""
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False)
    places = [position for position, column in enumerate(table.columns) if On.SCREEN in column.on]
    for place in places:
        column = table.columns[place]
        grid.add_column(plain_text(column.name, On.SCREEN), justify="right" if column.numeric else "left")
    scale = _scale(table.bars)
    if table.bars:
        grid.add_column(f"0{'·' * (BAR_WIDTH - 6)}{number(scale):>5}", no_wrap=True)
    for index, row in enumerate(table.rows):
        cells = [_cell(row[index]) for index in places]
        bars = [_bar(table.bars[index], scale)] if table.bars else []
        grid.add_row(*cells, *bars, style="bold" if index in table.strong else None)
    return grid


def _cell(cell: Cell) -> Text:
    return _text(number(cell.value) if isinstance(cell, Measured) else cell, cut=True)


def _scale(bars: Sequence[Bar]) -> float:
    """Return the end of the bars' scale, which no interval that small groups have stretched sets."""
    ends = [bar.interval[1] if bar.interval else bar.value or 0 for bar in bars if not bar.open]
    return max([*ends, *(bar.value or 0.0 for bar in bars), 1e-9])


def _bar(bar: Bar, scale: float) -> Text:
    """Draw an interval: ``├──●──┤``, with the limit as ``┃``."""
    from rich.text import Text

    cells = ["·"] * BAR_WIDTH

    def place(value: float) -> int:
        return min(max(round(value / scale * (BAR_WIDTH - 1)), 0), BAR_WIDTH - 1)

    if bar.interval is not None:
        low, high = place(bar.interval[0]), place(bar.interval[1])
        cells[low : high + 1] = ["─"] * (high - low + 1)
        cells[low], cells[high] = "├", "┤" if bar.interval[1] <= scale else "→"
    if bar.limit is not None and bar.limit <= scale:
        cells[place(bar.limit)] = "┃"
    if bar.value is not None:
        cells[place(bar.value)] = "●"
    return Text("".join(cells), style="yellow" if bar.open else "cyan")


_WRITERS: Mapping[type[Any], Callable[[Any], list[RenderableType]]] = {
    Section: _section,
    Note: lambda note: [_note(note)],
    Listing: lambda listing: [_item(item, listing.kind) for item in listing.items],
    Facts: lambda facts: [_text([name, ": ", value]) for name, value in facts.entries],
    Table: lambda table: [_grid(table)],
    Chart: lambda chart: [] if chart.table is None else [_grid(chart.table)],
}


# Pages as Markdown, for job summaries, wikis and pull requests.


_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "undecided": "❔"}


def markdown_page(page: Page) -> str:
    """Return a page's summary."""
    titled = any(isinstance(part, Note) and part.kind == "title" and On.SUMMARY in part.on for part in page.parts)
    return "\n".join(_parts(page.parts, level=2 if titled else 3))


def _parts(parts: Sequence[Part | None], level: int) -> Iterator[str]:
    for part in parts:
        if part is not None and On.SUMMARY in part.on:
            yield from _markdown_part(part, level)


def _markdown_part(part: Part, level: int) -> Iterator[str]:
    if isinstance(part, Section):
        title = _markdown_text(part.title)
        inner = list(_parts(part.parts, level + bool(title)))
        if inner:
            yield from (f"{'#' * level} {title}", "") if title else ()
            yield from inner
    elif isinstance(part, Note):
        yield from (_markdown_note(part), "")
    elif isinstance(part, Listing):
        yield from (_markdown_item(item, part.kind) for item in part.items)
        yield ""
    elif isinstance(part, Facts):
        yield from (f"- {_markdown_text(name)}: {_markdown_text(value)}" for name, value in part.entries)
        yield ""
    elif isinstance(part, Table):
        yield from _table(part)
    elif isinstance(part, Chart) and part.table is not None:
        yield from _table(part.table)


def _markdown_note(note: Note) -> str:
    text = _markdown_text(note.content)
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


def _markdown_item(item: Item | Inline, kind: str) -> str:
    content, status = (item.content, item.status) if isinstance(item, Item) else (item, None)
    mark = f"{_MARKS[status]} " if kind == "rules" and status in _MARKS else ""
    return f"- {mark}{_markdown_text(content)}"


def _table(table: Table) -> Iterator[str]:
    shown = [index for index, column in enumerate(table.columns) if On.SUMMARY in column.on]
    rows = [[_markdown_cell(row[index]) for index in shown] for row in table.rows]
    return markdown_table([_markdown_text(table.columns[index].name) for index in shown], rows)


def _markdown_cell(cell: Cell) -> str:
    return number(cell.value) if isinstance(cell, Measured) else _markdown_text(cell)


def _markdown_text(content: Inline) -> str:
    return escaped(plain_text(content, On.SUMMARY))
