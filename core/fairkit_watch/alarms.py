"""What is alarming in the counts: a rule that fails, a recent change, other shares of groups, days without data.

Everything here is a function of the counts and of the day of the look, so that it is the same whatever the order
in which the data came. Which alarms were raised before is in the log (see `watch`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit_watch.counting import NAMES, Cells, parts_of
from fairkit_watch.detectors import Detector, Streams, locate, streams_of
from fairkit_watch.judging import Judge, RulePath  # noqa: TC001
from fairkit_watch.settings import WINDOWS_A_YEAR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_watch.judging import Daily, Split, Verdict
    from fairkit_watch.settings import Question

    Array = NDArray[np.float64]


Level = Literal["fail", "changed", "shares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A change of state, with its evidence."""

    level: Level
    subject: str  # the rule or split, such as `demographic_parity_difference:sex`; a group's share is `sex=female`
    day: str  # the day whose data raised it
    text: str  # a sentence with the numbers
    evidence: Mapping[str, Any] = field(default_factory=dict)  # the numbers
    number: int = 0  # which of the watch's alarms it is, from 1; 0 where it was not written yet

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Alarm:
        """Read what `to_dict` wrote."""
        return cls(**record)


def changes(judge: Judge, data: Daily) -> Iterator[tuple[Alarm, str | None]]:
    """Yield an alarm for each time that a rule began to be broken lately, and the day when that was over.

    A detector is deaf between its alarm and the day at which the decisions since the alarm pass the rule; it then
    starts again. None where that day did not come.
    """
    for question in judge.questions:
        split = data.splits[question.split]
        streams = streams_of(judge, question, split)
        if streams is None:
            continue
        length = judge.settings.run_length * judge.streams
        detector = Detector(streams.weights, length)
        began, heard = 0, 0
        for t in np.flatnonzero(streams.counts).tolist():
            if t < heard:
                continue
            evidence = detector.step(streams.increments[t])
            if evidence < length:
                continue
            alarm = _changed(question, data, streams, detector, (began, t), (evidence, length))
            if not question.needs_labels:
                alarm = _carried(alarm, split, data.days, (began, t))
            over = _over(judge, question, split, t)
            yield alarm, None if over is None else data.days[over]
            if over is None:
                break
            began = heard = over + 1
            detector.restart()


def _over(judge: Judge, question: Question, split: Split, start: int) -> int | None:
    """Return the first day after an alarm at which the decisions since the alarm pass the rule."""
    since = split.window(start, len(split.parts["d"]))
    path = judge.interval(question, split, since.cumulated())
    limit = question.limit
    holds = path.high <= limit if question.rule.upper else path.low >= limit
    indices = np.flatnonzero(holds[1:])
    return start + 1 + int(indices[0]) if indices.size else None


def lately(judge: Judge, data: Daily) -> dict[str, str]:
    """Return the rules that are broken lately, by subject, and since when."""
    return {alarm.subject: str(alarm.evidence["since"]) for alarm, over in changes(judge, data) if over is None}


def _changed(
    question: Question,
    data: Daily,
    streams: Streams,
    detector: Detector,
    period: tuple[int, int],
    crossing: tuple[float, float],
) -> Alarm:
    began, t = period
    stream = int((streams.weights * detector.evidence.mean(axis=1)).argmax())
    inside = slice(began, t + 1)
    best, first, last = locate(streams.values[inside, stream], streams.information[inside, stream])
    after = [data.days[min(began + index + 1, t)] for index in (best, first, last)]
    information = streams.information[began + best + 1 : t + 1, stream]
    recent = streams.values[began + best + 1 : t + 1, stream]
    seen = information > 0
    mean = float((recent[seen] * information[seen]).sum() / information[seen].sum()) if seen.any() else None
    what = streams.names[stream]
    text = f"{question.name} breaks its limit {question.limit:g} lately ({what}): the change began about {after[0]}" + (
        "" if after[1] == after[2] else f", between {after[1]} and {after[2]}"
    )
    evidence = {
        "evidence": min(crossing[0], 1e12),
        "threshold": crossing[1],
        "stream": what,
        "since": after[0],
        "between": [after[1], after[2]],
        "value_since": mean,
        "limit": question.limit,
    }
    return Alarm(level="changed", subject=question.subject, day=data.days[t], text=text, evidence=evidence)


def _carried(alarm: Alarm, split: Split, days: Sequence[str], period: tuple[int, int]) -> Alarm:
    """Add what carries the change of a gap, where outcomes are known before it and since."""
    first = days.index(str(alarm.evidence["since"]))
    before, since = (split.window(*days_of).summed()["c"] for days_of in ((period[0], first), (first, period[1] + 1)))
    change = gap_change(split.groups, before, since)
    if change is None:
        return alarm
    return replace(
        alarm, text=f"{alarm.text}; {change.sentence}", evidence={**alarm.evidence, "parts": change.evidence}
    )


def shares(judge: Judge, data: Daily) -> Iterator[Alarm]:
    """Yield an alarm for each time that a group's share in a week left what it was before.

    The week's sequence (at a year's part of α) and that of all days before it do not meet. Weeks that stay there
    raise no further alarm; groups that were not declared raise one when they appear.
    """
    weeks = windows(data.days)
    for name, split in data.splits.items():
        if not name or len(data.days) == 0:
            continue
        yield from _new_groups(name, split, data)
        alpha = judge.alpha / max(len(data.splits) - 1, 1) / 2
        week, before = _weekly(judge, split, name, weeks, alpha / WINDOWS_A_YEAR)
        apart = (week.low > before.high) | (week.high < before.low)
        began = apart & ~np.vstack([np.zeros((1, len(split.groups)), bool), apart[:-1]])
        for w, g in np.argwhere(began).tolist():
            start, stop = weeks[w + 1]
            value, interval = week.at(w, g)
            previous, previous_interval = before.at(w, g)
            text = (
                f"the share of {split.groups[g]} among the decisions is {value:.3g} in the week of {data.days[start]}, "
                f"before it was {previous:.3g}: who is decided about changed, and rates may not be comparable"
            )
            evidence = {
                "share": value,
                "interval": list(interval or ()),
                "before": previous,
                "interval_before": list(previous_interval or ()),
            }
            subject, day = f"{name}={split.groups[g]}", data.days[stop - 1]
            yield Alarm(level="shares", subject=subject, day=day, text=text, evidence=evidence)


def _weekly(
    judge: Judge, split: Split, name: str, weeks: Sequence[tuple[int, int]], alpha: float
) -> tuple[RulePath, RulePath]:
    """Return the shares of each week but the first, and of all days before it, shape [W - 1, G]."""
    rows = split.parts["d"]
    cumulated = rows.cumsum(axis=0)
    starts, stops = (np.array([week[i] for week in weeks[1:]], dtype=np.intp) for i in (0, 1))
    before = cumulated[starts - 1]
    return judge.shares(split, {"d": cumulated[stops - 1] - before}, name, alpha), judge.shares(
        split, {"d": before}, name, alpha
    )


def _new_groups(name: str, split: Split, data: Daily) -> Iterator[Alarm]:
    for g in range(split.declared, len(split.groups)):
        rows = split.parts["d"][:, g].sum(axis=-1)
        day = data.days[int(np.flatnonzero(rows > 0)[0])] if (rows > 0).any() else data.days[0]
        text = (
            f"a group that was not expected appeared in {name}: {split.groups[g]}, first on {day}; it is watched from "
            "then on, with a small part of the error probability that was kept for it"
        )
        yield Alarm(level="shares", subject=f"{name}={split.groups[g]}", day=day, text=text, evidence={"new": True})


def windows(days: Sequence[str]) -> list[tuple[int, int]]:
    """Return the calendar weeks (ISO) as places in the days: first, and one behind the last."""
    weeks: list[tuple[int, int]] = []
    key = None
    for t, day in enumerate(days):
        week = datetime.date.fromisoformat(day).isocalendar()[:2]
        if week != key:
            weeks.append((t, t + 1))
            key = week
        else:
            weeks[-1] = (weeks[-1][0], t + 1)
    return weeks


# What a look at a watch gives: frozen values with a JSON form.


SCHEMA = "fairkit.watch/1"
Interval = tuple[float, float]


def _listed(pair: Interval | None) -> list[float] | None:
    return None if pair is None else list(pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLook:
    """One rule at one look."""

    metric: str  # the rule's
    sensitive: str | None  # None over all rows
    kind: Literal["max", "min"]  # `max` or `min`
    limit: float
    value: float | None  # of all decisions since the start; None where nothing is known
    interval: Interval | None
    verdict: Verdict  # what the interval says
    reason: str  # why
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

    split: str  # the sensitive column
    group: str  # one of its groups
    rows: int  # how many decisions
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

    since: str | None  # the first day with decisions; None before it
    until: str | None  # the newest
    today: str  # the day of the look
    rows: int  # decisions
    days: int  # days with them
    missing_days: tuple[str, ...]  # days between the first and the newest for which nothing came
    model: str | None  # what is watched
    alias: str | None  # its name in the registry, if it has one
    certificate: str | None  # the SHA-256 of the certificate that it began with
    confidence: float  # of all verdicts together
    streams: int  # the number of questions that share α
    verdict: Verdict | None  # the worst of the rules'; None where there are none
    rules: tuple[RuleLook, ...]  # see `RuleLook`
    groups: tuple[GroupLook, ...]  # see `GroupLook`
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


# What carries a change of the gap in selection rates between two periods, from the counts of both.


FEWEST = 50
"""Decisions with known outcomes that a group has in both periods at least."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class GapChange:
    """The change, in a sentence and as numbers: each part with the ends of its interval."""

    sentence: str
    evidence: Mapping[str, Any]


def gap_change(groups: Sequence[str], before: Array, since: Array) -> GapChange | None:
    """Divide the change of a gap among base rates, true and false positive rates; None where too little is known.

    Of the two groups that lie farthest apart since the change. The periods were chosen by who saw the change: the
    intervals are those of periods that were chosen beforehand.
    """
    there = np.flatnonzero(np.minimum(before.sum(axis=1), since.sum(axis=1)) >= FEWEST)
    if len(there) < 2:
        return None
    rates = (since[:, 1] + since[:, 3])[there] / since[there].sum(axis=1)
    high, low = int(there[rates.argmax()]), int(there[rates.argmin()])
    then, now = (parts_of((Cells(cells[high]), Cells(cells[low]))) for cells in (before, since))
    moved = now.less(then)
    if high == low or not np.isfinite(moved.values).all():
        return None
    total = float(moved.values.sum())
    evidence: dict[str, Any] = {"higher": groups[high], "lower": groups[low], "gap_change": total}
    said = []
    for index, name in enumerate(NAMES):
        ends, value = moved.interval(index, CONFIDENCE), float(moved.values[index])
        evidence |= {name: value, f"{name}_low": ends[0], f"{name}_high": ends[1]}
        plural = f"{name.removesuffix('_part').replace('_', ' ')}s"
        said.append(f"{plural} carry {value:+.3f} [{ends[0]:.3f}, {ends[1]:.3f}]")
    between = f"{groups[high]} and {groups[low]}"
    sentence = f"among known outcomes the gap between {between} changed by {total:+.3f}: {', '.join(said)}"
    return GapChange(sentence, evidence)
