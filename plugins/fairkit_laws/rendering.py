"""A pack filled with an audit: every item with its tables and facts, or with its gap."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit.packs import Answered, Rendering
from fairkit_laws.clauses import AMBER
from fairkit_laws.context import Context, NotAnsweredError
from fairkit_laws.files import PackError
from fairkit_laws.tables import build
from fairkit_laws.validity import flags_of, law_of

if TYPE_CHECKING:
    from fairkit.packs import Fact, PackTable
    from fairkit.results.report import Report
    from fairkit_laws.clauses import Clause, LawFile


class RefusedError(PackError):
    """The audit rests on what the law refuses; nothing is rendered."""


def render(
    pack: LawFile,
    report: Report,
    facts: Mapping[str, str | bool],
    certificate: Mapping[str, Any],
    *,
    today: datetime.date,
    accepted: Mapping[str, str] | None = None,
    watch: Mapping[str, Any] | None = None,
) -> Rendering:
    """Fill a pack."""
    declared = {fact.key: fact for fact in pack.facts}
    context = Context(report=report, facts=facts, certificate=certificate, watch=watch)
    audited = datetime.date.fromisoformat(str(certificate["audited_at"])[:10]) if certificate else None
    if "sensitive_probability" in pack.refuses and context.probable:
        columns = ", ".join(context.probable)
        raise RefusedError(
            f"the pack {pack.name!r} refuses this audit: the groups of {columns} are only probable, and "
            f"{pack.refuses_because}"
        )
    until = pack.kept_until
    if until is not None and (audited is None or audited > until):
        base = pack.name.partition("@")[0]
        when = "nobody has signed" if audited is None else f"is of {audited}"
        raise RefusedError(
            f"the edition {pack.name!r} is for audits until {until}, and this one {when}: use `pack={base}`"
        )
    accepted = accepted or {}
    if unknown := sorted(set(accepted) - {*AMBER, "unread"}):
        raise PackError(f"`accept_status` takes {', '.join(AMBER)}, not {unknown[0]!r}")
    items = tuple(
        _answer(item, declared, context, audited, today, accepted, retained=until is not None) for item in pack.items
    )
    notes = (*_age(pack, audited, today), *_acceptances(accepted, items))
    return Rendering(pack=pack, report=report, items=items, certificate=certificate, today=today, notes=notes)


def _answer(
    item: Clause,
    declared: Mapping[str, Fact],
    context: Context,
    audited: datetime.date | None,
    today: datetime.date,
    accepted: Mapping[str, str],
    *,
    retained: bool,
) -> Answered:
    tables: Sequence[PackTable] = ()
    gaps = []
    if item.table is not None:
        try:
            tables = build(item.table, replace(context, options=item.options, thresholds=item.thresholds))
        except NotAnsweredError as reason:
            gaps.append(str(reason))
    needed = [replace(declared[key], required=declared[key].needed(context.facts)) for key in item.facts]
    stated = [(fact, context.facts.get(fact.key)) for fact in needed]
    gaps += [f"not stated: {fact.title}" for fact, value in stated if value is None and fact.required]
    gaps += [f"stated as not so: {fact.title}" for fact, value in stated if fact.must_hold and value is False]
    asks = item.table is not None or bool(item.facts)
    flags = flags_of(
        item.validity, item.clause, asks=asks, audited=audited, today=today, retained=retained, accepted=accepted
    )
    return Answered(
        item=item,
        tables=tuple(tables),
        facts=tuple(stated),
        gaps=tuple(gaps),
        law=law_of(item, audited, today),
        flags=tuple(flags),
    )


def _age(pack: LawFile, audited: datetime.date | None, today: datetime.date) -> Sequence[str]:
    if audited is None:
        return ("Nobody has signed these numbers.",)
    limit = pack.age_limit
    if limit is None or today <= _years_later(audited, limit.years):
        return ()
    years = "a year" if limit.years == 1 else f"{limit.years} years"
    return (f"The audit is of {audited}, more than {years} ago: {limit.clause} lets the tool be used no longer.",)


def _years_later(day: datetime.date, years: int) -> datetime.date:
    """Return the same date, years later: of 29 February the 28th."""
    try:
        return day.replace(year=day.year + years)
    except ValueError:
        return day.replace(year=day.year + years, day=28)


def _acceptances(accepted: Mapping[str, str], items: Sequence[Answered]) -> Sequence[str]:
    """Say who accepted what of the clauses' state, where something was to be accepted."""
    flags = [flag for one in items for flag in one.flags if flag.accepted]
    said = []
    amber = sum(flag.severity == "amber" for flag in flags)
    states = ",".join(sorted(set(accepted) - {"unread"}))
    if amber:
        said.append(f"Accepted although {states}: {amber} clauses that do not apply yet.")
    grey = sum(flag.severity == "grey" for flag in flags)
    if grey:
        said.append(f"Accepted by {accepted['unread']}: {grey} clauses that were not compared with the official text.")
    return said
