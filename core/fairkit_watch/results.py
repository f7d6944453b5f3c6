"""What a look at a watch gives: frozen values with a JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fairkit.support.records import record_of

if TYPE_CHECKING:
    from fairkit_watch.alarms import Alarm
    from fairkit_watch.judging import Verdict

SCHEMA = "fairkit.watch/1"
Interval = tuple[float, float]


def _listed(pair: Interval | None) -> list[float] | None:
    return None if pair is None else list(pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLook:
    """One rule at one look.

    Attributes
    ----------
    metric, sensitive, kind, limit
        The rule; `kind` is ``max`` or ``min``.
    value, interval
        Of all decisions since the start; None where nothing is known.
    verdict, reason
        What the interval says, and why.
    unresolved
        The share of closed decisions whose outcome is not known.
    week
        Of the current calendar week alone: value, interval (at a year's part of α) and verdict.
    reference
        The certificate's value and interval; None where there is none.
    """

    metric: str
    sensitive: str | None
    kind: Literal["max", "min"]
    limit: float
    value: float | None
    interval: Interval | None
    verdict: Verdict
    reason: str
    unresolved: float = 0.0
    week: tuple[float | None, Interval | None, Verdict] = (None, None, "undecided")
    reference: tuple[float, Interval] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value, interval, verdict = self.week
        reference = self.reference
        return {
            "metric": self.metric,
            "sensitive": self.sensitive,
            self.kind: self.limit,
            "value": self.value,
            "interval": _listed(self.interval),
            "verdict": self.verdict,
            "reason": self.reason,
            "unresolved": self.unresolved,
            "week": {"value": value, "interval": _listed(interval), "verdict": verdict},
            "reference": None if reference is None else {"value": reference[0], "interval": list(reference[1])},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """One group at one look.

    Attributes
    ----------
    split, group, rows
        Which, and how many decisions.
    share
        Of all decisions with a group.
    expected
        Whether it was declared at the start.
    rates
        By rate (and ``mean_score``): value and band; the bands of all groups hold together, at every look.
    """

    split: str
    group: str
    rows: int
    share: float
    expected: bool
    rates: Mapping[str, tuple[float | None, Interval | None]]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        rates = {name: {"value": value, "interval": _listed(pair)} for name, (value, pair) in self.rates.items()}
        return record_of(self, without=("rates",)) | {"rates": rates}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSnapshot:
    """A watch at one time.

    Attributes
    ----------
    since, until
        The first and the newest day with decisions; None before the first.
    today
        The day of the look.
    rows, days
        Decisions, and days with them.
    missing_days
        Days between the first and the newest for which nothing came.
    model, alias, certificate
        What is watched.
    confidence, streams
        Of all verdicts together; the number of questions that share α.
    verdict
        The worst of the rules'; None where there are none.
    rules, groups
        See `RuleLook` and `GroupLook`.
    alarms
        Every alarm so far, the oldest first.
    lately
        The rules that are broken lately, and since when: the verdict is about all decisions, these are about the
        newest.
    open
        Decisions whose outcome is still awaited.
    odd
        What was merely odd in the data, as counts by sentence.
    notes
        What a reader must know.
    """

    since: str | None
    until: str | None
    today: str
    rows: int
    days: int
    missing_days: tuple[str, ...]
    model: str | None
    alias: str | None
    certificate: str | None
    confidence: float
    streams: int
    verdict: Verdict | None
    rules: tuple[RuleLook, ...]
    groups: tuple[GroupLook, ...]
    alarms: tuple[Alarm, ...]
    lately: Mapping[str, str] = field(default_factory=dict)
    open: int
    odd: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"schema": SCHEMA} | record_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What a call of `Watch.add`, `Watch.label` or `Watch.merge` did; it is on the disk.

    Attributes
    ----------
    batch
        The name under which it was counted.
    rows
        Decisions, or labels that met a decision.
    days
        The days that they are of.
    unknown
        Labels for ids that no open cohort has.
    closed
        Days whose cohorts closed.
    alarms
        New alarms.
    notes
        Sentences about how the rows were counted.
    """

    batch: str
    rows: int
    days: tuple[str, ...] = ()
    unknown: int = 0
    closed: tuple[str, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)
