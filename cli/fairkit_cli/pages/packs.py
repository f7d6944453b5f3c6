"""A pack filled with an audit: every item by its clause, gaps where a reader sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit_cli.pages.head import signature
from fairkit_cli.pages.parts import (
    Cell,
    Column,
    Facts,
    Inline,
    Listing,
    Note,
    On,
    Page,
    Part,
    Section,
    Span,
    Table,
    capital,
    name_of,
    page_only,
)
from fairkit_cli.text.packs import (
    GAP,
    NOT_STATED,
    flag_lines,
    headline,
    identity,
    not_answered,
    origin,
    shown_cell,
    shown_fact,
)

if TYPE_CHECKING:
    from fairkit.packs import Answered, Fact, PackTable, Rendering

_STATUS = {"red": "fail", "amber": "inconclusive", "grey": "none"}


def pack_page(made: Rendering, banners: Sequence[Part]) -> Page:
    """Return the page of a rendering."""
    pack, report = made.pack, made.report
    entries: list[tuple[Inline, Inline]] = [
        ("Law", pack.law),
        ("Source", [Span(pack.source, "code"), f", checked {pack.checked}"]),
        ("Pack", f"{identity(made)}; rendered {made.today}"),
        ("What was audited", name_of(report.model.name)),
        ("Table", [name_of(report.data.name), f", {report.data.rows:,} people (rows)"]),
    ]
    parts: list[Part | None] = [
        Note(pack.title, "title"),
        *banners,
        Facts(entries),
        Note(pack.notice, "warning"),
        *(Note(note, "warning") for note in made.notes),
        *(_flag(*flag) for flag in flag_lines(made)),
        _gaps(made) if made.gaps else None,
        *(_item(each) for each in made.items),
        signature(),
    ]
    return Page(pack.title, parts)


def _flag(severity: str, head: str, texts: Sequence[str]) -> Section:
    return Section(f"{capital(severity)}: {head}", [Listing(texts)], f"verdict {_STATUS[severity]}")


def _gaps(made: Rendering) -> Section:
    title = [*page_only("? "), not_answered(made)]
    listed: list[Inline] = [[Span(f"{GAP} ", on=On.TEXT), gap] for gap in made.gaps]
    return Section(title, [Listing(listed)], "verdict inconclusive")


def _item(answered: Answered) -> Section:
    states, sources = answered.law["states"], answered.law["sources"]
    gaps = [gap for gap in answered.gaps if not gap.startswith(NOT_STATED)]
    return Section(
        headline(answered),
        [
            Note(" ".join(states), "subject") if states else None,
            Note(answered.item.says) if answered.item.says else None,
            Facts([(fact.title, _fact(fact, value)) for fact, value in answered.facts]) if answered.facts else None,
            *(Note(f"{GAP}: {gap}", "gap") for gap in gaps),
            *(_table(each) for each in answered.tables),
            Note(" ".join(sources), "muted small wrap") if sources else None,
        ],
    )


def _fact(fact: Fact, value: str | bool | None) -> Inline:
    text = shown_fact(value, fact)
    if value is None:
        return [Span(text, "gap" if fact.required else "muted"), *page_only(f" {fact.help}" if fact.help else "")]
    return [text, *page_only(" ", Span("stated by the filer, not signed", "wrap"))]


def _table(table: PackTable) -> Section:
    rows: list[Sequence[Cell]] = [
        tuple(
            name_of(shown_cell(cell, column)) if isinstance(cell, str) else shown_cell(cell, column)
            for cell, column in zip(row, table.columns, strict=True)
        )
        for row in table.rows
    ]
    columns = [Column(column.name, numeric=column.kind != "text") for column in table.columns]
    title = [
        name_of(table.title),
        " ",
        *page_only(Span(origin(table), "small")),
        Span(f"({origin(table)})", on=On.TEXT),
    ]
    return Section(title, [Table(table.title, columns, rows), Listing(table.notes) if table.notes else None], "part")
