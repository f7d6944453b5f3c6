"""Packs: what a law or a house rule asks of an audit, as a data file that a lawyer can read, and what is made of it."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from fairkit.clauses import Acceptance, AgeLimit, Flag, Validity
    from fairkit.results.report import Report

FactKind = Literal["text", "date", "flag"]
Kind = Literal["text", "count", "percent", "ratio", "number", "p"]
Cell = str | int | float | None


class Pack(ABC):
    """A rendering for a law, or for an employer's own policy.

    The text is TOML: `fairkit_laws.files` says which keys it has. A complete plugin, in a module ``my_plugin.py``
    whose distribution declares the entry point ``[project.entry-points.fairkit] my-plugin = "my_plugin"``::

        from __future__ import annotations

        import fairkit
        from fairkit.packs import Pack

        RULES = '''
        title = "House rules on hiring tools"
        law = "Personnel handbook, chapter 7"
        source = "https://example.org/handbook#7"
        checked = 2026-01-15
        notice = "Internal use."

        [[facts]]
        key = "approved_by"
        title = "Approved by"

        [[items]]
        clause = "7.2"
        title = "Selection rates"
        says = "The share of each group that the tool selects."
        table = "selection_rates"

        [[items]]
        clause = "7.3"
        title = "Approval"
        facts = ["approved_by"]
        '''


        class HouseRules(Pack):
            \"\"\"What our handbook asks of hiring tools.\"\"\"

            name = "house-rules"

            @classmethod
            def text(cls):
                return RULES


        @fairkit.hookimpl
        def fairkit_packs():
            return [HouseRules]

    Attributes
    ----------
    name
        What ``--pack`` takes: small letters, digits and hyphens.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def text(cls) -> str:
        """Return the pack as TOML; the same each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What no tool can know, and a person fills in.

    Attributes
    ----------
    key, title
        Its name in the file of facts, and on the page.
    help
        What is meant, in a sentence.
    kind
        ``text``, ``date`` or ``flag`` (true or false).
    required
        Whether its absence is a gap.
    required_with
        A flag: where a person states it as true, the absence of this fact is a gap, too.
    must_hold
        A flag that answers its item only where it is stated as true.
    """

    key: str
    title: str
    help: str = ""
    kind: FactKind = "text"
    required: bool = True
    required_with: str | None = None
    must_hold: bool = False

    def needed(self, stated: Mapping[str, str | bool]) -> bool:
        """Return whether its absence is a gap, by the other facts."""
        return self.required or (self.required_with is not None and stated.get(self.required_with) is True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What one clause asks: a table from the audit, facts from a person, or both.

    Attributes
    ----------
    clause, title, says
        The clause, what it is about, and what the numbers show, in sentences.
    table
        Name of the builder of the format.
    facts
        Keys of facts.
    options
        What the builder is told.
    thresholds
        Numbers that the clause names, by the words of the quotation that name them; without any, no table says what
        passes.
    validity
        The clause's legal life, sources and mark.
    """

    clause: str
    title: str
    validity: Validity
    says: str = ""
    table: str | None = None
    facts: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackFile:
    """A pack that was read.

    Attributes
    ----------
    name, title, law
        What ``--pack`` takes, the page's title, and the law's full name.
    source, notice
        Where the law stands, and what a reader must know.
    validity
        What its items inherit.
    sha256
        Digest of the pack's text.
    audit
        What ``--pack`` adds to an audit: `intersections`, `reference`, `scores`.
    refuses, refuses_because, age_limit
        What an audit must not rest on (`sensitive_probability`), why, and when it counts no more.
    facts, items
        In the law's order.
    """

    name: str
    title: str
    law: str
    source: str
    notice: str
    items: tuple[Item, ...]
    validity: Validity
    sha256: str
    facts: tuple[Fact, ...] = ()
    audit: Mapping[str, Any] = field(default_factory=dict)
    refuses: tuple[str, ...] = ()
    refuses_because: str = ""
    age_limit: AgeLimit | None = None

    @property
    def kept_until(self) -> datetime.date | None:
        """The last day of audits that a kept edition is for, as in ``ecoa@2026-07-20``; None: the current edition."""
        _, at, day = self.name.partition("@")
        return datetime.date.fromisoformat(day) if at else None

    @property
    def edition(self) -> str:
        """The day that the edition is named by: of a kept one its last, else the day of the check."""
        return (self.kept_until or self.validity.checked).isoformat()

    def to_dict(self) -> dict[str, Any]:
        """Return what a list of packs says."""
        checked, recheck = self.validity.checked, min(item.validity.recheck_by for item in self.items)
        told = {key: getattr(self, key) for key in ("name", "title", "law", "source", "edition", "sha256")}
        told |= {
            "status": self.validity.status,
            "checked": checked.isoformat(),
            "recheck_by": recheck.isoformat(),
        }
        return told | {"facts": [fact.key for fact in self.facts]}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and how its numbers are written."""

    name: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackTable:
    """A table of a pack.

    Attributes
    ----------
    title
        What it is about.
    columns, rows
        Each row is as long as `columns`; None is not defined.
    notes
        Sentences below it.
    origin
        Where its numbers are from: signed ones, computed for the page from signed ones, or read from a watch.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    origin: Literal["signed", "computed", "watched"] = "signed"


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
        flags = (flag for one in self.items for flag in one.flags)
        return tuple(sorted(flags, key=lambda flag: order.index(flag.severity)))

    @property
    def complete(self) -> bool:
        """Whether every item is answered, and every flag was accepted: what ``--strict`` asks for."""
        return not self.gaps and all(flag.accepted for flag in self.flags)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing, with its clause."""
        return tuple(f"{one.item.clause}: {gap}" for one in self.items for gap in one.gaps)

    @property
    def tables(self) -> tuple[PackTable, ...]:
        """All tables, in order."""
        return tuple(table for one in self.items for table in one.tables)


class PackFormat(ABC):
    """What reads the texts of packs and fills them from an audit; fairkit's own is the plugin ``laws``."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def read(cls, name: str, text: str) -> PackFile:
        """Read a pack's TOML; raises `ConfigError` that names what is missing, unknown or of another kind."""

    @classmethod
    @abstractmethod
    def read_facts(cls, pack: PackFile, record: Mapping[str, Any]) -> dict[str, str | bool]:
        """Check a person's facts against a pack; raises `ConfigError` for an unknown key or a value of another kind."""

    @classmethod
    @abstractmethod
    def render(
        cls,
        pack: PackFile,
        report: Report,
        facts: Mapping[str, str | bool],
        certificate: Mapping[str, Any],
        *,
        today: datetime.date,
        accepted: Acceptance | None = None,
        watch: Mapping[str, Any] | None = None,
    ) -> Rendering:
        """Fill a pack with an audit, what a person stated and accepts, the certificate, and a look at a watch."""
