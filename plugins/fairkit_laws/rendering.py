"""A pack filled with an audit: every item with its tables and facts, or with its gap."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairkit_laws.context import Context, NotAnsweredError, PackTable
from fairkit_laws.tables import build

if TYPE_CHECKING:
    from fairkit.results.report import Report
    from fairkit_laws.files import Fact, Item, PackFile

YEAR = 366
"""Days after which 6 RCNY 5-301(a) asks for a new audit, at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An item with what answers it.

    Attributes
    ----------
    item
        What is asked.
    tables
        From the audit.
    facts
        What a person stated, by fact; None where nothing was. A fact is `required` here where the others make it so.
    gaps
        What is missing, in sentences; empty where the item is answered.
    """

    item: Item
    tables: tuple[PackTable, ...]
    facts: tuple[tuple[Fact, str | bool | None], ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A pack with all its items, in the law's order."""

    pack: PackFile
    report: Report
    items: tuple[Answered, ...]
    certificate: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing, with its clause."""
        return tuple(f"{one.item.clause}: {gap}" for one in self.items for gap in one.gaps)

    @property
    def tables(self) -> tuple[PackTable, ...]:
        """All tables, in order."""
        return tuple(table for one in self.items for table in one.tables)


def render(
    pack: PackFile,
    report: Report,
    facts: Mapping[str, str | bool],
    certificate: Mapping[str, Any],
    *,
    today: datetime.date,
) -> Rendering:
    """Fill a pack.

    Parameters
    ----------
    pack
        From `fairkit_laws.files.read_pack`.
    report
        The audit.
    facts
        From `fairkit_laws.files.read_facts`.
    certificate
        Its sha256, audited_at (RFC 3339), keyids, mitigation and settings; empty where nobody signed.
    today
        The day of the rendering: an audit may be too old.
    """
    known = {fact.key: fact for fact in pack.facts}
    items = tuple(_answer(item, known, report, facts, certificate) for item in pack.items)
    return Rendering(
        pack=pack, report=report, items=items, certificate=certificate, notes=tuple(_age(certificate, today))
    )


def _answer(
    item: Item,
    known: Mapping[str, Fact],
    report: Report,
    facts: Mapping[str, str | bool],
    certificate: Mapping[str, Any],
) -> Answered:
    tables: Sequence[PackTable] = ()
    gaps = []
    if item.table is not None:
        try:
            tables = build(
                item.table, Context(report=report, facts=facts, options=item.options, certificate=certificate)
            )
        except NotAnsweredError as reason:
            gaps.append(str(reason))
    asked = [replace(known[key], required=known[key].needed(facts)) for key in item.facts]
    stated = [(fact, facts.get(fact.key)) for fact in asked]
    gaps += [f"not stated: {fact.title}" for fact, value in stated if value is None and fact.required]
    return Answered(item=item, tables=tuple(tables), facts=tuple(stated), gaps=tuple(gaps))


def _age(certificate: Mapping[str, Any], today: datetime.date) -> Sequence[str]:
    if not certificate:
        return ("Nobody has signed these numbers.",)
    made = datetime.date.fromisoformat(str(certificate["audited_at"])[:10])
    days = (today - made).days
    return (f"The audit is {days} days old: more than a year.",) if days >= YEAR else ()
