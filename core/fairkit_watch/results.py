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
    """One rule at one look."""

    metric: str  # the rule; `kind` is `max` or `min`
    sensitive: str | None  # the rule; `kind` is `max` or `min`
    kind: Literal["max", "min"]  # the rule; `kind` is `max` or `min`
    limit: float  # the rule; `kind` is `max` or `min`
    value: float | None  # of all decisions since the start; None where nothing is known
    interval: Interval | None  # of all decisions since the start; None where nothing is known
    verdict: Verdict  # what the interval says, and why
    reason: str  # what the interval says, and why
    unresolved: float = 0.0  # the share of closed decisions whose outcome is not known
    week: tuple[float | None, Interval | None, Verdict] = (None, None, "undecided")
    reference: tuple[float, Interval] | None = None  # the certificate's value and interval; None where there is none

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
    """One group at one look."""

    split: str  # which, and how many decisions
    group: str  # which, and how many decisions
    rows: int  # which, and how many decisions
    share: float  # of all decisions with a group
    expected: bool  # whether it was declared at the start
    rates: Mapping[str, tuple[float | None, Interval | None]]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        rates = {name: {"value": value, "interval": _listed(pair)} for name, (value, pair) in self.rates.items()}
        return record_of(self, without=("rates",)) | {"rates": rates}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSnapshot:
    """A watch at one time."""

    since: str | None  # the first and the newest day with decisions; None before the first
    until: str | None  # the first and the newest day with decisions; None before the first
    today: str  # the day of the look
    rows: int  # decisions, and days with them
    days: int  # decisions, and days with them
    missing_days: tuple[str, ...]  # days between the first and the newest for which nothing came
    model: str | None  # what is watched
    alias: str | None  # what is watched
    certificate: str | None  # what is watched
    confidence: float  # of all verdicts together; the number of questions that share α
    streams: int  # of all verdicts together; the number of questions that share α
    verdict: Verdict | None  # the worst of the rules'; None where there are none
    rules: tuple[RuleLook, ...]  # see `RuleLook` and `GroupLook`
    groups: tuple[GroupLook, ...]  # see `RuleLook` and `GroupLook`
    alarms: tuple[Alarm, ...]  # every alarm so far, the oldest first
    lately: Mapping[str, str] = field(default_factory=dict)
    open: int  # decisions whose outcome is still awaited
    odd: Mapping[str, int] = field(default_factory=dict)  # what was merely odd in the data, as counts by sentence
    notes: tuple[str, ...] = ()  # what a reader must know

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"schema": SCHEMA} | record_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What a call of `Watch.add` or `Watch.label` did; it is on the disk."""

    batch: str  # the name under which it was counted
    rows: int  # decisions, or labels that met a decision
    days: tuple[str, ...] = ()  # the days that they are of
    unknown: int = 0  # labels for ids that no open cohort has
    closed: tuple[str, ...] = ()  # days whose cohorts closed
    alarms: tuple[Alarm, ...] = ()  # new alarms
    notes: tuple[str, ...] = ()  # sentences about how the rows were counted

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)
