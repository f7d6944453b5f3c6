"""The parts of a page: sections with notes, lists, facts, tables and charts, whatever they are written for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Flag, auto
from typing import Any

from fairkit.support.escaping import interval, number
from fairkit.support.lazy_dataclass import dataclass

Interval = tuple[float, float]
Spec = dict[str, Any]


class On(Flag):
    """Where a part is shown: on a page of HTML, on a terminal's screen, in a summary of Markdown."""

    PAGE = auto()
    SCREEN = auto()
    SUMMARY = auto()
    TEXT = SCREEN | SUMMARY
    ALL = PAGE | SCREEN | SUMMARY


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text."""

    text: str  # as it is spelled; renderers escape it
    role: str = ""
    link: str | None = None  # where a page leads from it, as `#anchor`
    title: str | None = None  # what a page says while one hovers over it
    on: On = On.ALL  # where it is shown


@dataclass(frozen=True, slots=True)
class Measured:
    """A number with its interval, for which pages draw a bar on `scale`; screens show the number."""

    value: float | None
    interval: Interval | None
    scale: Interval


Inline = str | Span | None | Sequence["Inline"]
Cell = Inline | Measured


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph.

    `kind` is empty, or ``title``, ``banner``, ``evidence`` (a banner about a check), ``subject``, ``warning``,
    ``muted``, ``strong``, ``alarm``, ``gap``; a banner has a `status` (pass, fail, inconclusive, undecided or none),
    which is its first word where no other `word` is named.
    """

    content: Inline
    kind: str = ""
    status: str = "none"
    word: str | None = None
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list, with the verdict that it is about."""

    content: Inline
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A list; of `kind` ``rules`` (with verdicts), ``steps`` (in their order), or ``notes``."""

    items: Sequence[Item | Inline]
    kind: str = "notes"
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values; `kind` ``audited`` and ``glossary`` are laid out in their own way."""

    entries: Sequence[tuple[Inline, Inline]]
    kind: str = ""
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name; numbers stand on the right."""

    name: Inline
    numeric: bool = False
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Bar:
    """A number, its interval and its limit, which screens draw beside a table's row."""

    value: float | None
    interval: Interval | None
    limit: float | None = None
    open: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; `label` names it to a screen reader, `strong` are the rows that stand out."""

    label: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    bars: Sequence[Bar] = ()
    strong: Collection[int] = ()
    sortable: bool = False
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a chart's legend: a mark in a colour, and what it stands for."""

    content: Inline
    mark: str
    colour: str
    dash: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Legend:
    """What the marks of several charts mean."""

    keys: Sequence[Key]
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with its numbers."""

    title: str  # what it shows, in one sentence: the alternative text
    draw: Callable[[bool], Spec | None]  # returns its Vega-Lite specification, for a narrow screen or a wide one
    table: Table | None = None  # its numbers
    caption: Inline = None  # above it; the title where none is named
    legend: Sequence[Key] = ()  # what its marks mean
    fixed: bool = False  # one picture for every screen
    name: str = ""  # what `result.plot(name)` calls it
    of: str | None = None  # the sensitive column or the model that it is about
    on: On = On.ALL


@dataclass(frozen=True, slots=True)
class Fields:
    """Lines to be filled in by hand, under their names."""

    names: Sequence[str]
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Panel:
    """What a page's own script makes of a record."""

    record: Mapping[str, Any]
    parts: Sequence[Part]
    on: On = On.PAGE


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading.

    `kind` is ``section``, ``part`` (inside one), ``first`` (on the first screen), ``fold`` or ``open`` (opens with a
    click), ``row`` (side by side), ``header``, ``signed`` or ``unsigned``.
    """

    title: Inline
    parts: Sequence[Part | None]
    kind: str = "section"
    anchor: str | None = None
    on: On = On.ALL


Part = Note | Listing | Facts | Table | Chart | Legend | Fields | Panel | Section


@dataclass(frozen=True, slots=True)
class Page:
    """What is shown of a result."""

    title: str
    parts: Sequence[Part | None]
    verifier: bool = False


def words(*names: Inline, on: On = On.ALL) -> list[Column]:
    """Return columns of words."""
    return [Column(name, on=on) for name in names]


def numbers(*names: Inline, on: On = On.ALL) -> list[Column]:
    """Return columns of numbers."""
    return [Column(name, numeric=True, on=on) for name in names]


def name_of(text: str) -> Span:
    """Return a name that came with the data."""
    return Span(text, "name")


def page_only(*content: Inline) -> list[Inline]:
    """Return text that only a page shows."""
    return [_on(each, On.PAGE) for each in content]


def _on(content: Inline, on: On) -> Inline:
    if content is None or isinstance(content, str):
        return Span(content or "", on=on)
    if isinstance(content, Span):
        return Span(content.text, content.role, content.link, content.title, on)
    return [_on(each, on) for each in content]


def badge(verdict: str | None, text: str | None = None) -> Span:
    """Return a verdict in its colour; a dash where there is none."""
    return Span("-") if verdict is None else Span(text or verdict, verdict)


def sized(value: float | None, pair: Interval | None) -> tuple[str, str]:
    """Return the cells of a number and of its interval."""
    return number(value), interval(pair)


def capital(text: str) -> str:
    """Return a sentence that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def plain_text(content: Inline, on: On) -> str:
    """Return inline content as text for a medium."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Span):
        return content.text if on in content.on else ""
    return "".join(plain_text(each, on) for each in content)
