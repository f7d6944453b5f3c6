"""Pages as HTML: one file that loads nothing, with pictures drawn by Vega-Lite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import interval, number
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Facts,
    Fields,
    Inline,
    Item,
    Legend,
    Listing,
    Measured,
    Note,
    On,
    Panel,
    Section,
    Span,
    Table,
    plain_text,
)
from fairkit_cli.render.svg import Content, Markup, draw, join, page, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairkit_cli.pages.parts import Key, Page, Part

MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "undecided": "?"}
WORDS = {"pass": "Pass", "fail": "Fail", "inconclusive": "Inconclusive", "undecided": "Undecided"}
_STATUS = {"undecided": "inconclusive"}
_CLASSES = {
    "pass": "badge pass",
    "fail": "badge fail",
    "inconclusive": "badge inconclusive",
    "undecided": "badge inconclusive",
    "small": "muted small",
    "reason": "muted small reason",
    "wrap": "muted small wrap",
}
_ELEMENTS = {"name": "bdi", "strong": "strong", "differs": "bdi"}
_NOTES = {"warning": "subject", "verdict": "verdict none", "alarm": "verdict fail"}
_FIT = 3
"""So many columns fit a phone."""
_SECTIONS = {"row": "trio", "signed": "signed", "unsigned": "unsigned"}


def html_page(shown: Page) -> str:
    """Return a page as one document."""
    return page(shown.title, html_parts(shown.parts), verifier=shown.verifier)


def html_parts(parts: Sequence[Part | None]) -> list[Markup]:
    """Return parts as markup, those that pages show."""
    return [_WRITERS[type(part)](part) for part in parts if part is not None and On.PAGE in part.on]


def _listing(part: Listing) -> Markup:
    kind = "rules" if part.kind == "rules" else None
    return tag("ol" if part.kind == "steps" else "ul", [_item(item) for item in part.items], class_=kind)


def _panel(part: Panel) -> Markup:
    scores = json.dumps(part.record)
    return tag("div", html_parts(part.parts), class_="whatif", data_scores=scores, hidden=True)


def _fields(part: Fields) -> Markup:
    lines = [tag("div", tag("span", name, class_="muted small wrap"), class_="line") for name in part.names]
    return tag("div", lines, class_="sign")


def _section(part: Section) -> Markup:
    inner, title = html_parts(part.parts), inline(part.title)
    if not inner and part.kind not in ("section", "small"):
        return Markup("")
    if part.kind in ("fold", "open"):
        return tag("details", tag("summary", title), inner, id=part.anchor, open=part.kind == "open")
    if part.kind in ("first", "small"):
        heading = tag("h4", title) if part.kind == "small" else tag("h2", title, class_="first")
        return join([heading, inner])
    if part.kind in ("header", "section"):
        heading = tag("h2", title) if part.kind == "section" else Markup("")
        return tag(part.kind, heading, inner, id=part.anchor)
    heading = tag("h3", title) if plain_text(part.title, On.PAGE) else Markup("")
    if part.kind.startswith("verdict"):
        return tag("div", tag("p", tag("strong", title)), inner, class_=part.kind)
    return tag("div", heading, inner, id=part.anchor, class_=_SECTIONS.get(part.kind))


def _note(note: Note) -> Markup:
    content = inline(note.content)
    if note.kind == "title":
        return tag("h1", content)
    if note.kind in ("banner", "evidence"):
        return _banner(note, content)
    return tag("p", content, class_=_NOTES.get(note.kind, note.kind) or None)


def _banner(note: Note, content: Content) -> Markup:
    status = _STATUS.get(note.status, note.status)
    word = WORDS.get(note.status) if note.word is None else note.word
    mark = [tag("span", MARKS[status], aria_hidden="true"), " "] if status in MARKS else None
    head = [tag("strong", mark, word), ": "] if word else None
    evidence = note.kind == "evidence"
    alert = "alert" if evidence and status == "fail" else None
    return tag("p", head, content, class_=f"verdict {'evidence ' * evidence}{status}", role=alert)


def _item(item: Item | Inline) -> Markup:
    if not isinstance(item, Item):
        return tag("li", inline(item))
    if item.status is None:
        return tag("li", inline(item.content))
    word = f"{MARKS[item.status]} {WORDS[item.status]}"
    return tag("li", tag("span", word, class_=f"badge {item.status}"), " ", inline(item.content))


def html_facts(part: Facts) -> Markup:
    """Return names with values."""
    entries = [join([tag("dt", inline(name)), tag("dd", inline(value))]) for name, value in part.entries]
    return tag("dl", entries, class_=part.kind or None)


def inline(content: Inline) -> Content:
    """Return inline content as markup."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, Span):
        return _span(content) if On.PAGE in content.on else None
    return [inline(each) for each in content]


def _span(span: Span) -> Content:
    if span.role == "anchor":
        return tag("span", span.text, id=span.title)
    if span.role == "line":
        return tag("div", span.text, class_="muted small wrap")
    if span.link is not None:
        text = tag("bdi", span.text) if span.role == "name" else span.text
        kind = "term" if span.role == "term" else None
        return tag("a", text, href=span.link, title=span.title, class_=kind)
    if span.role == "code":  # a word is a box, which no line breaks at its hyphens
        pieces = [piece for word in span.text.split(" ") for piece in (" ", tag("span", word))]
        return tag("code", pieces[1:])
    if span.role in _ELEMENTS:
        return tag(_ELEMENTS[span.role], span.text, class_="differs" if span.role == "differs" else None)
    return tag("span", span.text, class_=_CLASSES.get(span.role, span.role)) if span.role else span.text


def html_table(table: Table) -> Markup:
    """Return a table that scrolls sideways on narrow screens; the first cell of a row is its heading.

    One that is sortable gets, from the page's script, buttons in its head that sort and a field that filters.
    """
    columns = [(index, column) for index, column in enumerate(table.columns) if On.PAGE in column.on]
    head = [
        tag("th", inline(column.name), scope="col", class_="number" if column.numeric else None)
        for _, column in columns
    ]
    body = []
    for row in table.rows:
        (first, _), *others = columns
        cells = [tag("td", _cell(row[index]), class_="number" if column.numeric else None) for index, column in others]
        body.append(tag("tr", tag("th", _cell(row[first]), scope="row"), cells))
    kind = _as_rows([plain_text(column.name, On.PAGE) for _, column in columns])
    named: dict[str, Any] = {"aria_label": table.label, "data_sortable": table.sortable, **kind}
    inner = tag("table", tag("thead", tag("tr", head)), tag("tbody", body), **named)
    scrolls = f"{table.label}, scrolls sideways"
    return tag("div", inner, class_="scroll", tabindex="0", role="group", aria_label=scrolls)


def _as_rows(names: Sequence[str]) -> dict[str, str]:
    """Return what makes lists of a wide table's rows on a phone, where every cell has its column's name before it."""
    if len(names) <= _FIT:
        return {}
    texts = ["".join(c if c.isalnum() else f"\\{ord(c):x} " for c in name) for name in names]  # as strings of CSS
    return {"class_": "rows", "style": ";".join(f"--h{n}:'{text}'" for n, text in enumerate(texts, 1) if n > 1)}


def _cell(cell: Cell) -> Content:
    return _bar(cell) if isinstance(cell, Measured) else inline(cell)


def _bar(cell: Measured) -> Content:
    """Return a number with its interval in words and as a bar."""
    if cell.value is None:
        return tag("span", "not defined", class_="muted")
    if cell.interval is None:
        return number(cell.value)
    width = (cell.scale[1] - cell.scale[0]) or 1.0

    def place(end: float) -> float:
        return min(max(100 * (end - cell.scale[0]) / width, 0), 100)

    low, high = place(cell.interval[0]), place(cell.interval[1])
    marks = f"--low:{low:.1f}%;--high:{high:.1f}%;--at:{place(cell.value):.1f}%"
    return [
        tag("span", number(cell.value), class_="value"),
        tag("span", f" {interval(cell.interval)}", class_="muted small"),
        tag("span", class_="bar", style=marks, aria_hidden="true"),
    ]


def _figure(chart: Chart) -> Markup:
    """Return a chart for wide and one for narrow screens, its legend, and, folded, its table."""
    classes = ("",) if chart.fixed else ("wide", "narrow")
    pictures = [
        draw(spec, title=chart.title, class_=class_)
        for class_ in classes
        if (spec := chart.draw(class_ == "narrow")) is not None
    ]
    numbers = None if chart.table is None else html_table(chart.table)
    caption = inline(chart.caption or chart.title)
    if not pictures:
        return tag("div", tag("h3", caption), numbers)
    folded = None if numbers is None else tag("details", tag("summary", "The numbers"), numbers)
    legend = _legend(chart.legend) if chart.legend else None
    return tag("figure", tag("figcaption", caption), legend, pictures, folded)


_SHAPES = {
    "line": "M0,6h28",
    "circle": "M9,6a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    "square": "M9,1h10v10h-10z",
    "diamond": "M14,0l6,6l-6,6l-6,-6z",
    "cross": "M12,0h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "triangle-up": "M14,1l5,10h-10z",
    "triangle-down": "M8,0h12l-6,11z",
    "triangle-right": "M9,0l10,6l-10,6z",
    "triangle-left": "M19,0l-10,6l10,6z",
    "rule": "M14,0v12",
    "band": "M0,1h28v10h-28z",
}


def _legend(keys: Sequence[Key]) -> Markup:
    """Return what the marks of a chart mean: shape or dashes, and colour."""
    return tag("ul", [tag("li", key_mark(key), " ", inline(key.content)) for key in keys], class_="legend")


def key_mark(key: Key) -> Markup:
    """Return a legend's mark as a small picture."""
    drawn = key.mark in ("line", "rule")
    mark = tag(
        "path",
        d=_SHAPES[key.mark],
        fill=None if drawn else key.colour,
        stroke=key.colour if drawn else None,
        stroke_width="2.5" if drawn else None,
        stroke_dasharray=" ".join(map(str, key.dash)) if len(key.dash) > 1 and key.dash[1] else None,
        opacity="0.35" if key.mark == "band" else None,
    )
    return tag("svg", mark, viewBox="0 0 28 12", class_="key", aria_hidden="true")


_WRITERS: Mapping[type[Any], Callable[[Any], Markup]] = {
    Section: _section,
    Note: _note,
    Listing: _listing,
    Facts: html_facts,
    Table: html_table,
    Chart: _figure,
    Legend: lambda legend: _legend(legend.keys),
    Panel: _panel,
    Fields: _fields,
}
