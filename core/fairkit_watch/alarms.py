"""What is alarming in the counts: a rule that fails, a recent change, other shares of groups, days without data.

Everything here is a function of the counts and of the day of the look, so that it is the same whatever the order
in which the data came. Which alarms were raised before is in the log (see `watch`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.support.records import record_of
from fairkit_watch.detectors import Detector, locate
from fairkit_watch.gap_changes import gap_change
from fairkit_watch.judging import Judge, Path  # noqa: TC001
from fairkit_watch.settings import WINDOWS_A_YEAR
from fairkit_watch.streams import Streams, streams_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_watch.questions import Question
    from fairkit_watch.totals import Daily, Split

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
    kept = path.high <= limit if question.rule.upper else path.low >= limit
    found = np.flatnonzero(kept[1:])
    return start + 1 + int(found[0]) if found.size else None


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
    after = [data.days[min(began + place + 1, t)] for place in (best, first, last)]
    known = streams.information[began + best + 1 : t + 1, stream]
    recent = streams.values[began + best + 1 : t + 1, stream]
    seen = known > 0
    mean = float((recent[seen] * known[seen]).sum() / known[seen].sum()) if seen.any() else None
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
    told = gap_change(split.groups, before, since)
    if told is None:
        return alarm
    return replace(alarm, text=f"{alarm.text}; {told.sentence}", evidence={**alarm.evidence, "parts": told.evidence})


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


def _weekly(judge: Judge, split: Split, name: str, weeks: Sequence[tuple[int, int]], alpha: float) -> tuple[Path, Path]:
    """Return the shares of each week but the first, and of all days before it, shape [W - 1, G]."""
    rows = split.parts["d"]
    cumulated = rows.cumsum(axis=0)
    starts, stops = (np.array([week[i] for week in weeks[1:]], dtype=np.intp) for i in (0, 1))
    former = cumulated[starts - 1]
    return judge.shares(split, {"d": cumulated[stops - 1] - former}, name, alpha), judge.shares(
        split, {"d": former}, name, alpha
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
