"""A pack filled with an audit: every item with its tables and facts, or with its gap."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit.packs import Answered, Rendering
from fairkit_laws.context import Context, NotAnsweredError
from fairkit_laws.tables import build

if TYPE_CHECKING:
    from fairkit.packs import Fact, Item, PackFile, PackTable
    from fairkit.results.report import Report

YEAR = 366
"""Days after which 6 RCNY 5-301(a) asks for a new audit, at the latest."""


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
