"""A pack filled with an audit: its words, as JSON values, and its tables as CSV."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import visible
from fairkit.support.numbers import number
from fairkit_cli.text.spreadsheet import csv_text

if TYPE_CHECKING:
    from fairkit.packs import Answered, Cell, Column, Fact, Flag, PackTable, Rendering

GAP = "GAP"
NOT_STATED = "not stated: "
"""What stands where nothing was stated: it is never left out."""


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


HEADS = {
    "red": "no law stands behind it: these numbers are a convention",
    "amber": "not yet law here, or to be checked again",
    "grey": "read the official text before you rest on it",
}
"""What the flags of a severity have in common."""


def flags_of(made: Rendering) -> list[Flag]:
    """Return the flags of a rendering's clauses, the most severe first."""
    flags = [flag for one in made.items for flag in one.flags]
    return sorted(flags, key=lambda flag: list(HEADS).index(flag.severity))


def complete(made: Rendering) -> bool:
    """Tell whether every item is answered, and every flag was accepted: what ``--strict`` asks for."""
    return not made.gaps and all(flag.accepted for flag in flags_of(made))


def convention(one: Answered) -> bool:
    """Tell whether no clause stands behind an item's numbers."""
    return any(flag.severity == "red" for flag in one.flags)


def flag_lines(made: Rendering) -> list[tuple[str, str, list[str]]]:
    """Return for each severity its head and a line for each text with its clauses, the worst severity first."""
    by_severity: dict[str, dict[str, list[str]]] = {}
    for flag in flags_of(made):
        text = f"{flag.text}{' (accepted)' if flag.accepted else ''}"
        by_severity.setdefault(flag.severity, {}).setdefault(text, []).append(flag.clause)
    return [
        (severity, HEADS[severity], [f"{text}: {'; '.join(clauses)}" for text, clauses in texts.items()])
        for severity, texts in by_severity.items()
    ]


def identity(made: Rendering) -> str:
    """Say which edition of which pack made the page."""
    told = made.pack.to_dict()
    return f"{told['name']}, edition {told['edition']}, SHA-256 {told['sha256']}"


def headline(one: Answered) -> str:
    """Return an item's title, with its clause only where the clause stands behind its numbers."""
    clause = one.item.clause
    return f"{clause}: {one.item.title}" + (" (convention, no legal clause)" if convention(one) else "")


def origin(table: PackTable) -> str:
    """Say where a table's numbers come from."""
    words = {"computed": "computed from signed counts", "watched": "read from the watch, not signed here"}
    return words.get(table.origin, "signed")


def pack_record(made: Rendering, state: str) -> dict[str, Any]:
    """Return a rendering as JSON values: every item with its clause's legal life, flags, facts, gaps and tables."""
    return {
        "schema": "fairkit.pack/1",
        "pack": made.pack.to_dict(),
        "today": made.today.isoformat(),
        "audited": str(made.certificate["audited_at"])[:10],
        "certificate": made.certificate.get("sha256"),
        "evidence": state,
        "complete": complete(made),
        "notes": list(made.notes),
        "items": [_record(one) for one in made.items],
    }


def _record(answered: Answered) -> dict[str, Any]:
    item = answered.item
    return {
        "clause": item.clause,
        "title": item.title,
        "says": item.says,
        **answered.law,
        "convention": convention(answered),
        "flags": [flag._asdict() for flag in answered.flags],
        "facts": {fact.key: value for fact, value in answered.facts},
        "gaps": list(answered.gaps),
        "tables": [asdict(table) for table in answered.tables],
    }


def pack_csv(made: Rendering) -> str:
    """Return the tables of a rendering as one CSV file: clause, table, then every table's columns, numbers in full."""
    names = list(dict.fromkeys(column.name for table in made.tables for column in table.columns[1:]))
    rows: list[list[Cell]] = []
    for one in made.items:
        for table in one.tables:
            positions = {column.name: i for i, column in enumerate(table.columns) if i}
            rows += [
                [one.item.clause, table.title, row[0], *(row[positions[n]] if n in positions else None for n in names)]
                for row in table.rows
            ]
    return csv_text(["clause", "table", "row", *names], rows)
