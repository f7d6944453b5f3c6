"""Since when a clause is law, until when, who read it where: and what that means on a day."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

Status = Literal["in_force", "adopted", "stayed", "proposed", "withdrawn", "repealed"]
Binding = Literal["law", "guidance", "practice", "own"]
Mark = Literal["O", "Oc", "S2", "S1", "K", "N"]
State = Literal["applies", "later", "adopted", "stayed", "proposed", "ended", "withdrawn", "unknown"]
Severity = Literal["red", "amber", "grey"]

RECHECK_DAYS, RECHECK_DAYS_WATCHED = 90, 30
"""Days after which a clause is to be read again; the shorter where a change is expected."""
MOST_QUOTED = 40
"""Words of a quotation, at most."""
MARKS: Mapping[Mark, str] = {
    "O": "the official text was read",
    "Oc": "a copy of the official wording that names its origin was read",
    "S2": "two independent secondary sources were read, and not the official text",
    "S1": "one secondary source was read, and not the official text",
    "K": "general knowledge: no source was read",
    "N": "no text was found",
}
BINDING: Mapping[Binding, str] = {
    "law": "Law",
    "guidance": "Guidance, not law",
    "practice": "Practice: no clause of this law asks for it",
    "own": "fairkit's own addition: no clause asks for it",
}
AMBER: tuple[State, ...] = ("later", "adopted", "stayed", "proposed")
"""States that `--accept-status` may accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a clause stands: its citation, the official address, and the date of the version that was read."""

    citation: str
    address: str
    version: datetime.date | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        version = None if self.version is None else self.version.isoformat()
        return {"citation": self.citation, "address": self.address, "version": version}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """A rulemaking, suit or bill that may change a clause, and the day on which that is expected."""

    what: str
    expected: datetime.date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The legal life of a clause, and how well it is known.

    Attributes
    ----------
    begins, ends
        First and last day of the clause's legal life; None is open.
    applies_from
        The day from which it applies, where that is later than `begins`.
    status
        As of `checked`; None: nobody said, and the clause's state is unknown.
    binding
        Law, guidance, practice of a trade, or fairkit's own addition.
    supersedes, superseded_by, incorporated_by
        Other clauses.
    sources, quote, text_sha256
        Where it stands; operative words, at most 40; the digest of the normalised text of the first source.
    mark, read_by, read_on
        How it was read, by whom, when.
    checked, recheck_by
        The day of the last check; the last day on which that counts.
    watch
        What may change it.
    """

    begins: datetime.date | None = None
    ends: datetime.date | None = None
    applies_from: datetime.date | None = None
    status: Status | None = None
    binding: Binding | None = None
    supersedes: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    incorporated_by: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    quote: str | None = None
    text_sha256: str | None = None
    mark: Mark | None = None
    read_by: str | None = None
    read_on: datetime.date | None = None
    checked: datetime.date
    recheck_by: datetime.date
    watch: tuple[PendingChange, ...] = ()

    @property
    def official(self) -> bool:
        """Whether the words were compared with an official text, or there is no official text to compare with."""
        return self.mark in ("O", "Oc") or self.binding in ("practice", "own")

    def on(self, day: datetime.date) -> State:
        """Return the clause's state on a day, as far as is known since `checked`; what is no law always applies."""
        if self.status is None or self.binding in ("practice", "own"):
            return "unknown" if self.status is None else "applies"
        if self.ends is not None and day > self.ends:
            return "ended"
        if self.status in ("stayed", "proposed") or (self.status == "withdrawn" and self.ends is None):
            return self.status
        if self.begins is not None and day < self.begins:
            return "adopted" if self.status == "adopted" else "later"
        return "later" if self.applies_from is not None and day < self.applies_from else "applies"

    def say(self, state: State) -> str:
        """Return a state in words, with the date that belongs to it."""
        if state == "ended" and self.ends is not None:
            word = "repealed" if self.status == "repealed" else "ended"
            return f"{word} {self.ends + datetime.timedelta(days=1)}"
        first = max((day for day in (self.begins, self.applies_from) if day is not None), default=None)
        since = "" if first is None else f", applies from {first}"
        return {
            "applies": "applied",
            "later": f"not yet applicable{since}",
            "adopted": f"adopted, not yet in force{since}",
            "stayed": "stayed",
            "proposed": "proposed, not adopted",
            "withdrawn": "withdrawn",
        }.get(state, "status unknown")

    def answers(self, audited: datetime.date | None, today: datetime.date) -> str:
        """Return what held on the audit's date and what holds today, in a sentence each."""
        now = self.on(today)
        said = f"Today ({today}): {'applies' if now == 'applies' else self.say(now)}."
        return said if audited is None else f"{audited}: {self.say(self.on(audited))}. {said}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "sources":
                value = [one.to_dict() for one in value]
            elif each.name == "watch":
                value = [{"what": one.what, "expected": _iso(one.expected)} for one in value]
            elif isinstance(value, tuple):
                value = list(value)
            found[each.name] = _iso(value) if isinstance(value, datetime.date) else value
        return found


KEYS = frozenset({one.name for one in fields(Validity)} - {"begins", "ends"} | {"in_force"})
"""The keys of a pack and of an item that this module reads."""


def read_validity(
    record: Mapping[str, Any], inherited: Mapping[str, Any], fail: Any
) -> tuple[Validity, dict[str, Any]]:
    """Read the keys of a pack or an item over those that it inherits; return what its items inherit, too.

    Parameters
    ----------
    record
        The TOML table.
    inherited
        From the pack, for an item.
    fail
        Called with a sentence about a key of another kind; raises.
    """
    own = {key: _read(key, value, fail) for key, value in record.items() if key in KEYS}
    if "in_force" in own:
        own |= own.pop("in_force")
    whole: dict[str, Any] = {**inherited, **own}
    days = RECHECK_DAYS_WATCHED if whole.get("watch") else RECHECK_DAYS
    latest = whole["checked"] + datetime.timedelta(days=days)
    if whole.setdefault("recheck_by", latest) > latest:
        fail(f"recheck_by is at most {days} days after checked: {latest}")
    validity = Validity(**whole)
    if validity.status == "repealed" and validity.ends is None:
        fail("a repealed clause says until when it was law: in_force = { to = 2026-01-31 }")
    if validity.begins and validity.ends and validity.begins > validity.ends:
        fail(f"in_force is from {validity.begins} to {validity.ends}, which is before")
    if validity.quote is not None and len(validity.quote.split()) > MOST_QUOTED:
        fail(f"quote has more than {MOST_QUOTED} words")
    return validity, {
        key: value for key, value in whole.items() if key != "recheck_by" or "recheck_by" in own
    }


def _iso(day: datetime.date | None) -> str | None:
    return None if day is None else day.isoformat()


def _read(key: str, value: Any, fail: Any) -> Any:
    """Return a key's value; `in_force` as the fields `begins` and `ends`."""
    if key in ("applies_from", "read_on", "checked", "recheck_by"):
        return _day(key, value, fail)
    choices = {"status": get_args(Status), "binding": get_args(Binding), "mark": get_args(Mark)}.get(key)
    if choices is not None:
        return value if value in choices else fail(f"{key} is {', '.join(choices)}")
    if key == "in_force":
        if not isinstance(value, Mapping) or not value or set(value) - {"from", "to"}:
            fail("in_force is a table, as { from = 2026-01-01, to = 2026-12-31 }")
        names = {"from": "begins", "to": "ends"}
        return {names[end]: _day(f"in_force.{end}", day, fail) for end, day in value.items()}
    if key in ("sources", "watch"):
        made: type[Source] | type[PendingChange] = Source if key == "sources" else PendingChange
        return tuple(_made(made, key, one, fail) for one in _list(key, value, Mapping, fail))
    if key in ("supersedes", "superseded_by", "incorporated_by"):
        return tuple(_list(key, value, str, fail))
    return value if isinstance(value, str) and value.strip() else fail(f"{key} takes a text, not {value!r}")


def _day(key: str, value: Any, fail: Any) -> Any:
    if type(value) is not datetime.date:
        fail(f"{key} is a date without quotes, as in {key} = 2026-01-31")
    return value


def _list(key: str, value: Any, kind: type, fail: Any) -> Sequence[Any]:
    if not isinstance(value, list) or not value or not all(isinstance(one, kind) for one in value):
        fail(f"{key} is a list of {'texts' if kind is str else 'tables'}")
    found: Sequence[Any] = value
    return found


def _made(made: type[Source] | type[PendingChange], key: str, record: Mapping[str, Any], fail: Any) -> Any:
    dated = "version" if made is Source else "expected"
    needed = {one.name for one in fields(made)} - {dated}
    if not needed <= set(record) or set(record) - needed - {dated}:
        fail(f"each of {key} has {', '.join(sorted(needed))}, and may have {dated}")
    if any(not isinstance(record[name], str) or not record[name].strip() for name in needed):
        fail(f"{', '.join(sorted(needed))} of {key} take texts")
    if dated in record:
        _day(f"{key}.{dated}", record[dated], fail)
    return made(**record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """What a reader must know about a clause before the numbers.

    Attributes
    ----------
    severity
        Red: no law, or nobody knows. Amber: not yet law here, or the check is out of date. Grey: not compared with the
        official text.
    clause, text
        Which, and what.
    accepted
        Whether a person accepted it, so that `--strict` lets it pass.
    """

    severity: Severity
    clause: str
    text: str
    accepted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a person accepts with `--strict`: amber states, and by name that clauses were not compared."""

    states: frozenset[str] = field(default_factory=frozenset)
    unread_by: str | None = None


def flags_of(
    validity: Validity,
    clause: str,
    *,
    asks: bool,
    audited: datetime.date | None,
    today: datetime.date,
    kept: bool,
    accepted: Acceptance,
) -> list[Flag]:
    """Return what is wrong with resting on a clause.

    Parameters
    ----------
    validity, clause
        The clause.
    asks
        Whether numbers or facts rest on it; a clause that asks nothing and held on no day in question is history.
    audited, today
        The audit's date (None: nobody signed), and today.
    kept
        Whether the edition is kept for old audits: the audit's date alone counts.
    accepted
        What a person accepts.
    """
    days = [audited] if kept and audited is not None else [day for day in (audited, today) if day is not None]
    states = list(dict.fromkeys(validity.on(day) for day in days))
    held = "applies" in states
    found = [
        Flag(severity="red", clause=clause, text=validity.say(state))
        for state in states
        if state == "unknown" or (state in ("ended", "withdrawn") and (asks or held))
    ]
    found += [
        Flag(severity="amber", clause=clause, text=validity.say(state), accepted=state in accepted.states)
        for state in states
        if state in AMBER and (asks or held)
    ]
    if today > validity.recheck_by and not kept and validity.status is not None:
        text = f"last checked {validity.checked}, and to be checked again by {validity.recheck_by}"
        found.append(Flag(severity="amber", clause=clause, text=text))
    if not validity.official and validity.status is not None:
        text = f"not compared with the official text: {MARKS[validity.mark or 'N']}"
        found.append(Flag(severity="grey", clause=clause, text=text, accepted=accepted.unread_by is not None))
    return found
