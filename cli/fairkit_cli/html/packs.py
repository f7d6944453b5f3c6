"""A pack filled with an audit as a page: every item by its clause, gaps where a reader sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import facts, page, table
from fairkit_cli.html.summary import signature
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


def pack_page(made: Rendering, banners: Sequence[Markup]) -> str:
    """Return a rendering as one HTML file.

    Parameters
    ----------
    made
        The rendering.
    banners
        What the checks of the evidence said.
    """
    pack = made.pack
    entries: list[tuple[str, Content]] = [
        ("Law", pack.law),
        ("Source", [tag("code", pack.source), f", checked {pack.checked}"]),
        ("Pack", f"{identity(made)}; rendered {made.today}"),
        ("What was audited", name_of(made.report.model.name)),
        ("Table", [name_of(made.report.data.name), f", {made.report.data.rows:,} people (rows)"]),
    ]
    gaps = None
    if made.gaps:
        listed = tag("ul", [tag("li", gap) for gap in made.gaps])
        head = f"? {not_answered(made)}"
        gaps = tag("div", tag("p", tag("strong", head)), listed, class_="verdict inconclusive")
    body: list[Content] = [
        *banners,
        tag("h1", pack.title),
        facts(entries),
        tag("p", pack.notice, class_="subject"),
        *(tag("p", note, class_="subject") for note in made.notes),
        *_flags(made),
        gaps,
        *(_item(one) for one in made.items),
        signature(),
    ]
    return page(pack.title, body)


_CLASS = {"red": "verdict fail", "amber": "verdict inconclusive", "grey": "verdict"}


def _flags(made: Rendering) -> list[Markup]:
    return [
        tag(
            "div",
            tag("p", tag("strong", f"{severity.capitalize()}: {head}")),
            tag("ul", [tag("li", text) for text in texts]),
            class_=_CLASS[severity],
        )
        for severity, head, texts in flag_lines(made)
    ]


def _item(answered: Answered) -> Markup:
    states, sources = answered.law["states"], answered.law["sources"]
    parts: list[Content] = [tag("p", " ".join(states), class_="subject")] if states else []
    if answered.item.says:
        parts.append(tag("p", answered.item.says))
    if answered.facts:
        parts.append(facts([(fact.title, _fact(fact, value)) for fact, value in answered.facts]))
    parts += [
        tag("p", f"{GAP}: {gap}", class_="gap") for gap in answered.gaps if not gap.startswith(NOT_STATED)
    ]
    parts += [_table(each) for each in answered.tables]
    if sources:
        parts.append(tag("p", " ".join(sources), class_="muted small wrap"))
    return tag("section", tag("h2", headline(answered)), parts)


def _fact(fact: Fact, value: str | bool | None) -> Content:
    text = shown_fact(value, fact)
    if value is None:
        return [
            tag("span", text, class_="gap" if fact.required else "muted"),
            f" {fact.help}" if fact.help else "",
        ]
    return [text, " ", tag("span", "stated by the filer, not signed", class_="muted small wrap")]


def _table(pack_table: PackTable) -> Markup:
    rows: list[Sequence[Content]] = [
        tuple(
            name_of(shown_cell(cell, column)) if isinstance(cell, str) else shown_cell(cell, column)
            for cell, column in zip(row, pack_table.columns, strict=True)
        )
        for row in pack_table.rows
    ]
    numeric = {place for place, column in enumerate(pack_table.columns) if column.kind != "text"}
    columns = [column.name for column in pack_table.columns]
    notes = (
        tag("ul", [tag("li", note) for note in pack_table.notes], class_="small wrap")
        if pack_table.notes
        else None
    )
    head = tag("h3", name_of(pack_table.title), " ", tag("span", origin(pack_table), class_="muted small"))
    return tag("div", head, table(columns, rows, numeric=numeric, label=pack_table.title), notes)
