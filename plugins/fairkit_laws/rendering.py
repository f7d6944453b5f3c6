"""A pack filled with an audit: every item with its tables and facts, or with its gap."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fairkit_laws.context import Context, NotAnsweredError, PackTable
from fairkit_laws.files import PackError
from fairkit_laws.tables import build
from fairkit_laws.validity import MARKS, Acceptance, Flag, flags_of

if TYPE_CHECKING:
    from fairkit.results.report import Report
    from fairkit_laws.files import Fact, Item, PackFile


class RefusedError(PackError):
    """The audit rests on what the law refuses; nothing is rendered."""


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
    states
        What held on the audit's date, and what holds today.
    flags
        What is wrong with resting on its clause; one that is red leaves its numbers as a convention.
    """

    item: Item
    tables: tuple[PackTable, ...]
    facts: tuple[tuple[Fact, str | bool | None], ...]
    gaps: tuple[str, ...]
    states: str
    flags: tuple[Flag, ...] = ()

    @property
    def convention(self) -> bool:
        """Whether no clause stands behind the item's numbers."""
        return any(flag.severity == "red" for flag in self.flags)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "clause": self.item.clause,
            "title": self.item.title,
            "says": self.item.says,
            "states": self.states,
            "validity": self.item.validity.to_dict(),
            "thresholds": dict(self.item.thresholds),
            "convention": self.convention,
            "flags": [asdict(flag) for flag in self.flags],
            "facts": {fact.key: value for fact, value in self.facts},
            "gaps": list(self.gaps),
            "tables": [asdict(table) for table in self.tables],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A pack with all its items, in the law's order."""

    pack: PackFile
    report: Report
    items: tuple[Answered, ...]
    certificate: Mapping[str, Any]
    today: datetime.date
    audited: datetime.date | None
    notes: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What is wrong with resting on the clauses, the worst first."""
        order = ("red", "amber", "grey")
        return tuple(
            sorted((f for one in self.items for f in one.flags), key=lambda f: order.index(f.severity))
        )

    @property
    def complete(self) -> bool:
        """Whether every item is answered, and every flag was accepted: what ``--strict`` asks for."""
        return not self.gaps and all(flag.accepted for flag in self.flags)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schema": "fairkit.pack/1",
            "pack": self.pack.to_dict(),
            "today": self.today.isoformat(),
            "audited": None if self.audited is None else self.audited.isoformat(),
            "certificate": self.certificate.get("sha256"),
            "complete": self.complete,
            "notes": list(self.notes),
            "items": [one.to_dict() for one in self.items],
        }

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
    accepted: Acceptance | None = None,
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
        The day of the rendering: an audit may be too old, a clause may be no law any more.
    accepted
        What a person accepts of the clauses' state.

    Raises
    ------
    RefusedError
        The audit rests on what the law refuses, or is too new for a kept edition.
    """
    known = {fact.key: fact for fact in pack.facts}
    context = Context(report=report, facts=facts, certificate=certificate)
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
            f"the edition {pack.name!r} is for audits until {until}, and this one {when}: use --pack {base}"
        )
    accepted = accepted or Acceptance()
    items = tuple(
        _answer(item, known, context, audited, today, accepted, kept=until is not None) for item in pack.items
    )
    notes = (*_age(pack, audited, today), *_acceptances(accepted, items))
    return Rendering(
        pack=pack,
        report=report,
        items=items,
        certificate=certificate,
        today=today,
        audited=audited,
        notes=notes,
    )


def _answer(
    item: Item,
    known: Mapping[str, Fact],
    context: Context,
    audited: datetime.date | None,
    today: datetime.date,
    accepted: Acceptance,
    *,
    kept: bool,
) -> Answered:
    tables: Sequence[PackTable] = ()
    gaps = []
    if item.table is not None:
        try:
            tables = build(item.table, replace(context, options=item.options, thresholds=item.thresholds))
        except NotAnsweredError as reason:
            gaps.append(str(reason))
    needed = [replace(known[key], required=known[key].needed(context.facts)) for key in item.facts]
    stated = [(fact, context.facts.get(fact.key)) for fact in needed]
    gaps += [f"not stated: {fact.title}" for fact, value in stated if value is None and fact.required]
    gaps += [f"stated as not so: {fact.title}" for fact, value in stated if fact.must_hold and value is False]
    asks = item.table is not None or bool(item.facts)
    flags = flags_of(
        item.validity, item.clause, asks=asks, audited=audited, today=today, kept=kept, accepted=accepted
    )
    return Answered(
        item=item,
        tables=tuple(tables),
        facts=tuple(stated),
        gaps=tuple(gaps),
        states=item.validity.answers(audited, today),
        flags=tuple(flags),
    )


def _age(pack: PackFile, audited: datetime.date | None, today: datetime.date) -> Sequence[str]:
    if audited is None:
        return ("Nobody has signed these numbers.",)
    limit = pack.age_limit
    if limit is None or today <= limit.last_day(audited):
        return ()
    years = "a year" if limit.years == 1 else f"{limit.years} years"
    return (
        f"The audit is of {audited}, more than {years} ago: {limit.clause} lets the tool be used no longer.",
    )


def _acceptances(accepted: Acceptance, items: Sequence[Answered]) -> Sequence[str]:
    """Say who accepted what of the clauses' state, where something was to be accepted."""
    flags = [flag for one in items for flag in one.flags if flag.accepted]
    said = []
    amber = sum(flag.severity == "amber" for flag in flags)
    if amber:
        said.append(
            f"Accepted with --accept-status {','.join(sorted(accepted.states))}: {amber} clauses that do not apply yet."
        )
    grey = sum(flag.severity == "grey" for flag in flags)
    if grey:
        said.append(
            f"Accepted by {accepted.unread_by}: {grey} clauses that were not compared with the official text."
        )
    return said


def source_lines(item: Item) -> list[str]:
    """Return where an item's law stands and how it was read, a sentence each, for beside what the page says."""
    validity = item.validity
    lines = []
    for source in validity.sources:
        version = "" if source.version is None else f", version of {source.version}"
        lines.append(f"Source: {source.citation}{version}, {source.address}.")
    if validity.mark is not None:
        by = "" if validity.read_by is None else f" By {validity.read_by}"
        on = "" if validity.read_on is None or not by else f", {validity.read_on}"
        text = MARKS[validity.mark]
        lines.append(f"{text[0].upper()}{text[1:]} ({validity.mark}).{by}{on}{'.' if by else ''}")
    if validity.quote is not None:
        lines.append(f"The words: \u201c{validity.quote}\u201d.")
    for word, others in (
        ("Supersedes", validity.supersedes), ("Superseded by", validity.superseded_by),
        ("Incorporated by", validity.incorporated_by),
    ):  # fmt: skip
        if others:
            lines.append(f"{word}: {'; '.join(others)}.")
    return lines
