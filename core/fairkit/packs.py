"""Packs: what a law or a house rule asks of an audit, as a data file that a lawyer can read, and what is made of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, cast

from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    import datetime

    from fairkit.results.report import Report

FactKind = Literal["text", "date", "flag"]
Kind = Literal["text", "count", "percent", "ratio", "number", "p"]
Cell = str | int | float | None


FORMAT = "fairkit_laws.files"
"""The module that reads and renders packs."""


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
        status = "in_force"
        items = [{ clause = "7.2", title = "Selection rates", table = "selection_rates" }]
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
    """What no tool can know, and a person fills in."""

    # Its name in the file of facts, and on the page
    key: str
    title: str
    help: str = ""  # what is meant, in a sentence
    kind: FactKind = "text"  # ``text``, ``date`` or ``flag`` (true or false)
    required: bool = True  # whether its absence is a gap
    # A flag that makes this fact needed where it is true; and whether this flag answers only where it is true itself
    required_with: str | None = None
    must_hold: bool = False

    def needed(self, stated: Mapping[str, str | bool]) -> bool:
        """Return whether its absence is a gap, by the other facts."""
        return self.required or (self.required_with is not None and stated.get(self.required_with) is True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What one clause asks: a table from the audit, facts from a person, or both."""

    # The clause, what it is about, and what the numbers show, in sentences
    clause: str
    title: str
    says: str = ""
    table: str | None = None  # name of the builder of the format
    facts: tuple[str, ...] = ()  # keys of facts
    options: Mapping[str, Any] = field(default_factory=dict)  # what the builder is told


@dataclass(frozen=True, slots=True, kw_only=True)
class PackFile:
    """A pack that was read."""

    # What ``--pack`` takes, the page's title, and the law's full name
    name: str
    title: str
    law: str
    # Where the law stands, the day on which that was looked at, and what a reader must know
    source: str
    checked: datetime.date
    notice: str
    items: tuple[Item, ...]
    # In the law's order
    facts: tuple[Fact, ...] = ()
    # What ``--pack`` adds to an audit: `intersections`, `reference`, `scores`
    audit: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the pack's entry in a list of packs."""
        record = {"name": self.name, "title": self.title, "law": self.law, "source": self.source}
        return record | {"checked": self.checked.isoformat(), "facts": [fact.key for fact in self.facts]}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and how its numbers are written."""

    name: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackTable:
    """A table of a pack."""

    title: str  # what it is about
    # Each row is as long as `columns`; None is not defined
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()  # sentences below it
    # Where its numbers are from: signed ones, computed for the page from signed ones, or read from a watch
    origin: Literal["signed", "computed", "watched"] = "signed"


class Flag(NamedTuple):
    """What is wrong with resting on a clause: red, amber or grey; and whether a person accepted it."""

    severity: Literal["red", "amber", "grey"]
    clause: str
    text: str
    accepted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An item with what answers it."""

    item: Item  # what is asked
    tables: tuple[PackTable, ...]  # from the audit
    # What a person stated, by fact; None where nothing was. A fact is `required` here where the others make it so
    facts: tuple[tuple[Fact, str | bool | None], ...]
    gaps: tuple[str, ...]  # what is missing, in sentences; empty where the item is answered
    # What is recorded about the clause (``states``, ``sources``, ...), and what is wrong with resting on it
    law: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A pack with all its items, in the law's order."""

    pack: PackFile
    report: Report
    items: tuple[Answered, ...]
    certificate: Mapping[str, Any]
    today: datetime.date
    notes: tuple[str, ...] = ()

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing, with its clause."""
        return tuple(f"{item.item.clause}: {gap}" for item in self.items for gap in item.gaps)

    @property
    def tables(self) -> tuple[PackTable, ...]:
        """All tables, in order."""
        return tuple(table for item in self.items for table in item.tables)


class PackFormat(Protocol):
    """What reads the texts of packs and fills them from an audit: a module of the plugin ``laws``."""

    def read(self, name: str, text: str) -> PackFile:
        """Read a pack's TOML; raises `ConfigError` that names what is missing, unknown or of another kind."""

    def read_facts(self, pack: PackFile, record: Mapping[str, Any]) -> dict[str, str | bool]:
        """Check a person's facts against a pack; raises `ConfigError` for an unknown key or a value of another kind."""

    def render(
        self,
        pack: PackFile,
        report: Report,
        facts: Mapping[str, str | bool],
        certificate: Mapping[str, Any],
        *,
        today: datetime.date,
        accepted: Mapping[str, str] | None = None,
        watch: Mapping[str, Any] | None = None,
    ) -> Rendering:
        """Fill a pack with an audit, what a person stated and accepts, the certificate, and a look at a watch."""

    def clauses(self, pack: PackFile, today: datetime.date) -> list[dict[str, Any]]:
        """Return a record of each clause on a day: state, source, words, mark, next check, what it lacks."""


def pack_format() -> PackFormat:
    """Return what reads and renders packs."""
    return cast("PackFormat", import_module(FORMAT))
