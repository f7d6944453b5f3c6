"""The legal life of a clause: since when it is law, until when, who read it where; and what that means on a day."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from fairkit.packs import Flag, Item, PackFile
from fairkit.support.lazy_dataclass import asdict, dataclass, field, fields

Status = Literal["in_force", "adopted", "stayed", "proposed", "withdrawn", "repealed"]
Binding = Literal["law", "guidance", "practice", "own"]
Mark = Literal["O", "Oc", "S2", "S1", "K", "N"]
State = Literal["applies", "later", "adopted", "stayed", "proposed", "ended", "withdrawn", "unknown"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """A rulemaking, suit or bill that may change a clause, and the day on which that is expected."""

    what: str
    expected: datetime.date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The legal life of a clause, and how well it is known."""

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
    mark: Mark | None = None  # how it was read
    read_by: str | None = None  # by whom
    read_on: datetime.date | None = None  # when
    checked: datetime.date
    recheck_by: datetime.date
    watch: tuple[PendingChange, ...] = ()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeLimit:
    """Calendar years after which an audit counts no more, and the clause that says so."""

    years: int
    clause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause(Item):
    """An item with the legal life of its clause."""

    validity: Validity  # since when it is law, its sources and its mark
    thresholds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFile(PackFile):
    """A pack whose items are clauses."""

    items: tuple[Clause, ...]
    validity: Validity  # what its items inherit
    sha256: str  # digest of the pack's text
    refuses: tuple[str, ...] = ()  # what an audit must not rest on (`sensitive_probability`)
    refuses_because: str = ""  # why
    age_limit: AgeLimit | None = None  # when an audit counts no more; None: the law names no age

    @property
    def kept_until(self) -> datetime.date | None:
        """The last day of audits that a kept edition is for, as in ``ecoa@2026-07-20``; None: the current edition."""
        _, at, day = self.name.partition("@")
        return datetime.date.fromisoformat(day) if at else None

    @property
    def edition(self) -> str:
        """The day that the edition is named by: of a kept one its last, else the day of the check."""
        return (self.kept_until or self.checked).isoformat()

    def to_dict(self) -> dict[str, Any]:
        """Return the pack's entry in a list of packs, with the facts that an audit needs."""
        return {
            **PackFile.to_dict(self),
            "edition": self.edition,
            "sha256": self.sha256,
            "status": self.validity.status,
            "recheck_by": min(item.validity.recheck_by for item in self.items).isoformat(),
            "refuses": dict.fromkeys(self.refuses, self.refuses_because),
        }


# The keys of a clause's legal life in a pack's TOML, and what is wrong with resting on it.


RECHECK_DAYS, RECHECK_DAYS_WATCHED = 90, 30
"""Days after which a clause is to be read again; the shorter where a change is expected."""
MOST_QUOTED = 40
"""Words of a quotation, at most."""
KEYS = frozenset({one.name for one in fields(Validity)} - {"begins", "ends"} | {"in_force"})
"""The keys of a pack and of an item that this module reads."""


def read_validity(
    record: Mapping[str, Any], inherited: Mapping[str, Any], fail: Any
) -> tuple[Validity, dict[str, Any]]:
    """Read the keys of a pack or an item over those that it inherits; return what its items inherit, too."""
    stated = {key: _read(key, value, fail) for key, value in record.items() if key in KEYS}
    if "in_force" in stated:
        stated |= stated.pop("in_force")
    whole: dict[str, Any] = {**inherited, **stated}
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
    return validity, {key: value for key, value in whole.items() if key != "recheck_by" or "recheck_by" in stated}


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
        return tuple(_made(made, key, item, fail) for item in _list(key, value, Mapping, fail))
    if key in ("supersedes", "superseded_by", "incorporated_by"):
        return tuple(_list(key, value, str, fail))
    return value if isinstance(value, str) and value.strip() else fail(f"{key} takes a text, not {value!r}")


def _day(key: str, value: Any, fail: Any) -> Any:
    if type(value) is not datetime.date:
        fail(f"{key} is a date without quotes, as in {key} = 2026-01-31")
    return value


def _list(key: str, value: Any, kind: type, fail: Any) -> Sequence[Any]:
    if not isinstance(value, list) or not value or not all(isinstance(item, kind) for item in value):
        fail(f"{key} is a list of {'texts' if kind is str else 'tables'}")
    result: Sequence[Any] = value
    return result


def _made(made: type[Source] | type[PendingChange], key: str, record: Mapping[str, Any], fail: Any) -> Any:
    dated = "version" if made is Source else "expected"
    required = {one.name for one in fields(made)} - {dated}
    if not required <= set(record) or set(record) - required - {dated}:
        fail(f"each of {key} has {', '.join(sorted(required))}, and may have {dated}")
    if any(not isinstance(record[name], str) or not record[name].strip() for name in required):
        fail(f"{', '.join(sorted(required))} of {key} take texts")
    if dated in record:
        _day(f"{key}.{dated}", record[dated], fail)
    return made(**record)


def answers(validity: Validity, audited: datetime.date | None, today: datetime.date) -> str:
    """Return a clause's state on the audit's date and today, in a sentence each."""
    now = validity.on(today)
    said = f"Today ({today}): {'applies' if now == 'applies' else validity.say(now)}."
    return said if audited is None else f"{audited}: {validity.say(validity.on(audited))}. {said}"


def flags_of(
    validity: Validity,
    clause: str,
    *,
    asks: bool,
    audited: datetime.date | None,
    today: datetime.date,
    retained: bool,
    accepted: Mapping[str, str],
) -> list[Flag]:
    """Return the flags of a clause: reasons not to rest on it."""
    days = [audited] if retained and audited is not None else [day for day in (audited, today) if day is not None]
    states = list(dict.fromkeys(validity.on(day) for day in days))
    applies = "applies" in states
    flags = [
        Flag(severity="red", clause=clause, text=validity.say(state))
        for state in states
        if state == "unknown" or (state in ("ended", "withdrawn") and (asks or applies))
    ]
    flags += [
        Flag(severity="amber", clause=clause, text=validity.say(state), accepted=state in accepted)
        for state in states
        if state in AMBER and (asks or applies)
    ]
    if today > validity.recheck_by and not retained and validity.status is not None:
        text = f"last checked {validity.checked}, and to be checked again by {validity.recheck_by}"
        flags.append(Flag(severity="amber", clause=clause, text=text))
    official = validity.mark in ("O", "Oc") or validity.binding in ("practice", "own")
    if not official and validity.status is not None:
        text = f"not compared with the official text: {MARKS[validity.mark or 'N']}"
        flags.append(Flag(severity="grey", clause=clause, text=text, accepted="unread" in accepted))
    return flags


def law_of(item: Clause, audited: datetime.date | None, today: datetime.date) -> dict[str, Any]:
    """Return an item's legal record: its binding force, its state on both dates, sources, and thresholds."""
    binding = item.validity.binding
    states = [] if binding is None or binding == "law" else [f"{BINDING[binding]}."]
    if binding not in ("practice", "own"):
        states.append(answers(item.validity, audited, today))
    return {
        "states": states,
        "sources": [] if binding == "own" else source_lines(item),
        "validity": json.loads(json.dumps(asdict(item.validity), default=str)),
        "thresholds": dict(item.thresholds),
    }


def source_lines(item: Clause) -> list[str]:
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


def clause_record(item: Clause, today: datetime.date, *, retained: bool) -> dict[str, Any]:
    """Return a clause as `fairkit packs status` and `drift` show it: state, source, words and what its check lacks."""
    law = item.validity
    required = {"status": law.status, "source": law.sources, "mark": law.mark}
    state = law.on(today)
    return {
        "clause": item.clause,
        "today": "custom"
        if law.binding in ("practice", "own")
        else "applies"
        if state == "applies"
        else law.say(state),
        "mark": law.mark,
        "checked": law.checked.isoformat(),
        "recheck_by": law.recheck_by.isoformat(),
        "overdue": today > law.recheck_by and not retained,
        "lacks": [word for word, value in required.items() if not value],
        "watch": [watched.what for watched in law.watch],
        "address": law.sources[0].address if law.sources else None,
        "quote": law.quote,
        "text_sha256": law.text_sha256,
    }
