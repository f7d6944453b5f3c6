"""The legal life of a clause: since when it is law, until when, who read it where; and what that means on a day."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fairkit.packs import Item, PackFile

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
    mark: Mark | None = None  # how it was read, by whom, when
    read_by: str | None = None  # how it was read, by whom, when
    read_on: datetime.date | None = None  # how it was read, by whom, when
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
    refuses: tuple[str, ...] = ()  # what an audit must not rest on (`sensitive_probability`), and why
    refuses_because: str = ""  # what an audit must not rest on (`sensitive_probability`), and why
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
